//! Tests the part of the dissector for frames of LCI against `lci::wire`.

use ::lci::{
    Nodes,
    wire::{About, GROUP_HEADER_LEN, Header, Kind, LINK_HEADER_LEN},
};
use ether::{EtherType, MacAddr};
use firmware::multicast::{Kind as CardKind, TAG_END, Tag};

use crate::common::{Numbers, number, tshark};

const EXPERT: &str = "_ws.expert.message";

fn header(kind: Kind, numbers: &mut Numbers) -> Header {
    Header {
        destination: MacAddr([2, 0, 0, 0, 0, 1]),
        source: MacAddr([2, 0, 0, 0, 0, 2]),
        kind,
        flags: numbers.below(2) as u8,
        from: numbers.below(128) as u8,
        to: numbers.below(128) as u8,
        job: numbers.number() as u16,
        length: if matches!(kind, Kind::Unicast | Kind::Multicast) {
            numbers.below(200) as u16
        } else {
            0
        },
        session: numbers.number() as u32 | 1,
        peer_session: numbers.number() as u32 | 1,
        sequence: numbers.number() as u32,
        ack: numbers.number() as u32,
        selective: numbers.number(),
        about: if kind.header_len() == LINK_HEADER_LEN {
            About::default()
        } else {
            About {
                group: numbers.number() as u32,
                number: numbers.number() as u32,
                origin: numbers.below(128) as u8,
                nodes: Nodes(u128::from(numbers.number())),
            }
        },
    }
}

#[test]
fn m_bv1_frames_of_lci_are_named() {
    let mut numbers = Numbers(5);
    let headers: Vec<_> = (0..108).map(|at| header(Kind::ALL[at % 9], &mut numbers)).collect();
    let frame = |header: &Header| {
        let mut bytes = vec![0; GROUP_HEADER_LEN + usize::from(header.length)];
        header.write(EtherType::CARD_TO_CARD, &mut bytes);
        let len = bytes.len();
        (bytes, len)
    };
    let mut frames: Vec<_> = headers.iter().map(frame).collect();
    let mut wrong = frames[2].0.clone();
    wrong[16] = 9;
    frames.push((wrong.clone(), wrong.len()));
    let names = [
        "kind",
        "answer",
        "from",
        "to",
        "job",
        "payload_length",
        "session",
        "peer_session",
        "sequence",
        "ack",
        "selective",
    ];
    let about = ["group", "number", "origin"];
    let mut fields: Vec<_> = names
        .iter()
        .chain(&about)
        .map(|name| format!("weftlci.{name}"))
        .collect();
    fields.extend(["_ws.col.Info", EXPERT].map(str::to_owned));
    let fields: Vec<_> = fields.iter().map(String::as_str).collect();
    let rows = tshark(&frames, &[], &fields);
    for (header, row) in headers.iter().zip(&rows) {
        let shown = names.map(|name| number(row, &format!("weftlci.{name}")).expect(name));
        let expected = [
            header.kind as u64,
            header.flags.into(),
            header.from.into(),
            header.to.into(),
            header.job.into(),
            header.length.into(),
            header.session.into(),
            header.peer_session.into(),
            header.sequence.into(),
            header.ack.into(),
            header.selective,
        ];
        assert_eq!(shown, expected, "{row:?}");
        let shown = about.map(|name| number(row, &format!("weftlci.{name}")));
        let expected = [header.about.group, header.about.number, header.about.origin.into()];
        let has = header.kind.header_len() == GROUP_HEADER_LEN;
        assert_eq!(shown, expected.map(|value| has.then_some(value.into())), "{row:?}");
        assert!(!row.contains_key(EXPERT), "{row:?}");
        let name = format!("{:?}, {} to {}", header.kind, header.from, header.to);
        assert!(
            row["_ws.col.Info"].to_lowercase().starts_with(&name.to_lowercase()),
            "{row:?}"
        );
    }
    let malformed = rows.last().expect("a row");
    assert!(malformed[EXPERT].contains("malformed"), "{malformed:?}");
}

#[test]
fn m_bv2_m_bv5_packets_of_lci_in_frames_between_cards_are_named() {
    let mut numbers = Numbers(7);
    let headers: Vec<_> = (0..60)
        .map(|_| header(Kind::ALL[2 + numbers.below(7)], &mut numbers))
        .collect();
    let frame = |header: &Header| {
        let mut own = vec![0; header.kind.header_len() + usize::from(header.length)];
        header.write(EtherType::CARD_TO_CARD, &mut own);
        let behind = &own[ether::ETHERNET_HEADER_LEN..];
        let tag = Tag {
            kind: CardKind::Data,
            sequence: 7,
            hops: 1,
            ..Tag::send(header.source, 0x8001, behind.len() as u16)
        };
        let mut bytes = [&[0; TAG_END][..], behind].concat();
        tag.write(bytes.first_chunk_mut().expect("longer than a tag"));
        let len = bytes.len();
        (bytes, len)
    };
    let frames: Vec<_> = headers.iter().map(frame).collect();
    let fields = [
        "weftlci.kind",
        "weftlci.sequence",
        "weftmc.sequence",
        "_ws.col.Info",
        EXPERT,
    ];
    for (header, row) in headers.iter().zip(tshark(&frames, &[], &fields)) {
        let shown = ["weftlci.kind", "weftlci.sequence", "weftmc.sequence"].map(|name| number(&row, name));
        let expected = [header.kind as u64, header.sequence.into(), 7].map(Some);
        assert_eq!(shown, expected, "{row:?}");
        let name = format!("{:?}, {} to {}", header.kind, header.from, header.to).to_lowercase();
        let info = row["_ws.col.Info"].to_lowercase();
        assert!(info.starts_with(&name) && info.contains("data, group 32769"), "{row:?}");
        assert!(!row.contains_key(EXPERT), "{row:?}");
    }
}
