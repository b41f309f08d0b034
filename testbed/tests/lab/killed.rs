//! `kill -9` of `vnicd` under the traffic of real guests: it goes on by itself, in time, with the settings as before. On
//! every QEMU.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Lines, PATIENCE, World, eventually, qemus, signal};

/// n1 and n3 talk to each other, n2 only listens.
const TRIO: &str = "name = \"trio\"\n[[node]]\nname = \"n1\"\n[[node]]\nname = \"n2\"\n[[node]]\nname = \"n3\"\n";

/// For how long one-way frames are sent: longer than the test looks at them.
const SENDING_S: &str = "9";

/// What is left of a guest's pause once its QEMU looks for its backend again.
const AFTER_RECONNECT: Duration = Duration::from_secs(1);

/// How often QEMU looks for a backend that went away (`weft check` says the same).
fn reconnect_interval(version: &str) -> Duration {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap());
    if (parts.next().unwrap(), parts.next().unwrap()) >= (9, 2) {
        Duration::from_millis(500)
    } else {
        Duration::from_secs(1)
    }
}

/// Which socket file it is: a new one may have the number of the old one.
fn identity(path: &Path) -> Option<(u64, i64, i64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec()))
}

/// Waits until one of these sockets is a new one; when that was.
fn bound_anew(sockets: &[PathBuf], old: &[Option<(u64, i64, i64)>]) -> Instant {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let new = sockets.iter().zip(old).any(|(path, old)| {
            let now = identity(path);
            now.is_some() && now != *old
        });
        if new {
            return Instant::now();
        }
        assert!(Instant::now() < deadline, "no new vnicd");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Numbers in lines (of ping: those of its answers), with their times.
fn numbers(lines: &Lines) -> Vec<(Instant, u64)> {
    let number = |line: &str| match line.split_once("seq=") {
        Some((_, rest)) => rest.split(' ').next()?.parse().ok(),
        None => line.trim().parse().ok(),
    };
    let numbered = |(at, line): &(Instant, String)| Some((*at, number(line)?));
    lines.so_far().iter().filter_map(numbered).collect()
}

/// When the longest time in which a number did not grow was over; frames come every few milliseconds, so that is the time
/// without `vnicd`.
fn end_of_longest_pause(numbers: &[(Instant, u64)]) -> Option<Instant> {
    let mut highest = 0;
    let mut grown = numbers.iter().copied().filter(|(_, number)| {
        let grows = *number > highest;
        highest = highest.max(*number);
        grows
    });
    let mut last = grown.next()?.0;
    let mut longest = None;
    for (at, _) in grown {
        let pause = at - last;
        if longest.is_none_or(|(longest, _)| pause > longest) {
            longest = Some((pause, at));
        }
        last = at;
    }
    longest.map(|(_, end)| end)
}

/// By how much a number has grown since then.
fn grown_since(numbers: &[(Instant, u64)], since: Instant) -> u64 {
    let first = numbers.iter().find(|(at, _)| *at > since).map(|(_, number)| *number);
    first.map_or(0, |first| numbers.last().map_or(0, |(_, last)| last - first))
}

#[test]
fn traffic_and_settings_survive_a_killed_vnicd() {
    for qemu in qemus() {
        let world = World::new(qemu);
        world.up(TRIO);
        let version = world.json(&["ps"])[0]["qemu"].as_str().unwrap().to_owned();
        // Settings of three origins: the command line, cables and their faults, and a guest's own. The fault is on the
        // way from the guest that sends nothing, where it costs no frame that is counted here.
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

        // Numbered frames both ways, and numbered frames towards a guest that sends nothing at all meanwhile.
        // A guest forgets its neighbours with its carrier, and asks for them once a second: what is judged here is when
        // frames are carried again.
        for (node, other) in [("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1")] {
            world.introduce(node, other);
        }
        world.guest("n2", "iperf3 -s -D -1 -J --logfile /tmp/report");
        let sender = [
            "exec", "-n", "n1", "--", "iperf3", "-c", "n2", "-u", "-b", "320k", "-l", "80", "-t", SENDING_S,
        ];
        let mut sender = Lines::of(world.spawn(&sender));
        let statistics = "/sys/class/net/eth0/statistics";
        let count = format!("while read n <{statistics}/rx_packets; do echo $n; usleep 10000; done");
        let counts = Lines::of(world.spawn(&["exec", "-n", "n2", "--", "sh", "-c", &count]));
        let mut pings = Lines::of(world.spawn(&["exec", "-n", "n1", "--", "ping", "-i", "0.03", "n3"]));
        // As many as take longer than the supervisor does to read back what a guest has set.
        eventually("numbered frames", || {
            let received: Vec<_> = numbers(&counts).iter().map(|(_, count)| *count).collect();
            let grown = received.last().zip(received.first()).map(|(last, first)| last - first);
            grown.is_some_and(|grown| grown > 500) && numbers(&pings).len() > 40
        });
        let sent_by_n2 = || world.guest("n2", &format!("cat {statistics}/tx_packets"));
        let silent = sent_by_n2();

        let folder = world.labs().join("trio");
        let sockets = ["n1", "n2", "n3"].map(|node| folder.join(format!("{node}.eth0.sock")));
        let old: Vec<_> = sockets.iter().map(|path| identity(path)).collect();
        assert!(old.iter().all(Option::is_some), "{sockets:?}");
        let vnicd = world.pid("vnicd_pid");
        let killed = Instant::now();
        signal(vnicd, Signal::KILL);
        let bound = bound_anew(&sockets, &old);
        let paused_until = |lines: &Lines| end_of_longest_pause(&numbers(lines)).filter(|end| *end > bound);
        eventually("frames again", || {
            let grown = |lines: &Lines| paused_until(lines).map_or(0, |end| grown_since(&numbers(lines), end));
            grown(&counts) > 500 && grown(&pings) > 40
        });
        assert_eq!(sent_by_n2(), silent, "n2 only received, all the time");

        let limit = reconnect_interval(&version) + AFTER_RECONNECT;
        for (way, lines) in [("one way", &counts), ("both ways", &pings)] {
            let resumed = paused_until(lines).expect("nothing can arrive before") - bound;
            println!(
                "QEMU {version}, {way}: again {:.2} s after the socket was bound, which was {:.2} s after the kill",
                resumed.as_secs_f64(),
                (bound - killed).as_secs_f64()
            );
            assert!(
                resumed <= limit,
                "QEMU {version}, {way}: {resumed:?}, {limit:?} are allowed"
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
