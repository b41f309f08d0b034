//! Copies and their notifications.

use icopy::{COPIES_MAX, CopyError, Use};
use proptest::prelude::*;

use crate::model::engine;

fn bytes(memory: &icopy::Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes);
    bytes
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8 ^ seed).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn m_ci1_copies_of_any_places_and_lengths_look_like_memcpy_in_order(
        frame_data_max in 9usize..30_000,
        room in 1usize..40,
        copies in proptest::collection::vec((0usize..40_000, 0usize..40_000, 1usize..20_000), 1..12),
        steps in proptest::collection::vec(0usize..8, 12),
    ) {
        const LEN: usize = 60_000;
        let (mut engine, card) = engine(frame_data_max, room);
        let memory = engine.allocate(LEN, Use::Program).unwrap();
        let flag = engine.allocate(8, Use::Program).unwrap();
        let mut expected = pattern(LEN, 0);
        memory.write(0, &expected);
        let mut number = 0;
        for ((destination, source, len), steps) in copies.into_iter().zip(steps) {
            let overlap = destination < source + len && source < destination + len;
            let asked = engine.icopy_notif(memory.at(destination), memory.at(source), len, flag.variable(0), number + 1);
            if overlap {
                prop_assert!(matches!(asked, Err(CopyError::Refused(firmware::copy_engine::CopyError::Overlap))));
                continue;
            }
            asked.unwrap();
            number += 1;
            // A copy may read what one before it writes: in order, all of them are one memcpy after the other.
            expected.copy_within(source..source + len, destination);
            for _ in 0..steps {
                card.borrow_mut().step();
            }
        }
        while !engine.is_idle() {
            while card.borrow_mut().step() {}
            engine.progress().unwrap();
        }
        prop_assert_eq!(bytes(&memory), expected);
        prop_assert!(number == 0 || engine.test(flag.variable(0), number).unwrap());
        prop_assert_eq!(engine.counters().notifications, number);
    }
}

#[test]
fn m_ci1_a_copy_longer_than_the_mtu_is_cut_and_every_frame_fits() {
    for (frame_data_max, len, frames) in [
        (8950, 1 << 20, 128),
        (8950, 8192, 1),
        (8950, 8193, 2),
        (1450, 14_420, 10),
        (1450, 1, 1),
    ] {
        let (mut engine, card) = engine(frame_data_max, 256);
        let [from, to, flag] = [len, len, 8].map(|len| engine.allocate(len, Use::Program).unwrap());
        from.write(0, &pattern(len, 9));
        engine
            .icopy_notif(to.at(0), from.at(0), len, flag.variable(0), 1)
            .unwrap();
        while card.borrow_mut().step() {}
        engine.wait(flag.variable(0), 1).unwrap();
        assert_eq!(bytes(&to), pattern(len, 9));
        let lens = card.borrow().lens.clone();
        assert_eq!(
            lens.len(),
            frames,
            "{len} bytes, at most {frame_data_max} in a frame: {lens:?}"
        );
        assert_eq!(lens.iter().map(|len| *len as usize).sum::<usize>(), len);
    }
}

#[test]
fn m_ci2_the_notification_comes_behind_all_data_and_only_then() {
    let (mut engine, card) = engine(8950, 256);
    let len = 100_000;
    let [from, to, flag] = [len, len, 64].map(|len| engine.allocate(len, Use::Program).unwrap());
    from.write(0, &pattern(len, 1));
    let variable = flag.variable(16);
    engine.icopy_notif(to.at(0), from.at(0), len, variable, 7).unwrap();
    let mut frames = 0;
    while card.borrow_mut().copy_data() {
        assert!(
            !engine.test(variable, 7).unwrap(),
            "notified before the frame was through"
        );
        card.borrow_mut().notify();
        frames += 1;
        let is_last = frames == 13;
        assert_eq!(engine.test(variable, 7).unwrap(), is_last, "frame {frames}");
        assert_eq!(bytes(&to) == pattern(len, 1), is_last);
    }
    assert_eq!(frames, 13);
    // A notification without data, behind a copy without a notification.
    engine.icopy(to.at(0), from.at(1), 5000).unwrap();
    let none = (std::ptr::null_mut(), std::ptr::null());
    engine.icopy_notif(none.0, none.1, 0, variable, 8).unwrap();
    card.borrow_mut().step();
    assert!(!engine.test(variable, 8).unwrap());
    card.borrow_mut().step();
    assert!(engine.test(variable, 8).unwrap());
    assert_eq!(bytes(&to)[..5000], pattern(len, 1)[1..5001]);
    // Neighbours of the variable are as they were.
    assert_eq!(bytes(&flag)[..16], [0; 16]);
    assert_eq!(bytes(&flag)[24..], [0; 40]);
}

#[test]
fn m_ci2_a_notification_holds_when_its_frame_cannot_be_repeated_any_more() {
    let (mut engine, card) = engine(8950, 256);
    let [from, to, flag] = [100, 100, 16].map(|len| engine.allocate(len, Use::Program).unwrap());
    let (variable, other) = (flag.variable(0), flag.variable(8));
    for value in 1..=2 {
        engine.icopy_notif(to.at(0), from.at(0), 100, variable, value).unwrap();
    }
    card.borrow_mut().withholds = true;
    card.borrow_mut().step();
    // It is stored; but if the card is killed now, the next one copies once more, over what the program has there then.
    assert!(!engine.test(variable, 1).unwrap());
    card.borrow_mut().withholds = false;
    assert!(engine.test(variable, 1).unwrap(), "while the second one goes on");
    card.borrow_mut().step();
    assert!(engine.test(variable, 2).unwrap());
    // What the program stored itself is no notification of the card's.
    flag.write(8, &7u64.to_ne_bytes());
    assert!(engine.test(other, 7).unwrap());
    engine.wait(other, 7).unwrap();
}

#[test]
fn m_ci3_receive_buffers_are_copied_from_by_the_calls_for_them_alone() {
    let (mut engine, card) = engine(8950, 256);
    let ring = engine.allocate(9000, Use::Receive).unwrap();
    let [to, flag] = [9000, 8].map(|len| engine.allocate(len, Use::Program).unwrap());
    ring.write(0, &pattern(9000, 5));
    engine.icopy_k2u(to.at(0), ring.at(0), 8000).unwrap();
    engine
        .icopy_k2u_notif(to.at(8000), ring.at(8000), 1000, flag.variable(0), 1)
        .unwrap();
    while card.borrow_mut().step() {}
    engine.wait(flag.variable(0), 1).unwrap();
    assert_eq!(bytes(&to), pattern(9000, 5));
    for wrong in [
        engine.icopy(to.at(0), ring.at(0), 1),
        engine.icopy_notif(to.at(0), ring.at(0), 1, flag.variable(0), 1),
        engine.icopy_k2u(to.at(0), to.at(100), 1),
        engine.icopy_k2u(ring.at(0), ring.at(100), 1),
        engine.icopy_k2u_notif(to.at(0), ring.at(0), 1, ring.variable(8), 1),
    ] {
        assert!(matches!(wrong, Err(CopyError::WrongUse { .. })), "{wrong:?}");
    }
    assert_eq!(card.borrow().frames(), 0);
}

#[test]
fn m_ci3_copies_wait_for_room_in_the_card_and_too_many_are_refused() {
    let (mut engine, card) = engine(4104, 4);
    let [from, to, flag] = [4096, 4096, 8].map(|len| engine.allocate(len, Use::Program).unwrap());
    let variable = flag.variable(0);
    let mut accepted = 0;
    let refused = loop {
        from.write(0, &[accepted as u8; 1]);
        match engine.icopy_notif(to.at(0), from.at(0), 4096, variable, accepted + 1) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(
        refused,
        CopyError::Refused(firmware::copy_engine::CopyError::QueueFull)
    ));
    assert_eq!(accepted, 4 + COPIES_MAX as u64);
    let mut done = 0;
    while !engine.is_idle() {
        while card.borrow_mut().step() {
            done += 1;
            assert!(engine.test(variable, done).unwrap(), "in order");
        }
        engine.progress().unwrap();
    }
    assert_eq!(done, accepted);
    engine.wait(variable, accepted).unwrap();
}
