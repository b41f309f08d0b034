//! Tests of the polling watchdog and the card's timers with a kernel's own driver, whose progress the card knows
//! approximately. The tests with an exact driver are in `vnic` (`tests/watchdog.rs`).

use std::time::Duration;

use serde_json::Value;
use testbed::qemu::qmp::Qmp;

use crate::{
    nic,
    support::{Lines, PAIR, World, eventually, qemus},
};

/// Number of echo requests in each part of the test, and the time between them in seconds.
const PINGS: u64 = 40;
const PACE: &str = "0.02";

fn reason(stats: &Value, name: &str) -> u64 {
    stats["interrupts"]["by_reason"][name].as_u64().unwrap()
}

/// Pings n2 and returns the card's counters before and after.
fn pinged(world: &World) -> [Value; 2] {
    let before = world.stats("n2");
    let said = world.guest("n1", &format!("ping -c {PINGS} -i {PACE} -W 10 n2"));
    assert!(said.contains(&format!("{PINGS} packets received")), "{said}");
    [before, world.stats("n2")]
}

#[test]
fn m_bv8_m_bv9_m_bv10_a_guest_is_interrupted_by_its_watchdog_where_it_does_not_poll_and_rung_by_its_timers_and_m_gf7_m_gf8()
 {
    for qemu in qemus() {
        let world = World::new(qemu);
        world.up(PAIR);
        world.introduce("n1", "n2");
        world.introduce("n2", "n1");
        let [before, after] = pinged(&world);
        let grown = |name| reason(&after, name) - reason(&before, name);
        assert!(grown("every-packet") >= PINGS && grown("watchdog") == 0, "{after}");

        // The watchdog is set on the host, then inside the guest: each sees the other's setting.
        let set = world.json(&["nic", "watchdog", "n2", "100us"]);
        assert_eq!(
            (&set[0]["nic"], &set[0]["watchdog_ns"]),
            (&"n2.eth0".into(), &100_000.into())
        );
        let said = world.guest("n2", "nicctl watchdog");
        assert!(said.starts_with("all queues: watchdog after 100 us"), "{said}");
        for delay in ["100us", "1ms"] {
            world.guest("n2", &format!("nicctl watchdog {delay}"));
            let [before, after] = pinged(&world);
            let grown = |name| reason(&after, name) - reason(&before, name);
            let watchdog =
                |name: &str| after["watchdog"][name].as_u64().unwrap() - before["watchdog"][name].as_u64().unwrap();
            println!(
                "{delay}: {PINGS} pings, fired {}, cancelled {}, progress {}, disabled {}",
                watchdog("fired"),
                watchdog("cancelled"),
                watchdog("restarted_progress"),
                watchdog("restarted_disabled")
            );
            // The interval of the pings is longer than the delay: there is one check for each, and more where the guest
            // was slow to answer.
            assert!(watchdog("fired") >= PINGS / 2, "{after}");
            assert_eq!((grown("every-packet"), grown("timeout")), (0, 0));
            assert_eq!(grown("watchdog"), watchdog("fired"), "each is an interrupt decided");
            let signalled = |stats: &Value| stats["interrupts"]["signalled"].as_u64().unwrap();
            assert!(signalled(&after) - signalled(&before) >= PINGS / 2);
        }
        world.guest("n2", "nicctl watchdog off");
        assert_eq!(world.json(&["nic", "watchdog", "n2"])[0]["watchdog_ns"], 0);
        let [before, after] = pinged(&world);
        assert!(reason(&after, "every-packet") >= reason(&before, "every-packet") + PINGS);
        assert_eq!(reason(&after, "watchdog"), reason(&before, "watchdog"));

        // A delay that would cost other cards too much is refused, in the guest and on the host.
        let refused = world.run(&["exec", "-n", "n2", "--", "nicctl", "watchdog", "10us"]);
        let sentence = String::from_utf8(refused.stderr).unwrap();
        assert!(sentence.contains("is at least 50 us"), "{sentence}");
        assert!(!world.run(&["nic", "watchdog", "n2", "10us"]).status.success());

        // A guest that waits for data by polling reads the card's ring all the time, and its interrupts stay on.
        world.guest("n2", "nicctl watchdog 1ms");
        let mut fired = [0; 2];
        for (fired, busy_us) in fired.iter_mut().zip([0, 100_000]) {
            let sysctl = "/proc/sys/net/core/busy_";
            world.guest(
                "n2",
                &format!("for name in read poll; do echo {busy_us} > {sysctl}$name; done; iperf3 -s -1 -D"),
            );
            let before = world.stats("n2")["watchdog"].clone();
            eventually("the server listens", || {
                let client = [
                    "exec", "-n", "n1", "--", "iperf3", "-c", "n2", "-b", "1M", "-l", "1000", "-t", "1",
                ];
                world.run(&client).status.success()
            });
            let after = world.stats("n2");
            let grown = |name: &str| after["watchdog"][name].as_u64().unwrap() - before[name].as_u64().unwrap();
            *fired = grown("fired") * 100 / grown("started");
            println!(
                "busy polling for {busy_us} us: {} started, {} fired",
                grown("started"),
                grown("fired")
            );
        }
        // The shares are of a hundred timers. The guest polls only while the machine lets it run.
        assert!(fired[0] > 60 && fired[1] < fired[0] / 2, "{fired:?}");
        assert!(world.stats("n2")["interrupts"]["polled"].as_u64().unwrap() > 0);
        world.guest(
            "n2",
            "for name in read poll; do echo 0 > /proc/sys/net/core/busy_$name; done",
        );

        // This is M-BV10 on this lab: doorbells come, with separate interrupts, and their lateness is counted.
        let said = world.guest("n2", "nicctl timer wait 7 5ms --rings 3");
        assert_eq!(
            said.lines()
                .filter(|line| line.starts_with("timer 7 rang after"))
                .count(),
            3,
            "{said}"
        );
        let timers = &world.stats("n2")["timers"];
        assert_eq!((&timers["rung_once"], &timers["armed_now"]), (&3.into(), &0.into()));
        assert_eq!(reason(&world.stats("n2"), "clock"), 3);
        // Without a watchdog this card interrupts for every packet, including a doorbell's.
        world.guest("n2", "nicctl watchdog off");
        let said = world.guest("n2", "nicctl timer wait 8 20ms --clock --rings 3");
        println!("{said}");
        assert!(world.stats("n2")["timers"]["clock_rung"].as_u64().unwrap() >= 3);
        // A guest that is paused has its timers when it continues.
        let mut timer = Lines::of(world.spawn(&["exec", "-n", "n2", "--", "nicctl", "timer", "wait", "9", "2s"]));
        let armed = || world.stats("n2")["timers"]["armed_now"].as_u64();
        eventually("the timer", || armed() == Some(1));
        let mut monitor = Qmp::connect(&world.labs().join("pair/n2.qmp"), Duration::from_secs(10)).expect("a monitor");
        monitor.stop().expect("QMP stop");
        eventually("the pause", || armed() == Some(0));
        monitor.cont().expect("QMP cont");
        timer.wait();
        let rang = timer.so_far();
        assert!(rang[0].1.starts_with("timer 9 rang after"), "{rang:?}");
        nic::m_gf7_adaptive_moderation_interrupts_for_each_packet_when_quiet_and_seldom_under_a_flood(&world);
        nic::m_gf8_marked_frames_interrupt_at_once_while_a_flood_has_made_the_delay_long(&world);
    }
}
