//! Which way the data of long messages comes: told by one bit of the handle that replies echo.

use std::collections::BTreeSet;

use mxoe::{
    engine::{DATA_BULK_BIT, DATA_BULK_OFFSET, DataPath, DataPathChoice, SendOptions},
    wire::{MARK, PacketType, Preset},
};

use super::{
    node::{Node, config_of},
    world::World,
};

const LEN: u32 = 1 << 20;

/// Sends messages to an engine with this choice, `at_once` at a time; for each frame of data whether it is to come on the bulk path.
fn ways(choice: DataPathChoice, rounds: u32, at_once: u32) -> Vec<bool> {
    let nodes = [0, 1].map(|node| {
        let mut config = config_of(node, Preset::Native9000);
        config.data_path = choice;
        Node::new(config)
    });
    let mut world = World::new(nodes.into(), 7);
    let to = world.connect(0, 1);
    world.trace = Some(Vec::new());
    for round in 0..rounds {
        let now = world.now;
        world.nodes[1].post_any(now, at_once as usize);
        for message in 0..at_once {
            let match_info = u64::from(round * at_once + message);
            world.nodes[0].send(now, to, match_info, LEN, SendOptions::default());
        }
        world.kick(0);
        assert!(world.settle(10_000_000_000));
        assert!(!world.nodes[1].engine.awaits_bulk_data());
    }
    assert_eq!(world.nodes[1].program.got.len() as u32, rounds * at_once);
    let trace = world.trace.take().unwrap();
    let data = trace
        .iter()
        .filter(|frame| frame[16] & !MARK == PacketType::PullReply.code());
    data.map(|frame| frame[DATA_BULK_OFFSET] & DATA_BULK_BIT != 0).collect()
}

#[test]
fn data_comes_the_way_that_was_chosen_however_many_messages_there_are_at_once() {
    for (path, apart) in [(DataPath::WithMessages, false), (DataPath::Bulk, true)] {
        for at_once in [1, 7] {
            for choice in [DataPathChoice::Fixed(path), DataPathChoice::Learned(path)] {
                let ways: BTreeSet<_> = ways(choice, 2, at_once).into_iter().collect();
                assert_eq!(ways, BTreeSet::from([apart]), "{choice:?}, {at_once} at once");
            }
        }
    }
}

#[test]
fn an_engine_that_learns_tries_both_ways_with_whole_messages() {
    let ways = ways(DataPathChoice::Learned(DataPath::WithMessages), 30, 1);
    let frames = ways.len() / 30;
    let messages: Vec<_> = ways.chunks_exact(frames).collect();
    assert!(
        messages
            .iter()
            .all(|message| message.iter().all(|apart| *apart == message[0]))
    );
    let apart = messages.iter().filter(|message| message[0]).count();
    assert!((5..=10).contains(&apart), "{apart} of 30 messages came apart");
}
