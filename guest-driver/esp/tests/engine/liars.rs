//! Peers that lie, and strangers that flood: connections of others go on, and nothing grows without bounds.

use esp::{
    Config, Counter, Event,
    wire::{Blocks, Body, Frame, Header, Kind, Moved, Path, Piece, Ranges, ResetCode, Syn, SynAck, emit},
};
use ether::{EtherType, MacAddr};

use super::{
    program::{BULK, LISTEN, PORT, Program, connect, exchange},
    world::{World, config, mac},
};

const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 9, 9]);

/// A frame for a host, as if from `source`.
pub fn forge(world: &World, to: usize, source: MacAddr, header: &Header, body: &Body<'_>) -> Vec<u8> {
    let path = Path {
        destination: world.hosts[to].engine.config().mac,
        source,
        ether_type: EtherType::ESP,
    };
    let mut frame = vec![0; 2_000];
    let len = emit(&mut frame, &path, header, body, false).unwrap();
    frame.truncate(len);
    frame
}

/// The last header that a host has sent to the other one: what a liar knows.
pub fn header_of(world: &World, host: usize) -> Header {
    let trace = world.trace.as_ref().unwrap();
    let (_, frame) = trace.iter().rev().find(|(from, _)| *from == host).unwrap();
    let parsed = Frame::parse(frame, EtherType::ESP).unwrap();
    Header {
        push: false,
        ..parsed.header
    }
}

/// A connection that has said something.
fn conversation(seed: u64) -> (World, [esp::ConnectionId; 2]) {
    let mut world = World::pair(seed);
    world.trace = Some(Vec::new());
    let ids = connect(&mut world);
    let now = world.now;
    world.hosts[0].engine.send(ids[0], b"hello", true, now).unwrap();
    world.hosts[1].engine.send(ids[1], b"hello", true, now).unwrap();
    world.run_ns(10_000_000);
    (world, ids)
}

/// Each lie is counted, and the conversation goes on.
#[track_caller]
fn lie(source: MacAddr, counter: Counter, make: impl Fn(Header) -> (Header, Body<'static>)) {
    let (mut world, ids) = conversation(3);
    let (header, body) = make(header_of(&world, 0));
    let frame = forge(&world, 1, source, &header, &body);
    let before = world.hosts[1].engine.counters().of(counter);
    let now = world.now;
    world.hosts[1].engine.handle(&frame, now);
    assert_eq!(
        world.hosts[1].engine.counters().of(counter),
        before + 1,
        "{counter:?} {body:?}"
    );
    world.run_ns(1_000_000);
    let mut programs = [0, 1].map(|host| Program::new(host, ids[host], BULK, 50_000, 50_000));
    for (host, id) in ids.into_iter().enumerate() {
        assert_eq!(world.hosts[host].engine.available(id), Ok(5));
        let now = world.now;
        world.hosts[host].engine.discard(id, 5, now).unwrap();
    }
    assert!(world.run_until(5_000_000_000, |world| {
        programs.iter_mut().for_each(|program| program.act(world));
        programs.iter().all(Program::is_done)
    }));
    assert!(
        programs.iter().all(|program| program.error.is_none()),
        "{counter:?} {body:?}"
    );
}

fn next(header: Header, by: u32) -> Header {
    Header {
        number: header.number.wrapping_add(by),
        ..header
    }
}

fn ack(header: Header, by: u32) -> Header {
    Header {
        ack: header.ack.map(|ack| ack.wrapping_add(by)),
        window: Some(1_000),
        ..header
    }
}

#[test]
fn m_hr3_numbers_that_cannot_be_are_dropped() {
    let peer = mac(0);
    lie(peer, Counter::DropBadAck, |header| {
        (ack(header, 1), Body::Ack(Ranges::NONE))
    });
    lie(peer, Counter::DropBadAck, |header| {
        (ack(header, 1 << 30), Body::Data(b"x"))
    });
    lie(peer, Counter::DropBeyondWindow, |header| {
        (next(header, 1_100), Body::Data(b"x"))
    });
    lie(peer, Counter::DropBeyondWindow, |header| {
        (next(header, 1 << 30), Body::Fin)
    });
    lie(peer, Counter::Duplicates, |header| {
        (next(header, 1 << 31), Body::Data(b"x"))
    });
    lie(peer, Counter::DropBadLength, |header| {
        (next(header, 1), Body::Data(b""))
    });
    lie(peer, Counter::DropBadLength, |header| {
        (next(header, 1), Body::Data(&[1; 1_476]))
    });
    lie(peer, Counter::DropBadLength, |header| {
        let piece = Piece {
            offset: 0,
            total: 60_000,
            payload: b"x",
        };
        (next(header, 1), Body::Piece(piece))
    });
    lie(peer, Counter::DropPieceOrder, |header| {
        let piece = Piece {
            offset: 7,
            total: 1_000,
            payload: b"x",
        };
        (next(header, 1), Body::Piece(piece))
    });
    // What the ranges say was never sent.
    lie(peer, Counter::FramesReceived, |header| {
        let mut ranges = Ranges::NONE;
        let ack = header.ack.unwrap();
        for range in [(ack, 1), (ack, 5), (ack.wrapping_sub(9), 20), (ack, u32::MAX / 2)] {
            ranges.push(range.0, range.0.wrapping_add(range.1));
        }
        (self::ack(header, 0), Body::Ack(ranges))
    });
    // A window that is larger than any, or smaller than it was.
    for window in [u32::MAX, 1 << 31, 0] {
        lie(peer, Counter::FramesReceived, |header| {
            let window = Some(window);
            (Header { window, ..header }, Body::Ack(Ranges::NONE))
        });
    }
}

#[test]
fn m_hr2_resets_and_moves_that_are_not_of_the_connection_are_dropped() {
    let peer = mac(0);
    lie(peer, Counter::DropBadReset, |header| {
        (ack(header, 1_000), Body::Reset(ResetCode::Unknown))
    });
    lie(peer, Counter::DropBadReset, |header| {
        (Header { ack: None, ..header }, Body::Reset(ResetCode::Aborted))
    });
    let moved = |old_port, instance| Body::Moved(Moved { old_port, instance });
    let from_other_port = |header: Header| Header {
        source_port: 666,
        window: Some(9),
        ..header
    };
    lie(peer, Counter::DropBadInstance, |header| {
        (from_other_port(header), moved(5_000, 1))
    });
    lie(peer, Counter::DropUnknown, |header| {
        (from_other_port(header), moved(5_001, 1))
    });
    // Who knows all numbers but has another address changes nothing.
    lie(STRANGER, Counter::DropUnknown, |header| {
        (from_other_port(header), moved(5_000, 1))
    });
    lie(STRANGER, Counter::DropUnknown, |header| {
        (header, Body::Reset(ResetCode::Unknown))
    });
    lie(STRANGER, Counter::DropUnknown, |header| {
        (next(header, 1), Body::Data(b"x"))
    });
    lie(STRANGER, Counter::DropUnknown, |header| (next(header, 1), Body::Fin));
}

#[test]
fn m_hr2_handshakes_of_other_instances_do_not_touch_a_connection() {
    let peer = mac(0);
    let window = Some(10);
    lie(peer, Counter::DropBadInstance, |header| {
        let syn = Syn {
            instance: 1,
            payload_max: 1_000,
            blocks: Blocks::default(),
            names: None,
        };
        (Header { window, ..header }, Body::Syn(syn))
    });
    lie(peer, Counter::DropBadInstance, |header| {
        let syn_ack = SynAck {
            instance: 1,
            peer_instance: 2,
            listened_port: PORT,
            payload_max: 1_000,
            blocks: Blocks::default(),
        };
        (Header { window, ..header }, Body::SynAck(syn_ack))
    });
}

#[test]
fn m_hr2_a_moved_of_another_connection_of_the_same_peer_does_not_take_its_port() {
    let (mut world, ids) = conversation(4);
    let second = connect(&mut world);
    let port = world.hosts[0].engine.info(second[0]).unwrap().local_port;
    let instance = world.hosts[0]
        .engine
        .detach(ids[0], None, world.now)
        .unwrap()
        .instance();
    let header = Header {
        source_port: port,
        window: Some(9),
        ..header_of(&world, 0)
    };
    let body = Body::Moved(Moved {
        old_port: 5_000,
        instance,
    });
    let frame = forge(&world, 1, mac(0), &header, &body);
    let now = world.now;
    world.hosts[1].engine.handle(&frame, now);
    // The frame is one for the second connection, whose instance is another one.
    assert_eq!(world.hosts[1].engine.counters().of(Counter::DropBadInstance), 1);
    assert_eq!(world.hosts[1].engine.info(ids[1]).unwrap().peer.port, 5_000);
}

fn syn(world: &World, source: MacAddr, port: u16, instance: u64) -> Vec<u8> {
    let header = Header {
        number: instance as u32,
        window: Some(100),
        ..Header::new(port, PORT)
    };
    let body = Body::Syn(Syn {
        instance,
        payload_max: 1_000,
        blocks: Blocks::default(),
        names: None,
    });
    forge(world, 1, source, &header, &body)
}

#[test]
fn m_hr2_a_flood_of_syns_is_bounded_and_harms_no_connection() {
    for handshake_ports in [None, Some((1, 4_095))] {
        let configs = (0..2).map(|host| {
            let mut config = config(host);
            config.handshake_ports = handshake_ports.filter(|_| host == 1);
            config
        });
        let mut world = World::new(configs, 5);
        let old = connect(&mut world);
        let now = world.now;
        for number in 0..20_000u64 {
            let source = MacAddr([2, 1, 0, 0, (number >> 8) as u8, number as u8]);
            let frame = syn(&world, source, 1 + (number % 60_000) as u16, number);
            world.hosts[1].engine.handle(&frame, now);
            let mut buffer = [0; 1_514];
            while world.hosts[1].engine.poll_transmit(now, &mut buffer).is_some() {}
        }
        let engine = &world.hosts[1].engine;
        let half_open = engine.config().limits.half_open;
        assert_eq!(engine.connections(), half_open + 1);
        assert_eq!(
            engine.counters().of(Counter::HalfOpenEvicted),
            (20_000 - half_open) as u64
        );
        // A new one gets through, and the old one was not harmed.
        let new = connect(&mut world);
        for ids in [old, new] {
            let mut programs = [0, 1].map(|host| Program::new(host, ids[host], BULK, 20_000, 20_000));
            assert!(world.run_until(1_000_000_000, |world| {
                programs.iter_mut().for_each(|program| program.act(world));
                programs.iter().all(Program::is_done)
            }));
        }
        world.run_ns(30_000_000_000);
        assert_eq!(
            world.hosts[1].engine.counters().of(Counter::GivenUp),
            half_open as u64 - 1
        );
    }
}

#[test]
fn m_hr2_a_flood_of_frames_for_nobody_is_answered_within_bounds() {
    let (mut world, _) = conversation(6);
    let now = world.now;
    for number in 0..10_000 {
        let frame = forge(&world, 1, STRANGER, &Header::new(1 + number, 9), &Body::Data(b"x"));
        world.hosts[1].engine.handle(&frame, now);
    }
    let mut answers = 0;
    while let Some(len) = world.hosts[1].engine.poll_transmit(now, &mut [0; 1_514]) {
        assert!(len >= 60);
        answers += 1;
    }
    let engine = &world.hosts[1].engine;
    assert_eq!(answers, engine.config().limits.answers);
    assert_eq!(engine.counters().of(Counter::DropAnswers), 10_000 - answers as u64);
}

#[test]
fn m_hr2_no_reset_answers_a_reset_and_no_frame_for_others_is_taken() {
    let (mut world, _) = conversation(7);
    let now = world.now;
    let reset = forge(
        &world,
        1,
        STRANGER,
        &Header::new(1, 9),
        &Body::Reset(ResetCode::Unknown),
    );
    let others = forge(&world, 0, STRANGER, &Header::new(1, 9), &Body::Data(b"x"));
    let edp = forge(&world, 1, STRANGER, &Header::new(1, 9), &Body::Datagram(b"x"));
    let engine = &mut world.hosts[1].engine;
    assert_eq!(engine.handle(&reset, now), esp::Handled::Dropped);
    assert_eq!(engine.handle(&others, now), esp::Handled::Dropped);
    assert_eq!(engine.handle(&edp, now), esp::Handled::Edp);
    assert_eq!(engine.handle(&[0; 60], now), esp::Handled::NotOurs);
    assert_eq!(engine.handle(&edp[..20], now), esp::Handled::Dropped);
    assert!(!engine.has_output());
    assert_eq!(Frame::parse(&edp, EtherType::ESP).unwrap().kind, Kind::Datagram);
}

#[test]
fn m_hr2_a_check_sequence_finds_frames_that_the_network_changed() {
    let configs = (0..2).map(|host| {
        let mut config = config(host);
        config.blocks.check = host == 1;
        config
    });
    let mut world = World::new(configs, 8);
    world.flip = 20;
    exchange(&mut world, BULK, [300_000, 300_000]);
    let counters = world.hosts[1].engine.counters();
    assert!(counters.of(Counter::DropCheck) > 0);
    assert!(
        world.hosts[0]
            .events
            .iter()
            .any(|event| matches!(event, Event::Readable(_)))
    );
}

#[test]
fn memory_for_bytes_has_a_limit_and_its_end_loses_nothing() {
    let configs = (0..2).map(|host| {
        let mut config = config(host);
        config.limits.bytes = if host == 1 { 40 << 10 } else { 64 << 10 };
        config
    });
    let mut world = World::new(configs, 9);
    world.faults.lose = 20;
    world.trace = None;
    exchange(&mut world, BULK, [400_000, 100_000]);
    assert!(world.hosts[1].engine.counters().of(Counter::DropNoMemory) > 0);
    assert_eq!(LISTEN.backlog, 16);
}

#[test]
fn m_hr2_a_peer_that_moves_in_its_handshake_leaves_nothing_at_its_old_port() {
    let authority = Config {
        handshake_ports: Some((1, 4_095)),
        ..config(1)
    };
    let mut world = World::new([config(0), authority], 1);
    world.hosts[1].engine.listen(PORT, LISTEN).unwrap();
    let syn = |world: &World, instance| {
        let header = Header {
            window: Some(9),
            ..Header::new(40, PORT)
        };
        let body = Body::Syn(Syn {
            instance,
            payload_max: 1_400,
            blocks: Blocks::default(),
            names: None,
        });
        forge(world, 1, STRANGER, &header, &body)
    };
    let answered_from = |world: &mut World, frame: &[u8]| {
        let now = world.now;
        let engine = &mut world.hosts[1].engine;
        engine.handle(frame, now);
        let mut answer = vec![0; 2_000];
        let len = engine.poll_transmit(now, &mut answer).unwrap();
        let answer = Frame::parse(&answer[..len], EtherType::ESP).unwrap();
        assert_eq!((answer.kind, answer.header.destination_port), (Kind::SynAck, 40));
        answer.header.source_port
    };
    let first = syn(&world, 7);
    let port = answered_from(&mut world, &first);
    // It does not acknowledge the answer, so the handshake is not over.
    let header = Header {
        window: Some(9),
        ack: Some(0),
        ..Header::new(41, port)
    };
    let moved = Body::Moved(Moved {
        old_port: 40,
        instance: 7,
    });
    let moved = forge(&world, 1, STRANGER, &header, &moved);
    let now = world.now;
    world.hosts[1].engine.handle(&moved, now);
    while world.hosts[1].engine.poll_transmit(now, &mut [0; 2_000]).is_some() {}
    let again = syn(&world, 8);
    let second = answered_from(&mut world, &again);
    assert_eq!(world.hosts[1].engine.counters().of(Counter::PeersMoved), 1);
    assert_eq!(answered_from(&mut world, &again), second, "it is the same SYN");
    assert_eq!(world.hosts[1].engine.connections(), 2);
}
