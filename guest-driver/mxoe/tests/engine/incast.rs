//! Many senders to one receiver behind a switch port that holds little: the receiver's pulls must not overrun it.

use mxoe::{engine::SendOptions, wire::Preset};

use super::{
    node::{Node, config_of},
    world::{Faults, World},
};

const LENGTH: u32 = 1 << 20;
/// What the port of the switch holds; the receiver is told to keep less than that outstanding.
const PORT_BYTES: u64 = 256 << 10;
const OUTSTANDING: u32 = 192 << 10;

/// Senders of one message each; goodput in Mbit/s from the first post to the last byte.
fn incast(preset: Preset, senders: usize) -> u64 {
    let (world, took_ns) = deliver(preset, senders, Faults::default());
    assert_eq!(world.overflows, 0, "{preset}: nothing is lost in the switch");
    for sender in 1..=senders {
        assert_eq!(world.nodes[sender].count(mxoe::engine::Counter::ResentMessages), 0);
    }
    u64::from(LENGTH) * 8 * senders as u64 * 1_000 / took_ns
}

fn deliver(preset: Preset, senders: usize, faults: Faults) -> (World, u64) {
    let nodes = (0..=senders).map(|node| {
        let mut config = config_of(node, preset);
        config.limits.pull_bytes_outstanding = OUTSTANDING;
        Node::new(config)
    });
    let mut world = World::new(nodes.collect(), 5);
    world.port_bytes_max = PORT_BYTES;
    let partners: Vec<_> = (1..=senders).map(|sender| world.connect(sender, 0)).collect();
    world.faults = faults;
    let begin = world.now;
    world.nodes[0].post_any(begin, senders);
    for (sender, to) in (1..=senders).zip(partners) {
        world.nodes[sender].send(begin, to, sender as u64, LENGTH, SendOptions::default());
        world.kick(sender);
    }
    assert!(world.run(10_000_000_000, |world| world.nodes[0].program.got.len() == senders));
    let took_ns = world.now.nanos_since(begin);
    assert!(world.settle(10_000_000_000));
    assert!((1..=senders).all(|sender| world.nodes[sender].sent.len() == 1));
    (world, took_ns)
}

#[test]
fn pulls_that_wait_for_room_ask_again_for_what_was_lost() {
    for preset in Preset::ALL {
        let faults = Faults {
            lose: 100,
            ..Faults::default()
        };
        deliver(preset, 15, faults);
    }
}

#[test]
fn fifteen_senders_to_one_get_what_one_gets_and_lose_nothing() {
    for preset in Preset::ALL {
        let one = incast(preset, 1);
        let fifteen = incast(preset, 15);
        assert!(fifteen * 10 >= one * 8, "{preset}: {fifteen} of {one} Mbit/s");
        assert!(one > 5_000, "{preset}: {one} Mbit/s");
    }
}
