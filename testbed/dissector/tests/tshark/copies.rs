//! Tests the part of the dissector for copies by a card that is wired to itself against `firmware::copy_engine`.

use ether::MacAddr;
use firmware::copy_engine::{COPY_HEADER_LEN, COPY_HEADER_START, CopyHeader};

use crate::common::{Numbers, number, tshark};

const EXPERT: &str = "_ws.expert.message";

#[test]
fn m_ci1_m_ci2_copies_by_cards_are_named() {
    let mut numbers = Numbers(9);
    let copies: Vec<_> = (0..40)
        .map(|_| {
            let header = CopyHeader {
                notifies: numbers.below(2) == 1,
                index: numbers.number() as u16,
            };
            let len = numbers.below(300);
            (header, numbers.bytes(len), numbers.number())
        })
        .collect();
    let frame = |(header, data, value): &(CopyHeader, Vec<u8>, u64)| {
        let mut bytes = vec![0; COPY_HEADER_LEN];
        bytes[..COPY_HEADER_START].copy_from_slice(&header.encode(MacAddr([2, 0, 0, 0, 0, 1])));
        bytes.extend(data);
        if header.notifies {
            bytes.extend(value.to_le_bytes());
        }
        let len = bytes.len();
        (bytes, len)
    };
    let mut frames: Vec<_> = copies.iter().map(frame).collect();
    let mut wrong = frames[0].0.clone();
    wrong[16] = 9;
    frames.push((wrong.clone(), wrong.len()));
    let fields = [
        "weftcopy.notifies",
        "weftcopy.index",
        "weftcopy.value",
        "_ws.col.Info",
        EXPERT,
    ];
    let rows = tshark(&frames, &[], &fields);
    for ((header, data, value), row) in copies.iter().zip(&rows) {
        let shown = ["notifies", "index", "value"].map(|name| number(row, &format!("weftcopy.{name}")));
        let value = header.notifies.then_some(*value);
        assert_eq!(
            shown,
            [Some(header.notifies.into()), Some(header.index.into()), value],
            "{row:?}"
        );
        let info = format!("copy into chain {}, {} bytes", header.index, data.len());
        assert!(row["_ws.col.Info"].starts_with(&info), "{row:?}");
        assert!(!row.contains_key(EXPERT), "{row:?}");
    }
    let malformed = rows.last().expect("a row");
    assert!(malformed[EXPERT].contains("malformed"), "{malformed:?}");
}
