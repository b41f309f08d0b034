//! Matching against the plainest model: two lists, searched from the front.

use ether::MacAddr;
use mxoe::matching::{Envelope, Filter, MatchTable, PostedId, Selector, SourceKey, UnexpectedId};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Post(Filter),
    Cancel(usize),
    CancelAllFrom(SourceKey),
    Message(Envelope),
    Claim(Filter),
    ReceiveClaimed(usize),
}

fn source() -> impl Strategy<Value = Option<SourceKey>> {
    prop::option::of((0u8..3).prop_map(|endpoint| SourceKey::new(MacAddr([2, 0, 0, 0, 0, 1]), endpoint)))
}

fn step() -> impl Strategy<Value = Step> {
    // Few values, so that messages match; enough masks to leave the hashed classes.
    let mask = prop_oneof![
        3 => Just(u64::MAX),
        2 => Just(0xff),
        1 => Just(0),
        2 => (0u32..24).prop_map(|bit| 1 << bit | 3),
    ];
    let filter = (0u64..6, mask, source())
        .prop_map(|(info, mask, source)| Filter {
            selector: Selector::new(info & mask, mask).unwrap(),
            source,
        })
        .boxed();
    prop_oneof![
        4 => filter.clone().prop_map(Step::Post),
        1 => any::<usize>().prop_map(Step::Cancel),
        4 => (0u64..6, source()).prop_map(|(match_info, source)| Step::Message(Envelope { match_info, source })),
        1 => source().prop_filter_map("any source", |source| source.map(Step::CancelAllFrom)),
        1 => filter.prop_map(Step::Claim),
        1 => any::<usize>().prop_map(Step::ReceiveClaimed),
    ]
}

/// Says whether a receive takes a message, in the words of the interfaces: the masked information is the receive's, and the
/// source, if the receive names one, is the message's.
fn takes(filter: Filter, message: Envelope) -> bool {
    message.match_info & filter.selector.mask() == filter.selector.info()
        && filter.source.is_none_or(|source| message.source == Some(source))
}

proptest! {
    #[test]
    fn messages_and_receives_meet_in_the_order_mx_defines(steps in prop::collection::vec(step(), 1..400)) {
        let mut table = MatchTable::<usize, usize>::new(u64::MAX, 3);
        let mut posted: Vec<(Filter, usize, PostedId)> = Vec::new();
        let mut unexpected: Vec<(Envelope, usize)> = Vec::new();
        let mut claimed: Vec<(UnexpectedId, usize)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Post(filter) => {
                    let expected = unexpected.iter().position(|(message, _)| takes(filter, *message));
                    let expected = expected.map(|at| unexpected.remove(at).1);
                    let peeked = table.unexpected.peek(filter).map(|(_, value)| *value);
                    let got = table.unexpected.take(filter);
                    prop_assert_eq!(got, expected);
                    prop_assert_eq!(peeked, expected);
                    if got.is_none() {
                        let id = table.posted.post(filter, number).unwrap();
                        posted.push((filter, number, id));
                    }
                }
                Step::Cancel(at) => {
                    if !posted.is_empty() {
                        let (_, number, id) = posted.remove(at % posted.len());
                        prop_assert_eq!(table.posted.cancel(id), Some(number));
                        prop_assert_eq!(table.posted.cancel(id), None);
                    }
                }
                Step::CancelAllFrom(source) => {
                    let (of_source, others): (Vec<_>, Vec<_>) =
                        posted.into_iter().partition(|(filter, ..)| filter.source == Some(source));
                    posted = others;
                    let expected: Vec<_> = of_source.into_iter().map(|(_, number, _)| number).collect();
                    prop_assert_eq!(table.posted.take_all_from(source), expected);
                }
                Step::Claim(filter) => {
                    let expected = unexpected.iter().position(|(message, _)| takes(filter, *message));
                    let got = table.unexpected.claim(filter);
                    prop_assert_eq!(got.is_some(), expected.is_some());
                    if let (Some(id), Some(at)) = (got, expected) {
                        claimed.push((id, unexpected.remove(at).1));
                    }
                }
                Step::ReceiveClaimed(at) => {
                    if !claimed.is_empty() {
                        let (id, number) = claimed.remove(at % claimed.len());
                        prop_assert_eq!(table.unexpected.remove(id), Some(number));
                        prop_assert_eq!(table.unexpected.remove(id), None);
                    }
                }
                Step::Message(message) => {
                    let expected = posted.iter().position(|(filter, ..)| takes(*filter, message));
                    let expected = expected.map(|at| posted.remove(at).1);
                    let peeked = table.posted.peek(message).copied();
                    let got = table.posted.take(message);
                    prop_assert_eq!(got, expected);
                    prop_assert_eq!(peeked, expected);
                    if got.is_none() {
                        table.unexpected.add(message, 10, number).unwrap();
                        unexpected.push((message, number));
                    }
                }
            }
            prop_assert_eq!(table.posted.len(), posted.len());
            prop_assert_eq!(table.unexpected.len(), unexpected.len() + claimed.len());
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
