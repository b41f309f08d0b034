//! Peers that lie in the blocks of types 1 to 3, selective acknowledgement, mark and check sequence: in their SYN+ACK, and in
//! acknowledgements that use what was not agreed on.

use esp::{
    Config, ConnectionId, Counter, State,
    wire::{Blocks, Body, Frame, Header, Kind, Ranges},
};
use ether::EtherType;

use super::{
    liars::{forge, header_of},
    program::{BULK, Program, begin, connect},
    world::{World, config, mac},
};

/// Bytes of a SYN+ACK before its blocks: Ethernet's header, the header, the window, and what it says.
const BLOCKS_AT: usize = 14 + 13 + 4 + 21;
const FRAME_LEN_MIN: usize = 60;
const NONE: Blocks = Blocks {
    selective: false,
    mark: false,
    check: false,
};

/// Two hosts, of which the first one names these blocks.
fn world(blocks: Blocks) -> World {
    let first = Config { blocks, ..config(0) };
    let mut world = World::new([first, config(1)], 11);
    world.trace = Some(Vec::new());
    world
}

/// Both programs send so much and end their streams; every byte arrives as it was.
#[track_caller]
fn go_on(world: &mut World, ids: [ConnectionId; 2], len: usize) {
    let mut programs = [0, 1].map(|host| Program::new(host, ids[host], BULK, len, len));
    assert!(world.run_until(20_000_000_000, |world| {
        programs.iter_mut().for_each(|program| program.act(world));
        programs.iter().all(Program::is_done)
    }));
    assert!(programs.iter().all(|program| program.error.is_none()), "{programs:?}");
}

/// The answer to a SYN of host 0 gets these bytes for its blocks, before the true one comes. Returns the connection of both, and what the
/// first answer was counted as, if it was dropped.
fn answered_with(world: &mut World, blocks: &[u8]) -> ([ConnectionId; 2], u64) {
    let client = begin(world, 5_000);
    let now = world.now;
    let mut buffer = [0; 1_514];
    let [first, second] = &mut world.hosts[..] else {
        panic!("two hosts")
    };
    let len = first.engine.poll_transmit(now, &mut buffer).unwrap();
    second.engine.handle(&buffer[..len], now);
    let len = second.engine.poll_transmit(now, &mut buffer).unwrap();
    let answer = &buffer[..len];
    assert_eq!(Frame::parse(answer, EtherType::ESP).unwrap().kind, Kind::SynAck);
    let mut lie = [&answer[..BLOCKS_AT], blocks].concat();
    lie.resize(lie.len().max(FRAME_LEN_MIN), 0);
    first.engine.handle(&lie, now);
    let dropped = first.engine.counters().of(Counter::DropMalformed);
    let is_open = first.engine.info(client).unwrap().state == State::Established;
    assert_eq!(is_open, dropped == 0);
    first.engine.handle(answer, now);
    let mut server = None;
    assert!(world.run_until(1_000_000_000, |world| {
        server = server.or_else(|| world.hosts[1].engine.accept(super::program::PORT));
        server.is_some()
    }));
    ([client, server.unwrap()], dropped)
}

#[test]
fn m_hr2_a_syn_ack_whose_blocks_end_beyond_the_frame_is_dropped_and_the_true_one_taken() {
    for kind in 1..=3 {
        // The length is missing, or says more than there is; a block before it fills the shortest frame.
        let cut = [9, 5, 0, 0, 0, 0, 0, kind];
        for blocks in [&cut[..], &[kind, 255], &[kind, 0, kind, 7, 1, 2, 3, 4, 5]] {
            let mut world = world(config(0).blocks);
            let (ids, dropped) = answered_with(&mut world, blocks);
            assert_eq!(dropped, 1, "{blocks:?}");
            go_on(&mut world, ids, 50_000);
        }
    }
}

#[test]
fn m_hr2_blocks_that_are_repeated_or_have_a_value_say_no_more_than_others() {
    for kind in 1..=3 {
        for blocks in [
            &[kind, 3, 255, 255, 255][..],
            &[kind, 0].repeat(40),
            &[kind, 0, 0, kind, 99],
        ] {
            // Frames of a peer that claims check sequences and has none are dropped, and it is given up in time.
            let claims_check = kind == 3;
            let mut world = world(config(0).blocks);
            let (ids, dropped) = answered_with(&mut world, blocks);
            assert_eq!(dropped, 0, "{blocks:?}");
            if !claims_check {
                go_on(&mut world, ids, 50_000);
                continue;
            }
            let now = world.now;
            world.hosts[0].engine.send(ids[0], &[1; 10_000], true, now).unwrap();
            world.run_ns(60_000_000_000);
            let engine = &world.hosts[0].engine;
            assert!(engine.counters().of(Counter::DropCheck) > 0);
            assert_eq!(engine.info(ids[0]).unwrap().state, State::Closed);
        }
    }
}

#[test]
fn m_hr3_what_a_peer_claims_and_this_side_does_not_offer_is_not_used() {
    let mut world = world(NONE);
    let (ids, dropped) = answered_with(&mut world, &[1, 0, 2, 0]);
    assert_eq!(dropped, 0);
    world.faults.lose = 100;
    go_on(&mut world, ids, 300_000);
    let mut acks = 0;
    for (from, frame) in world.trace.as_ref().unwrap() {
        let frame = Frame::parse(frame, EtherType::ESP).unwrap();
        if *from == 0 && frame.kind == Kind::Ack {
            assert_eq!(frame.body(false), Ok(Body::Ack(Ranges::NONE)));
            assert!(!frame.header.push);
            acks += 1;
        }
    }
    assert!(acks > 0);
}

/// Host 0 sends ten packets, none of which arrives. An acknowledgement comes from its peer that lies; then the network carries again.
/// Returns the world, both connections, and the acknowledgement.
fn with_nothing_arrived(blocks: Blocks) -> (World, [ConnectionId; 2], Header) {
    let mut world = world(blocks);
    let ids = connect(&mut world);
    let now = world.now;
    world.hosts[1].engine.send(ids[1], b"hello", true, now).unwrap();
    world.run_ns(10_000_000);
    assert_eq!(world.hosts[0].engine.available(ids[0]), Ok(5));
    let header = Header {
        push: false,
        window: Some(500),
        ..header_of(&world, 1)
    };
    world.hosts[0].engine.discard(ids[0], 5, now).unwrap();
    world.faults.lose = 1_000;
    let mut program = Program::new(0, ids[0], BULK, 14_000, 0);
    program.has_shut = true;
    program.act(&mut world);
    world.run_ns(200_000);
    assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().unacknowledged, 14_000);
    world.faults.lose = 0;
    (world, ids, header)
}

/// What came of the lie: host 1 has all that host 0 has sent, and no more.
#[track_caller]
fn all_arrives(world: &mut World, ids: [ConnectionId; 2]) {
    world.run_ns(20_000_000_000);
    assert_eq!(world.hosts[1].engine.available(ids[1]), Ok(14_000));
    assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().unacknowledged, 0);
}

#[test]
fn m_hr3_ranges_that_name_packets_which_never_arrived_lose_nothing() {
    // Where they were agreed on, and where they were not.
    for selective in [true, false] {
        for first in [1, 3] {
            let (mut world, ids, header) = with_nothing_arrived(Blocks { selective, ..NONE });
            let mut ranges = Ranges::NONE;
            let ack = header.ack.unwrap();
            ranges.push(ack.wrapping_add(first), ack.wrapping_add(10));
            let frame = forge(&world, 0, mac(1), &header, &Body::Ack(ranges));
            let now = world.now;
            for _ in 0..5 {
                world.hosts[0].engine.handle(&frame, now);
            }
            assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().unacknowledged, 14_000);
            all_arrives(&mut world, ids);
        }
    }
}

#[test]
fn m_hr2_a_mark_that_was_not_agreed_on_changes_nothing() {
    let (mut world, ids, header) = with_nothing_arrived(NONE);
    let header = Header { push: true, ..header };
    let frame = forge(&world, 0, mac(1), &header, &Body::Ack(Ranges::NONE));
    let now = world.now;
    world.hosts[0].engine.handle(&frame, now);
    all_arrives(&mut world, ids);
}

#[test]
fn m_hr2_acknowledgements_without_the_check_sequence_that_was_agreed_on_are_dropped() {
    let check = Blocks { check: true, ..NONE };
    let (mut world, ids, header) = with_nothing_arrived(check);
    // It acknowledges everything, which would lose all ten packets.
    let all = Header {
        ack: header.ack.map(|ack| ack.wrapping_add(10)),
        ..header
    };
    let frame = forge(&world, 0, mac(1), &all, &Body::Ack(Ranges::NONE));
    let now = world.now;
    world.hosts[0].engine.handle(&frame, now);
    assert_eq!(world.hosts[0].engine.counters().of(Counter::DropCheck), 1);
    all_arrives(&mut world, ids);
    // One that was not agreed on is padding.
    let (mut world, ids, header) = with_nothing_arrived(NONE);
    let mut frame = forge(&world, 0, mac(1), &header, &Body::Ack(Ranges::NONE));
    frame.extend_from_slice(&[0xff; 4]);
    let now = world.now;
    let before = world.hosts[0].engine.counters().of(Counter::FramesReceived);
    world.hosts[0].engine.handle(&frame, now);
    assert_eq!(world.hosts[0].engine.counters().of(Counter::FramesReceived), before + 1);
    all_arrives(&mut world, ids);
}
