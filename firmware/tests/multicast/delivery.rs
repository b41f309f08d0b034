//! Every member exactly once and in order, whatever the trees, the senders and the schedule.

use firmware::multicast::{BUFFERS_DEFAULT, MEMBERS_MAX, TreeShape};

use crate::net::{GROUP, Net, Numbers, random_trees, trees};

/// Counters of the group, summed over all cards.
fn sum(net: &Net, name: &str) -> u64 {
    let of = |card: &firmware::multicast::Multicast| {
        let named = card.totals().named();
        named.iter().find(|(known, _)| *known == name).expect("a counter").1
    };
    net.cards.iter().map(of).sum()
}

#[test]
fn m_bv5_every_member_gets_each_packet_once_and_in_order() {
    for shape in TreeShape::ALL {
        for members in [1, 2, 3, 4, 7, 8, 33, MEMBERS_MAX] {
            let mut net = Net::new(BUFFERS_DEFAULT, &trees(shape, members), 0);
            net.left[0] = 20;
            net.numbers = Numbers(members as u64);
            net.run();
            net.assert_complete();
            assert_eq!(sum(&net, "sent"), 20);
            assert_eq!(
                sum(&net, "forwarded"),
                20 * (members as u64 - 1),
                "as many as the tree has edges"
            );
            assert_eq!(sum(&net, "delivered"), 20 * (members as u64 - 1));
            assert_eq!(sum(&net, "duplicates") + sum(&net, "missed") + sum(&net, "given_up"), 0);
        }
    }
}

#[test]
fn m_bv5_all_members_send_at_once() {
    for shape in TreeShape::ALL {
        for (members, packets) in [(2, 50), (5, 50), (32, 10), (MEMBERS_MAX, 2)] {
            let mut net = Net::new(BUFFERS_DEFAULT, &trees(shape, members), packets);
            net.numbers = Numbers(packets.into());
            net.run();
            net.assert_complete();
        }
    }
}

#[test]
fn m_bv5_random_trees_of_up_to_128_members_under_random_schedules() {
    let mut numbers = Numbers(5);
    for round in 0..60 {
        let members = 2 + numbers.below(if round % 10 == 0 { MEMBERS_MAX - 1 } else { 30 });
        let trees = random_trees(members, &mut numbers);
        // The least that is enough, and a little more: the reserved buffers and the common ones in turn.
        let buffers = 2 + numbers.below(3) as u16 * numbers.below(20) as u16;
        let mut net = Net::new(buffers, &trees, 1 + numbers.below(4) as u32);
        net.numbers = Numbers(round);
        net.run();
        net.assert_complete();
    }
}

#[test]
fn m_bv5_a_sender_sends_only_to_its_children() {
    let mut net = Net::new(BUFFERS_DEFAULT, &trees(TreeShape::Binary, 5), 0);
    net.left[2] = 1;
    net.run();
    net.assert_complete();
    let forwarded: Vec<_> = net.cards.iter().map(|card| card.totals().forwarded).collect();
    // Places 0 to 4 are the ranks 2, 3, 4, 0, 1: the sender has two children, the first of them two.
    assert_eq!(forwarded, [0, 0, 2, 2, 0]);
    assert_eq!(net.cards[0].groups().next().map(|(number, ..)| number), Some(GROUP));
}

#[test]
fn m_bv5_credits_come_back_in_batches() {
    let mut net = Net::new(BUFFERS_DEFAULT, &trees(TreeShape::Binary, 65), 0);
    net.left[0] = 1_000;
    net.run();
    net.assert_complete();
    let signals = net.frames - 64_000 - 65;
    // A flood: both directions together, one for about five packets. Without a flood there are half as many.
    assert!(
        signals < 64_000 / 4,
        "{signals} frames for credits among 64000 with data"
    );
}
