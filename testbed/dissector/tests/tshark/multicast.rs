//! Tests the part of the dissector for frames between cards against `firmware::multicast`.

use crate::common::{Fields, Numbers, number, tshark};
use ether::MacAddr;
use firmware::multicast::{CARD_FRAME_MIN, Kind, Tag};

const EXPERT: &str = "_ws.expert.message";

fn frame(tag: &Tag) -> Vec<u8> {
    let mut bytes = vec![0; CARD_FRAME_MIN.max(38 + usize::from(tag.payload_len))];
    tag.write(bytes.first_chunk_mut().expect("longer than a tag"));
    bytes
}

#[test]
fn m_bv5_frames_between_cards_are_named() {
    let mut numbers = Numbers(3);
    let kinds = [
        Kind::Send,
        Kind::Data,
        Kind::State,
        Kind::Credit,
        Kind::Announce,
        Kind::Gone,
        Kind::Sent,
    ];
    let tags: Vec<Tag> = (0..100)
        .map(|_| {
            let kind = kinds[numbers.below(kinds.len())];
            let group = if kind == Kind::Announce {
                0
            } else {
                1 + numbers.below(65_535) as u16
            };
            Tag {
                kind,
                generation: numbers.number() as u16,
                rank: numbers.below(128) as u8,
                sender: MacAddr([2, 0, 0, 0, numbers.number() as u8, 1]),
                sequence: numbers.number() as u32,
                hops: numbers.below(128) as u8,
                flags: numbers.below(4) as u8,
                ..Tag::send(MacAddr([2, 0, 0, 0, 0, 1]), group, numbers.below(200) as u16)
            }
        })
        .collect();
    let mut frames: Vec<_> = tags
        .iter()
        .map(frame)
        .map(|bytes| (bytes.clone(), bytes.len()))
        .collect();
    let mut wrong = frames[0].0.clone();
    wrong[16] = 9;
    frames.push((wrong.clone(), wrong.len()));
    let names = [
        "kind",
        "group",
        "generation",
        "rank",
        "sequence",
        "hops",
        "flag",
        "unicast",
        "payload_length",
    ];
    let mut fields: Vec<_> = names.iter().map(|name| format!("weftmc.{name}")).collect();
    fields.extend(["weftmc.sender", "_ws.col.Info", EXPERT].map(str::to_owned));
    let fields: Vec<_> = fields.iter().map(String::as_str).collect();
    let rows = tshark(&frames, &[], &fields);
    for (tag, row) in tags.iter().zip(&rows) {
        let shown = names.map(|name| number(row, &format!("weftmc.{name}")).expect(name));
        let expected = [
            tag.kind as u64,
            tag.group.into(),
            tag.generation.into(),
            tag.rank.into(),
            tag.sequence.into(),
            tag.hops.into(),
            u64::from(tag.flags & 1),
            u64::from(tag.flags >> 1),
            tag.payload_len.into(),
        ];
        assert_eq!(shown, expected, "{row:?}");
        assert_eq!(row["weftmc.sender"], tag.sender.to_string());
        assert!(!row.contains_key(EXPERT), "{row:?}");
    }
    let malformed: &Fields = rows.last().expect("a row");
    assert!(malformed[EXPERT].contains("malformed"), "{malformed:?}");
    let info = |kind: Kind| {
        let at = tags.iter().position(|tag| tag.kind == kind).expect("one of each kind");
        rows[at]["_ws.col.Info"].clone()
    };
    assert!(info(Kind::Data).starts_with("DATA, group "));
    assert_eq!(info(Kind::Announce), "ANNOUNCE");
    assert!(info(Kind::Sent).ends_with(" packets have left"));
    assert!(info(Kind::Gone).starts_with("GONE, group "));
}
