//! BPDUs that switches send, judged by tshark.

use std::process::{Command, Stdio};

use ether::{MacAddr, Time, pcapng};
use fabric::{BRIDGE_GROUP, StpConfig, StpPortConfig, Switch, SwitchConfig, TrunkId};

const FIELDS: [&str; 13] = [
    "eth.dst",
    "stp.version",
    "stp.type",
    "stp.flags.port_role",
    "stp.flags.proposal",
    "stp.flags.agreement",
    "stp.root.prio",
    "stp.root.hw",
    "stp.root.cost",
    "stp.bridge.hw",
    "stp.port",
    "stp.hello",
    "_ws.expert.message",
];

fn bridge(number: u8, priority: u16) -> Switch {
    let mut switch = Switch::new(SwitchConfig::default());
    let config = StpConfig {
        priority,
        ..StpConfig::new(MacAddr([2, 0, 0, 0, 1, number]))
    };
    switch.enable_spanning_tree(config, Time::ZERO);
    switch
}

/// What tshark says of each frame, a field after the other.
fn tshark(name: &str, frames: &[Vec<u8>]) -> Vec<Vec<String>> {
    let mut file = Vec::new();
    pcapng::section_header(&mut file, "weft spanning tree test");
    let interface = pcapng::Interface {
        name: "test",
        description: None,
        mac: None,
        snaplen_bytes: 0,
    };
    pcapng::interface_description(&mut file, &interface);
    for (number, frame) in frames.iter().enumerate() {
        let packet = pcapng::Packet {
            interface: 0,
            at: Time::from_nanos(number as u64),
            origin_unix_ns: 0,
            bytes: frame,
            original_len: frame.len() as u32,
            direction: None,
            comment: None,
        };
        pcapng::enhanced_packet(&mut file, &packet);
    }
    let path = std::env::temp_dir().join(format!("weft-bpdus-{}-{name}.pcapng", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-T", "fields", "-E", "separator=/t", "-r"])
        .arg(&path);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.stdin(Stdio::null()).output();
    std::fs::remove_file(&path).unwrap();
    let output = output.expect("tshark (Debian package tshark) is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

/// Whether tshark finds nothing wrong: that the padding holds something, the numbers of news, is all that it may note.
fn is_sound(note: &str) -> bool {
    note.is_empty() || note.starts_with("Didn't find padding of zeros, and an undecoded trailer exists.")
}

/// Whether a flag is set, in the words of any version.
fn is_set(field: &str) -> bool {
    matches!(field, "1" | "True")
}

#[test]
fn tshark_reads_the_bpdus_of_two_switches_as_they_agree() {
    let (mut root, mut other) = (bridge(1, 4096), bridge(2, 32768));
    let ports = [&mut root, &mut other].map(|switch| switch.add_trunk(TrunkId(0)).unwrap());
    let config = StpPortConfig {
        path_cost: 20_000,
        ..StpPortConfig::of_rate(0)
    };
    root.set_spanning_tree_port(ports[0], config);
    other.set_spanning_tree_port(ports[1], config);
    let mut frames = Vec::new();
    for step in 0..4 {
        let now = Time::from_nanos(step);
        let (sent_by_root, sent_by_other): (Vec<_>, Vec<_>) = (
            std::iter::from_fn(|| root.poll_transmit(now)).collect(),
            std::iter::from_fn(|| other.poll_transmit(now)).collect(),
        );
        for (_, frame) in &sent_by_root {
            other.forward(now, ports[1], frame.bytes(), 60);
        }
        for (_, frame) in &sent_by_other {
            root.forward(now, ports[0], frame.bytes(), 60);
        }
        frames.extend(
            sent_by_root
                .iter()
                .chain(&sent_by_other)
                .map(|(_, frame)| frame.bytes().to_vec()),
        );
    }
    let rows = tshark("rapid", &frames);
    assert_eq!(rows.len(), frames.len());
    for row in &rows {
        assert_eq!(
            (row[0].as_str(), row[1].as_str()),
            ("01:80:c2:00:00:00", "2"),
            "{row:?}"
        );
        assert!(row[2].ends_with("02") || row[2] == "2", "a rapid BPDU: {row:?}");
        assert!(row[11] == "2" && is_sound(&row[12]), "{row:?}");
    }
    // The root proposes, the other one agrees from its root port.
    let proposal = rows
        .iter()
        .find(|row| is_set(&row[4]) && row[9] == "02:00:00:00:01:01")
        .expect("a proposal");
    assert_eq!(
        (proposal[3].as_str(), proposal[6].as_str(), proposal[8].as_str()),
        ("3", "4096", "0")
    );
    assert_eq!(proposal[7], "02:00:00:00:01:01");
    let agreement = rows
        .iter()
        .find(|row| is_set(&row[5]) && row[3] == "2")
        .expect("an agreement");
    assert_eq!(
        (agreement[7].as_str(), agreement[8].as_str()),
        ("02:00:00:00:01:01", "20000")
    );
    assert_eq!(agreement[9], "02:00:00:00:01:02");
    assert!(agreement[10].ends_with("8001"), "{agreement:?}");
}

#[test]
fn tshark_reads_what_is_said_to_a_bridge_of_the_old_protocol() {
    let mut switch = bridge(1, 4096);
    let port = switch.add_port();
    // What such a bridge sends.
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&BRIDGE_GROUP.0);
    frame[6..17].copy_from_slice(&[2, 0, 0, 0, 1, 9, 0, 38, 0x42, 0x42, 3]);
    for at in [22, 34] {
        frame[at..at + 8].copy_from_slice(&[0x80, 0, 2, 0, 0, 0, 1, 9]);
    }
    frame[42..52].copy_from_slice(&[0x80, 1, 0, 0, 20, 0, 2, 0, 15, 0]);
    let mut frames = Vec::new();
    for second in 1..12 {
        let now = Time::from_nanos(second * 1_000_000_000);
        switch.handle(now);
        switch.forward(now, port, &frame, 60);
        frames.extend(std::iter::from_fn(|| switch.poll_transmit(now)).map(|(_, frame)| frame.bytes().to_vec()));
    }
    let rows = tshark("old", &frames);
    let last = rows.last().expect("BPDUs");
    assert_eq!(
        (last[1].as_str(), last[7].as_str(), last[8].as_str()),
        ("0", "02:00:00:00:01:01", "0"),
        "{last:?}"
    );
    assert!(rows.iter().all(|row| is_sound(&row[12])), "{rows:?}");
}
