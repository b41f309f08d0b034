//! Bounds: unexpected messages, early completion, memory per peer, windows. At each, what the documentation says.

use mxoe::{
    engine::{Counter, Posted, SendOptions, Status},
    matching::MatchTable,
    wire::{Packet, Preset},
};

use super::{
    node::{Node, config_of},
    script::Script,
    world::World,
};

const PEERS: usize = 1_000;
const LENGTH: u32 = 32 << 10;

#[test]
fn a_thousand_peers_with_32_kib_unexpected_stay_within_limits_and_lose_nothing() {
    for (unexpected_max, expect_refusals) in [(64u64 << 20, false), (4 << 20, true)] {
        let nodes = (0..=PEERS).map(|node| Node::new(config_of(node, Preset::Native9000)));
        let mut world = World::new(nodes.collect(), 9);
        world.nodes[0].program.table = MatchTable::new(unexpected_max, 1);
        let partners: Vec<_> = (1..=PEERS).map(|peer| world.connect(peer, 0)).collect();
        let idle = world.nodes[0].engine.memory();
        for (peer, to) in (1..=PEERS).zip(partners) {
            let now = world.now;
            world.nodes[peer].send(now, to, peer as u64, LENGTH, SendOptions::default());
            world.kick(peer);
        }
        let all = |world: &World| world.nodes[0].program.table.unexpected.len();
        let mut peak = 0;
        world.run(200_000_000, |world| {
            assert!(world.nodes[0].program.table.unexpected.bytes() <= unexpected_max);
            peak = peak.max(world.nodes[0].engine.memory());
            all(world) == PEERS
        });
        assert_eq!(all(&world) == PEERS, !expect_refusals);
        assert_eq!(world.nodes[0].program.refusals > 0, expect_refusals);
        assert!(peak < 16 << 20, "{peak} bytes at the peak, payload excepted");
        let mut next = world.now;
        let done = world.run(120_000_000_000, |world| {
            if world.now >= next {
                next = world.now.plus_nanos(100_000);
                let now = world.now;
                world.nodes[0].drain_unexpected(now, 10);
                world.kick(0);
            }
            world.nodes[0].program.got.len() == PEERS
        });
        assert!(done, "{} of {PEERS}", world.nodes[0].program.got.len());
        let now = world.now;
        world.nodes[0].drain_unexpected(now, PEERS);
        assert!(world.settle(60_000_000_000));
        let drained = world.nodes[0].engine.memory();
        assert!(drained <= 16 << 20, "{drained} bytes after 1000 peers, drained");
        assert!(
            drained.max(idle) / PEERS <= 4 << 10,
            "{} bytes per peer",
            drained / PEERS
        );
    }
}

#[test]
fn sends_complete_early_up_to_the_limits_and_then_when_acknowledged() {
    let mut config = config_of(0, Preset::Native9000);
    config.limits.early_completed_bytes = 100_000;
    config.limits.zombies = 20;
    let mut script = Script::with(config, None);
    let (now, to) = (script.now, script.partner);
    let copyable = SendOptions {
        copyable: true,
        synchronous: false,
    };
    let early = |posted: &Posted| matches!(posted, Posted::Early(_));
    let mediums: Vec<_> = (0..5)
        .map(|number| script.node.send(now, to, number, 30_000, copyable))
        .collect();
    assert_eq!(
        mediums.iter().filter(|posted| early(posted)).count(),
        3,
        "100 000 bytes"
    );
    let tinies: Vec<_> = (5..40)
        .map(|number| script.node.send(now, to, number, 8, copyable))
        .collect();
    assert_eq!(
        tinies.iter().filter(|posted| early(posted)).count(),
        17,
        "20 zombies in all"
    );
    assert_eq!(script.count(Counter::EarlyCompletionStopped), 20);
    script.frames();
    let ack = mxoe::wire::Ack {
        dst_endpoint: 1,
        src_endpoint: super::script::PEER_ENDPOINT,
        session: super::script::SESSION,
        ack: 41,
        session_id: super::script::SESSION,
        acknum: 1,
        send_seq: 41,
        resent: 0,
    };
    script.put(Packet::Ack(ack));
    assert_eq!(
        script.node.sent.len(),
        5 + 18,
        "mediums and late tinies say when they are over"
    );
    assert!(script.node.sent.iter().all(|(_, status, _)| *status == Status::Success));
    assert!(early(&script.node.send(now, to, 50, 30_000, copyable)));
}

#[test]
fn of_messages_that_nobody_acknowledges_8191_are_sent() {
    let mut config = config_of(0, Preset::Native9000);
    config.limits.zombies = 10_000;
    let mut script = Script::with(config, None);
    let (now, to) = (script.now, script.partner);
    let mut seqnums = Vec::new();
    // Odd ones are posted, even ones leave at once.
    for number in 1..=8_194 {
        script.node.send(now, to, number, 1, SendOptions::default());
        seqnums.extend(script.frames().iter().map(|frame| seqnum_of(&script, frame)));
    }
    assert!(seqnums.iter().copied().eq(1..=8_191), "{}", seqnums.len());
    assert_eq!(script.count(Counter::SendsThrottled), 3);
    // As many as were acknowledged follow.
    for (acknum, (value, expected)) in (1..).zip([(2, vec![8_192]), (8_000, vec![8_193, 8_194])]) {
        script.put(Packet::Ack(super::script::ack(value, acknum)));
        let frames = script.frames();
        let seqnums: Vec<_> = frames.iter().map(|frame| seqnum_of(&script, frame)).collect();
        assert_eq!(seqnums, expected);
    }
    script.put(Packet::Ack(super::script::ack(8_195, 3)));
    assert!(script.node.engine.is_idle());
}

fn seqnum_of(script: &Script, frame: &[u8]) -> u16 {
    match script.dialect.decode(frame).unwrap().1 {
        Packet::Tiny(tiny) => tiny.seqnum,
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_wait_when_the_window_is_full_and_go_on_in_order() {
    let mut config = config_of(0, Preset::Native9000);
    config.limits.large_sends = 2;
    let mut nodes = vec![Node::new(config), Node::new(config_of(1, Preset::Native9000))];
    nodes[1].depth = 0;
    let mut world = World::new(nodes, 3);
    let to = world.connect(0, 1);
    let now = world.now;
    for number in 1..=9_000 {
        let length = if number % 3_000 == 0 { 100_000 } else { 1 };
        world.nodes[0].send(now, to, number, length, SendOptions::default());
    }
    assert!(world.nodes[0].count(Counter::SendsThrottled) > 0);
    world.nodes[1].post_any(now, 9_000);
    world.kick(0);
    assert!(world.run(10_000_000_000, |world| world.nodes[1].program.got.len() == 9_000));
    let order: Vec<u64> = world.nodes[1]
        .program
        .matched
        .iter()
        .map(|(_, number)| *number)
        .collect();
    assert!(order.is_sorted());
    assert!(world.settle(10_000_000_000));
}

#[test]
fn large_sends_beyond_the_regions_wait_for_one() {
    let mut config = config_of(0, Preset::Native1500);
    config.limits.large_sends = 3;
    let mut world = World::new(vec![Node::new(config), Node::new(config_of(1, Preset::Native1500))], 3);
    let to = world.connect(0, 1);
    let now = world.now;
    for number in 1..=20 {
        world.nodes[0].send(now, to, number, 50_000, SendOptions::default());
    }
    world.nodes[1].post_any(now, 20);
    world.kick(0);
    assert!(world.run(1_000_000_000, |world| world.nodes[0].sent.len() == 20));
}

#[test]
fn large_sends_beyond_the_regions_end_in_both_directions_at_once() {
    let config = |node| {
        let mut config = config_of(node, Preset::Native1500);
        config.limits.large_sends = 3;
        config
    };
    let mut world = World::new(vec![Node::new(config(0)), Node::new(config(1))], 3);
    let partners = [world.connect(0, 1), world.connect(1, 0)];
    let now = world.now;
    for (node, to) in (0..).zip(partners) {
        world.nodes[node].post_any(now, 20);
        for number in 1..=20 {
            world.nodes[node].send(now, to, number, 50_000, SendOptions::default());
        }
        world.kick(node);
    }
    assert!(world.run(1_000_000_000, |world| {
        world.nodes.iter().all(|node| node.sent.len() == 20)
    }));
}

#[test]
fn a_partner_that_takes_nothing_keeps_no_other_one_from_ending_its_large_sends() {
    let mut config = config_of(0, Preset::Native1500);
    config.limits.large_sends = 3;
    let nodes = vec![
        Node::new(config),
        Node::new(config_of(1, Preset::Native1500)),
        Node::new(config_of(2, Preset::Native1500)),
    ];
    let mut world = World::new(nodes, 3);
    let (idle, other, back) = (world.connect(0, 1), world.connect(0, 2), world.connect(2, 0));
    let now = world.now;
    for number in 1..=3 {
        world.nodes[0].send(now, idle, number, 50_000, SendOptions::default());
    }
    world.nodes[0].send(now, other, 4, 50_000, SendOptions::default());
    world.nodes[0].post_any(now, 1);
    world.nodes[2].send(now, back, 5, 50_000, SendOptions::default());
    world.kick(0);
    world.kick(2);
    assert!(world.run(1_000_000_000, |world| world.nodes[2].sent.len() == 1));
    assert!(world.nodes[0].sent.is_empty(), "no receives were posted for these");
}

#[test]
fn pulls_beyond_the_slots_wait_for_one() {
    let mut config = config_of(1, Preset::Native1500);
    config.limits.pulls = 2;
    let mut world = World::new(vec![Node::new(config_of(0, Preset::Native1500)), Node::new(config)], 3);
    let to = world.connect(0, 1);
    let now = world.now;
    world.nodes[1].post_any(now, 20);
    for number in 1..=20 {
        world.nodes[0].send(now, to, number, 50_000, SendOptions::default());
    }
    world.kick(0);
    assert!(world.run(1_000_000_000, |world| world.nodes[0].sent.len() == 20));
}

#[test]
fn announcements_and_partial_messages_beyond_their_limits_come_again_later() {
    let mut config = config_of(1, Preset::Native1500);
    config.limits.announced = 2;
    config.limits.partials = 1;
    let mut world = World::new(vec![Node::new(config_of(0, Preset::Native1500)), Node::new(config)], 3);
    let to = world.connect(0, 1);
    let now = world.now;
    for number in 1..=10 {
        world.nodes[0].send(now, to, number, 50_000, SendOptions::default());
    }
    world.kick(0);
    world.run(10_000_000, |_| false);
    assert_eq!(world.nodes[1].program.matched.len(), 2);
    assert!(world.nodes[1].count(Counter::UnexpEventqFull) > 0);
    let mut next = world.now;
    assert!(world.run(60_000_000_000, |world| {
        if world.now >= next {
            next = world.now.plus_nanos(1_000_000);
            let now = world.now;
            world.nodes[1].drain_unexpected(now, 1);
            world.kick(1);
        }
        world.nodes[0].sent.len() == 10
    }));
}
