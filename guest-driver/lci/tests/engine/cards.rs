//! LCI-ni and LCI-mixed over cards with the firmware's reliable groups: nothing is lost, nothing is sent twice, and who is dead is
//! removed.

use lci::{Counter, Event, GroupId, Policy, RemovalReason};

use super::{node::Target, world::World};

const SECOND_NS: u64 = 1_000_000_000;
const ALL: Target = Target::Group(GroupId::ALL);

fn world(nodes: usize, seed: u64, policy: Policy) -> World {
    let mut world = World::with(nodes, seed, |config| config.policy = policy);
    world.await_ready();
    world
}

fn kick_all(world: &mut World) {
    (0..world.nodes.len()).for_each(|node| world.kick(node));
}

fn assert_nothing_was_lost(world: &World) {
    for (at, node) in world.nodes.iter().enumerate() {
        for counter in [
            Counter::Retransmitted,
            Counter::AcksPiggybacked,
            Counter::Missed,
            Counter::NoBuffer,
            Counter::Duplicates,
            Counter::Malformed,
            Counter::WrongSender,
        ] {
            assert_eq!(node.count(counter), 0, "{} at {at}", counter.name());
        }
        let refused = world.cards[at].multicast.refusals().total();
        assert_eq!(refused, 0, "the engine sends no more than its card keeps");
    }
}

#[test]
fn m_bv2_m_bv5_everything_arrives_once_and_in_order_by_cards_and_is_acknowledged_by_none() {
    for policy in [Policy::Ni, Policy::Mixed] {
        for nodes in [2, 3, 8] {
            let mut world = world(nodes, 5, policy);
            let group = world.group(&[0, nodes - 1]);
            for node in 0..nodes {
                for nth in 0..300 {
                    let backlog = &mut world.nodes[node].backlog;
                    backlog.push_back((ALL, nth * 3));
                    backlog.push_back((Target::Node((node + 1 + nth) % nodes), nth));
                    if node == 0 || node == nodes - 1 {
                        backlog.push_back((Target::Group(group), 10));
                    }
                }
            }
            kick_all(&mut world);
            assert!(world.settle(60 * SECOND_NS), "{}", world.report());
            for node in 0..nodes {
                for other in (0..nodes).filter(|other| *other != node) {
                    assert_eq!(world.nodes[node].got_of(other, GroupId::ALL), 300);
                }
            }
            assert_eq!(world.nodes[0].got_of(nodes - 1, group), 300);
            assert_nothing_was_lost(&world);
            let forwarded: u64 = (0..nodes).map(|node| world.nodes[node].count(Counter::Forwarded)).sum();
            assert_eq!(
                forwarded > 0,
                policy == Policy::Mixed && nodes > 3,
                "by hosts only where cards do not"
            );
        }
    }
}

#[test]
fn m_bv5_a_node_that_computes_for_two_seconds_loses_nothing_and_its_senders_wait() {
    for policy in [Policy::Ni, Policy::Mixed] {
        let mut world = world(8, 2, policy);
        assert!(world.settle(SECOND_NS));
        world.compute(3);
        for _ in 0..3_000 {
            world.nodes[0].backlog.push_back((ALL, 1_000));
            world.nodes[5].backlog.push_back((Target::Node(6), 1_000));
        }
        kick_all(&mut world);
        world.run(2 * SECOND_NS, |_| false);
        assert!(!world.nodes[0].backlog.is_empty(), "it waits");
        assert_eq!(world.nodes[6].got_from(5), 3_000, "others do not");
        // Node 7 hangs below node 3: its packets pass the card, and not the host.
        assert_eq!(world.nodes[7].got_of(0, GroupId::ALL) > 10, policy == Policy::Ni);
        world.computed(3);
        assert!(world.settle(20 * SECOND_NS), "{}", world.report());
        for node in 1..8 {
            assert_eq!(world.nodes[node].got_of(0, GroupId::ALL), 3_000, "{policy:?} {node}");
        }
        assert_nothing_was_lost(&world);
        assert!(world.nodes.iter().all(|node| node.removed().is_empty()));
    }
}

#[test]
fn m_bv5_a_node_that_is_killed_in_the_middle_of_broadcasts_is_removed_and_the_others_get_everything() {
    for policy in [Policy::Ni, Policy::Mixed] {
        for killed in [0, 1, 7] {
            let mut world = world(8, 3, policy);
            for node in 0..8 {
                (0..1_000).for_each(|_| world.nodes[node].backlog.push_back((ALL, 500)));
            }
            kick_all(&mut world);
            world.run(3_000_000, |_| false);
            world.off[killed] = true;
            let end = |world: &mut World| (0..8).all(|node| node == killed || world.nodes[node].backlog.is_empty());
            assert!(world.run(25 * SECOND_NS, end), "{}", world.report());
            assert!(world.settle(10 * SECOND_NS), "{}", world.report());
            for node in (0..8).filter(|node| *node != killed) {
                let removed = world.nodes[node].removed();
                let [(_, who, reason)] = removed[..] else {
                    panic!("one was removed: {removed:?}")
                };
                assert_eq!(who, killed);
                assert!(matches!(reason, RemovalReason::Silent | RemovalReason::Reported { .. }));
                for other in (0..8).filter(|other| *other != killed && *other != node) {
                    assert_eq!(
                        world.nodes[node].got_of(other, GroupId::ALL),
                        1_000,
                        "{policy:?}: {other} to {node}"
                    );
                }
                assert_eq!(world.nodes[node].count(Counter::Missed), 0);
            }
        }
    }
}

#[test]
fn m_bv2_nodes_over_cards_end_in_order_when_all_has_arrived() {
    for policy in [Policy::Ni, Policy::Mixed] {
        let mut world = world(5, 4, policy);
        for node in 0..5 {
            for _ in 0..200 {
                world.nodes[node].backlog.push_back((ALL, 700));
                world.nodes[node].backlog.push_back((Target::Node((node + 2) % 5), 700));
            }
        }
        kick_all(&mut world);
        world.run(100_000_000_000, |world| {
            world.nodes.iter().all(|node| node.backlog.is_empty())
        });
        for node in 0..5 {
            let now = world.now;
            world.nodes[node].engine.leave(now);
            world.kick(node);
        }
        let finished = |world: &mut World| world.nodes.iter().all(|node| node.engine.has_finished());
        assert!(world.run(5 * SECOND_NS, finished), "{}", world.report());
        for node in 0..5 {
            for other in (0..5).filter(|other| *other != node) {
                assert_eq!(world.nodes[node].got_of(other, GroupId::ALL), 200, "{policy:?}");
            }
        }
        assert!(world.cards.iter().all(|card| card.multicast.buffers_in_use() == 0));
    }
}

#[test]
fn m_bv2_packets_that_do_not_come_from_the_card_are_refused() {
    let mut host = World::ready(2, 1);
    host.trace = Some(Vec::new());
    host.nodes[0].backlog.push_back((Target::Node(1), 100));
    host.kick(0);
    assert!(host.settle(SECOND_NS));
    let frames = host.trace.take().unwrap();
    let packet = frames.iter().find(|frame| frame[17] == 2).expect("a packet").clone();
    let mut ni = world(2, 1, Policy::Ni);
    let now = ni.now;
    ni.nodes[1].frame(now, &packet);
    assert_eq!(ni.nodes[1].count(Counter::WrongPath), 1);
}

#[test]
fn m_bv1_nothing_is_delivered_behind_a_packet_that_cards_have_lost_and_both_nodes_are_told() {
    for (policy, to) in [
        (Policy::Ni, ALL),
        (Policy::Ni, Target::Node(1)),
        (Policy::Mixed, Target::Node(1)),
    ] {
        let mut world = world(3, 6, policy);
        world.compute(1);
        (0..40).for_each(|_| world.nodes[0].backlog.push_back((to, 100)));
        (0..40).for_each(|_| world.nodes[2].backlog.push_back((Target::Node(1), 100)));
        kick_all(&mut world);
        let waits = |world: &mut World| world.cards[1].multicast.waiting_for_host() > 60;
        assert!(world.run(SECOND_NS, waits), "{policy:?} {to:?}");
        let now = world.now;
        // The host's memory never gets the first packet of node 0.
        let from_first = |frame: &[u8]| frame[24..30] == super::node::mac_of(0).0;
        while !from_first(&world.cards[1].give(now).expect("a packet")) {}
        world.computed(1);
        world.run(SECOND_NS, |_| false);
        let node = &world.nodes[1];
        assert!(node.count(Counter::Missed) > 0, "{policy:?} {to:?}: {}", world.report());
        assert_eq!(node.got_of(0, GroupId::ALL) + node.got_from(0), 0, "{policy:?} {to:?}");
        assert!(
            matches!(node.removed()[..], [(_, 0, RemovalReason::Lost), ..]),
            "{:?}",
            node.removed()
        );
        let excluded = |(_, event): &(_, Event)| *event == Event::Excluded { by: 1 };
        assert!(world.nodes[0].events.iter().any(excluded), "{policy:?} {to:?}");
    }
}

#[test]
fn m_bv2_a_node_that_its_card_has_removed_is_told_once_and_waits_for_no_packet_of_its_own() {
    for policy in [Policy::Ni, Policy::Mixed] {
        let mut world = world(3, 7, policy);
        let group = world.nodes[0].engine.config().card_group().expect("a group of cards");
        world.cards[0].multicast.go_on_from(group, None);
        (0..200).for_each(|_| world.nodes[0].backlog.push_back((ALL, 100)));
        kick_all(&mut world);
        let done = |world: &mut World| world.nodes[0].backlog.is_empty();
        assert!(world.run(SECOND_NS, done), "{policy:?}: {}", world.report());
        let node = &world.nodes[0];
        let excluded = |(_, event): &&(_, Event)| matches!(event, Event::Excluded { .. });
        let told: Vec<_> = node.events.iter().filter(excluded).map(|(_, event)| *event).collect();
        assert_eq!(told, [Event::Excluded { by: 0 }], "{policy:?}");
        assert_eq!(node.removed().len(), 2, "{policy:?}");
    }
}
