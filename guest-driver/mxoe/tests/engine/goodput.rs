//! How much of the link a large message gets under loss: a reviewed table, and the promised shares.

use std::fmt::Write;

use mxoe::{engine::SendOptions, wire::Preset};

use super::{
    loss::LARGE_TYPES,
    node::{Node, config_of},
    world::{Faults, Suffered, World},
};

const LENGTH: u32 = 1 << 20;
const TRANSFERS: u64 = 60;

/// Mbit/s of messages sent one after the other.
fn goodput(preset: Preset, faults: Faults, suffered: &mut Suffered) -> u64 {
    let nodes = (0..2).map(|node| Node::new(config_of(node, preset))).collect();
    let mut world = World::new(nodes, 11);
    let to = world.connect(0, 1);
    world.faults = faults;
    let begin = world.now;
    for number in 1..=TRANSFERS {
        let now = world.now;
        world.nodes[1].post_any(now, 1);
        world.nodes[0].send(now, to, number, LENGTH, SendOptions::default());
        world.kick(0);
        let sent = number as usize;
        let done = world.run(60_000_000_000, |world| world.nodes[0].sent.len() == sent);
        assert!(done, "{preset} {faults:?}: message {number}: {}", world.report());
    }
    suffered.add(&world.suffered);
    let took_ns = world.now.nanos_since(begin);
    u64::from(LENGTH) * 8 * TRANSFERS * 1_000 / took_ns
}

#[test]
fn large_messages_keep_their_share_of_the_link_under_loss() {
    let mut suffered = Suffered::default();
    let mut table = String::from(
        "goodput of 1 MiB messages, one after the other until notified, 10 Gbit/s, 10 us, in Mbit/s\n\
         loss 1/1000    0      1     10     50    200\n",
    );
    for (name, faults) in [
        ("", Faults::default()),
        (
            " reorder",
            Faults {
                reorder: 10,
                reorder_ns: 60_000,
                ..Faults::default()
            },
        ),
        (
            " duplicate",
            Faults {
                duplicate: 10,
                ..Faults::default()
            },
        ),
        (
            " both",
            Faults {
                duplicate: 10,
                reorder: 10,
                reorder_ns: 60_000,
                ..Faults::default()
            },
        ),
    ] {
        for preset in Preset::ALL {
            let rates = [0, 1, 10, 50, 200].map(|lose| goodput(preset, Faults { lose, ..faults }, &mut suffered));
            write!(table, "{preset}{name}").unwrap();
            for rate in rates {
                write!(table, " {rate}").unwrap();
            }
            table.push('\n');
            for (rate, percent) in rates.into_iter().zip([100, 80, 50, 20, 2]) {
                assert!(rate * 100 >= rates[0] * percent, "{preset}{name}: {rates:?}");
            }
        }
    }
    suffered.assert_each_of(&LARGE_TYPES);
    insta::assert_snapshot!(table);
}
