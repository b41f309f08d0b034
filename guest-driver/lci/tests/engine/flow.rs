//! Programs that take nothing, or keep what they take: senders wait, nothing is lost, and others go on.

use lci::{Counter, GroupId};

use super::{node::Target, world::World};

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn m_bv1_a_sender_has_64_packets_in_flight_and_waits() {
    let mut world = World::ready(3, 1);
    world.nodes[1].deaf = true;
    for _ in 0..2_000 {
        world.nodes[0].backlog.push_back((Target::Node(1), 1_000));
        world.nodes[2].backlog.push_back((Target::Node(1), 10));
    }
    (0..3).for_each(|node| world.kick(node));
    world.run(9 * SECOND_NS, |_| false);
    // What the deaf node took before it was full, and the window of each sender.
    let left: usize = [0, 2].map(|node| world.nodes[node].backlog.len()).iter().sum();
    assert_eq!(left, 4_000 - 1_024 - 2 * 64);
    assert_eq!([0, 2].map(|node| world.nodes[node].engine.free_send_buffers()), [0; 2]);
    assert!(world.nodes[1].count(Counter::Blocked) > 0);
    assert_eq!(
        world.nodes[1].count(Counter::NoBuffer),
        0,
        "there is a buffer for all that may come"
    );
    assert!(
        world.nodes.iter().all(|node| node.removed().is_empty()),
        "it answers, so it is alive"
    );
    world.nodes[1].deaf = false;
    world.kick(1);
    assert!(world.settle(5 * SECOND_NS), "{}", world.report());
    assert_eq!([0, 2].map(|node| world.nodes[1].got_from(node)), [2_000; 2]);
}

#[test]
fn m_bv1_a_program_that_keeps_packets_gets_no_more_than_it_may_keep() {
    let mut world = World::ready(2, 1);
    world.nodes[1].keeps = true;
    for _ in 0..500 {
        world.nodes[0].backlog.push_back((Target::Node(1), 1_000));
    }
    world.kick(0);
    world.run(SECOND_NS, |_| false);
    assert_eq!(world.nodes[1].got_from(0), 256);
    for buffer in std::mem::take(&mut world.nodes[1].kept) {
        assert!(world.nodes[1].engine.is_programs(buffer));
        assert!(world.nodes[1].engine.release(buffer) && !world.nodes[1].engine.release(buffer));
    }
    world.nodes[1].keeps = false;
    world.kick(1);
    assert!(world.settle(SECOND_NS));
    assert_eq!(world.nodes[1].got_from(0), 500);
}

#[test]
fn m_bv6_all_broadcast_at_once_through_each_other_and_none_stands_still() {
    // Every node forwards for every other: with buffers that nodes wait for in a circle, this would end.
    for nodes in [3, 8, 16] {
        let mut world = World::ready(nodes, 3);
        for node in 0..nodes {
            for _ in 0..400 {
                world.nodes[node]
                    .backlog
                    .push_back((Target::Group(GroupId::ALL), 1_024));
                world.nodes[node]
                    .backlog
                    .push_back((Target::Node((node + 1) % nodes), 64));
            }
        }
        (0..nodes).for_each(|node| world.kick(node));
        assert!(world.settle(60 * SECOND_NS), "{}", world.report());
        for node in 0..nodes {
            for source in (0..nodes).filter(|source| *source != node) {
                assert_eq!(
                    world.nodes[node].got_of(source, GroupId::ALL),
                    400,
                    "{source} to {node}"
                );
            }
            assert_eq!(world.nodes[node].count(Counter::NoBuffer), 0);
        }
    }
}

#[test]
fn m_bv6_forwarding_begins_with_the_first_packet() {
    let mut world = World::ready(8, 3);
    assert!(world.settle(SECOND_NS));
    for _ in 0..60 {
        world.nodes[0].backlog.push_back((Target::Group(GroupId::ALL), 1_024));
    }
    let start = world.now;
    world.kick(0);
    let all = |world: &mut World| (1..8).all(|node| world.nodes[node].got_of(0, GroupId::ALL) == 60);
    assert!(world.run(SECOND_NS, all), "{}", world.report());
    // Two copies of each packet on the sender's cable, and one packet for each of two more levels: not the message three times.
    let packet_ns = (80 + 1_024 + 24) * 8;
    let took_ns = world.now.nanos_since(start);
    assert!(
        took_ns < (2 * 60 + 2 * 2 + 4) * packet_ns + 3 * 10_000 + 100_000,
        "{took_ns}"
    );
    let forwarded: u64 = (0..8).map(|node| world.nodes[node].count(Counter::Forwarded)).sum();
    assert_eq!(forwarded, 60 * 5, "of seven copies two are the sender's own");
}
