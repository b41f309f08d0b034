//! Loss, reordering and duplication in virtual time: exactly once, in order per sender, whole, whatever the link does.

use mxoe::{
    engine::{Config, PRESET_OTHER, SendOptions},
    wire::{PacketType, Preset, Sizes},
};

use super::{
    node::{Node, config_of, mac_of},
    world::{Faults, Suffered, World},
};

/// Lengths around every border of the packet types, up to 8 MiB.
const LENGTHS: [u32; 24] = [
    0,
    1,
    31,
    32,
    33,
    127,
    128,
    129,
    1_451,
    1_452,
    1_453,
    4_096,
    8_192,
    8_193,
    20_000,
    32_767,
    32_768,
    32_769,
    65_536,
    100_000,
    287_000,
    1_000_000,
    1 << 20,
    8 << 20,
];

/// `foreign`: how many of the two announce no extension, so that the reference's rules hold.
fn storm(preset: Preset, faults: Faults, rounds: u64, foreign: usize, seed: u64) -> World {
    let nodes = (0..2).map(|node| {
        let mut config = config_of(node, preset);
        if node < foreign {
            config.extension = None;
        }
        Node::new(config)
    });
    let mut world = World::new(nodes.collect(), seed);
    world.faults = faults;
    let partners = [world.connect(0, 1), world.connect(1, 0)];
    let mut total = 0;
    for (node, to) in [(0, partners[0]), (1, partners[1])] {
        let mut number = 0u64;
        for round in 0..rounds {
            for (at, length) in LENGTHS.iter().enumerate() {
                if round > 0 && *length > 1 << 20 {
                    continue;
                }
                number += 1;
                let options = SendOptions {
                    synchronous: (at as u64 + round) % 7 == 3,
                    copyable: at % 2 == 0,
                };
                let match_info = (node as u64) << 32 | number;
                world.nodes[node].backlog.push_back((to, match_info, *length, options));
            }
        }
        total = number as usize;
        world.nodes[node].depth = 16;
        let now = world.now;
        world.nodes[node].post_any(now, total / 2);
    }
    world.kick(0);
    world.kick(1);
    let mut tick = world.now;
    let done = world.run(600_000_000_000, |world| {
        if world.now.nanos_since(tick) > 200_000 {
            tick = world.now;
            for node in 0..2 {
                let now = world.now;
                world.nodes[node].drain_unexpected(now, 3);
                world.kick(node);
            }
        }
        world.nodes.iter().all(|node| node.program.got.len() == total)
    });
    for (at, node) in world.nodes.iter().enumerate() {
        let counters: Vec<_> = node.engine.counters().nonzero().collect();
        assert!(
            done,
            "{preset} {faults:?}: node {at} received {} of {total}: {counters:?}",
            node.program.got.len()
        );
    }
    world.faults = Faults::default();
    assert!(world.settle(60_000_000_000), "everything is acknowledged in the end");
    for node in &world.nodes {
        let order: Vec<u64> = node
            .program
            .matched
            .iter()
            .map(|(_, info)| info & 0xffff_ffff)
            .collect();
        assert_eq!(
            order,
            (1..=total as u64).collect::<Vec<_>>(),
            "matched in the order of sending, each once"
        );
        assert!(
            node.sent
                .iter()
                .all(|(_, status, _)| *status == mxoe::engine::Status::Success)
        );
        assert!(node.memory.is_empty(), "every send said when its bytes were free");
    }
    world
}

const MESSAGE_TYPES: [PacketType; 8] = [
    PacketType::Tiny,
    PacketType::Small,
    PacketType::Medium,
    PacketType::Rndv,
    PacketType::Pull,
    PacketType::PullReply,
    PacketType::Notify,
    PacketType::Truc,
];

/// What a large message consists of.
pub const LARGE_TYPES: [PacketType; 5] = [
    PacketType::Rndv,
    PacketType::Pull,
    PacketType::PullReply,
    PacketType::Notify,
    PacketType::Truc,
];

#[test]
fn messages_arrive_once_in_order_and_whole_over_any_link() {
    for preset in Preset::ALL {
        let mut suffered = Suffered::default();
        for lose in [0, 1, 10, 50, 200] {
            for reorder in [0, 50] {
                for duplicate in [0, 50] {
                    let faults = Faults {
                        lose,
                        duplicate,
                        reorder,
                        reorder_ns: 60_000,
                    };
                    let world = storm(
                        preset,
                        faults,
                        4,
                        0,
                        lose * 7 + reorder * 3 + duplicate + u64::from(preset.code()) - 1,
                    );
                    suffered.add(&world.suffered);
                }
            }
        }
        suffered.assert_each_of(&MESSAGE_TYPES);
    }
}

#[test]
fn foreign_peers_and_frames_that_are_very_late_change_nothing() {
    for preset in Preset::ALL {
        let mut suffered = Suffered::default();
        for (foreign, seed) in [(1, 77), (2, 77), (1, 78), (2, 79)] {
            let faults = Faults {
                lose: 50,
                duplicate: 100,
                reorder: 100,
                reorder_ns: 30_000_000,
            };
            let world = storm(preset, faults, 10, foreign, seed);
            let partner = world.nodes[0].engine.partners().next().unwrap();
            let info = world.nodes[0].engine.partner(partner).unwrap();
            assert!(!info.marks && !info.short_acks);
            suffered.add(&world.suffered);
        }
        suffered.assert_each_of(&MESSAGE_TYPES);
    }
}

#[test]
fn connects_survive_loss_duplication_and_reordering() {
    let mut suffered = Suffered::default();
    for seed in 0..60 {
        let nodes = (0..2)
            .map(|node| Node::new(config_of(node, Preset::Native1500)))
            .collect();
        let mut world = World::new(nodes, seed);
        world.faults = Faults {
            lose: 300,
            duplicate: 200,
            reorder: 300,
            reorder_ns: 1_000_000,
        };
        let to = world.connect(0, 1);
        world.connect(1, 0);
        let now = world.now;
        world.nodes[1].post_any(now, 1);
        world.nodes[0].send(now, to, 9, 5, SendOptions::default());
        world.kick(0);
        assert!(world.run(60_000_000_000, |world| world.nodes[1].program.got.len() == 1));
        suffered.add(&world.suffered);
    }
    suffered.assert_each_of(&[PacketType::Connect]);
}

#[test]
fn every_single_frame_of_a_large_transfer_can_be_lost() {
    for preset in Preset::ALL {
        let mut suffered = Suffered::default();
        let mut run = |drop_frame: Option<u64>| {
            let nodes = (0..2).map(|node| Node::new(config_of(node, preset))).collect();
            let mut world = World::new(nodes, 1);
            let to = world.connect(0, 1);
            let begin = world.frames;
            world.drop_frame = drop_frame.map(|frame| begin + frame);
            let now = world.now;
            world.nodes[1].post_any(now, 1);
            world.nodes[0].send(now, to, 1, 1 << 20, SendOptions::default());
            world.kick(0);
            assert!(world.run(10_000_000_000, |world| world.nodes[1].program.got.len() == 1));
            assert!(world.settle(10_000_000_000), "frame {drop_frame:?} lost");
            assert_eq!(world.nodes[0].sent, [(1, mxoe::engine::Status::Success, 1 << 20)]);
            assert_eq!(world.suffered.lost.len(), usize::from(drop_frame.is_some()));
            suffered.add(&world.suffered);
            world.frames - begin
        };
        let frames = run(None);
        assert!(frames > 100);
        for frame in 1..=frames {
            run(Some(frame));
        }
        for kind in LARGE_TYPES {
            assert!(suffered.lost.contains_key(&kind), "{preset}: no {kind} was lost");
        }
    }
}

/// One message over a lossy link.
fn transfer(sizes: Sizes, length: u32) -> Suffered {
    let nodes = (0..2).map(|node| {
        let config = Config::with_sizes(mac_of(node), 1, 5 + node as u32, sizes, PRESET_OTHER);
        Node::new(config)
    });
    let mut world = World::new(nodes.collect(), 4);
    let to = world.connect(0, 1);
    world.faults = Faults {
        lose: 10,
        duplicate: 10,
        reorder: 10,
        reorder_ns: 60_000,
    };
    let now = world.now;
    world.nodes[1].post_any(now, 1);
    world.nodes[0].send(now, to, 1, length, SendOptions::default());
    world.kick(0);
    assert!(
        world.run(60_000_000_000, |world| world.nodes[0].sent.len() == 1),
        "{}",
        world.report()
    );
    assert_eq!(world.nodes[1].program.got[0].transferred, length);
    world.suffered
}

#[test]
fn a_message_longer_than_every_counter_arrives_whole() {
    // More than 65536 frames: numbers on the wire have eight bits, ordinals of the window sixteen.
    let suffered = transfer(Sizes::native(1500, 32).unwrap(), 100 << 20);
    suffered.assert_each_of(&[PacketType::Pull, PacketType::PullReply]);
}

#[test]
fn blocks_of_other_sizes_work() {
    let mut suffered = Suffered::default();
    for (frame_len_max, block_frames) in [(256, 64), (1_500, 64), (1_500, 1), (9_000, 2), (65_535, 32)] {
        suffered.add(&transfer(Sizes::native(frame_len_max, block_frames).unwrap(), 3 << 20));
    }
    suffered.assert_each_of(&[PacketType::Pull, PacketType::PullReply]);
}
