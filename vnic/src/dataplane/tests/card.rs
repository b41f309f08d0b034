//! What a card does to the frames its guest sends: the mark that moves (M-GF6). In virtual time; each test names its promise.

use super::introduce;
use crate::dataplane::rig::{ALL_FEATURES, Rig, frame};
use vnicd_protocol::LinkSettings;

const MARK: u8 = 0x80;
const TYPE: usize = 16;

/// Fragments of 100 bytes of a native MEDIUM message from guest 0 to guest 1, the last one marked.
pub(super) fn medium(fragments: u8, sequence: u8) -> Vec<Vec<u8>> {
    let message = |number| {
        let mut frame = frame(1, 0, 148, number);
        frame[12..14].copy_from_slice(&[0x86, 0xdf]);
        frame[TYPE] = 39;
        frame[17..20].copy_from_slice(&[1, 3, 0]);
        frame[20..24].copy_from_slice(&(u32::from(fragments) * 100).to_be_bytes());
        frame[24..26].copy_from_slice(&[0, sequence]);
        frame[40..44].copy_from_slice(&[0, 100, number, 0]);
        frame
    };
    let mut frames: Vec<_> = (0..fragments).map(message).collect();
    frames.last_mut().expect("a fragment")[TYPE] |= MARK;
    frames
}

#[test]
fn m_gf6_the_mark_leaves_the_sending_card_on_an_earlier_fragment_and_nothing_else_changes() {
    for delay_ns in [0, 5_000] {
        let mut rig = Rig::new(&[ALL_FEATURES, ALL_FEATURES]);
        introduce(&mut rig, 0, 1);
        let modelled = LinkSettings {
            delay_ns,
            ..Default::default()
        };
        rig.set_link(0, &LinkSettings::default(), &modelled);
        let send = |rig: &mut Rig, sequence| {
            let frames = medium(8, sequence);
            for (index, frame) in (0..).zip(&frames) {
                rig.send(0, index, frame);
            }
            rig.settle();
            rig.now = rig.now.plus_nanos(2 * delay_ns);
            rig.settle();
            let received: Vec<_> = rig.received(1).into_iter().map(|(_, frame)| frame).collect();
            assert_eq!(rig.completed(0), 8);
            let marked: Vec<_> = (0..8).filter(|at| received[*at][TYPE] & MARK != 0).collect();
            let plain = |frame: &Vec<u8>| {
                let mut frame = frame.clone();
                frame[TYPE] &= !MARK;
                frame
            };
            assert!(frames.iter().map(plain).eq(received.iter().map(plain)));
            marked
        };
        assert_eq!(send(&mut rig, 1), [7], "off");
        rig.misorder(0, 3);
        assert_eq!(
            send(&mut rig, 2),
            [7],
            "the first message tells that its receiver understands marks"
        );
        assert_eq!(send(&mut rig, 3), [4]);
        rig.misorder(0, 1);
        assert_eq!(send(&mut rig, 4), [6]);
        let counted = rig.stats(0).misorder;
        assert_eq!((counted["moved"], counted["cleared"], counted["kept"]), (2, 2, 1));
        // It is the sending card's doing alone.
        assert_eq!(rig.stats(1).misorder.values().sum::<u64>(), 0);
    }
}
