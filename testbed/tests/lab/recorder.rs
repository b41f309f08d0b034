//! Tests of cards seen from inside: one that is connected to itself, and the flight recorder.

use std::{
    fs,
    io::{BufRead, BufReader},
};

use crate::{
    support::{Lines, World, eventually},
    trace_format,
};

/// Checks M-CI1 on n1.eth1, and the flight recorders of n1's two cards; all settings are the default ones.
pub fn m_ci1_what_a_guest_sends_to_its_loopback_card_comes_back_and_is_counted_as_copies(world: &World) {
    // The frames go to an address that no station has: they come back all the same, and the guest counts them.
    world.guest(
        "n1",
        "ip link set eth1 up promisc on; ip addr add 10.9.9.1/24 dev eth1; arp -i eth1 -s 10.9.9.2 02:00:00:00:00:02; \
         ping -q -c 100 -i 0.002 -s 1400 -W 1 10.9.9.2 >/dev/null || true",
    );
    let count = |what: &str| -> u64 {
        let text = world.guest("n1", &format!("cat /sys/class/net/eth1/statistics/{what}"));
        text.trim().parse().unwrap()
    };
    let (sent, received) = (count("tx_packets"), count("rx_packets"));
    let card = world.stats("n1.eth1");
    assert!(sent >= 100 && received >= 100, "{card}");
    let copies = &card["copy_engine"];
    assert_eq!(copies["submitted"], copies["completed"], "{card}");
    assert_eq!(copies["completed"], card["rx"]["frames"], "{card}");
    assert!(copies["completed"].as_u64() >= Some(100), "{card}");
    assert_eq!(copies["moved_bytes"], card["rx"]["bytes"], "{card}");

    let inside = world.guest("n1", "nicctl -i eth1 --json copy-engine");
    let inside: serde_json::Value = serde_json::from_str(&inside).unwrap();
    assert!(inside["completed"].as_u64() >= Some(100), "{inside}");
    assert_eq!(inside["mtu"], firmware::copy_engine::COPY_FRAME_LEN_MAX, "{inside}");
    println!("{}", world.guest("n1", "nicctl -i eth1 copy-engine"));
    println!("{}", world.ok(&["nic", "copy-engine"]));

    // The card is at no switch: it gets no frames of others, and has no cable to pull.
    world.guest("n2", "ping -c 3 -i 0.05 n1");
    assert_eq!(world.stats("n1.eth1")["switch"]["in_frames"], 0);
    let refused = world.run(&["link", "set", "n1.eth1", "down"]);
    let sentence = String::from_utf8_lossy(&refused.stderr);
    assert!(sentence.contains("connected to itself"), "{sentence}");
    // It is left out when a whole node is named.
    let whole: serde_json::Value = serde_json::from_str(&world.ok(&["--json", "link", "set", "n1", "up"])).unwrap();
    let cards = whole.as_array().unwrap().iter().map(|row| row["nic"].as_str());
    assert!(cards.eq([Some("n1.eth0"), Some("n1.eth0")]), "{whole}");
    let alone: serde_json::Value = serde_json::from_str(&world.ok(&["--json", "nic", "copy-engine"])).unwrap();
    assert_eq!(alone[0]["nic"], "n1.eth1", "{alone}");
    assert!(alone[0]["completed"].as_u64() >= Some(100), "{alone}");
    assert!(alone[0].get("rx").is_none(), "{alone}");
    assert!(world.ok(&["nic", "group", "join", "n1", "7"]).contains("n1.eth0"));
    assert!(!world.ok(&["nic", "group", "leave", "n1", "7"]).contains("n1.eth0"));
    for (line, sentence) in [
        (&["nic", "trace", "n1.eth0", "--card", "0"][..], "is a card already"),
        (&["--json", "nic", "trace", "n1", "--format", "text"], "contradict"),
        (&["nic", "group", "leave", "n1.eth0", "7"], "not a member of group 7"),
    ] {
        let refused = world.run(line);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(sentence), "{line:?}: {said}");
    }
    let refused = world.run(&["nic", "copy-engine", "n1.eth0"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no copy engine"));
    let refused = world.run(&["exec", "n2", "--", "nicctl", "copy-engine"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("not connected to itself"),
        "{refused:?}"
    );

    flight_recorders_tell_what_cards_do_until_ctrl_c(world);
}

/// Reads the flight recorders of running cards, for a while and until Ctrl-C.
fn flight_recorders_tell_what_cards_do_until_ctrl_c(world: &World) {
    let mut pings = Lines::of(world.spawn(&["exec", "-n", "n2", "--", "ping", "-i", "0.05", "n1"]));
    eventually("answers", || pings.so_far().len() > 3);
    let file = world.dir.path().join("trace.json");
    let path = file.to_str().unwrap();
    world.ok(&["nic", "trace", "n1", "--card", "0", "--seconds", "1", "--out", path]);
    let text = fs::read_to_string(&file).unwrap();
    let events = trace_format::check(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(events > 20, "{text}");
    for name in ["\"arrive\"", "\"forward\"", "\"irq: every-packet\"", "\"eth0 queue 0\""] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(!text.contains("eth1"), "only one card was asked for");

    // Ctrl-C ends it, what was recorded is written, and the recorders are free for the next one.
    let mut trace = world.spawn(&["nic", "trace", "n1", "--format", "text"]);
    let mut told = String::new();
    BufReader::new(trace.stderr.take().unwrap())
        .read_line(&mut told)
        .unwrap();
    assert_eq!(told, "weft: recording n1.eth0, n1.eth1; Ctrl-C ends it\n");
    let mut trace = Lines::of(trace);
    let refused = world.run(&["nic", "trace", "n1", "--seconds", "1"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("traced already"),
        "{refused:?}"
    );
    let answered = pings.so_far().len();
    eventually("some traffic", || pings.so_far().len() > answered + 5);
    trace.interrupt();
    let lines: Vec<_> = trace.so_far().into_iter().map(|(_, line)| line).collect();
    assert!(lines[0].contains("EVENT"), "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("irq ") && line.contains("every-packet, 1 packet")),
        "{lines:?}"
    );
    println!("{}", lines.iter().take(12).cloned().collect::<Vec<_>>().join("\n"));
    world.ok(&["nic", "trace", "n1.eth1", "--seconds", "1"]);
    pings.interrupt();
}
