//! Limits, each with what happens at it, and calls that are rarely made.

use esp::{
    Address, Config, ConfigError, Counter, Engine, Error, Event, Handled, ListenOptions, Options, State,
    wire::{Blocks, Body, Header, Path, Syn, emit},
};
use ether::{EtherType, MacAddr, Time};

use super::{
    program::{LISTEN, PORT, begin, connect},
    world::{World, config, mac},
};

fn limited(change: impl Fn(&mut Config)) -> World {
    World::new(
        (0..2).map(|host| {
            let mut config = config(host);
            change(&mut config);
            config
        }),
        1,
    )
}

#[test]
fn the_oldest_in_time_wait_is_forgotten_for_a_new_one() {
    let mut world = limited(|config| config.limits.time_wait = 3);
    for round in 0..5 {
        let client = begin(&mut world, 5_000 + round);
        world.run_ns(1_000_000);
        let ids = [client, world.hosts[1].engine.accept(PORT).unwrap()];
        for (host, id) in ids.into_iter().enumerate() {
            let now = world.now;
            world.hosts[host].engine.close(id, now).unwrap();
            world.run_ns(1_000_000);
        }
    }
    assert_eq!(world.hosts[0].engine.connections(), 3);
    assert_eq!(world.hosts[0].engine.counters().of(Counter::TimeWaitEvicted), 2);
    world.run_ns(3_000_000_000);
    assert_eq!(world.hosts[0].engine.connections(), 0);
}

#[test]
fn the_oldest_that_has_moved_is_forgotten_for_a_new_one() {
    let mut world = limited(|config| config.limits.moved = 2);
    for _ in 0..5 {
        let ids = connect(&mut world);
        let now = world.now;
        world.hosts[1].engine.forget(ids[1], None, now).unwrap();
    }
    assert_eq!(world.hosts[1].engine.connections(), 2);
    assert_eq!(world.hosts[1].engine.counters().of(Counter::MovedEvicted), 3);
}

#[test]
fn connections_and_ports_have_a_limit() {
    let mut world = limited(|config| config.limits.connections = 2);
    connect(&mut world);
    connect(&mut world);
    let now = world.now;
    let peer = Address { mac: mac(1), port: 9 };
    let engine = &mut world.hosts[0].engine;
    assert_eq!(engine.connect(9, peer, Options::default(), now), Err(Error::Limit));
    assert_eq!(engine.ids().count(), 2);
    assert_eq!(engine.listen(0, LISTEN), Err(Error::Invalid));
    assert_eq!(engine.listen(7, LISTEN), Ok(()));
    assert_eq!(engine.listen(7, LISTEN), Err(Error::InUse));
    engine.unlisten(7);
    assert_eq!((engine.is_listening(7), engine.accept(7)), (false, None));
}

#[test]
fn a_handshake_without_a_free_port_is_dropped_and_goes_on_with_one() {
    let mut world = limited(|config| config.handshake_ports = Some((5, 5)));
    world.hosts[1].engine.listen(PORT, LISTEN).unwrap();
    let now = world.now;
    for port in [PORT, PORT + 1] {
        let peer = Address { mac: mac(1), port };
        if port != PORT {
            world.hosts[1].engine.listen(port, LISTEN).unwrap();
        }
        world.hosts[0]
            .engine
            .connect(900, peer, Options::default(), now)
            .unwrap();
    }
    world.run_ns(100_000_000);
    assert!(world.hosts[1].engine.counters().of(Counter::DropNoConnection) > 0);
    let first = world.hosts[1].engine.accept(PORT).unwrap();
    world.hosts[1].engine.abort(first).unwrap();
    world.run_ns(1_000_000_000);
    assert!(world.hosts[1].engine.accept(PORT + 1).is_some());
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = config(0);
        change(&mut config);
        Engine::new(config, 1).unwrap_err()
    };
    assert_eq!(refused(|config| config.mtu = 67), ConfigError::Mtu(67));
    assert_eq!(
        refused(|config| config.send_buffer = 1 << 30),
        ConfigError::Buffer(1 << 30)
    );
    assert_eq!(
        refused(|config| config.handshake_ports = Some((9, 8))),
        ConfigError::HandshakePorts(9, 8)
    );
    assert_eq!(
        refused(|config| config.timing.rto_min_ns = 0),
        ConfigError::RetransmissionTimes
    );
}

#[test]
fn m_hr3_bytes_that_are_next_go_straight_to_a_reader_that_waits() {
    let mut world = World::pair(2);
    let ids = connect(&mut world);
    world.run_ns(1_000_000);
    let now = world.now;
    let mut frame = [0; 1_514];
    let mut room = [0; 8];
    let mut send = |world: &mut World, bytes: &[u8]| {
        world.hosts[0].engine.send(ids[0], bytes, true, now).unwrap();
        world.hosts[0]
            .engine
            .poll_transmit(now, &mut frame)
            .map(|len| frame[..len].to_vec())
    };
    world.hosts[1].events.clear();
    let first = send(&mut world, b"direct").unwrap();
    let engine = &mut world.hosts[1].engine;
    assert_eq!(engine.handle_into(&first, now, ids[1], &mut room), (Handled::Taken, 6));
    assert_eq!(&room[..6], b"direct");
    assert_eq!((engine.buffer_bytes(), engine.poll_event()), (0, None));
    let second = send(&mut world, b"more than fits").unwrap();
    let engine = &mut world.hosts[1].engine;
    assert_eq!(engine.handle_into(&second, now, ids[1], &mut room), (Handled::Taken, 8));
    assert_eq!(engine.poll_event(), Some(Event::Readable(ids[1])));
    assert_eq!(engine.readable(ids[1]).unwrap(), (&b"n fits"[..], &b""[..]));
    assert_eq!(engine.is_readable(ids[1]), Ok(true));
    // What waits comes first.
    let third = send(&mut world, b"!").unwrap();
    let engine = &mut world.hosts[1].engine;
    assert_eq!(engine.handle_into(&third, now, ids[1], &mut room), (Handled::Taken, 0));
    assert_eq!(engine.receive(ids[1], &mut room, now), Ok(7));
    assert_eq!(&room[..7], b"n fits!");
    assert_eq!(engine.info(ids[1]).unwrap().bytes_received, 21);
}

#[test]
fn a_small_send_is_a_frame_at_once_and_its_acknowledgement_waits() {
    let mut world = World::pair(3);
    let ids = connect(&mut world);
    world.run_ns(1_000_000);
    let now = world.now;
    let mut frame = [0; 1_514];
    assert!(!world.hosts[0].engine.has_output());
    world.hosts[0].engine.send(ids[0], b"x", true, now).unwrap();
    assert_eq!(
        world.hosts[0].engine.poll_transmit(now, &mut frame[..100]),
        None,
        "too short a buffer"
    );
    assert_eq!(world.hosts[0].engine.poll_transmit(now, &mut frame), Some(60));
    world.hosts[1].engine.handle(&frame[..60], now);
    assert_eq!(world.hosts[1].engine.poll_transmit(now, &mut frame), None);
    assert_eq!(world.hosts[1].engine.poll_timeout(), Some(now.plus_nanos(200_000)));
    let before = world.hosts[1].engine.counters().of(Counter::AcksPiggybacked);
    world.hosts[1].engine.send(ids[1], b"y", true, now).unwrap();
    assert_eq!(world.hosts[1].engine.poll_transmit(now, &mut frame), Some(60));
    assert_eq!(
        world.hosts[1].engine.counters().of(Counter::AcksPiggybacked),
        before + 1
    );
    assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().unacknowledged, 1);
    world.hosts[0].engine.handle(&frame[..60], now);
    assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().unacknowledged, 0);
    assert!(
        world.hosts[1].engine.poll_timeout() > Some(now.plus_nanos(900_000)),
        "only its own packet waits"
    );
    assert_eq!(world.hosts[0].engine.poll_timeout().map(|at| at > now), Some(true));
}

#[test]
fn a_full_send_buffer_says_when_there_is_room() {
    let mut world = World::pair(4);
    let ids = connect(&mut world);
    let now = world.now;
    let engine = &mut world.hosts[0].engine;
    let space = engine.space(ids[0]).unwrap();
    assert_eq!(engine.send(ids[0], &vec![1; space + 1], true, now), Ok(space));
    assert_eq!(engine.send(ids[0], b"x", true, now), Err(Error::WouldBlock));
    assert_eq!(engine.space(ids[0]), Ok(0));
    world.run_ns(10_000_000);
    assert!(world.hosts[0].events.contains(&Event::Writable(ids[0])));
    world.hosts[1].events.dedup();
    let expected = [Event::Incoming { port: PORT }, Event::Readable(ids[1])];
    assert_eq!(world.hosts[1].events, expected);
    assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().state, State::Established);
}

#[test]
fn a_listener_may_hold_connections_without_a_window() {
    let mut world = World::pair(5);
    let listen = ListenOptions { backlog: 1, hold: true };
    world.hosts[1].engine.listen(PORT, listen).unwrap();
    let ids = connect(&mut world);
    assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().peer_window, 0);
    let now = world.now;
    world.hosts[0].engine.send(ids[0], b"waits", true, now).unwrap();
    world.hosts[0].engine.shutdown_write(ids[0], now).unwrap();
    world.run_ns(100_000_000);
    assert_eq!(world.hosts[1].engine.available(ids[1]), Ok(0));
    assert_eq!(Time::ZERO.nanos_since(now), 0);
}

/// A SYN of a host that does not exist.
fn syn(from: u16, to: u16, instance: u64) -> Vec<u8> {
    let path = Path {
        destination: mac(1),
        source: MacAddr([2, 9, 9, 9, (from >> 8) as u8, from as u8]),
        ether_type: EtherType::ESP,
    };
    let syn = Syn {
        instance,
        payload_max: 1_400,
        blocks: Blocks::default(),
        names: None,
    };
    let header = Header {
        window: Some(64),
        ..Header::new(from, to)
    };
    let mut frame = [0; 128];
    let len = emit(&mut frame, &path, &header, &Body::Syn(syn), false).unwrap();
    frame[..len].to_vec()
}

#[test]
fn m_hr2_a_flooded_listener_gives_way_when_there_are_as_many_connections_as_may_be() {
    let mut world = limited(|config| config.limits.connections = 40);
    let others = PORT + 1;
    for port in [PORT, others] {
        world.hosts[1].engine.listen(port, LISTEN).unwrap();
    }
    let now = world.now;
    let engine = &mut world.hosts[1].engine;
    for number in 1..=5 {
        engine.handle(&syn(number, others, 7), now);
    }
    for number in 100..1_100 {
        engine.handle(&syn(number, PORT, 7), now);
    }
    let of = |engine: &Engine, port| {
        let infos = engine.ids().filter_map(|id| engine.info(id).ok());
        infos.filter(|info| info.listened_port == port).count()
    };
    assert_eq!((of(engine, others), of(engine, PORT)), (5, 35));
    engine.handle(&syn(6, others, 7), now);
    assert_eq!((of(engine, others), of(engine, PORT)), (6, 34));
    assert_eq!(engine.counters().of(Counter::HalfOpenEvicted), 966);
}

#[test]
fn m_hr2_a_host_that_has_connected_before_connects_through_a_flood_whatever_the_time_its_answer_takes() {
    for is_known in [true, false] {
        let mut world = limited(|config| config.limits.half_open = 8);
        if is_known {
            connect(&mut world);
        } else {
            world.hosts[1].engine.listen(PORT, LISTEN).unwrap();
        }
        let client = begin(&mut world, 6_000);
        world.step(world.now.plus_nanos(1_000_000));
        while world.hosts[1].engine.ids().count() == usize::from(is_known) {
            assert!(world.step(world.now.plus_nanos(1_000_000)));
        }
        // Its SYN has arrived, and the answer to it is on its way.
        let now = world.now;
        for number in 100..1_100 {
            world.hosts[1].engine.handle(&syn(number, PORT, 7), now);
        }
        world.run_ns(1_000_000);
        let info = world.hosts[0].engine.info(client).unwrap();
        assert_eq!(info.reason.is_none(), is_known, "{info:?}");
        let evicted = world.hosts[1].engine.counters().of(Counter::HalfOpenEvicted);
        assert_eq!(evicted, 993);
    }
}
