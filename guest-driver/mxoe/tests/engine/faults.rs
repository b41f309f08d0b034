//! Links that do worse than lose messages: refusals are lost, repeated and late, and bits are flipped where no check sees it.

use fabric::{Link, LinkConfig};
use mxoe::{
    engine::{PeerMap, SendOptions, Status},
    wire::{PacketType, Preset},
};

use super::{
    node::{Node, config_of, mac_of},
    world::{Faults, Suffered, World},
};

const BAD_LINK: Faults = Faults {
    lose: 300,
    duplicate: 200,
    reorder: 300,
    reorder_ns: 1_000_000,
};

fn pair(preset: Preset, give_up_ns: u64, seed: u64) -> World {
    let nodes = (0..2).map(|node| {
        let mut config = config_of(node, preset);
        config.timing.give_up_ns = give_up_ns;
        Node::new(config)
    });
    World::new(nodes.collect(), seed)
}

#[test]
fn refusals_survive_loss_duplication_and_reordering() {
    let mut suffered = Suffered::default();
    for seed in 0..60 {
        // A message to an instance that is gone.
        let mut world = pair(Preset::Native1500, 500_000_000_000, seed);
        let to = world.connect(0, 1);
        let mut config = config_of(1, Preset::Native1500);
        config.session = 0xfeed;
        let mut peers = PeerMap::new(8, 0);
        peers.add(mac_of(0));
        world.nodes[1] = Node::with_peers(config, peers);
        world.faults = BAD_LINK;
        let now = world.now;
        world.nodes[0].send(now, to, 6, 2_000, SendOptions::default());
        world.kick(0);
        assert!(world.run(60_000_000_000, |world| !world.nodes[0].sent.is_empty()));
        assert_eq!(world.nodes[0].sent, [(6, Status::BadSession, 0)]);
        suffered.add(&world.suffered);

        // A pull from a sender that gave its message up.
        let mut world = pair(Preset::Native1500, 500_000_000_000, seed);
        let to = world.connect(0, 1);
        let now = world.now;
        world.nodes[0].send(now, to, 1, 100_000, SendOptions::default());
        world.kick(0);
        assert!(world.run(1_000_000_000, |world| !world.nodes[1].program.matched.is_empty()));
        world.nodes[0].engine.disconnect(to);
        world.kick(0);
        world.faults = BAD_LINK;
        let now = world.now;
        world.nodes[1].drain_unexpected(now, 1);
        world.kick(1);
        assert!(world.run(60_000_000_000, |world| !world.nodes[1].program.got.is_empty()));
        assert_eq!(world.nodes[1].program.got[0].status, Status::BadRdmaWindow);
        suffered.add(&world.suffered);
    }
    suffered.assert_each_of(&[PacketType::NackLib, PacketType::NackMcp]);
}

/// What arrives may be anything, as the protocol has no checksum; but every engine stays whole, every request ends, and
/// nothing goes on for longer than its time-out.
#[test]
fn corrupt_past_fcs_neither_breaks_an_engine_nor_lets_it_hang() {
    const GIVE_UP_NS: u64 = 1_000_000_000;
    let (mut flipped, mut ended_badly) = (0, 0);
    for preset in Preset::ALL {
        for seed in 0..40 {
            let mut world = pair(preset, GIVE_UP_NS, seed);
            let partners = [world.connect(0, 1), world.connect(1, 0)];
            world.link = Some(Link::new(LinkConfig {
                corrupt_ppm: if seed % 2 == 0 { 5_000 } else { 100_000 },
                corrupt_past_fcs: true,
                seed,
                ..LinkConfig::default()
            }));
            world.faults = Faults {
                lose: 10,
                ..Faults::default()
            };
            for (node, to) in [(0, partners[0]), (1, partners[1])] {
                world.nodes[node].program.damage_allowed = true;
                let lengths = [0, 30, 100, 5_000, 32_768, 100_000, 1_000_000].iter().cycle().take(28);
                for (number, length) in (1..).zip(lengths) {
                    let options = SendOptions {
                        synchronous: number % 3 == 0,
                        copyable: number % 2 == 0,
                    };
                    world.nodes[node].backlog.push_back((to, number, *length, options));
                }
                let now = world.now;
                world.nodes[node].post_any(now, 40);
            }
            world.kick(0);
            world.kick(1);
            assert!(
                world.settle(5 * GIVE_UP_NS),
                "{preset}, seed {seed}: {}",
                world.report()
            );
            for node in &world.nodes {
                assert!(node.memory.is_empty(), "every send said when its bytes were free");
                ended_badly += node
                    .sent
                    .iter()
                    .filter(|(_, status, _)| *status != Status::Success)
                    .count();
            }
            flipped += world.link.unwrap().counters().corrupted_frames;
        }
    }
    assert!(flipped > 10_000 && ended_badly > 0, "{flipped} {ended_badly}");
}
