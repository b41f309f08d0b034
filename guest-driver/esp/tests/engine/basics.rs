//! What every program expects of a stream.

use esp::{Counter, Engine, Error, Event, Options, Reason, State};

use super::{
    program::connect,
    world::{World, config},
};

#[test]
fn m_hr2_bytes_go_both_ways_and_the_end_of_each_stream_is_seen() {
    let mut world = World::pair(1);
    let ids = connect(&mut world);
    assert_eq!(world.hosts[0].events, [Event::Connected(ids[0])]);
    let now = world.now;
    for (host, text) in [(0, b"hello"), (1, b"world")] {
        assert_eq!(world.hosts[host].engine.send(ids[host], text, true, now), Ok(5));
        let mut room = [0; 16];
        assert_eq!(
            world.hosts[host].engine.receive(ids[host], &mut room, now),
            Err(Error::WouldBlock)
        );
    }
    world.run_ns(1_000_000);
    let now = world.now;
    for (host, text) in [(0, b"world"), (1, b"hello")] {
        let mut room = [0; 16];
        assert_eq!(world.hosts[host].engine.receive(ids[host], &mut room, now), Ok(5));
        assert_eq!(&room[..5], text);
        world.hosts[host].engine.shutdown_write(ids[host], now).unwrap();
        assert_eq!(
            world.hosts[host].engine.send(ids[host], text, true, now),
            Err(Error::Shutdown)
        );
    }
    world.run_ns(10_000_000);
    let now = world.now;
    for (host, id) in ids.into_iter().enumerate() {
        assert_eq!(world.hosts[host].engine.receive(id, &mut [0; 16], now), Ok(0));
        let reason = Reason::Finished;
        assert_eq!(world.hosts[host].events.last(), Some(&Event::Closed { id, reason }));
        world.hosts[host].engine.close(id, now).unwrap();
        assert_eq!(world.hosts[host].engine.info(id), Err(Error::Unknown));
    }
    world.run_ns(3_000_000_000);
    assert_eq!([0, 1].map(|host| world.hosts[host].engine.connections()), [0, 0]);
}

#[test]
fn m_hr4_a_megabyte_waits_for_its_reader_and_arrives_whole() {
    let mut world = World::pair(2);
    let ids = connect(&mut world);
    let all: Vec<u8> = (0..10_000_000u32).map(|at| ((at * 7) >> 5) as u8).collect();
    let (mut given, mut taken) = (0, Vec::new());
    let mut room = vec![0; 70_000];
    let done = world.run_until(10_000_000_000, |world| {
        let now = world.now;
        if let Ok(len) = world.hosts[0].engine.send(ids[0], &all[given..], true, now) {
            given += len;
        }
        if world.random(50) == 0 || given == all.len() {
            while let Ok(len) = world.hosts[1].engine.receive(ids[1], &mut room, now) {
                taken.extend_from_slice(&room[..len]);
            }
        }
        taken.len() == all.len()
    });
    assert!(
        done,
        "{} {} {:?}",
        given,
        taken.len(),
        world.hosts[0].engine.info(ids[0])
    );
    assert!(taken == all);
    println!("{} in {}", world.frames, world.now);
}

#[test]
fn m_hr2_a_handover_goes_on_at_another_port() {
    let mut world = World::pair(3);
    let ids = connect(&mut world);
    let now = world.now;
    world.hosts[0].engine.send(ids[0], b"before", true, now).unwrap();
    world.run_ns(1_000_000);
    let now = world.now;
    let handover = world.hosts[1].engine.detach(ids[1], Some(9_000), now).unwrap();
    let handover = esp::Handover::from_bytes(&handover.to_bytes()).unwrap();
    world.hosts[0].engine.send(ids[0], b" after", true, now).unwrap();
    world.run_ns(1_000_000);
    let now = world.now;
    let moved = world.hosts[1]
        .engine
        .attach(handover, 9_000, Options::default(), now)
        .unwrap();
    world.run_ns(50_000_000);
    let mut room = [0; 32];
    let now = world.now;
    assert_eq!(world.hosts[1].engine.receive(moved, &mut room, now), Ok(12));
    assert_eq!(&room[..12], b"before after");
    assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().peer.port, 9_000);
    assert!(world.hosts[1].events.contains(&Event::Settled(moved)));
    world.hosts[1].engine.send(moved, b"back", true, now).unwrap();
    world.run_ns(1_000_000);
    let now = world.now;
    assert_eq!(world.hosts[0].engine.receive(ids[0], &mut room, now), Ok(4));
}

#[test]
fn m_hr4_a_peer_that_has_finished_and_is_forgotten_takes_nothing_from_who_reads_later() {
    const S: u64 = 1_000_000_000;
    let mut world = World::pair(17);
    let [client, server] = connect(&mut world);
    let options = Options {
        keep_alive_ns: Some(S),
        ..Options::default()
    };
    let now = world.now;
    world.hosts[1].engine.set_options_of(server, &options, now).unwrap();
    let bytes: Vec<u8> = (0..500_000_u32).map(|at| (at / 5) as u8).collect();
    assert_eq!(world.hosts[0].engine.send(client, &bytes, true, now), Ok(bytes.len()));
    world.hosts[0].engine.close(client, now).unwrap();
    world.run_ns(S / 2);
    world.hosts[0].engine = Engine::new(config(0), 18).unwrap();
    let (mut got, mut room) = (Vec::new(), [0; 4096]);
    while let Ok(len @ 1..) = world.hosts[1].engine.receive(server, &mut room, world.now) {
        got.extend_from_slice(&room[..len]);
        world.run_ns(10_000);
    }
    assert!(got == bytes, "{} bytes", got.len());
    world.run_ns(100 * S);
    let engine = &mut world.hosts[1].engine;
    assert_eq!(engine.receive(server, &mut room, world.now), Ok(0));
    assert!(engine.counters().of(Counter::DropLateReset) > 0);
    assert_eq!(engine.info(server).unwrap().state, State::CloseWait);
    // Who sends learns that the peer takes no more.
    engine.send(server, b"more", true, world.now).unwrap();
    world.run_ns(S);
    assert_eq!(world.hosts[1].engine.info(server).unwrap().reason, Some(Reason::Reset));
}
