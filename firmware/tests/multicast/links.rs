//! Links that lose and repeat frames, children that are gone, and tables that change while packets are in flight.

use firmware::multicast::{GIVE_UP_NS, RETRY_NS, TreeShape};

use crate::net::{Fault, GROUP, Net, Numbers, trees};

/// Lets time pass until nothing is due and nothing moves.
fn run_with_time(net: &mut Net, until_ns: u64) {
    loop {
        net.run();
        let due = net.cards.iter().filter_map(|card| card.next_event()).min();
        let Some(at) = due.filter(|at| at.as_nanos() <= until_ns) else {
            return;
        };
        net.now = at.max(net.now);
        (0..net.cards.len()).for_each(|card| net.act(card));
    }
}

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn m_bv5_a_frame_that_a_link_repeats_arrives_once() {
    for buffers in [2, 20] {
        let mut net = Net::new(buffers, &trees(TreeShape::Binary, 16), 10);
        net.fault = Some(|numbers| {
            if numbers.below(3) == 0 {
                Fault::Twice
            } else {
                Fault::None
            }
        });
        run_with_time(&mut net, SECOND_NS);
        assert!(net.is_complete());
        let duplicates: u64 = net.cards.iter().map(|card| card.totals().duplicates).sum();
        assert!(duplicates > 100, "{duplicates}");
    }
}

#[test]
fn m_bv5_what_a_link_loses_is_counted_and_holds_up_nothing_else() {
    for (buffers, seed) in [(2, 1), (2, 2), (8, 3), (254, 4)] {
        let mut net = Net::new(buffers, &trees(TreeShape::Binary, 16), 40);
        net.numbers = Numbers(seed);
        net.lossy = true;
        net.fault = Some(|numbers| {
            if numbers.below(50) == 0 {
                Fault::Lost
            } else {
                Fault::None
            }
        });
        run_with_time(&mut net, 60 * SECOND_NS);
        assert!(
            net.left.iter().all(|left| *left == 0),
            "everything was sent: {:?}",
            net.left
        );
        let total = |count: fn(&firmware::multicast::GroupCounters) -> u64| -> u64 {
            net.cards.iter().map(|card| count(&card.totals())).sum()
        };
        assert_eq!(total(|counts| counts.given_up), 0);
        assert!(total(|counts| counts.missed) > 0);
        let delivered = total(|counts| counts.delivered);
        assert!(delivered > 16 * 15 * 40 * 8 / 10, "{delivered}");
        // Links that work again: everything that is sent from now on arrives.
        net.fault = None;
        net.left = vec![1; 16];
        run_with_time(&mut net, 70 * SECOND_NS);
        for card in 0..16 {
            for sender in (0..16).filter(|sender| *sender != card) {
                assert_eq!(net.got[card][sender], 41, "the last of {sender} at {card}");
            }
        }
        assert!(net.cards.iter().all(|card| card.buffers_in_use() == 0));
    }
}

#[test]
fn m_bv5_a_child_that_is_gone_costs_its_part_of_the_tree_and_comes_back() {
    let mut net = Net::new(254, &trees(TreeShape::Chain, 4), 0);
    net.lossy = true;
    net.left[0] = 5;
    net.fault = Some(|_| Fault::Lost);
    run_with_time(&mut net, GIVE_UP_NS - RETRY_NS);
    assert_eq!(net.cards[0].buffers_in_use(), 5, "they wait for credits of rank 1");
    run_with_time(&mut net, 2 * GIVE_UP_NS);
    assert_eq!((net.cards[0].totals().given_up, net.cards[0].buffers_in_use()), (5, 0));
    // The link is there again. The next packet finds out, and those behind it arrive.
    net.fault = None;
    net.now = net.now.plus_nanos(RETRY_NS);
    for _ in 0..3 {
        net.left[0] = 1;
        run_with_time(&mut net, 3 * GIVE_UP_NS);
        net.now = net.now.plus_nanos(RETRY_NS);
    }
    assert_eq!(net.got[3][0], 8, "the last packet reached the end of the chain");
}

#[test]
fn m_bv5_a_group_that_is_written_anew_starts_anew() {
    let four = trees(TreeShape::Chain, 4);
    let mut net = Net::new(2, &four, 3);
    net.lossy = true;
    for round in 0..50 {
        net.numbers = Numbers(round);
        (0..40).for_each(|_| {
            net.step();
        });
        // What is in flight is of the tables before: refused, and nothing of it stays in a buffer.
        net.join(GROUP, round as u16 + 2, &four);
        assert!(net.cards.iter().all(|card| card.buffers_in_use() == 0));
        net.left = vec![3; 4];
    }
    net.run();
    let stale: u64 = net
        .cards
        .iter()
        .map(|card| card.refusals().of(firmware::multicast::TagRefusal::Stale))
        .sum();
    assert!(stale > 0);
    for card in 0..4 {
        for sender in (0..4).filter(|sender| *sender != card) {
            assert_eq!(net.got[card][sender], net.sent[sender], "the last packets arrived");
        }
        assert!(net.cards[card].remove_group(GROUP));
        assert!(!net.cards[card].remove_group(GROUP));
        assert!(
            net.cards[card].totals().delivered > 0,
            "what was counted in a group stays"
        );
    }
}
