//! Capture files: their bytes, and what tshark (Debian package `tshark`) reads from them.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use ether::{
    MacAddr, Time,
    pcapng::{self, Direction, Interface, Packet, Statistics},
};
use proptest::prelude::*;

const ORIGIN_UNIX_NS: u64 = 1_700_000_000_000_000_000;

/// An IPv4 frame with an ICMP echo request that tshark finds nothing wrong with.
fn ping() -> Vec<u8> {
    let mut frame = vec![0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1, 8, 0];
    let mut ip = vec![0x45, 0, 0, 32, 0, 1, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let checksum = ether::checksum::checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&checksum);
    let mut icmp = vec![8, 0, 0, 0, 0, 1, 0, 1, b'w', b'e', b'f', b't'];
    let checksum = ether::checksum::checksum(&icmp).to_be_bytes();
    icmp[2..4].copy_from_slice(&checksum);
    frame.extend(ip);
    frame.extend(icmp);
    frame
}

fn packet(bytes: &[u8]) -> Packet<'_> {
    Packet {
        interface: 0,
        at: Time::from_nanos(123_456_789),
        origin_unix_ns: ORIGIN_UNIX_NS,
        bytes,
        original_len: bytes.len() as u32,
        direction: Some(Direction::Inbound),
        comment: Some("irq 17: mark, 3 packets"),
    }
}

/// Two interfaces, a whole frame, one that is cut, and statistics.
fn capture() -> Vec<u8> {
    let mut out = Vec::new();
    pcapng::section_header(&mut out, "weft test");
    let mac = Some(MacAddr([0x52, 0x54, 0, 0, 0, 1]));
    pcapng::interface_description(
        &mut out,
        &Interface {
            name: "n1.eth0",
            description: None,
            mac,
            snaplen_bytes: 0,
        },
    );
    let cut = Interface {
        name: "n2.eth0",
        description: Some("second node"),
        mac: None,
        snaplen_bytes: 20,
    };
    pcapng::interface_description(&mut out, &cut);
    let frame = ping();
    pcapng::enhanced_packet(&mut out, &packet(&frame));
    let at = Time::from_nanos(123_456_790);
    let original_len = frame.len() as u32;
    let direction = Some(Direction::Outbound);
    let cut = Packet {
        interface: 1,
        at,
        bytes: &frame[..20],
        original_len,
        direction,
        comment: None,
        ..packet(&[])
    };
    pcapng::enhanced_packet(&mut out, &cut);
    for interface in 0..2 {
        let (received_frames, dropped_frames) = (Some(1), Some(0));
        let origin_unix_ns = ORIGIN_UNIX_NS;
        pcapng::interface_statistics(
            &mut out,
            &Statistics {
                interface,
                at,
                origin_unix_ns,
                received_frames,
                dropped_frames,
            },
        );
    }
    out
}

/// The fields that tshark reads, one line for each frame.
fn tshark(capture: &[u8], fields: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.args(["-r", "-", "-T", "fields", "-E", "separator=|"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tshark starts; it is in the Debian package `tshark`");
    child
        .stdin
        .take()
        .expect("a pipe was asked for")
        .write_all(capture)
        .expect("tshark reads its input");
    let output = child.wait_with_output().expect("tshark ends");
    assert!(
        output.status.success(),
        "tshark: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("tshark writes UTF-8")
}

#[test]
fn tshark_reads_times_lengths_directions_names_and_comments() {
    let fields = [
        "frame.time_epoch",
        "frame.cap_len",
        "frame.len",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.comment",
        "ip.dst",
        "icmp.checksum.status",
    ];
    let lines = tshark(&capture(), &fields);
    let mut lines = lines.lines();
    assert_eq!(
        lines.next(),
        Some("1700000000.123456789|46|46|n1.eth0|0x00000001|irq 17: mark, 3 packets|10.0.0.2|1")
    );
    assert_eq!(lines.next(), Some("1700000000.123456790|20|46|n2.eth0|0x00000002|||"));
    assert_eq!(lines.next(), None);
}

#[test]
fn tshark_finds_nothing_malformed_in_whole_frames() {
    let mut out = Vec::new();
    pcapng::section_header(&mut out, "weft test");
    pcapng::interface_description(
        &mut out,
        &Interface {
            name: "n1.eth0",
            ..Default::default()
        },
    );
    for len in 42..=46 {
        let frame = ping();
        let packet = Packet {
            comment: Some(&"é".repeat(len)),
            ..packet(&frame)
        };
        pcapng::enhanced_packet(&mut out, &packet);
    }
    assert_eq!(tshark(&out, &["frame.len", "_ws.malformed"]), "46|\n".repeat(5));
}

/// Walks over the blocks as a reader does: type and both lengths.
fn blocks(mut file: &[u8]) -> Vec<(u32, usize)> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let mut found = Vec::new();
    while !file.is_empty() {
        let len = word(&file[4..8]) as usize;
        assert_eq!(len % 4, 0);
        assert_eq!(word(&file[len - 4..len]) as usize, len, "both lengths of a block agree");
        found.push((word(&file[..4]), len));
        file = &file[len..];
    }
    found
}

#[test]
fn blocks_are_as_the_draft_says() {
    let mut out = Vec::new();
    pcapng::section_header(&mut out, "weft");
    let expected = [
        0x0a, 0x0d, 0x0d, 0x0a, 40, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255,
        255, 4, 0, 4, 0, b'w', b'e', b'f', b't', 0, 0, 0, 0, 40, 0, 0, 0,
    ];
    assert_eq!(out, expected);
    let kinds: Vec<u32> = blocks(&capture()).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 6, 6, 5, 5]);
}

#[test]
fn a_comment_that_is_too_long_is_cut_between_characters() {
    let mut out = Vec::new();
    let comment = "ü".repeat(40_000);
    pcapng::enhanced_packet(
        &mut out,
        &Packet {
            comment: Some(&comment),
            ..packet(&[])
        },
    );
    assert_eq!(blocks(&out).len(), 1);
    assert_eq!(u16::from_le_bytes([out[30], out[31]]), 65_532);
    let odd = format!("a{comment}");
    out.clear();
    pcapng::enhanced_packet(
        &mut out,
        &Packet {
            comment: Some(&odd),
            ..packet(&[])
        },
    );
    assert_eq!(u16::from_le_bytes([out[30], out[31]]), 65_531);
}

#[test]
fn an_original_length_below_what_is_kept_is_mended() {
    let mut out = Vec::new();
    pcapng::enhanced_packet(
        &mut out,
        &Packet {
            original_len: 3,
            ..packet(&[0; 60])
        },
    );
    assert_eq!(&out[20..28], &[60, 0, 0, 0, 60, 0, 0, 0]);
}

proptest! {
    #[test]
    fn any_values_give_whole_blocks(
        name in ".{0,40}",
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        comment in proptest::option::of(".{0,40}"),
        ns: u64,
        interface: u32,
    ) {
        let mut out = Vec::new();
        pcapng::section_header(&mut out, &name);
        let described = Interface { name: &name, description: comment.as_deref(), mac: None, snaplen_bytes: interface };
        pcapng::interface_description(&mut out, &described);
        let at = Time::from_nanos(ns);
        let packet = Packet { interface, at, comment: comment.as_deref(), direction: None, ..packet(&bytes) };
        pcapng::enhanced_packet(&mut out, &packet);
        pcapng::interface_statistics(&mut out, &Statistics { interface, at, ..Default::default() });
        prop_assert_eq!(blocks(&out).len(), 4);
    }
}
