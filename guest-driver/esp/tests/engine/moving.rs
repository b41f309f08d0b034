//! Connections that change their port or their engine.

use esp::{Address, Config, ConnectionId, Engine, Error, Event, Handover, ListenOptions, Options, Reason, State};

use super::{
    program::{BULK, LISTEN, PATTERNS, PORT, Program, connect},
    world::{World, config},
};

const S: u64 = 1_000_000_000;
const HANDSHAKE_PORTS: (u16, u16) = (1, 4_095);

/// Host 1 has an authority that answers SYNs from ports of its own and holds connections.
fn authority(host: usize) -> Config {
    Config {
        handshake_ports: (host == 1).then_some(HANDSHAKE_PORTS),
        ..config(host)
    }
}

fn move_to(world: &mut World, host: usize, id: ConnectionId, port: u16) -> ConnectionId {
    let now = world.now;
    let engine = &mut world.hosts[host].engine;
    let handover = engine.detach(id, Some(port), now).unwrap();
    let bytes = handover.to_bytes();
    let read = Handover::from_bytes(&bytes).unwrap();
    assert_eq!(read, handover);
    engine.attach(read, port, Options::default(), now).unwrap()
}

#[test]
fn m_hr2_a_handshake_at_an_authority_ends_in_a_program_and_loses_nothing() {
    for lose in [0, 200] {
        for seed in 0..if lose > 0 { 40 } else { 2 } {
            let mut world = World::new((0..2).map(authority), seed);
            world.faults.lose = lose;
            let listen = ListenOptions { backlog: 8, hold: true };
            world.hosts[1].engine.listen(PORT, listen).unwrap();
            let ids = connect(&mut world);
            let info = world.hosts[1].engine.info(ids[1]).unwrap();
            assert!((1..=4_095).contains(&info.local_port) && info.local_port != PORT || info.listened_port == PORT);
            let mut programs = [0, 1].map(|host| Program::new(host, ids[host], BULK, 50_000, 50_000));
            world.run_until(20_000_000, |world| {
                programs[0].act(world);
                false
            });
            assert_eq!(
                world.hosts[1].engine.available(ids[1]),
                Ok(0),
                "the authority takes no bytes"
            );
            programs[1].id = move_to(&mut world, 1, ids[1], 9_000);
            let done = world.run_until(60 * S, |world| {
                programs.iter_mut().for_each(|program| program.act(world));
                programs.iter().all(Program::is_done)
            });
            assert!(
                done,
                "seed {seed} {:?} {programs:?}",
                world.hosts[0].engine.info(ids[0])
            );
            for program in &programs {
                assert_eq!((program.error, program.taken), (None, 50_000));
            }
            assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().peer.port, 9_000);
        }
    }
}

#[test]
fn m_hr2_any_single_packet_may_be_lost_while_a_connection_moves() {
    let mut number = 0;
    loop {
        let mut world = World::new((0..2).map(authority), 3);
        world.drop_frame = Some(number);
        let ids = connect(&mut world);
        let mut programs = [0, 1].map(|host| Program::new(host, ids[host], PATTERNS[4], 9_000, 9_000));
        let mut moves = 0;
        let done = world.run_until(60 * S, |world| {
            let act = |programs: &mut [Program; 2], world: &mut World| {
                programs.iter_mut().for_each(|program| program.act(world));
            };
            act(&mut programs, world);
            for host in [1, 0, 1] {
                let port = 9_000 + moves;
                if programs[host].taken > 2_000 * usize::from(moves) && moves < 3 {
                    moves += 1;
                    programs[host].id = move_to(world, host, programs[host].id, port);
                    // What was sent just before goes to the old port.
                    act(&mut programs, world);
                }
            }
            programs.iter().all(Program::is_done)
        });
        assert!(done, "frame {number} {:?}", world.hosts[0].engine.info(programs[0].id));
        for program in &programs {
            assert_eq!((program.error, program.taken), (None, 9_000), "frame {number}");
        }
        if world.frames <= number {
            break;
        }
        number += 1;
    }
    assert!(number > 30, "{number} frames");
}

#[test]
fn m_hr2_both_sides_may_move_at_the_same_time_under_loss() {
    for seed in 0..100 {
        let mut world = World::pair(seed);
        world.faults.lose = [0, 100, 200][seed as usize % 3];
        world.faults.reorder = 100;
        world.faults.reorder_ns = 50_000;
        let ids = connect(&mut world);
        let mut programs = [0, 1].map(|host| Program::new(host, ids[host], BULK, 200_000, 200_000));
        let mut moves = 0;
        let done = world.run_until(100 * S, |world| {
            if moves < 3 && programs[0].taken >= moves * 50_000 {
                moves += 1;
                for program in &mut programs {
                    let port = 9_000 + 10 * moves as u16 + program.host as u16;
                    let info = world.hosts[program.host].engine.info(program.id).unwrap();
                    if !info.is_moving {
                        program.id = move_to(world, program.host, program.id, port);
                    }
                }
            }
            programs.iter_mut().for_each(|program| program.act(world));
            programs.iter().all(Program::is_done)
        });
        let infos = [0, 1].map(|host| world.hosts[host].engine.info(programs[host].id));
        assert!(done, "seed {seed} {infos:?}");
        for program in &programs {
            assert_eq!((program.error, program.taken), (None, 200_000), "seed {seed}");
        }
    }
}

#[test]
fn m_hr2_a_connection_that_is_handed_over_is_not_reset_meanwhile() {
    let mut world = World::pair(5);
    let ids = connect(&mut world);
    let now = world.now;
    let handover = world.hosts[1].engine.detach(ids[1], None, now).unwrap();
    assert_eq!(world.hosts[1].engine.info(ids[1]), Err(Error::Unknown));
    world.hosts[0].engine.send(ids[0], b"while away", true, now).unwrap();
    world.run_ns(10 * S);
    assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().reason, None);
    let now = world.now;
    let id = world.hosts[1]
        .engine
        .attach(handover, 77, Options::default(), now)
        .unwrap();
    world.run_ns(2 * S);
    assert_eq!(world.hosts[1].engine.available(id), Ok(10));
    assert!(world.hosts[1].events.contains(&Event::Settled(id)));
    world.run_ns(40 * S);
    assert_eq!(world.hosts[1].engine.connections(), 1, "the old port is forgotten");
}

#[test]
fn m_hr2_a_connection_whose_peer_is_gone_ends_soon_when_it_moves() {
    let mut world = World::pair(6);
    let ids = connect(&mut world);
    world.hosts[0].engine = Engine::new(config(0), 9).unwrap();
    let moved = move_to(&mut world, 1, ids[1], 9_000);
    world.run_ns(S);
    assert_eq!(world.hosts[1].engine.info(moved).unwrap().reason, Some(Reason::Reset));
}

#[test]
fn m_hr2_a_frozen_connection_does_nothing_until_one_of_two_goes_on_with_it() {
    for child_goes_on in [false, true] {
        let mut world = World::pair(7);
        let ids = connect(&mut world);
        let now = world.now;
        world.hosts[1].engine.send(ids[1], b"before", true, now).unwrap();
        world.hosts[1].engine.freeze(ids[1], now).unwrap();
        world.hosts[0].engine.send(ids[0], b"question", true, now).unwrap();
        let frames = world.hosts[1].engine.counters().of(esp::Counter::FramesSent);
        world.run_ns(5 * S);
        let engine = &mut world.hosts[1].engine;
        assert_eq!(engine.counters().of(esp::Counter::FramesSent), frames);
        assert!(engine.counters().of(esp::Counter::DropFrozen) > 3);
        assert_eq!(engine.send(ids[1], b"x", true, world.now), Err(Error::Frozen));
        assert_eq!(engine.receive(ids[1], &mut [0; 1], world.now), Err(Error::Frozen));
        assert_eq!(engine.poll_timeout(), None);
        let id = if child_goes_on {
            move_to(&mut world, 1, ids[1], 9_000)
        } else {
            world.hosts[1].engine.thaw(ids[1], world.now).unwrap();
            ids[1]
        };
        world.run_ns(2 * S);
        assert_eq!(world.hosts[1].engine.available(id), Ok(8));
        assert_eq!(world.hosts[0].engine.available(ids[0]), Ok(6));
    }
}

#[test]
fn m_hr2_half_closed_connections_move_too() {
    let mut world = World::pair(8);
    let ids = connect(&mut world);
    let now = world.now;
    world.hosts[0].engine.send(ids[0], b"all", true, now).unwrap();
    world.hosts[0].engine.shutdown_write(ids[0], now).unwrap();
    world.run_ns(1_000_000);
    let server = move_to(&mut world, 1, ids[1], 9_000);
    let client = move_to(&mut world, 0, ids[0], 9_001);
    world.run_ns(S);
    assert_eq!(world.hosts[1].engine.info(server).unwrap().state, State::CloseWait);
    assert_eq!(world.hosts[0].engine.info(client).unwrap().state, State::FinWait2);
    let mut room = [0; 8];
    let now = world.now;
    assert_eq!(world.hosts[1].engine.receive(server, &mut room, now), Ok(3));
    assert_eq!(world.hosts[1].engine.receive(server, &mut room, now), Ok(0));
    world.hosts[1].engine.close(server, now).unwrap();
    world.run_ns(S);
    assert_eq!(
        world.hosts[0].engine.info(client).unwrap().reason,
        Some(Reason::Finished)
    );
}

#[test]
fn a_handover_that_no_engine_made_is_refused() {
    let mut world = World::pair(9);
    let ids = connect(&mut world);
    let now = world.now;
    world.hosts[0].engine.send(ids[0], &[3; 5_000], true, now).unwrap();
    world.run_ns(3_000);
    let handover = world.hosts[0].engine.detach(ids[0], None, now).unwrap();
    let Address { mac, port } = handover.peer();
    assert_eq!((mac, port, handover.local_port()), (super::world::mac(1), PORT, 5_000));
    let bytes = handover.to_bytes();
    for len in 0..bytes.len() {
        assert!(Handover::from_bytes(&bytes[..len]).is_err());
    }
    // Whatever else is read can be attached: nothing is trusted further.
    for at in 0..160 {
        for bit in 0..8 {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << bit;
            if let Ok(read) = Handover::from_bytes(&wrong) {
                let mut engine = Engine::new(config(0), 1).unwrap();
                if let Ok(id) = engine.attach(read, 1, Options::default(), now) {
                    while engine.poll_transmit(now, &mut [0; 1_514]).is_some() {}
                    _ = engine.receive(id, &mut [0; 100], now);
                }
            }
        }
    }
}

#[test]
fn m_hr4_what_a_closed_connection_has_to_send_is_delivered_by_another_engine() {
    for lose in [0, 100] {
        for seed in 0..20 {
            let mut world = World::new((0..2).map(config), seed);
            world.faults.lose = lose;
            world.hosts[1].engine.listen(PORT, LISTEN).unwrap();
            let ids = connect(&mut world);
            let now = world.now;
            let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at / 7) as u8).collect();
            let engine = &mut world.hosts[0].engine;
            assert_eq!(engine.send(ids[0], &bytes, true, now), Ok(bytes.len()));
            engine.close(ids[0], now).unwrap();
            world.run_ns(10_000);
            let now = world.now;
            let engine = &mut world.hosts[0].engine;
            assert!(!engine.is_delivered());
            let left = engine.detach_undelivered(now);
            assert_eq!((left.len(), engine.is_delivered()), (1, true));
            assert!(engine.detach_undelivered(now).is_empty());
            let handover = Handover::from_bytes(&left[0].to_bytes()).unwrap();
            let id = engine.attach(handover, 9_000, Options::default(), now).unwrap();
            engine.close(id, now).unwrap();
            let mut got = Vec::new();
            let mut room = [0; 4096];
            let done = world.run_until(20 * S, |world| {
                let now = world.now;
                let engine = &mut world.hosts[1].engine;
                while let Ok(len @ 1..) = engine.receive(ids[1], &mut room, now) {
                    got.extend_from_slice(&room[..len]);
                }
                got.len() == bytes.len() && world.hosts[0].engine.is_delivered()
            });
            assert!(done && got == bytes, "seed {seed}, {} bytes", got.len());
        }
    }
}
