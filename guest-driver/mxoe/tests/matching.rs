//! Matching against the plainest model: two lists, searched from the front.

use mxoe::matching::{MatchTable, PostedId, Selector};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Post(Selector),
    Cancel(usize),
    Message(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Few values, so that messages match; enough masks to leave the hashed classes.
    let mask = prop_oneof![
        3 => Just(u64::MAX),
        2 => Just(0xff),
        1 => Just(0),
        2 => (0u32..24).prop_map(|bit| 1 << bit | 3),
    ];
    prop_oneof![
        4 => (0u64..6, mask).prop_map(|(info, mask)| Step::Post(Selector::new(info & mask, mask).unwrap())),
        1 => any::<usize>().prop_map(Step::Cancel),
        4 => (0u64..6).prop_map(Step::Message),
    ]
}

proptest! {
    #[test]
    fn messages_and_receives_meet_in_the_order_mx_defines(steps in prop::collection::vec(step(), 1..400)) {
        let mut table = MatchTable::<usize, usize>::new(u64::MAX, 3);
        let mut posted: Vec<(Selector, usize, PostedId)> = Vec::new();
        let mut unexpected: Vec<(u64, usize)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Post(selector) => {
                    let expected = unexpected.iter().position(|(info, _)| selector.matches(*info));
                    let expected = expected.map(|at| unexpected.remove(at).1);
                    let peeked = table.unexpected.peek(selector).map(|(_, value)| *value);
                    let got = table.unexpected.take(selector);
                    prop_assert_eq!(got, expected);
                    prop_assert_eq!(peeked, expected);
                    if got.is_none() {
                        let id = table.posted.post(selector, number).unwrap();
                        posted.push((selector, number, id));
                    }
                }
                Step::Cancel(at) => {
                    if !posted.is_empty() {
                        let (_, number, id) = posted.remove(at % posted.len());
                        prop_assert_eq!(table.posted.cancel(id), Some(number));
                        prop_assert_eq!(table.posted.cancel(id), None);
                    }
                }
                Step::Message(info) => {
                    let expected = posted.iter().position(|(selector, ..)| selector.matches(info));
                    let expected = expected.map(|at| posted.remove(at).1);
                    let peeked = table.posted.peek(info).copied();
                    let got = table.posted.take(info);
                    prop_assert_eq!(got, expected);
                    prop_assert_eq!(peeked, expected);
                    if got.is_none() {
                        table.unexpected.add(info, 10, number).unwrap();
                        unexpected.push((info, number));
                    }
                }
            }
            prop_assert_eq!(table.posted.len(), posted.len());
            prop_assert_eq!(table.unexpected.len(), unexpected.len());
        }
    }
}

#[test]
fn unexpected_messages_beyond_the_limit_are_refused_and_counted() {
    let mut table = MatchTable::<(), u32>::new(1_000, 0);
    let first = table.unexpected.add(1, 700, 1).unwrap();
    assert_eq!(table.unexpected.add(2, 700, 2), Err(2));
    assert_eq!(table.unexpected.refused(), 1);
    assert_eq!(table.unexpected.remove(first), Some(1));
    assert_eq!(table.unexpected.remove(first), None);
    assert_eq!(table.unexpected.bytes(), 0);
    assert!(table.unexpected.add(2, 700, 2).is_ok());
}

#[test]
fn messages_of_a_lost_partner_can_be_taken_out_together() {
    let mut table = MatchTable::<(), u32>::new(1 << 20, 0);
    for value in 0..10 {
        table.unexpected.add(u64::from(value % 3), 1, value).unwrap();
    }
    let mut removed = Vec::new();
    table
        .unexpected
        .remove_if(|value| value % 2 == 0, |value| removed.push(value));
    assert_eq!(removed, [0, 2, 4, 6, 8]);
    assert_eq!(table.unexpected.take(Selector::exact(0)), Some(3));
    assert_eq!(table.unexpected.take(Selector::ANY), Some(1));
    assert_eq!(table.unexpected.len(), 3);
}

#[test]
fn an_undecided_message_is_not_found_nor_a_later_one_in_its_stead() {
    let mut table = MatchTable::<(), u32>::new(1 << 20, 0);
    table.unexpected.add(1, 1, 10).unwrap();
    let undecided = table.unexpected.add(7, 1, 20).unwrap();
    table.unexpected.add(7, 1, 30).unwrap();
    table.unexpected.begin_to_decide(undecided);
    assert_eq!(table.unexpected.peek(Selector::exact(7)), None);
    assert_eq!(table.unexpected.take(Selector::ANY), Some(10));
    assert!(!table.unexpected.decided(), "nothing came for it");
    table.unexpected.add(9, 1, 11).unwrap();
    table.unexpected.begin_to_decide(undecided);
    assert_eq!(table.unexpected.take(Selector::exact(7)), None);
    assert_eq!(table.unexpected.take(Selector::ANY), None);
    assert_eq!(table.unexpected.take(Selector::exact(9)), None, "others came first");
    assert!(table.unexpected.is_awaited());
    assert!(table.unexpected.decided());
    assert_eq!(table.unexpected.take(Selector::exact(9)), Some(11));
    assert_eq!(table.unexpected.take(Selector::exact(7)), Some(20));
    // Taken by name while it is undecided: the next one in its place is not.
    let other = table.unexpected.add(7, 1, 40).unwrap();
    table.unexpected.begin_to_decide(other);
    assert_eq!(table.unexpected.remove(other), Some(40));
    table.unexpected.add(8, 1, 50).unwrap();
    assert_eq!(table.unexpected.take(Selector::exact(8)), Some(50));
    assert_eq!(table.unexpected.take(Selector::ANY), Some(30));
}
