//! Programs that wait for a processor: a time in which a process does not run says nothing of the network, so on a clean cable next to
//! nothing is sent again.

use mxoe::{
    engine::{Counter, PartnerId, SendOptions},
    wire::{Packet, Preset},
};

use super::{
    node::{Node, config_of},
    script::{Script, ack},
    world::World,
};

/// What a process computes while others have its processor: four processes, with slices as Linux has them.
const AWAY_NS: u64 = 12_000_000;
const RUNS_NS: u64 = 4_000_000;

fn pair(seed: u64) -> (World, [PartnerId; 2]) {
    let nodes = (0..2).map(|node| Node::new(config_of(node, Preset::Native1500)));
    let mut world = World::new(nodes.collect(), seed);
    let partners = [world.connect(0, 1), world.connect(1, 0)];
    (world, partners)
}

/// Sends so many messages, some of them of several frames, and takes as many.
fn send(world: &mut World, from: usize, to: PartnerId, count: u64) {
    let now = world.now;
    world.nodes[1 - from].post_any(now, count as usize);
    // None has the name of another one.
    let first = 1_000 * world.frames;
    for number in 0..count {
        let length = if number % 8 == 0 { 5_000 } else { 8 };
        let name = 2 * (first + number) + 1;
        world.nodes[from].send(now, to, name, length, SendOptions::default());
    }
    world.kick(from);
}

/// At most one of a thousand messages is sent again.
#[track_caller]
fn is_sent_once(world: &World, node: usize, sent: u64) {
    let resent = u64::from(world.nodes[node].count(Counter::ResentMessages));
    assert!(resent * 1_000 <= sent, "{resent} of {sent}{}", world.report());
}

#[test]
fn messages_to_a_process_that_waits_for_its_processor_are_sent_once() {
    let (mut world, partners) = pair(1);
    let mut sent = 0;
    // Between two times away, many messages are answered at once: the round trip is as short as before.
    for round in 0..400 {
        for _ in 0..50 {
            send(&mut world, 0, partners[0], 5);
            sent += 5;
            world.run(RUNS_NS / 20, |_| false);
        }
        world.sleep(1);
        send(&mut world, 0, partners[0], 5);
        sent += 5;
        // From 5 to 12 ms.
        world.run(AWAY_NS - 1_000_000 * (round % 8), |_| false);
        world.wake(1);
    }
    is_sent_once(&world, 0, sent);
}

#[test]
fn a_process_that_was_away_reads_what_came_before_it_sends_again() {
    let mut script = Script::new(Preset::Native9000);
    let resent = |script: &Script| script.count(Counter::ResentMessages);
    for answered in [true, false] {
        let (now, to, before) = (script.now, script.partner, resent(&script));
        script.node.send(now, to, 1, 8, SendOptions::default());
        script.frames();
        // Its timer is handled long after it was due: the answer may lie behind others.
        script.now = script.now.plus_nanos(1_000_000_000);
        script.node.engine.handle_timeout(script.now);
        assert_eq!(resent(&script), before);
        if answered {
            script.put(Packet::Ack(ack(2, 1)));
        }
        script.now = script.now.plus_nanos(1_500_000);
        script.node.engine.handle_timeout(script.now);
        assert_eq!(resent(&script), before);
        script.now = script.now.plus_nanos(600_000);
        script.node.engine.handle_timeout(script.now);
        assert_eq!(resent(&script), before + u32::from(!answered), "answered: {answered}");
    }
    // A process that never comes in time sends again, too.
    for times in 2..5 {
        script.frames();
        script.now = script.now.plus_nanos(3_000_000_000);
        script.node.engine.handle_timeout(script.now);
        script.now = script.now.plus_nanos(3_000_000_000);
        script.node.engine.handle_timeout(script.now);
        assert_eq!(resent(&script), times);
    }
}

#[test]
fn what_is_lost_is_sent_again_as_soon_as_where_every_process_runs() {
    let (mut world, partners) = pair(3);
    world.faults.lose = 100;
    for _ in 0..200 {
        send(&mut world, 0, partners[0], 5);
        world.run(5_000_000, |_| false);
    }
    world.faults.lose = 0;
    assert!(world.settle(1_000_000_000));
    // The round trip becomes short again.
    for _ in 0..200 {
        send(&mut world, 0, partners[0], 5);
        world.run(200_000, |_| false);
    }
    assert!(world.settle(1_000_000_000));
    let before = world.nodes[0].count(Counter::ResentMessages);
    world.drop_frame = Some(world.frames + 1);
    let begin = world.now;
    send(&mut world, 0, partners[0], 1);
    world.run(1_000_000_000, |world| {
        world.nodes[0].count(Counter::ResentMessages) > before
    });
    let waited_ns = world.now.nanos_since(begin);
    assert!(waited_ns <= 4_000_000, "{waited_ns} ns{}", world.report());
}
