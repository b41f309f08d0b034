//! Tests of `kill -9` of `vnicd` under the traffic of real guests: the traffic continues by itself, in time, with the
//! settings as before. They run on every QEMU.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Lines, World, eventually, qemus, signal};

/// In this lab n1 and n3 talk to each other, and n2 only listens.
const TRIO: &str = "name = \"trio\"\n[[node]]\nname = \"n1\"\n[[node]]\nname = \"n2\"\n[[node]]\nname = \"n3\"\n";

/// Duration in seconds of the frames in one direction: longer than the test watches them.
const SENDING_S: &str = "9";

/// Longest pause that guests may see: a new `vnicd` starts and connects to their QEMUs.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Time after the kill within which its pause begins; a later pause has another reason, as guests and their network
/// share two processors.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);

/// Parses numbers in lines (of ping: those of its answers), with their times.
fn numbers(lines: &Lines) -> Vec<(Instant, u64)> {
    let number = |line: &str| match line.split_once("seq=") {
        Some((_, rest)) => rest.split(' ').next()?.parse().ok(),
        None => line.trim().parse().ok(),
    };
    let numbered = |(at, line): &(Instant, String)| Some((*at, number(line)?));
    lines.so_far().iter().filter_map(numbered).collect()
}

/// Returns for how long at most numbers did not grow from `since` on, and by how much they have grown since then.
fn longest_pause(numbers: &[(Instant, u64)], since: Instant) -> (Duration, u64) {
    let mut highest = 0;
    let mut grown = numbers.iter().copied().filter(|(_, number)| {
        let grows = *number > highest;
        highest = highest.max(*number);
        grows
    });
    let Some((_, mut first)) = grown.next() else {
        return (Duration::ZERO, 0);
    };
    let (mut last, mut longest, mut reached) = (since, Duration::ZERO, 0);
    for (at, number) in grown {
        if at < since {
            first = number;
        } else {
            if last - since < BEGINS_WITHIN {
                longest = longest.max(at - last);
            }
            (last, reached) = (at, number - first);
        }
    }
    (longest, reached)
}

#[test]
fn traffic_and_settings_survive_a_killed_vnicd() {
    for qemu in qemus() {
        let world = World::new(qemu);
        world.up(TRIO);
        let version = world.json(&["ps"])[0]["qemu"].as_str().unwrap().to_owned();
        // The settings have three origins: the command line, cables and their faults, and a guest's own. The fault is
        // in the direction from the guest that sends nothing, where it costs no frame that is counted here.
        world.ok(&["nic", "coalesce", "n1", "stream", "--delay", "300us", "--frames", "9"]);
        world.ok(&["link", "set", "n1", "--delay", "2ms", "--direction", "to-guest"]);
        world.ok(&[
            "link",
            "set",
            "n2",
            "--loss",
            "3%",
            "--seed",
            "7",
            "--direction",
            "from-guest",
        ]);
        world.guest("n2", "nicctl coalesce open-mx --delay-us 700");
        let settings =
            || ["n1", "n2", "n3"].map(|nic| (world.json(&["nic", "coalesce", nic]), world.json(&["link", "set", nic])));
        let before = settings();
        assert_eq!(
            (&before[1].0[0]["strategy"], &before[1].0[0]["delay_ns"]),
            (&"open-mx".into(), &700_000.into())
        );

        // Numbered frames go in both directions, and numbered frames to a guest that sends nothing at all meanwhile. A
        // guest forgets its neighbours with its carrier, and asks for them once a second: the test judges when frames
        // are carried again.
        for (node, other) in [("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1")] {
            world.introduce(node, other);
        }
        world.iperf3_server("n2", "-1 -J --logfile /tmp/report");
        let sender = [
            "exec", "-n", "n1", "--", "iperf3", "-c", "n2", "-u", "-b", "320k", "-l", "80", "-t", SENDING_S,
        ];
        let mut sender = Lines::of(world.spawn(&sender));
        let statistics = "/sys/class/net/eth0/statistics";
        let count = format!("while read n <{statistics}/rx_packets; do echo $n; usleep 10000; done");
        let counts = Lines::of(world.spawn(&["exec", "-n", "n2", "--", "sh", "-c", &count]));
        let mut pings = Lines::of(world.spawn(&["exec", "-n", "n1", "--", "ping", "-i", "0.03", "n3"]));
        // These are so many that they take longer than the supervisor needs to read back what a guest has set.
        eventually("numbered frames", || {
            let received: Vec<_> = numbers(&counts).iter().map(|(_, count)| *count).collect();
            let grown = received.last().zip(received.first()).map(|(last, first)| last - first);
            grown.is_some_and(|grown| grown > 500) && numbers(&pings).len() > 40
        });
        let sent_by_n2 = || world.guest("n2", &format!("cat {statistics}/tx_packets"));
        let silent = sent_by_n2();

        let vnicd = world.pid("vnicd_pid");
        let killed = Instant::now();
        signal(vnicd, Signal::KILL);
        let since_then = |lines: &Lines| longest_pause(&numbers(lines), killed);
        eventually("frames again", || {
            since_then(&counts).1 > 700 && since_then(&pings).1 > 50
        });
        assert_eq!(sent_by_n2(), silent, "n2 only received, all the time");

        for (direction, lines) in [("one way", &counts), ("both ways", &pings)] {
            let (pause, _) = since_then(lines);
            println!("QEMU {version}, {direction}: a pause of {:.3} s", pause.as_secs_f64());
            assert!(
                pause <= PAUSE_MAX,
                "QEMU {version}, {direction}: {pause:?}, {PAUSE_MAX:?} are allowed"
            );
        }
        assert_eq!(settings(), before);
        assert_eq!(world.json(&["ps"])[0]["vnicd_restarts"], 1);

        pings.interrupt();
        let answers = numbers(&pings);
        let distinct: BTreeSet<_> = answers.iter().map(|(_, number)| *number).collect();
        let span = distinct.last().unwrap() - distinct.first().unwrap() + 1;
        println!(
            "QEMU {version}, both ways: {} answers, {} lost, {} repeated",
            answers.len(),
            span - distinct.len() as u64,
            answers.len() - distinct.len()
        );
        sender.wait();
        let said = sender.so_far();
        assert!(said.iter().any(|(_, line)| line.contains("receiver")), "{said:?}");
        eventually("a report", || !world.guest("n2", "cat /tmp/report").is_empty());
        let report: Value = serde_json::from_str(&world.guest("n2", "cat /tmp/report")).unwrap();
        let of = |what: &str| report["end"]["sum"][what].as_u64();
        let disordered = report["end"]["streams"][0]["udp"]["out_of_order"].as_u64();
        println!(
            "QEMU {version}, one way: {:?} frames, {:?} lost, {disordered:?} repeated or out of order",
            of("packets"),
            of("lost_packets")
        );
        assert!(of("packets").is_some_and(|packets| packets > 1000), "{report}");
    }
}
