//! Nodes that die, leave, start again, or are cut off: the others go on, and say who it was.

use ether::Time;
use lci::{Counter, Event, GroupId, RemovalReason};
use proptest::prelude::*;

use super::{
    node::{Node, Target, config_of},
    world::{Faults, World},
};

const SECOND_NS: u64 = 1_000_000_000;
const DEAD_NS: u64 = 10 * SECOND_NS;

fn broadcast(world: &mut World, node: usize, count: usize) {
    for _ in 0..count {
        world.nodes[node]
            .backlog
            .push_back((Target::Group(GroupId::ALL), 1_000));
    }
    world.kick(node);
}

#[test]
fn m_bv2_a_member_killed_in_the_middle_of_broadcasts_is_named_and_the_others_get_everything() {
    // Each node forwards in most of these trees.
    for dead in 1..7 {
        let mut world = World::ready(7, dead as u64);
        for node in 0..7 {
            broadcast(&mut world, node, 300);
        }
        world.run(3_000_000, |_| false);
        world.off[dead] = true;
        let start = world.now;
        let alive: Vec<_> = (0..7).filter(|node| *node != dead).collect();
        assert!(world.settle(3 * DEAD_NS), "{}", world.report());
        for node in &alive {
            for source in alive.iter().filter(|source| *source != node) {
                assert_eq!(
                    world.nodes[*node].got_of(*source, GroupId::ALL),
                    300,
                    "{source} to {node} without {dead}"
                );
            }
            let removed = world.nodes[*node].removed();
            let [(at, who, RemovalReason::Silent | RemovalReason::Reported { .. })] = removed[..] else {
                panic!("{removed:?}");
            };
            assert_eq!(who, dead);
            let after_ns = at.nanos_since(start);
            assert!((DEAD_NS / 2..DEAD_NS + DEAD_NS / 8).contains(&after_ns), "{after_ns}");
            assert_eq!(world.nodes[*node].engine.present().len(), 6);
        }
    }
}

#[test]
fn m_bv2_a_dead_node_is_noticed_by_those_that_only_wait_for_it() {
    let mut world = World::ready(2, 1);
    world.off[1] = true;
    world.run(2 * DEAD_NS, |_| false);
    assert!(matches!(world.nodes[0].removed()[..], [(_, 1, RemovalReason::Silent)]));
    assert!(world.nodes[0].count(Counter::Probes) >= 4);
}

#[test]
fn m_bv9_a_node_that_computes_for_longer_than_the_limit_reads_first_and_removes_none() {
    let mut world = World::ready(3, 1);
    world.compute(1);
    world.run(2 * DEAD_NS, |_| false);
    // The others have removed it: it neither polled nor let itself be interrupted.
    assert!(!world.nodes[0].removed().is_empty());
    world.computed(1);
    world.run(DEAD_NS, |_| false);
    let excluded = |event: &&(Time, Event)| matches!(event.1, Event::Excluded { .. });
    assert_eq!(
        world.nodes[1].events.iter().filter(excluded).count(),
        2,
        "it is told by both"
    );
    assert!(
        world.nodes[1]
            .removed()
            .iter()
            .all(|(.., reason)| *reason != RemovalReason::Silent)
    );

    let mut world = World::ready(3, 1);
    world.compute(1);
    world.run(DEAD_NS * 9 / 10, |_| false);
    world.computed(1);
    world.run(DEAD_NS, |_| false);
    assert!(world.nodes.iter().all(|node| node.removed().is_empty()));
}

#[test]
fn m_bv2_nodes_that_leave_in_order_are_no_dead_ones_and_lose_nothing() {
    for seed in 1..6 {
        leave_in_order(50 * seed, seed);
    }
}

fn leave_in_order(lose: u64, seed: u64) {
    let mut world = World::ready(4, seed);
    world.faults.lose = lose;
    for node in 0..4 {
        broadcast(&mut world, node, 100);
    }
    assert!(world.run(5 * SECOND_NS, |world| {
        world.nodes.iter().all(|node| node.backlog.is_empty())
    }));
    for node in 0..4 {
        let now = world.now;
        world.nodes[node].engine.leave(now);
        world.kick(node);
        assert!(world.nodes[node].engine.allocate().is_none_or(|packet| {
            world.nodes[node].engine.launch_unicast(now, 0, packet, 1) == Err(lci::LaunchError::Leaving)
                && world.nodes[node].engine.release(packet)
        }));
    }
    // Each goes as soon as it may.
    let mut left = [false; 4];
    let done = |world: &mut World| {
        for (node, left) in left.iter_mut().enumerate() {
            if world.nodes[node].engine.has_finished() {
                *left = true;
                world.off[node] = true;
            }
        }
        // An acknowledgement that is lost is sent again only as long as its sender is there.
        (0..4).all(|node| left[node] || world.nodes[node].engine.all_have_left())
    };
    assert!(world.run(10 * SECOND_NS, done), "{}", world.report());
    for (at, node) in world.nodes.iter().enumerate() {
        assert!(node.removed().is_empty(), "none is dead");
        for source in (0..4).filter(|source| *source != at) {
            assert_eq!(
                node.got_of(source, GroupId::ALL),
                100,
                "{source} to {at}: {}",
                world.report()
            );
        }
    }
}

#[test]
fn m_bv2_a_node_that_goes_without_the_others_is_removed_without_delay() {
    let mut world = World::ready(4, 1);
    broadcast(&mut world, 0, 200);
    world.run(2_000_000, |_| false);
    let now = world.now;
    world.nodes[1].engine.abandon(now);
    world.kick(1);
    assert!(world.settle(SECOND_NS), "{}", world.report());
    for node in [0, 2, 3] {
        assert!(matches!(world.nodes[node].removed()[..], [(_, 1, RemovalReason::Left)]));
    }
    assert_eq!([2, 3].map(|node| world.nodes[node].got_of(0, GroupId::ALL)), [200; 2]);
}

#[test]
fn m_bv2_a_program_that_is_started_again_is_another_one() {
    let mut world = World::ready(3, 1);
    broadcast(&mut world, 0, 200);
    world.run(1_000_000, |_| false);
    let mut config = config_of(2, 3);
    config.session = 0x9999;
    world.nodes[2] = Node::new(config, world.now);
    let now = world.now;
    world.kick(2);
    assert!(
        world.run(SECOND_NS, |world| (0..2)
            .all(|node| !world.nodes[node].removed().is_empty())),
        "{}",
        world.report()
    );
    assert!(world.now.nanos_since(now) < SECOND_NS);
    for node in 0..2 {
        assert!(matches!(
            world.nodes[node].removed()[..],
            [(_, 2, RemovalReason::Restarted | RemovalReason::Reported { .. })]
        ));
    }
    world.run(2 * DEAD_NS, |world| world.nodes[1].got_of(0, GroupId::ALL) == 200);
    assert_eq!(world.nodes[1].got_of(0, GroupId::ALL), 200);
    assert_eq!(world.nodes[2].got_of(0, GroupId::ALL), 0, "it was in no conversation");
}

#[test]
fn m_bv2_a_broken_path_between_two_nodes_ends_with_one_of_them_excluded_and_told() {
    let mut world = World::ready(4, 1);
    // In the tree of node 0, node 1 is the parent of node 3.
    world.cut.extend([(1, 3), (3, 1)]);
    broadcast(&mut world, 0, 500);
    assert!(
        world.run(5 * DEAD_NS, |world| {
            world.nodes[0].backlog.is_empty() && world.nodes[0].engine.is_idle()
        }),
        "{}",
        world.report()
    );
    let removed = world.nodes[0].removed();
    assert_eq!(removed.len(), 1, "{removed:?}");
    let gone = removed[0].1;
    assert!([1, 3].contains(&gone));
    let other = 4 - gone;
    assert_eq!(
        [2, other].map(|node| world.nodes[node].got_of(0, GroupId::ALL)),
        [500; 2]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Up to half of the nodes die at any moments, on a network that loses and reorders; the others get all of each other's packets.
    #[test]
    fn m_bv2_any_deaths_leave_the_living_with_everything(
        seed: u64,
        nodes in 3usize..10,
        deaths in prop::collection::vec((0usize..10, 0u64..20_000_000), 1..4),
        lose in 0u64..50,
        reorder in 0u64..100,
    ) {
        let mut world = World::ready(nodes, seed);
        world.faults = Faults { lose, reorder, reorder_ns: 1_000_000, duplicate: 10 };
        for node in 0..nodes {
            broadcast(&mut world, node, 150);
        }
        for (node, after_ns) in deaths {
            world.run(after_ns, |_| false);
            if world.off.iter().filter(|off| **off).count() < nodes / 2 {
                world.off[node % nodes] = true;
            }
        }
        prop_assert!(world.settle(5 * DEAD_NS), "{}", world.report());
        let alive: Vec<_> = (0..nodes).filter(|node| !world.off[*node]).collect();
        for node in &alive {
            for source in alive.iter().filter(|source| *source != node) {
                prop_assert_eq!(world.nodes[*node].got_of(*source, GroupId::ALL), 150, "{} to {}: {}", source, node, world.report());
            }
            prop_assert_eq!(world.nodes[*node].engine.free_send_buffers(), 64);
        }
    }
}
