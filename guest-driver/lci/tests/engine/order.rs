//! Packets arrive once and in order, whatever the network does.

use lci::{Counter, GroupId};
use proptest::prelude::*;

use super::{
    node::Target,
    world::{Faults, World},
};

const LIMIT_NS: u64 = 60_000_000_000;

#[test]
fn m_bv1_packets_to_a_node_to_all_and_to_a_group_arrive_once_and_in_order() {
    let mut world = World::ready(5, 1);
    let group = world.group(&[0, 2, 4]);
    for length in 0..200usize {
        world.nodes[0].backlog.push_back((Target::Node(1), length * 5));
        world.nodes[0]
            .backlog
            .push_back((Target::Group(GroupId::ALL), 1_024 - length));
        world.nodes[2].backlog.push_back((Target::Group(group), length));
        world.nodes[3].backlog.push_back((Target::Node(3), 16));
    }
    (0..5).for_each(|node| world.kick(node));
    assert!(world.settle(LIMIT_NS), "{}", world.report());
    assert_eq!(world.nodes[1].got_from(0), 200);
    assert_eq!(world.nodes[3].got_from(3), 200, "a node may send to itself");
    for node in 0..5 {
        let of = |source, group| world.nodes[node].got_of(source, group);
        assert_eq!(
            of(0, GroupId::ALL),
            if node == 0 { 0 } else { 200 },
            "all but the sender, {node}"
        );
        assert_eq!(of(2, group), if [0, 4].contains(&node) { 200 } else { 0 }, "{node}");
        assert_eq!(world.nodes[node].count(Counter::Retransmitted), 0);
    }
}

#[test]
fn m_bv2_lost_frames_are_sent_again_and_nothing_is_lost() {
    let mut world = World::new(3, 2);
    world.faults.lose = 10;
    world.await_ready();
    for _ in 0..5_000 {
        world.nodes[0].backlog.push_back((Target::Node(1), 1_000));
        world.nodes[1].backlog.push_back((Target::Group(GroupId::ALL), 100));
    }
    let start = world.now;
    (0..3).for_each(|node| world.kick(node));
    assert!(world.settle(LIMIT_NS), "{}", world.report());
    assert_eq!(world.nodes[1].got_from(0), 5_000);
    assert_eq!([0, 2].map(|node| world.nodes[node].got_of(1, GroupId::ALL)), [5_000; 2]);
    let again: u64 = world.nodes.iter().map(|node| node.count(Counter::Retransmitted)).sum();
    assert!(
        world.lost > 100 && again >= world.lost / 2,
        "lost {}, sent again {again}",
        world.lost
    );
    assert!(
        again < 3 * world.lost,
        "what was not lost is seldom sent again: {again} of {}",
        world.lost
    );
    // With 1 per cent lost, a gigabit link keeps half of its 110 MB/s.
    let ns = world.now.nanos_since(start);
    assert!(ns < 2 * 5_000 * (1_076 + 24) * 8, "5 MB take {ns} ns");
}

/// What the nodes of a run do.
#[derive(Clone, Debug)]
struct Plan {
    nodes: usize,
    seed: u64,
    faults: Faults,
    sends: Vec<(usize, usize, usize)>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let faults =
        (0u64..200, 0u64..100, 0u64..300, 1u64..3_000_000).prop_map(|(lose, duplicate, reorder, reorder_ns)| Faults {
            lose,
            duplicate,
            reorder,
            reorder_ns,
        });
    // From whom, to whom (the count of nodes: to all), how long.
    let sends = prop::collection::vec((0usize..9, 0usize..10, 0usize..=1_024), 1..400);
    (2usize..9, any::<u64>(), faults, sends).prop_map(|(nodes, seed, faults, sends)| Plan {
        nodes,
        seed,
        faults,
        sends,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Loss of up to a fifth of all frames, repeated frames, and frames that come up to 3 ms late.
    #[test]
    fn m_bv1_any_faults_leave_every_packet_once_and_in_order(plan in plan()) {
        let mut world = World::new(plan.nodes, plan.seed);
        world.faults = plan.faults;
        world.await_ready();
        let mut expected = vec![std::collections::BTreeMap::new(); plan.nodes];
        for (from, to, length) in &plan.sends {
            let (from, to) = (from % plan.nodes, to % (plan.nodes + 1));
            if to == plan.nodes {
                world.nodes[from].backlog.push_back((Target::Group(GroupId::ALL), *length));
                for (node, expected) in expected.iter_mut().enumerate() {
                    if node != from {
                        *expected.entry((from, Some(GroupId::ALL))).or_insert(0) += 1;
                    }
                }
            } else {
                world.nodes[from].backlog.push_back((Target::Node(to), *length));
                *expected[to].entry((from, None)).or_insert(0) += 1;
            }
        }
        (0..plan.nodes).for_each(|node| world.kick(node));
        prop_assert!(world.settle(LIMIT_NS), "{}", world.report());
        for (node, expected) in world.nodes.iter().zip(expected) {
            prop_assert_eq!(&node.got, &expected);
            prop_assert_eq!(node.engine.free_send_buffers(), 64, "every buffer came back");
            prop_assert!(node.removed().is_empty());
        }
    }
}
