//! Tests the part of the dissector for frames of ESP and EDP against `esp::wire`.

use ::esp::wire::{
    Blocks, Body, Header, Kind, Moved, Path, Piece, Ping, Pong, Question, Ranges, ResetCode, Syn, SynAck, emit,
};
use ether::{EtherType, MacAddr};

use crate::common::{Fields, Numbers, number, tshark};

const EXPERT: &str = "_ws.expert.message";
const FIELDS: [&str; 26] = [
    "kind",
    "push",
    "source_port",
    "destination_port",
    "number",
    "ack",
    "window",
    "payload_length",
    "one_of_many",
    "payload",
    "version",
    "instance",
    "peer_instance",
    "listened_port",
    "payload_max",
    "block",
    "range_first",
    "range_end",
    "reason",
    "old_port",
    "offset",
    "total",
    "cookie",
    "mtu",
    "address4",
    "address6",
];

fn header(kind: Kind, numbers: &mut Numbers) -> Header {
    let has_window = matches!(kind, Kind::Ack | Kind::Syn | Kind::SynAck | Kind::Moved);
    let has_window = has_window || !kind.is_edp() && numbers.below(3) == 0;
    let has_ack = kind == Kind::SynAck || numbers.below(2) == 0;
    Header {
        source_port: 1 + numbers.below(65_535) as u16,
        destination_port: 1 + numbers.below(65_535) as u16,
        number: numbers.number() as u32,
        ack: has_ack.then(|| numbers.number() as u32),
        window: has_window.then(|| numbers.number() as u32),
        push: numbers.below(2) == 0,
        bulk: kind == Kind::Data && numbers.below(2) == 0,
    }
}

/// A body of a kind, and the fields that show it beside the header's.
fn body<'a>(kind: Kind, numbers: &mut Numbers, bytes: &'a [u8]) -> (Body<'a>, Vec<(&'static str, u64)>) {
    let (big, small) = (numbers.number(), numbers.number() as u16);
    match kind {
        Kind::Datagram => (Body::Datagram(bytes), vec![]),
        Kind::Data => (Body::Data(bytes), vec![]),
        Kind::Fin => (Body::Fin, vec![]),
        Kind::Probe => (Body::Probe, vec![]),
        Kind::Ping => {
            let question = Question::Owner([10, 1, 2, 3].into());
            (Body::Ping(Ping { cookie: big, question }), vec![("cookie", big)])
        }
        Kind::Pong => {
            let addresses = [[10, 1, 2, 3].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 7].into()];
            let pong = Pong {
                cookie: big,
                mtu: small,
                addresses: addresses.into_iter().collect(),
            };
            (Body::Pong(pong), vec![("cookie", big), ("mtu", small.into())])
        }
        Kind::Ack => {
            let mut ranges = Ranges::NONE;
            ranges.push(small.into(), u32::from(small) + 5);
            let first = u64::from(small);
            (
                Body::Ack(ranges),
                vec![("range_first", first), ("range_end", first + 5)],
            )
        }
        Kind::Syn | Kind::SynAck => handshake(kind, big, small.max(1)),
        Kind::Reset => (Body::Reset(ResetCode::Refused), vec![("reason", 1)]),
        Kind::Moved => {
            let moved = Moved {
                old_port: small,
                instance: big,
            };
            (Body::Moved(moved), vec![("old_port", small.into()), ("instance", big)])
        }
        Kind::Piece => {
            let piece = Piece {
                offset: 100,
                total: 1_000,
                payload: bytes,
            };
            (Body::Piece(piece), vec![("offset", 100), ("total", 1_000)])
        }
    }
}

/// The body of a SYN or a SYN+ACK, as [`body`] has it.
fn handshake(kind: Kind, big: u64, payload_max: u16) -> (Body<'static>, Vec<(&'static str, u64)>) {
    let blocks = Blocks {
        check: true,
        ..Blocks::default()
    };
    if kind == Kind::Syn {
        let syn = Syn {
            instance: big,
            payload_max,
            blocks,
            names: None,
        };
        let fields = [
            ("version", 1),
            ("instance", big),
            ("payload_max", payload_max.into()),
            ("block", 3),
        ];
        return (Body::Syn(syn), fields.into());
    }
    let syn_ack = SynAck {
        instance: big,
        peer_instance: big / 3,
        listened_port: 80,
        payload_max,
        blocks,
    };
    let fields = [
        ("instance", big),
        ("peer_instance", big / 3),
        ("listened_port", 80),
        ("block", 3),
    ];
    (Body::SynAck(syn_ack), fields.into())
}

/// What is shown of the header.
fn assert_header(row: &Fields, kind: Kind, header: &Header) {
    let shown = |name: &str| number(row, &format!("weftesp.{name}"));
    assert_eq!(shown("kind"), Some(kind as u64), "{row:?}");
    assert_eq!(shown("push"), Some(header.push.into()), "{row:?}");
    let one_of_many = (kind == Kind::Data).then(|| header.bulk.into());
    assert_eq!(shown("one_of_many"), one_of_many, "{row:?}");
    assert_eq!(shown("source_port"), Some(header.source_port.into()), "{row:?}");
    assert_eq!(
        shown("destination_port"),
        Some(header.destination_port.into()),
        "{row:?}"
    );
    assert_eq!(shown("number"), Some(header.number.into()), "{row:?}");
    assert_eq!(shown("ack"), header.ack.map(u64::from), "{row:?}");
    assert_eq!(shown("window"), header.window.map(u64::from), "{row:?}");
}

#[test]
fn m_hr2_frames_of_esp_are_named() {
    let path = Path {
        destination: MacAddr([2, 0, 0, 0, 0, 1]),
        source: MacAddr([2, 0, 0, 0, 0, 2]),
        ether_type: EtherType::ESP,
    };
    let mut numbers = Numbers(6);
    let payload = numbers.bytes(200);
    let (mut frames, mut expected) = (Vec::new(), Vec::new());
    for at in 0..96 {
        let kind = Kind::ALL[at % 12];
        let header = header(kind, &mut numbers);
        let bytes = &payload[..1 + numbers.below(200)];
        let (body, fields) = body(kind, &mut numbers, bytes);
        let mut frame = vec![0; 400];
        let len = emit(&mut frame, &path, &header, &body, false).unwrap();
        frame.truncate(len);
        frames.push((frame, len));
        let is_payload = matches!(kind, Kind::Datagram | Kind::Data | Kind::Piece);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        expected.push((kind, header, fields, is_payload.then_some(hex)));
    }
    // A version that is not known, no such kind, and a length behind the end.
    for (of, at, value) in [(5, 31, 9), (7, 14, 0xf0), (3, 14, 0x3c)] {
        let mut wrong = frames[of].0.clone();
        wrong[at] = value;
        frames.push((wrong.clone(), wrong.len()));
    }
    let mut fields: Vec<_> = FIELDS.iter().map(|name| format!("weftesp.{name}")).collect();
    fields.extend(["_ws.col.Protocol", "_ws.col.Info", EXPERT].map(str::to_owned));
    let fields: Vec<_> = fields.iter().map(String::as_str).collect();
    let rows = tshark(&frames, &[], &fields);
    for ((kind, header, fields, payload), row) in expected.iter().zip(&rows) {
        assert_header(row, *kind, header);
        for (name, value) in fields {
            assert_eq!(number(row, &format!("weftesp.{name}")), Some(*value), "{name} {row:?}");
        }
        assert_eq!(row.get("weftesp.payload"), payload.as_ref(), "{row:?}");
        assert!(!row.contains_key(EXPERT), "{row:?}");
        let protocol = if kind.is_edp() { "EDP" } else { "ESP" };
        assert_eq!(row["_ws.col.Protocol"], protocol);
        let ports = format!(", {} to {}", header.source_port, header.destination_port);
        assert!(row["_ws.col.Info"].contains(&ports), "{row:?}");
        if *kind == Kind::Pong {
            assert_eq!(
                (&*row["weftesp.address4"], &*row["weftesp.address6"]),
                ("10.1.2.3", "fd00::7")
            );
        }
    }
    for malformed in &rows[96..] {
        assert!(malformed[EXPERT].contains("malformed"), "{malformed:?}");
    }
}
