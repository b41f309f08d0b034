//! Endpoints that close while their peers still wait for something: a receiver that has a whole message and closes does not make its sender
//! wait or fail, whatever the link loses, and what was sent before closing arrives.

use mxoe::{
    engine::{BadHandover, Counter, Handover, PartnerId, SendOptions, Status},
    finisher::FINISHING_NS,
    wire::Preset,
};

use super::{
    node::{Node, config_of},
    world::{Faults, World},
};

const PRESETS: [Preset; 3] = [Preset::Wire, Preset::Native1500, Preset::Native9000];
/// Tiny, small, medium of one and of several fragments, large of one block and of several.
const LENGTHS: [u32; 6] = [8, 100, 1_000, 20_000, 40_000, 300_000];
const COPYABLE: SendOptions = SendOptions {
    synchronous: false,
    copyable: true,
};
const SECOND_NS: u64 = 1_000_000_000;

/// Two nodes that know each other, and how each names the other.
fn pair(preset: Preset, is_foreign: bool, seed: u64) -> (World, [PartnerId; 2]) {
    let nodes = (0..2).map(|node| {
        let mut config = config_of(node, preset);
        if is_foreign {
            config.extension = None;
        }
        Node::new(config)
    });
    let mut world = World::new(nodes.collect(), seed);
    let partners = [world.connect(0, 1), world.connect(1, 0)];
    (world, partners)
}

/// As a library does: what is due goes out, then the rest is handed over.
fn close(world: &mut World, node: usize) {
    let now = world.now;
    let one = &mut world.nodes[node];
    one.engine.flush_acks();
    one.events(now);
    let handover = one.hand_over();
    one.close(now, Some(handover));
    world.kick(node);
}

/// Closes `node` as soon as it has `count` messages.
fn close_when_it_has(world: &mut World, node: usize, count: usize) {
    if world.nodes[node].closed.is_none() && world.nodes[node].program.got.len() >= count {
        close(world, node);
    }
}

fn lose(per_thousand: u64) -> Faults {
    Faults {
        lose: per_thousand,
        ..Faults::default()
    }
}

fn all_succeeded(node: &Node) -> bool {
    node.sent.iter().all(|(_, status, _)| *status == Status::Success)
}

#[test]
fn a_receiver_that_closes_with_its_last_message_leaves_no_sender_waiting() {
    for preset in PRESETS {
        for (at, length) in (0..).zip(LENGTHS) {
            for seed in 0..12 {
                let (mut world, partners) = pair(preset, seed % 4 == 3, 100 * at + seed);
                world.faults = lose(350);
                let now = world.now;
                world.nodes[1].post_any(now, 1);
                world.nodes[0].send(now, partners[0], 1, length, SendOptions::default());
                world.kick(0);
                let done = world.run(11 * SECOND_NS, |world| {
                    close_when_it_has(world, 1, 1);
                    world.nodes[1].closed.is_some() && world.nodes[0].engine.is_idle()
                });
                let context = format!("{preset} {length} {seed}{}", world.report());
                assert!(done, "{context}");
                assert!(all_succeeded(&world.nodes[0]), "{context}");
            }
        }
    }
}

#[test]
fn a_receiver_that_is_killed_with_its_last_message_leaves_no_sender_waiting() {
    for preset in PRESETS {
        for (at, length) in (0..).zip(LENGTHS) {
            for seed in 0..12 {
                let (mut world, partners) = pair(preset, false, 3_000 + 100 * at + seed);
                let now = world.now;
                // Messages of its own that its peer does not have are lost with it, and stand before the word that a large one is over.
                if seed % 3 == 0 {
                    world.off[0] = true;
                    world.nodes[1].send(now, partners[1], 9, 5_000, COPYABLE);
                    world.kick(1);
                    world.run(1_000_000, |_| false);
                    world.off[0] = false;
                }
                world.faults = lose(350);
                let now = world.now;
                world.nodes[1].post_any(now, 1);
                world.nodes[0].send(now, partners[0], 1, length, SendOptions::default());
                world.kick(0);
                let done = world.run(11 * SECOND_NS, |world| {
                    if world.nodes[1].closed.is_none() && !world.nodes[1].program.got.is_empty() {
                        let now = world.now;
                        let noted = world.nodes[1].noted();
                        world.nodes[1].close(now, Some(noted));
                        world.kick(1);
                    }
                    world.nodes[1].closed.is_some() && world.nodes[0].engine.is_delivered()
                });
                let context = format!("{preset} {length} {seed}{}", world.report());
                assert!(done, "{context}");
                assert!(all_succeeded(&world.nodes[0]), "{context}");
            }
        }
    }
}

#[test]
fn what_was_sent_before_closing_arrives() {
    for preset in PRESETS {
        for seed in 0..8 {
            let (mut world, partners) = pair(preset, seed % 4 == 3, seed);
            world.faults = lose(200);
            let now = world.now;
            world.nodes[1].post_any(now, LENGTHS.len());
            for (number, length) in (1..).zip(LENGTHS) {
                world.nodes[0].send(now, partners[0], number, length, COPYABLE);
            }
            world.kick(0);
            close(&mut world, 0);
            let done = world.run(10 * SECOND_NS, |world| {
                world.nodes[1].program.got.len() == LENGTHS.len()
            });
            assert!(done, "{preset} {seed}{}", world.report());
            let order: Vec<u64> = world.nodes[1]
                .program
                .matched
                .iter()
                .map(|(_, number)| *number)
                .collect();
            assert_eq!(order, [1, 2, 3, 4, 5, 6]);
            let got = &world.nodes[1].program.got;
            assert!(got.iter().all(|got| got.status == Status::Success));
        }
    }
}

#[test]
fn whichever_of_two_closes_first_both_have_what_they_waited_for() {
    for preset in PRESETS {
        for seed in 0..12 {
            let (mut world, partners) = pair(preset, false, 700 + seed);
            world.faults = lose(100 + 25 * (seed % 8));
            let now = world.now;
            for (node, to) in partners.into_iter().enumerate() {
                world.nodes[node].post_any(now, LENGTHS.len());
                for (number, length) in (1..).zip(LENGTHS) {
                    world.nodes[node].send(now, to, number, length, SendOptions::default());
                }
                world.kick(node);
            }
            // Both have all: sent and received. One closes at once, the other one as soon as it can.
            let done = world.run(12 * SECOND_NS, |world| {
                for node in 0..2 {
                    // Up to 128 bytes, sends are over when they are posted.
                    let is_over = world.nodes[node].sent.len() == LENGTHS.len() - 2;
                    if is_over {
                        close_when_it_has(world, node, LENGTHS.len());
                    }
                }
                world.nodes.iter().all(|node| node.closed.is_some())
            });
            assert!(done, "{preset} {seed}{}", world.report());
            assert!(world.nodes.iter().all(all_succeeded));
        }
    }
}

#[test]
fn a_closed_endpoint_takes_nothing_new_and_is_finished_for_ten_seconds() {
    let (mut world, partners) = pair(Preset::Native1500, false, 3);
    let now = world.now;
    world.nodes[1].post_any(now, 1);
    world.nodes[0].send(now, partners[0], 1, 5_000, SendOptions::default());
    world.kick(0);
    world.run(SECOND_NS, |world| world.nodes[1].program.got.len() == 1);
    close(&mut world, 1);
    for number in 2..300 {
        let now = world.now;
        world.nodes[0].send(now, partners[0], number, 1_000, SendOptions::default());
    }
    let now = world.now;
    let mac = super::node::mac_of(1);
    world.nodes[0].engine.connect(now, mac, 1, 0, 9).unwrap();
    world.kick(0);
    let refused = world.run(SECOND_NS, |world| world.nodes[0].sent.len() == 299);
    assert!(refused, "{}", world.report());
    let refusals = world.nodes[0].sent[1..].iter();
    assert!(
        refusals
            .map(|sent| sent.1)
            .all(|status| status == Status::EndpointClosed)
    );
    assert_eq!(world.nodes[0].connected.last().unwrap().1, Status::EndpointClosed);
    assert_eq!(world.nodes[1].program.matched.len(), 1);
    let has = |world: &World| {
        world.nodes[1]
            .closed
            .as_ref()
            .is_some_and(|closed| closed.finishers.has(1))
    };
    assert!(has(&world));
    world.run(FINISHING_NS, |_| false);
    assert!(!has(&world));
}

#[test]
fn a_number_that_is_opened_anew_is_not_finished_for() {
    let (mut world, partners) = pair(Preset::Native1500, false, 4);
    let now = world.now;
    world.nodes[1].post_any(now, 1);
    world.nodes[0].send(now, partners[0], 1, 5_000, SendOptions::default());
    world.kick(0);
    world.run(SECOND_NS, |world| world.nodes[1].program.got.len() == 1);
    close(&mut world, 1);
    let closed = world.nodes[1].closed.as_mut().unwrap();
    closed.finishers.forget(1);
    assert!(closed.finishers.is_empty() && closed.finishers.poll_timeout().is_none());
}

#[test]
fn an_endpoint_that_received_and_sent_nothing_owes_nothing() {
    let (mut world, _) = pair(Preset::Native1500, false, 5);
    assert!(world.nodes[0].hand_over().is_empty());
}

#[test]
fn the_sender_of_a_large_message_hears_soon_that_its_receiver_is_gone() {
    let (mut world, partners) = pair(Preset::Native1500, false, 6);
    let now = world.now;
    // Announced and acknowledged; no receive is posted.
    world.nodes[0].send(now, partners[0], 1, 100_000, SendOptions::default());
    world.kick(0);
    world.run(SECOND_NS / 2, |_| false);
    assert_eq!(world.nodes[0].engine.partner(partners[0]).unwrap().unacked, 0);
    let now = world.now;
    world.nodes[1].close(now, None);
    assert!(world.run(2 * SECOND_NS, |world| !world.nodes[0].sent.is_empty()));
    assert_eq!(world.nodes[0].sent, [(1, Status::EndpointClosed, 0)]);
    assert!(world.nodes[0].engine.is_delivered());
}

#[test]
fn a_receiver_that_lives_and_does_not_receive_is_asked_and_has_the_message_once() {
    let (mut world, partners) = pair(Preset::Native1500, false, 7);
    let now = world.now;
    world.nodes[0].send(now, partners[0], 1, 100_000, SendOptions::default());
    world.kick(0);
    world.run(20 * SECOND_NS, |_| false);
    assert!(world.nodes[0].sent.is_empty());
    let now = world.now;
    world.nodes[1].post_any(now, 1);
    world.kick(1);
    assert!(world.run(SECOND_NS, |world| !world.nodes[0].sent.is_empty()));
    assert_eq!(world.nodes[0].sent, [(1, Status::Success, 100_000)]);
    assert_eq!(world.nodes[1].program.got.len(), 1);
    assert_eq!(world.nodes[0].count(Counter::SendRndv), 20);
}

#[test]
fn bytes_that_are_no_endpoint_are_refused() {
    let (mut world, partners) = pair(Preset::Native1500, false, 8);
    let now = world.now;
    for (number, length) in (1..).zip(LENGTHS) {
        world.nodes[0].send(now, partners[0], number, length, COPYABLE);
    }
    world.kick(0);
    let bytes = world.nodes[0].hand_over().to_bytes();
    assert!(Handover::from_bytes(&bytes).is_ok());
    assert_eq!(Handover::from_bytes(&bytes[..bytes.len() - 1]), Err(BadHandover));
    assert_eq!(Handover::from_bytes(&[&bytes[..], &[0]].concat()), Err(BadHandover));
    // Head, one partner, and the head of the first message: whatever one byte says, nothing but a sound endpoint is made of it.
    for at in 0..100 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut other = bytes.clone();
            other[at] = value;
            if let Ok(handover) = Handover::from_bytes(&other) {
                let now = world.now;
                let mut node = Node::new(config_of(0, Preset::Native1500));
                node.close(now, Some(handover));
                for _ in 0..1_000 {
                    if node.transmit(now).is_none() {
                        break;
                    }
                }
            }
        }
    }
}
