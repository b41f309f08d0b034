//! M-GF6: the mark of a MEDIUM message leaves the sending card on fragment N − X. Frames are those of `mxoe-wire.md` section 14.

use firmware::{Card, CardConfig, MISORDER_DEGREE_MAX, Misorder, MisorderCounters, MisorderSettings};

use crate::support::Numbers;

const MARK: u8 = 0x80;
const TYPE: usize = 16;

/// The worked frame "MEDIUM A>B" without its fields of the message, padded to the card's inline header.
const HEAD: [u8; 20] = [2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x86, 0xdf, 0, 7, 0x27, 1, 3, 0];
const MATCH_AND_SESSION: [u8; 12] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x0b, 0xad, 0xca, 0xfe];

/// How a message is cut (`mxoe-wire.md` section 3).
#[derive(Clone, Copy, Debug)]
enum Preset {
    Wire,
    Native(u32),
}

/// Header of one fragment, written field by field from section 5.3.
fn fragment(preset: Preset, length: u32, sequence: u16, number: u8, len: u32) -> [u8; 64] {
    let mut bytes = HEAD.to_vec();
    match preset {
        Preset::Wire => {
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
            bytes.extend_from_slice(&[0, 0]);
        }
        Preset::Native(_) => bytes.extend_from_slice(&length.to_be_bytes()),
    }
    bytes.extend_from_slice(&sequence.to_be_bytes());
    bytes.extend_from_slice(&[0, 1]);
    bytes.extend_from_slice(&MATCH_AND_SESSION);
    bytes.extend_from_slice(&(len as u16).to_be_bytes());
    bytes.push(number);
    bytes.push(if matches!(preset, Preset::Wire) { 12 } else { 0 });
    bytes.extend_from_slice(&[0; 4]);
    assert_eq!(bytes.len(), 48);
    bytes.resize(64, 0xa5);
    bytes.try_into().expect("64 bytes")
}

/// All fragments of a message, the last one marked, as the sending driver does (M-GF3).
fn message(preset: Preset, length: u32, sequence: u16) -> Vec<[u8; 64]> {
    let full = match preset {
        Preset::Wire => 4096,
        Preset::Native(full) => full,
    };
    let last = (length - 1) / full;
    let mut frames: Vec<_> = (0..=last)
        .map(|number| {
            let len = full.min(length - number * full);
            fragment(preset, length, sequence, number as u8, len)
        })
        .collect();
    frames.last_mut().expect("one fragment")[TYPE] |= MARK;
    frames
}

fn card(degree: u8) -> Card {
    let mut nic = Card::new(CardConfig::default());
    nic.misorder_mut()
        .set(MisorderSettings::of_degree(degree))
        .expect("a degree");
    nic
}

/// What leaves the card: which fragments are marked. Nothing but the mark may differ.
fn marked(injector: &mut Misorder, frames: &[[u8; 64]]) -> Vec<usize> {
    let sent = frames.iter().map(|frame| {
        let mut sent = *frame;
        if let Some((at, value)) = injector.sent(frame) {
            assert_eq!(at, TYPE);
            sent[at] = value;
        }
        let mut plain = (*frame, sent);
        plain.0[TYPE] &= !MARK;
        plain.1[TYPE] &= !MARK;
        assert_eq!(plain.0, plain.1);
        sent[TYPE] & MARK != 0
    });
    let marks: Vec<_> = sent.collect();
    (0..marks.len()).filter(|number| marks[*number]).collect()
}

/// A marked TINY to this partner: the driver knows that it understands marks.
fn greeting() -> [u8; 64] {
    let mut frame = fragment(Preset::Native(1452), 5, 1, 0, 5);
    frame[TYPE] = 0x25 | MARK;
    frame
}

#[test]
fn m_gf6_frames_are_those_of_the_worked_examples() {
    // "MEDIUM A>B fragment 1 of 10000 bytes, header only", wire mode and native mode with MTU 9000.
    let wire = fragment(Preset::Wire, 10_000, 2, 1, 4096);
    assert_eq!(wire[20..26], [0x27, 0x10, 0, 0, 0, 2]);
    assert_eq!(wire[40..48], [0x10, 0, 1, 0x0c, 0, 0, 0, 0]);
    let native = fragment(Preset::Native(8192), 10_000, 2, 1, 1808);
    assert_eq!(native[20..26], [0, 0, 0x27, 0x10, 0, 2]);
    assert_eq!(native[40..48], [0x07, 0x10, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn m_gf6_degree_1_and_3_move_the_mark_of_the_papers_message_from_fragment_22() {
    for (degree, number) in [(1, 21), (3, 19)] {
        let mut nic = card(degree);
        let injector = nic.misorder_mut();
        assert_eq!(injector.sent(&greeting()), None);
        // 32 KiB in native-1500: 23 fragments (R-GF7).
        let frames = message(Preset::Native(1452), 32 << 10, 2);
        assert_eq!(frames.len(), 23);
        assert_eq!(marked(injector, &frames), [number]);
        let counted = MisorderCounters {
            moved: 1,
            cleared: 1,
            kept: 0,
        };
        assert_eq!(injector.counters(), counted);
        // Sent again as a whole, it leaves as before and is not a second message.
        assert_eq!(marked(injector, &frames), [number]);
        assert_eq!(injector.counters(), counted);
    }
}

/// A message of `length` bytes that nothing is known against: its mark leaves on fragment N - X, or stays where there is none.
fn moves_its_mark(injector: &mut Misorder, preset: Preset, length: u32, sequence: u16) {
    let frames = message(preset, length, sequence);
    let last = frames.len() - 1;
    let moved = last.checked_sub(injector.degree().into());
    let before = injector.counters();
    let marks = marked(injector, &frames);
    // In native mode a shorter last fragment cannot be mistaken, since it is the one with the mark.
    assert_eq!(
        marks,
        [moved.unwrap_or(last)],
        "{preset:?} {} {length}",
        injector.degree()
    );
    let one = u64::from(moved.is_some());
    let counted = MisorderCounters {
        moved: before.moved + one,
        cleared: before.cleared + one,
        kept: before.kept + 1 - one,
    };
    assert_eq!(injector.counters(), counted);
}

#[test]
fn m_gf6_every_length_and_mode_moves_one_mark_by_the_degree_and_loses_none() {
    let mut numbers = Numbers::new(6);
    for preset in [Preset::Wire, Preset::Native(1452), Preset::Native(8192)] {
        for degree in 1..=MISORDER_DEGREE_MAX {
            let mut nic = card(degree);
            let injector = nic.misorder_mut();
            injector.sent(&greeting());
            for sequence in 2..60 {
                let longest = match preset {
                    Preset::Wire => 32_768,
                    Preset::Native(full) => 32 * full,
                };
                let length = 129 + numbers.below(u64::from(longest) - 128) as u32;
                moves_its_mark(injector, preset, length, sequence);
            }
        }
    }
}

#[test]
fn m_gf6_messages_of_whole_fragments_and_a_byte_more_or_less_move_their_mark_by_the_degree() {
    let native = [1452, 4096, 8192].map(|full| (Preset::Native(full), full, 32));
    for (preset, full, fragments_max) in [(Preset::Wire, 4096, 8)].into_iter().chain(native) {
        for degree in 1..=MISORDER_DEGREE_MAX {
            let mut nic = card(degree);
            let injector = nic.misorder_mut();
            injector.sent(&greeting());
            let mut sequence = 1;
            for fragments in 1..=fragments_max {
                for length in [fragments * full - 1, fragments * full, fragments * full + 1] {
                    if length <= fragments_max * full {
                        sequence += 1;
                        moves_its_mark(injector, preset, length, sequence);
                    }
                }
            }
        }
    }
}

#[test]
fn m_gf6_a_message_without_a_fragment_n_minus_x_keeps_its_mark_and_counts_once_however_often_it_is_sent() {
    let mut nic = card(7);
    let injector = nic.misorder_mut();
    injector.sent(&greeting());
    let counted = |kept| MisorderCounters {
        kept,
        ..MisorderCounters::default()
    };
    for (kept, sequence) in [(1, 2), (2, 3)] {
        let frames = message(Preset::Native(1452), 10_000, sequence);
        for _ in 0..3 {
            assert_eq!(marked(injector, &frames), [6]);
            // Shown again while it is not sent.
            assert_eq!(marked(injector, &frames[6..]), [0]);
            assert_eq!(injector.counters(), counted(kept));
        }
    }
}

/// A message whose last fragment lost its mark.
fn unmarked(mut frames: Vec<[u8; 64]>) -> Vec<[u8; 64]> {
    frames.last_mut().expect("fragments")[TYPE] &= !MARK;
    frames
}

/// `frame` as endpoint `src` sends it to endpoint `dst`.
fn between(mut frame: [u8; 64], dst: u8, src: u8) -> [u8; 64] {
    (frame[17], frame[18]) = (dst, src);
    frame
}

#[test]
fn m_gf6_however_many_pairs_of_endpoints_share_what_a_card_remembers_no_stranger_is_sent_a_mark() {
    let mut nic = card(1);
    let injector = nic.misorder_mut();
    let frames = unmarked(message(Preset::Native(1452), 10_000, 2));
    for (dst, src) in (0..=255).flat_map(|dst| (0..16).map(move |src| (dst, src))) {
        // No frame to the stranger was marked yet, whichever partner is remembered in its place.
        assert_eq!(injector.sent(&between(greeting(), dst, src)), None);
        let stranger: Vec<_> = frames.iter().map(|frame| between(*frame, dst, src + 16)).collect();
        assert!(marked(injector, &stranger).is_empty(), "{dst} {src}");
    }
    for (dst, src) in (0..=255).flat_map(|dst| (16..32).map(move |src| (dst, src))) {
        let stranger: Vec<_> = frames.iter().map(|frame| between(*frame, dst, src)).collect();
        assert!(marked(injector, &stranger).is_empty(), "{dst} {src}");
    }
    assert_eq!(injector.counters(), MisorderCounters::default());
}

#[test]
fn m_gf6_of_pairs_of_endpoints_that_share_a_place_the_later_takes_it() {
    let mut nic = card(1);
    let injector = nic.misorder_mut();
    let frames = message(Preset::Native(1452), 10_000, 2);
    let mut pairs = 0;
    for (dst, src) in (0..=255).flat_map(|dst| (0..16).map(move |src| (dst, src))) {
        assert_eq!(injector.sent(&between(greeting(), dst, src)), None);
        let frames: Vec<_> = frames.iter().map(|frame| between(*frame, dst, src)).collect();
        assert_eq!(marked(injector, &frames), [5], "{dst} {src}");
        pairs += 1;
        let counted = injector.counters();
        assert_eq!((counted.moved, counted.cleared, counted.kept), (pairs, pairs, 0));
    }
}

#[test]
fn m_gf6_what_was_known_of_a_partner_is_forgotten_while_the_injector_is_off() {
    let mut nic = card(1);
    let injector = nic.misorder_mut();
    injector.sent(&greeting());
    assert_eq!(marked(injector, &message(Preset::Native(1452), 10_000, 2)), [5]);
    injector.set(MisorderSettings::of_degree(0)).expect("off");
    // The two connect anew, this time to a program that does not understand marks; no mark is read.
    let mut connect = greeting();
    connect[TYPE] = 0x24;
    assert_eq!(injector.sent(&connect), None);
    injector.set(MisorderSettings::of_degree(1)).expect("on");
    let unmarked = unmarked(message(Preset::Native(1452), 10_000, 2));
    assert!(marked(injector, &unmarked).is_empty());
    // Another degree is no reason to forget.
    injector.sent(&greeting());
    injector.set(MisorderSettings::of_degree(2)).expect("on");
    assert_eq!(marked(injector, &message(Preset::Native(1452), 10_000, 3)), [4]);
}

#[test]
fn m_gf6_nothing_is_marked_for_a_receiver_that_is_not_known_to_understand_marks() {
    let mut nic = card(1);
    let injector = nic.misorder_mut();
    let foreign = unmarked(message(Preset::Native(1452), 10_000, 2));
    assert!(marked(injector, &foreign).is_empty());
    // The first marked message to a partner keeps its mark: fragment N - 1 was sent before the card could know.
    let frames = message(Preset::Native(1452), 10_000, 3);
    assert_eq!(marked(injector, &frames), [6]);
    assert_eq!(marked(injector, &message(Preset::Native(1452), 10_000, 4)), [5]);
    // Another endpoint of this node, and another node, are other partners.
    for (at, value) in [(17, 9), (5, 0x0c), (18, 4)] {
        let mut other = message(Preset::Native(1452), 10_000, 5);
        other.iter_mut().for_each(|frame| frame[at] = value);
        other.last_mut().expect("fragments")[TYPE] &= !MARK;
        assert!(marked(injector, &other).is_empty());
    }
    // A new connection may be to a program that does not understand marks.
    let mut connect = greeting();
    connect[TYPE] = 0x24;
    assert_eq!(injector.sent(&connect), None);
    let again = unmarked(message(Preset::Native(1452), 10_000, 6));
    assert!(marked(injector, &again).is_empty());
}

#[test]
fn m_gf6_only_mediums_are_touched_and_only_while_it_is_on() {
    let mut nic = card(1);
    let injector = nic.misorder_mut();
    injector.sent(&greeting());
    let frames = message(Preset::Native(1452), 10_000, 2);
    for kind in (0..=255).filter(|kind| kind & !MARK != 0x27) {
        let mut frame = frames[5];
        frame[TYPE] = kind;
        assert_eq!(injector.sent(&frame), None, "type {kind:#x}");
        injector.sent(&greeting());
    }
    let mut ip = frames[5];
    ip[12..14].copy_from_slice(&[0x08, 0x00]);
    assert_eq!(injector.sent(&ip), None);
    assert_eq!(injector.counters(), MisorderCounters::default());
    assert!(
        injector
            .set(MisorderSettings::of_degree(MISORDER_DEGREE_MAX + 1))
            .is_err()
    );
    assert_eq!(injector.degree(), 1);
    injector.set(MisorderSettings::of_degree(0)).expect("off");
    assert_eq!(marked(injector, &frames), [6]);
    assert_eq!(injector.counters(), MisorderCounters::default());
}

#[test]
fn m_gf6_a_header_of_any_content_and_length_is_survived_and_changes_the_mark_at_most() {
    let mut nic = card(3);
    let injector = nic.misorder_mut();
    let mut numbers = Numbers::new(66);
    let model = message(Preset::Native(1452), 30_000, 2);
    for _ in 0..200_000 {
        let mut frame = model[numbers.below(model.len() as u64) as usize];
        for _ in 0..numbers.below(4) {
            frame[numbers.below(64) as usize] = numbers.next() as u8;
        }
        let header = &frame[..numbers.below(65) as usize];
        if let Some((at, value)) = injector.sent(header) {
            assert_eq!((at, header[at] & !MARK), (TYPE, value & !MARK));
        }
    }
}
