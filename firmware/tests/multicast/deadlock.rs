//! The least number of forwarding buffers: at it no schedule deadlocks, one below it some schedule does.
//!
//! Small cases are searched whole: every order in which frames can move and guests can send.

use std::collections::HashSet;

use firmware::multicast::{MEMBERS_MAX, TreeShape, buffers_min};

use crate::net::{Net, Numbers, random_trees, trees};

/// Looks at every state that can be reached; gives their number, and whether one of them is stuck.
pub fn search(start: &Net) -> (usize, bool) {
    let mut seen = HashSet::from([start.fingerprint()]);
    let mut open = vec![start.clone()];
    let mut stuck = false;
    while let Some(net) = open.pop() {
        let successors = net.successors();
        if successors.is_empty() {
            stuck |= !net.is_complete();
        }
        for next in successors {
            if seen.insert(next.fingerprint()) {
                open.push(next);
            }
        }
    }
    (seen.len(), stuck)
}

#[test]
fn m_bv5_at_the_least_number_of_buffers_no_schedule_deadlocks_exhaustively() {
    for (shape, members) in [(TreeShape::Chain, 3), (TreeShape::Binary, 4), (TreeShape::Chain, 4)] {
        let least = buffers_min(shape, members);
        let (states, stuck) = search(&Net::new(least, &trees(shape, members), 1));
        assert!(!stuck, "{shape} of {members}");
        assert!(states > 100, "{shape} of {members}: {states} states show little");
    }
}

#[test]
fn m_bv5_one_buffer_below_the_least_number_some_schedule_deadlocks() {
    for (shape, members) in [(TreeShape::Chain, 3), (TreeShape::Binary, 4), (TreeShape::Chain, 4)] {
        let below = buffers_min(shape, members) - 1;
        let (_, stuck) = search(&Net::new(below, &trees(shape, members), 1));
        assert!(stuck, "{shape} of {members} with {below} buffers");
    }
    // Larger ones: a few random schedules are enough to find one.
    for shape in TreeShape::ALL {
        for members in [8, 9, 16, 64, MEMBERS_MAX] {
            let below = buffers_min(shape, members) - 1;
            let deadlocks = (0..200).any(|seed| {
                let mut net = Net::new(below, &trees(shape, members), 1);
                net.numbers = Numbers(seed);
                net.run();
                !net.is_complete()
            });
            assert!(deadlocks, "{shape} of {members} with {below} buffers");
        }
    }
}

#[test]
fn m_bv5_at_the_least_number_of_buffers_no_random_schedule_deadlocks() {
    let mut numbers = Numbers(9);
    for round in 0..300 {
        let members = 4 + numbers.below(if round % 50 == 0 { MEMBERS_MAX - 3 } else { 20 });
        let shape = TreeShape::ALL[round % 3];
        let mut net = Net::new(
            buffers_min(shape, members),
            &trees(shape, members),
            1 + numbers.below(3) as u32,
        );
        net.numbers = Numbers(round as u64);
        net.run();
        net.assert_complete();
    }
}

#[test]
fn m_bv5_several_groups_share_the_same_two_buffers() {
    for seed in 0..30 {
        let mut numbers = Numbers(seed);
        let members = 4 + numbers.below(12);
        let mut net = Net::new(2, &random_trees(members, &mut numbers), 3);
        for group in [8, 9] {
            // Their packets are equal, so that it does not matter which group a guest got one from; only GROUP is sent to.
            net.join(group, 1, &random_trees(members, &mut numbers));
        }
        net.numbers = Numbers(seed);
        net.run();
        net.assert_complete();
    }
}
