//! Several copies that are told to the card at once.

use icopy::{ListedCopy, Use};
use proptest::prelude::*;

use crate::model::engine;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn m_ci4_copies_of_a_list_are_all_made_before_its_one_notification(
        frame_data_max in 9usize..65_535,
        room in 1usize..40,
        lens in proptest::collection::vec(1usize..12_000, 1..30),
        gap in 0usize..5000,
        steps in 0usize..5,
    ) {
        const LEN: usize = 400_000;
        let (mut engine, card) = engine(frame_data_max, room);
        let [from, to] = [Use::Receive, Use::Program].map(|kind| engine.allocate(LEN, kind).unwrap());
        let flag = engine.allocate(8, Use::Program).unwrap();
        from.write(0, &pattern(LEN));
        let mut expected = vec![0; LEN];
        let (mut list, mut source, mut destination) = (Vec::new(), 0, 0);
        for len in lens {
            if source + len > LEN || destination + len > LEN {
                break;
            }
            expected[destination..destination + len].copy_from_slice(&pattern(LEN)[source..source + len]);
            list.push(ListedCopy { destination: to.at(destination), source: from.at(source), len });
            (source, destination) = (source + len + gap, destination + len);
        }
        engine.icopy_k2u_list(&list, flag.variable(0), 5).unwrap();
        for _ in 0..steps {
            card.borrow_mut().step();
        }
        prop_assert!(!engine.test(flag.variable(0), 5).unwrap() || engine.is_idle());
        while !engine.is_idle() {
            while card.borrow_mut().step() {}
            engine.progress().unwrap();
        }
        prop_assert!(engine.test(flag.variable(0), 5).unwrap());
        let mut arrived = vec![0; LEN];
        to.read(0, &mut arrived);
        prop_assert!(arrived == expected);
        prop_assert_eq!(engine.counters().notifications, 1);
        prop_assert_eq!(engine.counters().copies, list.len() as u64);
        engine.unregister(from.as_ptr(), LEN).unwrap();
    }
}

#[test]
fn m_ci4_copies_of_a_list_share_frames_and_others_do_not() {
    const PACKET: usize = 4096;
    for listed in [true, false] {
        let (mut engine, card) = engine(65_535, 256);
        let [from, to] = [Use::Receive, Use::Program].map(|kind| engine.allocate(10 * PACKET, kind).unwrap());
        let flag = engine.allocate(8, Use::Program).unwrap();
        let copy = |at: usize| ListedCopy {
            destination: to.at(at * PACKET),
            source: from.at(at * PACKET),
            len: PACKET,
        };
        if listed {
            let list: Vec<_> = (0..10).map(copy).collect();
            engine.icopy_k2u_list(&list, flag.variable(0), 1).unwrap();
        } else {
            for ListedCopy {
                destination,
                source,
                len,
            } in (0..10).map(copy)
            {
                engine.icopy_k2u(destination, source, len).unwrap();
            }
        }
        assert_eq!(card.borrow().frames(), if listed { 1 } else { 10 });
    }
}

#[test]
fn a_list_with_a_wrong_copy_moves_nothing() {
    let (mut engine, card) = engine(8950, 256);
    let [from, to] = [Use::Receive, Use::Program].map(|kind| engine.allocate(8000, kind).unwrap());
    let flag = engine.allocate(8, Use::Program).unwrap();
    let copy = |len| ListedCopy {
        destination: to.at(0),
        source: from.at(0),
        len,
    };
    let refused = engine.icopy_k2u_list(&[copy(100), copy(9000)], flag.variable(0), 1);
    assert!(refused.is_err(), "beyond what is registered");
    let refused = engine.icopy_k2u_list(&[copy(0), copy(100)], flag.variable(0), 1);
    assert!(refused.is_err());
    assert!(engine.icopy_k2u_list(&[], flag.variable(0), 1).is_err());
    assert!(card.borrow().frames() == 0 && engine.is_idle());
}
