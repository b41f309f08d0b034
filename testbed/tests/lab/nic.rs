//! Tests of cards and cables of a running lab, on every QEMU.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Lines, PAIR, PATIENCE, World, eventually, qemus, signal};

/// Time that a missing monitor would be waited for.
const MONITOR_PATIENCE: Duration = Duration::from_secs(30);

/// Time for which something is watched that must not change: QEMU's reaction to a new `vnicd` takes milliseconds.
const STILL: Duration = Duration::from_secs(2);

/// Returns the counters of the interrupts of one card, by reason.
fn reasons(world: &World, nic: &str) -> Value {
    world.json(&["nic", "stats", nic])[0]["interrupts"]["by_reason"].clone()
}

fn count(reasons: &Value, reason: &str) -> u64 {
    reasons[reason].as_u64().unwrap_or(0)
}

/// Waits until interrupts of this reason are decided, and no others between them. This does not depend on the machine's
/// speed, since it counts how many came in a row.
fn waits_for_only(world: &World, nic: &str, reason: &str) {
    let mut begin = reasons(world, nic);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = reasons(world, nic);
        let grown = |name: &str| count(&now, name) - count(&begin, name);
        let mut names = now.as_object().unwrap().keys();
        let of_others = names.any(|name| name != reason && grown(name) > 0);
        if !of_others && grown(reason) > 10 {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "not only interrupts for {reason} at {nic}: {begin} became {now}"
        );
        if of_others {
            begin = now;
        }
    }
}

#[test]
fn strategies_are_switched_under_traffic_and_pulled_cables_are_seen_and_stay_pulled() {
    for qemu in qemus() {
        let world = World::new(qemu);
        world.up(PAIR);
        a_strategy_switched_from_the_host_or_inside_the_guest_takes_effect_on_running_traffic(&world);
        a_pulled_cable_is_seen_by_the_guest_and_stays_pulled_over_restarts(&world);
        a_cable_of_a_node_that_is_off_is_pulled_at_once_and_found_pulled_when_it_boots(&world);
    }
}

fn a_strategy_switched_from_the_host_or_inside_the_guest_takes_effect_on_running_traffic(world: &World) {
    let mac = world.json(&["nic", "info", "n2"])[0]["mac"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut server = world.perf_server("n2");
    let endless = [
        "exec", "-n", "n1", "--", "omx_perf", "-w", "-d", &mac, "-S", "1", "-E", "2", "-N", "10000000",
    ];
    let mut traffic = world.spawn(&endless);

    waits_for_only(world, "n2", "every-packet");
    world.ok(&["nic", "coalesce", "n2", "open-mx"]);
    waits_for_only(world, "n2", "mark");
    world.guest("n2", "nicctl coalesce disabled");
    waits_for_only(world, "n2", "every-packet");
    world.ok(&["nic", "coalesce", "n2.eth0", "timeout", "--delay", "200us"]);
    waits_for_only(world, "n2", "timeout");
    world.guest("n2", "nicctl coalesce open-mx --delay-us 500");
    waits_for_only(world, "n2", "mark");
    // The card knows which strategies there are, and tells the host and the guest.
    let known = "disabled, timeout, open-mx, stream, adaptive";
    let unknown = world.run(&["nic", "coalesce", "n2", "every-third"]);
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(1), "{said}");
    assert!(said.contains("\"every-third\"") && said.contains(known), "{said}");
    let unknown = world.run(&["exec", "n2", "--", "nicctl", "coalesce", "every-third"]);
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(said.contains("\"every-third\"") && said.contains(known), "{said}");
    let now = world.json(&["nic", "coalesce", "n2"]);
    assert_eq!(
        (now[0]["strategy"].as_str(), now[0]["delay_ns"].as_u64()),
        (Some("open-mx"), Some(500_000))
    );

    let all = &world.json(&["nic", "stats", "n2"])[0]["interrupts"];
    let sum: u64 = all["by_reason"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_u64)
        .sum();
    assert_eq!(all["decided"].as_u64(), Some(sum), "the reasons add up to the total");
    assert!(
        traffic.try_wait().unwrap().is_none() && server.is_running(),
        "traffic never stopped"
    );
    traffic.kill().unwrap();
    traffic.wait().unwrap();
    server.interrupt();
}

fn a_pulled_cable_is_seen_by_the_guest_and_stays_pulled_over_restarts(world: &World) {
    let carrier = |node: &str| world.guest(node, "cat /sys/class/net/eth0/carrier").trim().to_owned();
    assert_eq!(carrier("n2"), "1");
    world.ok(&["link", "set", "n2", "down"]);
    eventually("no carrier", || carrier("n2") == "0");
    assert_eq!(
        world
            .run(&["exec", "n1", "--", "ping", "-c", "1", "-W", "1", "n2"])
            .status
            .code(),
        Some(1)
    );
    world.ok(&["restart", "n2"]);
    world.ok(&["wait", "n2"]);
    assert_eq!(carrier("n2"), "0");

    signal(world.pid("vnicd_pid"), Signal::KILL);
    eventually("a new vnicd", || world.json(&["ps"])[0]["vnicd_restarts"] == 1);
    eventually("both cards have found it", || {
        ["n1", "n2"]
            .iter()
            .all(|nic| world.json(&["nic", "info", nic])[0]["connected"] == true)
    });
    eventually("n1 has its carrier back", || carrier("n1") == "1");
    eventually("n2 has none", || carrier("n2") == "0");
    std::thread::sleep(STILL);
    assert_eq!(carrier("n2"), "0", "and that is not changed by what comes later");
    assert_eq!(carrier("n1"), "1");

    world.ok(&["link", "set", "n2", "up"]);
    eventually("a carrier", || carrier("n2") == "1");
    world.ok(&["exec", "n1", "--", "ping", "-c", "2", "-i", "0.1", "n2"]);
}

fn a_cable_of_a_node_that_is_off_is_pulled_at_once_and_found_pulled_when_it_boots(world: &World) {
    world.run(&["exec", "n2", "--", "poweroff", "-f"]);
    eventually("n2 is stopped", || world.json(&["ps"])[1]["phase"] == "stopped");
    let began = Instant::now();
    world.ok(&["link", "set", "n2", "down"]);
    assert!(began.elapsed() < MONITOR_PATIENCE, "no time was spent on a monitor");
    world.ok(&["restart", "n2"]);
    world.ok(&["wait", "n2"]);
    assert_eq!(world.guest("n2", "cat /sys/class/net/eth0/carrier").trim(), "0");
}

/// M-GF7 in a guest: an interrupt per packet while it is quiet, few under a flood, and quiet again behind it.
pub fn m_gf7_adaptive_moderation_interrupts_for_each_packet_when_quiet_and_seldom_under_a_flood(world: &World) {
    world.guest("n2", "nicctl coalesce adaptive --delay-us 1000");
    world.iperf3_server("n2", "-1");
    let counted = || {
        let stats = world.stats("n2");
        let frames = stats["rx"]["frames"].as_u64().unwrap();
        let decided = stats["interrupts"]["decided"].as_u64().unwrap();
        (frames, decided, count(&stats["interrupts"]["by_reason"], "adaptive"))
    };
    let state = || world.json(&["nic", "adaptive", "n2"])[0].clone();
    let ping = || world.guest("n1", "ping -q -c 20 -i 0.05 n2");

    let before = counted();
    ping();
    let after = counted();
    let (frames, decided) = (after.0 - before.0, after.1 - before.1);
    assert!(frames >= 20, "{frames} frames");
    assert_eq!(after.2 - before.2, decided, "all for one reason");
    // A frame or two may be taken together with another one.
    assert!(
        decided * 10 >= frames * 9,
        "{decided} interrupts for {frames} quiet frames"
    );
    assert_eq!(state()["delay_ns"], 0);

    let before = counted();
    let began = Instant::now();
    world.guest("n1", "iperf3 -c n2 -u -b 0 -l 64 -t 2");
    let lasted = began.elapsed();
    let after = counted();
    let (frames, decided) = (after.0 - before.0, after.1 - before.1);
    // There is one interrupt for eight frames; but where the host is slow and the flood therefore thin, at least one
    // per longest delay is needed, and some more while the delay grows.
    let most = (frames / 8).max(lasted.as_millis() as u64 * 3 / 2);
    assert!(
        decided <= most && decided < frames / 2,
        "{decided} interrupts for a flood of {frames} frames in {lasted:?}"
    );
    let flooded = state();
    assert!(
        flooded["longer"].as_u64().unwrap() >= 4,
        "the delay has grown: {flooded}"
    );
    assert!(flooded["longest_ns"] == 1_000_000, "{flooded}");

    ping();
    assert_eq!(state()["delay_ns"], 0);
    let inside: Value = serde_json::from_str(&world.guest("n2", "nicctl --json adaptive")).unwrap();
    assert_eq!(
        (&inside["strategy"], &inside["delay_ns"], &inside["longest_ns"]),
        (&"adaptive".into(), &0.into(), &1_000_000.into())
    );
    assert!(inside["shorter"].as_u64().unwrap() > 0, "{inside}");
}

/// M-GF8 in a guest: a marked frame interrupts at once even while a flood has made the delay long.
pub fn m_gf8_marked_frames_interrupt_at_once_while_a_flood_has_made_the_delay_long(world: &World) {
    const MESSAGES: u64 = 50;
    let _server = world.perf_server("n2");
    world.guest("n2", "nicctl coalesce adaptive-open-mx --delay-us 1000");
    world.iperf3_server("n2", "-1");
    let by_reason = || {
        let stats = world.stats("n2");
        ["mark", "adaptive"].map(|reason| count(&stats["interrupts"]["by_reason"], reason))
    };
    let delay_ns = || world.json(&["nic", "adaptive", "n2"])[0]["delay_ns"].as_u64().unwrap();
    let before = by_reason();
    let mut flood = Lines::of(world.spawn(&[
        "exec", "-n", "n1", "--", "iperf3", "-c", "n2", "-u", "-b", "0", "-t", "600",
    ]));
    eventually("a long delay", || delay_ns() >= 500_000);
    world.guest(
        "n1",
        &format!("omx_perf -w -P 0 -d n2:0 -S 16 -E 17 -N {MESSAGES} -W 0"),
    );
    let after = by_reason();
    // Processors that a guest's programs share slow the flood down meanwhile; it continues.
    eventually("a long delay again", || delay_ns() >= 500_000);
    flood.interrupt();
    let [marked, others] = [0, 1].map(|reason| after[reason] - before[reason]);
    assert!(marked >= MESSAGES && others > 0, "{before:?} {after:?}");
}
