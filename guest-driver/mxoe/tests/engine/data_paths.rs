//! Which path the data of long messages takes: one bit of the handle tells, which replies echo.

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

/// Sends messages to an engine with this choice, `count` at a time. Returns, for each frame of data, whether it is to
/// come on the bulk path.
fn paths_of(choice: DataPathChoice, rounds: u32, count: u32) -> Vec<bool> {
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
        world.nodes[1].post_any(now, count as usize);
        for message in 0..count {
            let match_info = u64::from(round * count + message);
            world.nodes[0].send(now, to, match_info, LEN, SendOptions::default());
        }
        world.kick(0);
        assert!(world.settle(10_000_000_000));
        assert!(!world.nodes[1].engine.awaits_bulk_data());
    }
    assert_eq!(world.nodes[1].program.got.len() as u32, rounds * count);
    let trace = world.trace.take().unwrap();
    let data = trace
        .iter()
        .filter(|frame| frame[16] & !MARK == PacketType::PullReply.code());
    data.map(|frame| frame[DATA_BULK_OFFSET] & DATA_BULK_BIT != 0).collect()
}

#[test]
fn data_comes_the_way_that_was_chosen_however_many_messages_there_are_at_once() {
    for (path, bulk) in [(DataPath::WithMessages, false), (DataPath::Bulk, true)] {
        for count in [1, 7] {
            for choice in [DataPathChoice::Fixed(path), DataPathChoice::Learned(path)] {
                let paths: BTreeSet<_> = paths_of(choice, 2, count).into_iter().collect();
                assert_eq!(paths, BTreeSet::from([bulk]), "{choice:?}, {count} at once");
            }
        }
    }
}

#[test]
fn an_engine_that_learns_tries_both_ways_with_whole_messages() {
    let paths = paths_of(DataPathChoice::Learned(DataPath::WithMessages), 30, 1);
    let frames = paths.len() / 30;
    let messages: Vec<_> = paths.chunks_exact(frames).collect();
    assert!(
        messages
            .iter()
            .all(|message| message.iter().all(|bulk| *bulk == message[0]))
    );
    let bulk = messages.iter().filter(|message| message[0]).count();
    assert!((5..=10).contains(&bulk), "{bulk} of 30 messages came on the bulk path");
}
