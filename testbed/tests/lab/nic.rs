//! Cards and cables of a running lab, on every QEMU.

use std::{
    io::{BufRead, BufReader, Read},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{PAIR, World, eventually, qemus, signal};

/// Counters of the interrupts of one card, by reason.
fn reasons(world: &World, nic: &str) -> Value {
    world.json(&["nic", "stats", nic])[0]["interrupts"]["by_reason"].clone()
}

fn count(reasons: &Value, reason: &str) -> u64 {
    reasons[reason].as_u64().unwrap_or(0)
}

/// Waits until interrupts of this reason are decided, and then no others for a while.
fn waits_for_only(world: &World, nic: &str, reason: &str) {
    let mut before = reasons(world, nic);
    eventually(&format!("only interrupts for {reason} at {nic}"), || {
        std::thread::sleep(Duration::from_millis(300));
        let now = reasons(world, nic);
        let grown = |name: &str| count(&now, name) - count(&before, name);
        let others: u64 = now
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| *name != reason)
            .map(|name| grown(name))
            .sum();
        let done = grown(reason) > 10 && others == 0;
        before = now;
        done
    });
}

#[test]
fn a_strategy_switched_from_the_host_or_inside_the_guest_takes_effect_on_running_traffic() {
    for qemu in qemus() {
        let world = World::new(qemu);
        world.up(PAIR);
        let mac = world.json(&["nic", "info", "n2"])[0]["mac"]
            .as_str()
            .unwrap()
            .to_owned();
        let mut server = world.spawn(&["exec", "-n", "n2", "--", "mxoe-gen", "serve"]);
        let endless = [
            "exec", "-n", "n1", "--", "mxoe-gen", "small", "--peer", &mac, "--count", "10000000",
        ];
        let mut traffic = world.spawn(&endless);

        waits_for_only(&world, "n2", "timeout");
        world.ok(&["nic", "coalesce", "n2", "open-mx"]);
        waits_for_only(&world, "n2", "mark");
        world.guest("n2", "nicctl coalesce disabled");
        waits_for_only(&world, "n2", "every-packet");
        world.ok(&["nic", "coalesce", "n2.eth0", "timeout", "--delay", "200us"]);
        waits_for_only(&world, "n2", "timeout");
        world.guest("n2", "nicctl coalesce open-mx --delay-us 500");
        waits_for_only(&world, "n2", "mark");
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
            traffic.try_wait().unwrap().is_none() && server.try_wait().unwrap().is_none(),
            "traffic never stopped"
        );
        for child in [&mut traffic, &mut server] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// What a guest saw of a row of numbers.
struct Row {
    seen: u64,
    lost: u64,
    repeated: u64,
}

impl Row {
    fn of(numbers: impl Iterator<Item = u64>) -> Self {
        let numbers: Vec<_> = numbers.collect();
        let distinct: std::collections::BTreeSet<_> = numbers.iter().copied().collect();
        let span = match (distinct.first(), distinct.last()) {
            (Some(first), Some(last)) => last - first + 1,
            _ => 0,
        };
        let seen = distinct.len() as u64;
        Self {
            seen,
            lost: span - seen,
            repeated: numbers.len() as u64 - seen,
        }
    }
}

fn json_of(output: &std::process::Output) -> Value {
    let (text, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {said}"))
}

#[test]
fn traffic_and_settings_survive_a_killed_vnicd() {
    for qemu in qemus() {
        let world = World::new(qemu.clone());
        world.up(PAIR);
        // Settings of three origins: the command line, a cable, and a guest's own.
        world.ok(&["nic", "coalesce", "n1", "stream", "--delay", "300us", "--frames", "9"]);
        world.ok(&["link", "set", "n1", "--delay", "2ms", "--direction", "to-guest"]);
        world.guest("n2", "nicctl coalesce open-mx --delay-us 700");
        // Longer than the supervisor takes to read back what a guest has set.
        std::thread::sleep(Duration::from_secs(1));
        let settings = || {
            let cards = world.json(&["nic", "coalesce", "n1"]);
            (
                cards,
                world.json(&["nic", "coalesce", "n2"]),
                world.json(&["link", "set", "n1"]),
            )
        };
        let before = settings();

        // Numbered frames both ways (ping), and towards a guest that only receives meanwhile (a stream of messages).
        let mac = world.json(&["nic", "info", "n2"])[0]["mac"]
            .as_str()
            .unwrap()
            .to_owned();
        let mut receiver = world.spawn(&["exec", "-n", "n2", "--", "mxoe-gen", "serve", "--json"]);
        let mut said = BufReader::new(receiver.stdout.take().unwrap());
        said.read_line(&mut String::new()).unwrap();
        let stream = [
            "exec",
            "-n",
            "n1",
            "--",
            "mxoe-gen",
            "stream",
            "--peer",
            &mac,
            "--seconds",
            "8",
            "--json",
        ];
        let sender = world.spawn(&stream);
        let ping = world.spawn(&["exec", "-n", "n1", "--", "ping", "-i", "0.05", "n2"]);
        std::thread::sleep(Duration::from_secs(2));

        let old = world.pid("vnicd_pid");
        signal(old, Signal::KILL);
        eventually("a new vnicd", || {
            world.json(&["ps"])[0]["vnicd_pid"]
                .as_i64()
                .is_some_and(|pid| pid != i64::from(old))
        });
        let back = Instant::now();
        let frames = |nic: &str| world.json(&["nic", "stats", nic])[0]["rx"]["frames"].as_u64().unwrap();
        // A new vnicd counts from zero: frames towards both guests are frames after its start.
        eventually("frames towards both guests", || frames("n1") > 3 && frames("n2") > 3);
        let resumed = back.elapsed();
        let sent = json_of(&sender.wait_with_output().unwrap());
        signal(ping.id() as i32, Signal::INT);
        let ping = String::from_utf8(ping.wait_with_output().unwrap().stdout).unwrap();
        signal(receiver.id() as i32, Signal::INT);
        let mut report = String::new();
        said.read_to_string(&mut report).unwrap();
        receiver.wait().unwrap();
        let report: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"));

        let qemu = world.json(&["ps"])[0]["qemu"].clone();
        let replies = ping
            .lines()
            .filter_map(|line| line.split_once("seq=")?.1.split(' ').next()?.parse().ok());
        let both = Row::of(replies);
        println!(
            "QEMU {qemu}, both ways: {} seen, {} lost, {} repeated",
            both.seen, both.lost, both.repeated
        );
        let (all, received) = (
            sent["messages_sent"].as_u64().unwrap(),
            sent["messages_received"].as_u64().unwrap(),
        );
        let (lost, repeated) = (all.saturating_sub(received), &report["duplicates"]);
        println!("QEMU {qemu}, one way: {received} of {all} seen, {lost} lost, {repeated} repeated");
        assert!(both.seen > 40, "ping went on");
        assert!(received > 1000, "the stream went on");
        println!(
            "QEMU {qemu}: traffic again {:.2} s after the new vnicd answered",
            resumed.as_secs_f64()
        );
        // The slower QEMU looks for its backend once a second; one more second is allowed. A machine that does other
        // work needs some time to ask, too.
        assert!(resumed < Duration::from_secs(5), "{resumed:?}");
        assert_eq!(settings(), before);
        assert_eq!(world.json(&["ps"])[0]["vnicd_restarts"], 1);
    }
}

#[test]
fn a_pulled_cable_is_seen_by_the_guest_and_stays_pulled_over_restarts() {
    for qemu in qemus() {
        let world = World::new(qemu);
        world.up(PAIR);
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
        world.ok(&["link", "set", "n2", "up"]);
        eventually("a carrier", || carrier("n2") == "1");
        world.ok(&["exec", "n1", "--", "ping", "-c", "2", "-i", "0.1", "n2"]);
    }
}

#[test]
fn every_frame_is_in_the_capture_and_tshark_can_read_it() {
    let world = World::new(None);
    world.up(PAIR);
    world.ok(&["nic", "coalesce", "n1", "open-mx"]);
    let mac = world.json(&["nic", "info", "n2"])[0]["mac"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut server = world.spawn(&["exec", "-n", "n2", "--", "mxoe-gen", "serve"]);
    let capture = world.spawn(&["capture", "--write", "all.pcapng"]);
    let file = world.dir.path().join("all.pcapng");
    eventually("the file has begun", || {
        std::fs::metadata(&file).is_ok_and(|found| found.len() > 0)
    });
    world.guest("n1", "ping -c 3 -i 0.1 n2");
    world.guest("n1", &format!("mxoe-gen small --peer {mac} --count 50"));
    world.guest("n1", &format!("mxoe-gen medium --peer {mac} --count 20"));
    signal(server.id() as i32, Signal::INT);
    server.wait().unwrap();
    signal(capture.id() as i32, Signal::INT);
    let output = capture.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let lua = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("dissector/weft.lua");
    let tshark = |arguments: &[&str]| {
        let output = std::process::Command::new("tshark")
            .arg("-X")
            .arg(format!("lua_script:{}", lua.display()))
            .args(["-r", file.to_str().unwrap()])
            .args(arguments)
            .output()
            .expect("tshark is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(tshark(&["-Y", "_ws.malformed"]), "");
    assert!(tshark(&["-Y", "icmp"]).lines().count() >= 6);
    let protocols = tshark(&["-q", "-z", "io,phs"]);
    assert!(protocols.contains("mxoe"), "{protocols}");
    let comments = tshark(&[
        "-Y",
        "frame.comment contains \"mark\"",
        "-T",
        "fields",
        "-e",
        "frame.comment",
    ]);
    assert!(comments.lines().count() >= 50, "{comments}");
}
