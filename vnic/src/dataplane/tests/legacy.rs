//! Drivers from before virtio 1.0 without mergeable buffers: their header has 10 bytes, in both directions, and no short path takes it.

use super::introduce;
use crate::dataplane::rig::{RING, Rig, frame};
use crate::offload::LEGACY_NET_HEADER_LEN;

/// A modern guest and one with a legacy driver, which know each other.
fn guests() -> Rig {
    let mut rig = Rig::new(&[0, 0]);
    introduce(&mut rig, 0, 1);
    rig.completed(0);
    rig.completed(1);
    rig.change_driver(1, 0);
    rig
}

fn frames(to: u8, from: u8) -> Vec<Vec<u8>> {
    let lens = [60, 62, 64, 66, 76, 78, 1000, 1514];
    lens.iter().zip(0..).map(|(len, n)| frame(to, from, *len, n)).collect()
}

#[test]
fn a_legacy_driver_sends_and_receives_frames_behind_ten_bytes() {
    let mut rig = guests();
    // More than there are buffers, so that those read ahead at several times are used.
    for _ in 0..RING / 4 {
        let sent = frames(1, 0);
        (0..).zip(&sent).for_each(|(index, frame)| rig.send(0, index, frame));
        rig.settle();
        assert_eq!(rig.received_behind(1, LEGACY_NET_HEADER_LEN), sent);
        let sent = frames(0, 1);
        for (index, frame) in (0..).zip(&sent) {
            rig.send_with_header(1, index, &[0; LEGACY_NET_HEADER_LEN], frame);
        }
        rig.settle();
        let received: Vec<_> = rig.received(0).into_iter().map(|(_, frame)| frame).collect();
        assert_eq!(received, sent);
        assert_eq!((rig.completed(0), rig.completed(1)), (sent.len(), sent.len()));
    }
    assert_eq!((rig.failed(0), rig.failed(1)), (None, None));
}

#[test]
fn a_chain_shorter_than_the_legacy_header_breaks_the_rule_and_one_as_long_is_a_runt() {
    let mut rig = guests();
    rig.send_with_header(1, 0, &[0; LEGACY_NET_HEADER_LEN], &[]);
    rig.settle();
    assert_eq!((rig.failed(1), rig.stats(1).tx.dropped["runt"]), (None, 1));
    rig.send_with_header(1, 1, &[0; LEGACY_NET_HEADER_LEN - 1], &[]);
    rig.settle();
    assert_eq!(rig.stats(1).rule_violations["transmit_header_too_short"], 1);
}
