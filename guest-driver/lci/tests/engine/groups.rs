//! Groups are created by all their members and have the same name everywhere.

use lci::{Counter, Event, GroupError, GroupId, LaunchError, Nodes};

use super::{
    node::Target,
    world::{Faults, World},
};

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn m_bv1_groups_have_names_of_their_own_the_same_at_all_members() {
    let mut world = World::ready(6, 1);
    let names = [
        world.group(&[0, 1]),
        world.group(&[0, 1]),
        world.group(&[1, 2, 3]),
        world.group(&[1, 5]),
        world.group(&[0, 1, 2, 3, 4, 5]),
    ];
    for (at, name) in names.iter().enumerate() {
        assert!(*name != GroupId::ALL && !names[..at].contains(name), "{names:?}");
    }
    for _ in 0..100 {
        world.nodes[1].backlog.push_back((Target::Group(names[0]), 10));
        world.nodes[1].backlog.push_back((Target::Group(names[1]), 20));
        world.nodes[1].backlog.push_back((Target::Group(names[2]), 30));
    }
    world.kick(1);
    assert!(world.settle(SECOND_NS), "{}", world.report());
    let got = |node: usize, name: usize| world.nodes[node].got_of(1, names[name]);
    assert_eq!([got(0, 0), got(0, 1), got(0, 2)], [100, 100, 0]);
    assert_eq!([got(2, 0), got(2, 2), got(3, 2)], [0, 100, 100]);
}

#[test]
fn m_bv1_a_packet_for_a_group_that_a_member_has_not_heard_of_waits_for_its_name() {
    // Frames reach nodes in any order, and each member sends as soon as it has the name.
    for seed in 0..60 {
        let mut world = World::ready(6, seed);
        world.faults = Faults {
            lose: 100,
            reorder: 500,
            reorder_ns: 2_000_000,
            ..Faults::default()
        };
        let members = [0, 1, 2, 3, 4, 5];
        let set = Nodes::first(6);
        for member in members {
            world.nodes[member].engine.create_group(set).unwrap();
            world.kick(member);
        }
        let mut sent = [false; 6];
        let all = world.run(20 * SECOND_NS, |world| {
            for member in members {
                let created = world.nodes[member].events.iter().find_map(|(_, event)| match event {
                    Event::GroupCreated { group, .. } => Some(*group),
                    _ => None,
                });
                if let (Some(group), false) = (created, sent[member]) {
                    sent[member] = true;
                    world.nodes[member].backlog.push_back((Target::Group(group), 500));
                    world.kick(member);
                }
            }
            world.nodes.iter().all(|node| node.got.values().sum::<u32>() == 5)
        });
        assert!(all, "seed {seed}: {}", world.report());
        assert!(world.nodes.iter().all(|node| node.count(Counter::UnknownGroup) == 0));
    }
}

#[test]
fn m_bv1_a_member_that_is_ready_before_the_first_one_waits_for_it() {
    // Node 0 hears of node 2 later than node 1 does.
    let mut world = World::cut_off(3, 1, &[(2, 0)], |_| {});
    assert!(world.run(SECOND_NS, |world| world.nodes[1].engine.is_ready()));
    assert!(!world.nodes[0].engine.is_ready());
    let set = Nodes::first(3);
    world.nodes[1].engine.create_group(set).unwrap();
    world.kick(1);
    world.run(SECOND_NS, |_| false);
    world.cut.clear();
    world.await_ready();
    for node in [0, 2] {
        world.nodes[node].engine.create_group(set).unwrap();
        world.kick(node);
    }
    let created = |event: &(ether::Time, Event)| matches!(event.1, Event::GroupCreated { .. });
    let all = |world: &mut World| world.nodes.iter().all(|node| node.events.iter().any(created));
    assert!(world.run(SECOND_NS, all), "{}", world.report());
}

#[test]
fn m_bv6_a_packet_for_a_child_that_was_not_heard_of_yet_waits_for_it() {
    // In the tree of node 3, node 0 is the parent of node 2.
    let mut world = World::cut_off(4, 1, &[(2, 0)], |_| {});
    for _ in 0..40 {
        world.nodes[3].backlog.push_back((Target::Group(GroupId::ALL), 100));
    }
    world.run(SECOND_NS, |_| false);
    assert!(world.nodes[3].engine.is_ready() && !world.nodes[0].engine.is_ready());
    assert_eq!(world.nodes[0].got_of(3, GroupId::ALL), 40);
    world.cut.clear();
    assert!(world.settle(5 * SECOND_NS), "{}", world.report());
    assert_eq!(world.nodes[2].got_of(3, GroupId::ALL), 40);
}

#[test]
fn m_bv1_what_is_no_group_is_refused() {
    let mut world = World::with(4, 1, |config| config.limits.groups = 2);
    let create = |world: &mut World, set: u128| world.nodes[0].engine.create_group(Nodes(set));
    assert_eq!(create(&mut world, 0b11), Err(GroupError::NotReady));
    world.await_ready();
    for not_members in [0b0, 0b1, 0b110, 0b1_0001] {
        assert_eq!(create(&mut world, not_members), Err(GroupError::Members));
    }
    world.group(&[0, 1]);
    world.group(&[0, 1]);
    assert_eq!(create(&mut world, 0b101), Err(GroupError::TooMany));
    let (now, engine) = (world.now, &mut world.nodes[3].engine);
    let packet = engine.allocate().unwrap();
    assert_eq!(
        engine.launch_multicast(now, GroupId(0x1_0001), packet, 1),
        Err(LaunchError::NoSuchGroup)
    );
    assert_eq!(engine.launch_unicast(now, 4, packet, 1), Err(LaunchError::NoSuchNode));
    assert_eq!(engine.launch_unicast(now, 1, packet, 1_025), Err(LaunchError::TooLong));
    engine.launch_unicast(now, 1, packet, 0).unwrap();
    assert_eq!(engine.launch_unicast(now, 1, packet, 0), Err(LaunchError::NotAllocated));
}
