//! Peers that die or start anew, cables that are cut, interfaces that change: connections go on, or end with a reason in time.

use esp::{Address, Error, Event, Options, Reason, State};

use super::{
    program::{BULK, LISTEN, PORT, Program, begin, connect, exchange},
    world::{World, config, mac},
};

const S: u64 = 1_000_000_000;

fn reason(world: &World, host: usize, id: esp::ConnectionId) -> Option<Reason> {
    world.hosts[host].engine.info(id).unwrap().reason
}

#[test]
fn m_hr2_nobody_listens_is_refused_and_nobody_there_times_out() {
    let mut world = World::pair(1);
    let now = world.now;
    let peer = |host, port| Address { mac: mac(host), port };
    let engine = &mut world.hosts[0].engine;
    let refused = engine.connect(7, peer(1, 81), Options::default(), now).unwrap();
    let silent = engine.connect(8, peer(5, 81), Options::default(), now).unwrap();
    assert_eq!(
        engine.connect(8, peer(5, 81), Options::default(), now),
        Err(Error::InUse)
    );
    assert_eq!(
        engine.connect(0, peer(5, 81), Options::default(), now),
        Err(Error::Invalid)
    );
    assert_eq!(
        engine.connect(9, peer(0, 81), Options::default(), now),
        Err(Error::Invalid)
    );
    assert_eq!(engine.send(silent, b"x", true, now), Err(Error::NotConnected));
    assert_eq!(engine.receive(silent, &mut [0; 4], now), Err(Error::NotConnected));
    world.run_ns(S);
    assert_eq!(reason(&world, 0, refused), Some(Reason::Refused));
    assert_eq!(reason(&world, 0, silent), None);
    world.run_ns(11 * S);
    assert_eq!(reason(&world, 0, silent), Some(Reason::TimedOut));
    let now = world.now;
    let engine = &mut world.hosts[0].engine;
    assert_eq!(
        engine.receive(refused, &mut [0; 4], now),
        Err(Error::Ended(Reason::Refused))
    );
    assert_eq!(
        engine.send(silent, b"x", true, now),
        Err(Error::Ended(Reason::TimedOut))
    );
    engine.close(refused, now).unwrap();
    engine.close(silent, now).unwrap();
    assert_eq!(engine.connections(), 0);
}

#[test]
fn m_hr3_a_dead_peer_is_given_up_in_time_and_its_last_bytes_can_be_read() {
    let mut world = World::pair(2);
    let ids = connect(&mut world);
    let now = world.now;
    world.hosts[1].engine.send(ids[1], b"last", true, now).unwrap();
    world.run_ns(1_000_000);
    world.hosts[1].off = true;
    let died = world.now;
    world.hosts[0].engine.send(ids[0], b"anyone?", true, died).unwrap();
    assert!(world.run_until(40 * S, |world| reason(world, 0, ids[0]).is_some()));
    let took_ns = world.now.nanos_since(died);
    assert!((30 * S..32 * S).contains(&took_ns), "{took_ns}");
    assert_eq!(reason(&world, 0, ids[0]), Some(Reason::TimedOut));
    let now = world.now;
    let engine = &mut world.hosts[0].engine;
    let mut room = [0; 8];
    assert_eq!(engine.receive(ids[0], &mut room, now), Ok(4));
    assert_eq!(
        engine.receive(ids[0], &mut room, now),
        Err(Error::Ended(Reason::TimedOut))
    );
}

#[test]
fn m_hr3_a_silent_peer_is_asked_when_a_program_wants_to_know() {
    let mut world = World::pair(3);
    let ids = connect(&mut world);
    let now = world.now;
    let options = Options {
        keep_alive_ns: Some(5 * S),
        ..Options::default()
    };
    world.hosts[0].engine.set_options_of(ids[0], &options, now).unwrap();
    world.run_ns(60 * S);
    assert_eq!(reason(&world, 0, ids[0]), None, "it answers");
    let probes = world.hosts[0].engine.counters().of(esp::Counter::Probes);
    assert!((8..13).contains(&probes), "{probes}");
    world.hosts[1].off = true;
    world.run_ns(37 * S);
    assert_eq!(reason(&world, 0, ids[0]), Some(Reason::TimedOut));
    assert_eq!(reason(&world, 1, ids[1]), None, "it does not ask");
}

#[test]
fn m_hr2_a_peer_that_has_started_anew_resets_what_it_does_not_know() {
    let mut world = World::pair(4);
    let ids = connect(&mut world);
    let fresh = esp::Engine::new(config(1), 99).unwrap();
    world.hosts[1].engine = fresh;
    let now = world.now;
    world.hosts[0].engine.send(ids[0], b"hello", true, now).unwrap();
    world.run_ns(S);
    assert_eq!(reason(&world, 0, ids[0]), Some(Reason::Reset));
    assert_eq!(
        world.hosts[0].events.last(),
        Some(&Event::Closed {
            id: ids[0],
            reason: Reason::Reset
        })
    );
}

#[test]
fn m_hr2_a_client_that_has_started_anew_connects_from_the_same_port() {
    let mut world = World::pair(5);
    let old = connect(&mut world);
    let fresh = esp::Engine::new(config(0), 98).unwrap();
    world.hosts[0].engine = fresh;
    let new = connect(&mut world);
    assert_eq!(world.hosts[0].engine.info(new[0]).unwrap().local_port, 5_000);
    assert_eq!(reason(&world, 1, old[1]), Some(Reason::Reset));
    let now = world.now;
    world.hosts[0].engine.send(new[0], b"hello", true, now).unwrap();
    world.run_ns(S);
    assert_eq!(world.hosts[1].engine.available(new[1]), Ok(5));
}

#[test]
fn m_hr3_a_connection_goes_on_behind_a_cable_that_was_cut_for_ten_seconds() {
    for busy in [false, true] {
        let mut world = World::pair(6);
        let ids = connect(&mut world);
        let len = 20 << 20;
        let mut programs = [0, 1].map(|host| Program::new(host, ids[host], BULK, len, len));
        let mut act = |world: &mut World| {
            programs.iter_mut().for_each(|program| program.act(world));
            programs.iter().all(Program::is_done)
        };
        if busy {
            assert!(!world.run_until(5_000_000, &mut act));
        }
        world.hosts[0].off = true;
        assert!(!world.run_until(10 * S, &mut act));
        world.hosts[0].off = false;
        let back = world.now;
        assert!(world.run_until(5 * S, &mut act), "busy: {busy}");
        let took_ns = world.now.nanos_since(back);
        assert!(took_ns < 2 * S, "{took_ns} ns");
        for program in &programs {
            assert_eq!((program.error, program.taken), (None, len));
        }
    }
}

#[test]
fn m_hr2_packets_that_are_too_long_for_a_smaller_mtu_are_cut_anew() {
    for (lose, check) in [(0, false), (50, false), (50, true)] {
        let configs = (0..2).map(|host| {
            let mut config = config(host);
            config.mtu = 9_000;
            config.blocks.check = check;
            config
        });
        let mut world = World::new(configs, 7);
        world.faults.lose = lose;
        let ids = connect(&mut world);
        let len = 3 << 20;
        let mut programs = [0, 1].map(|host| Program::new(host, ids[host], BULK, len, len));
        let mut act = |world: &mut World| {
            programs.iter_mut().for_each(|program| program.act(world));
            programs.iter().all(Program::is_done)
        };
        assert!(!world.run_until(1_000_000, &mut act));
        world.lose_all_on_their_way();
        for host in &mut world.hosts {
            host.frame_len_max = 14 + 600;
            host.engine.set_mtu(600, world.now).unwrap();
        }
        assert!(
            world.run_until(60 * S, &mut act),
            "{:?}",
            world.hosts[0].engine.info(ids[0])
        );
        let pieces: u64 = (0..2)
            .map(|host| world.hosts[host].engine.counters().of(esp::Counter::Pieces))
            .sum();
        assert!(pieces > 20, "{pieces}");
        for program in &programs {
            assert_eq!((program.error, program.taken), (None, len));
        }
        let now = world.now;
        assert!(world.hosts[0].engine.set_mtu(67, now).is_err());
        assert_eq!(world.hosts[0].engine.config().mtu, 600);
    }
}

#[test]
fn m_hr2_a_network_that_carries_less_than_the_mtu_ends_a_connection_with_a_reason() {
    let mut world = World::pair(8);
    let ids = connect(&mut world);
    world.hosts[1].frame_len_max = 700;
    let now = world.now;
    world.hosts[0].engine.send(ids[0], &[1; 5_000], true, now).unwrap();
    world.run_ns(40 * S);
    assert_eq!(reason(&world, 0, ids[0]), Some(Reason::TimedOut));
}

#[test]
fn m_hr2_an_interface_that_is_gone_ends_all_its_connections() {
    let mut world = World::pair(9);
    let ids = connect(&mut world);
    let now = world.now;
    world.hosts[0].engine.fail_all(now);
    world.run_ns(1_000);
    assert_eq!(reason(&world, 0, ids[0]), Some(Reason::Unreachable));
    assert_eq!(Reason::Unreachable.errno(), 113);
}

#[test]
fn m_hr2_both_may_begin_or_end_at_the_same_time() {
    let mut world = World::pair(10);
    let now = world.now;
    let ids = [0, 1].map(|host| {
        let (own, peer) = (100 + host as u16, 101 - host as u16);
        let peer = Address {
            mac: mac(1 - host),
            port: peer,
        };
        world.hosts[host]
            .engine
            .connect(own, peer, Options::default(), now)
            .unwrap()
    });
    world.run_ns(1_000_000);
    for (host, id) in ids.into_iter().enumerate() {
        assert_eq!(world.hosts[host].engine.info(id).unwrap().state, State::Established);
        assert_eq!(world.hosts[host].events, [Event::Connected(id)]);
    }
    let mut programs = [0, 1].map(|host| Program::new(host, ids[host], BULK, 5_000, 5_000));
    assert!(world.run_until(S, |world| {
        programs.iter_mut().for_each(|program| program.act(world));
        programs.iter().all(Program::is_done)
    }));
    world.run_ns(1_000_000);
    for (host, id) in ids.into_iter().enumerate() {
        assert_eq!(
            world.hosts[host].engine.info(id).unwrap().state,
            State::TimeWait,
            "both closed first"
        );
    }
    world.run_ns(3 * S);
    for (host, id) in ids.into_iter().enumerate() {
        assert_eq!(world.hosts[host].engine.info(id).unwrap().state, State::Closed);
    }
}

#[test]
fn m_hr2_the_port_of_a_connection_in_time_wait_can_be_used_again() {
    let mut world = World::pair(11);
    for round in 0..5 {
        let client = begin(&mut world, 5_000);
        let mut server = None;
        assert!(world.run_until(S, |world| {
            server = server.or_else(|| world.hosts[1].engine.accept(PORT));
            server.is_some()
        }));
        let now = world.now;
        // Sides take turns to close first.
        let first = round % 2;
        let ids = [client, server.unwrap()];
        world.hosts[first].engine.close(ids[first], now).unwrap();
        world.run_ns(1_000_000);
        let now = world.now;
        assert_eq!(
            world.hosts[1 - first].engine.receive(ids[1 - first], &mut [0; 9], now),
            Ok(0)
        );
        world.hosts[1 - first].engine.close(ids[1 - first], now).unwrap();
        world.run_ns(1_000_000);
        let left = world.hosts.iter().map(|host| host.engine.connections()).max();
        assert_eq!(left, Some(1), "one side remembers");
    }
}

#[test]
fn m_hr2_closing_with_unread_bytes_or_aborting_resets_the_peer() {
    for abort in [false, true] {
        let mut world = World::pair(12);
        let ids = connect(&mut world);
        let now = world.now;
        world.hosts[0].engine.send(ids[0], b"unread", true, now).unwrap();
        world.run_ns(1_000_000);
        let now = world.now;
        if abort {
            world.hosts[1].engine.abort(ids[1]).unwrap();
        } else {
            world.hosts[1].engine.close(ids[1], now).unwrap();
        }
        assert_eq!(world.hosts[1].engine.connections(), 0);
        world.run_ns(1_000_000);
        assert_eq!(reason(&world, 0, ids[0]), Some(Reason::Reset));
    }
}

#[test]
fn m_hr2_bytes_for_a_program_that_has_closed_reset_the_peer() {
    let mut world = World::pair(13);
    let ids = connect(&mut world);
    let now = world.now;
    world.hosts[1].engine.close(ids[1], now).unwrap();
    world.run_ns(1_000_000);
    let now = world.now;
    assert_eq!(world.hosts[0].engine.info(ids[0]).unwrap().state, State::CloseWait);
    world.hosts[0].engine.send(ids[0], b"late", true, now).unwrap();
    world.run_ns(1_000_000);
    assert_eq!(reason(&world, 0, ids[0]), Some(Reason::Reset));
    assert_eq!(world.hosts[1].engine.connections(), 0);
}

#[test]
fn m_hr2_a_closed_connection_whose_peer_never_closes_is_given_up() {
    let mut world = World::pair(14);
    let ids = connect(&mut world);
    let now = world.now;
    world.hosts[0].engine.close(ids[0], now).unwrap();
    world.run_ns(59 * S);
    assert_eq!(world.hosts[0].engine.connections(), 1);
    world.run_ns(2 * S);
    assert_eq!(world.hosts[0].engine.connections(), 0);
    assert_eq!(reason(&world, 1, ids[1]), Some(Reason::Reset));
}

#[test]
fn m_hr4_a_window_that_stays_closed_is_asked_for_and_not_given_up() {
    let mut world = World::pair(15);
    let ids = connect(&mut world);
    let now = world.now;
    let options = Options {
        receive_buffer: Some(4_000),
        ..Options::default()
    };
    world.hosts[1].engine.set_options_of(ids[1], &options, now).unwrap();
    let mut given = 0;
    world.run_until(120 * S, |world| {
        let now = world.now;
        given += world.hosts[0]
            .engine
            .send(ids[0], &[7; 100_000], true, now)
            .unwrap_or(0);
        false
    });
    assert_eq!(reason(&world, 0, ids[0]), None);
    assert!(world.hosts[0].engine.counters().of(esp::Counter::WindowClosed) > 0);
    assert!(world.hosts[0].engine.counters().of(esp::Counter::Probes) > 60);
    let mut taken = 0;
    // Each news of the window is lost: the questions bring it.
    assert!(world.run_until(600 * S, |world| {
        let now = world.now;
        let mut room = [0; 50_000];
        world.faults.lose = 300;
        while let Ok(len) = world.hosts[1].engine.receive(ids[1], &mut room, now) {
            taken += len;
        }
        taken == given
    }));
}

#[test]
fn a_backlog_that_is_full_holds_handshakes_up_and_loses_none() {
    let mut world = World::pair(16);
    let listen = esp::ListenOptions { backlog: 3, ..LISTEN };
    world.hosts[1].engine.listen(PORT, listen).unwrap();
    let clients: Vec<_> = (0..10).map(|port| begin(&mut world, 6_000 + port)).collect();
    world.run_ns(1_000_000);
    assert!(world.hosts[1].engine.counters().of(esp::Counter::BacklogFull) > 0);
    let mut accepted = 0;
    assert!(world.run_until(9 * S, |world| {
        while world.hosts[1].engine.accept(PORT).is_some() {
            accepted += 1;
        }
        accepted == 10
    }));
    world.run_ns(1_000_000);
    for client in clients {
        assert_eq!(world.hosts[0].engine.info(client).unwrap().state, State::Established);
    }
    world.hosts[1].engine.unlisten(PORT);
}

#[test]
fn bytes_without_a_push_wait_for_more_but_not_for_ever() {
    let mut world = World::pair(17);
    let ids = connect(&mut world);
    let now = world.now;
    let engine = &mut world.hosts[0].engine;
    engine.send(ids[0], b"wait", false, now).unwrap();
    assert!(!engine.has_output());
    engine.send(ids[0], b" for me", true, now).unwrap();
    engine.send(ids[0], b" and", false, now).unwrap();
    world.run_ns(1_000_000);
    // What was pushed goes, and what is there with it.
    assert_eq!(world.hosts[1].engine.available(ids[1]), Ok(15));
    let now = world.now;
    world.hosts[0].engine.send(ids[0], b" me", false, now).unwrap();
    world.run_ns(100_000_000);
    assert_eq!(world.hosts[1].engine.available(ids[1]), Ok(15));
    world.run_ns(150_000_000);
    assert_eq!(world.hosts[1].engine.available(ids[1]), Ok(18));
}

#[test]
fn the_same_seed_and_calls_give_the_same_run() {
    let run = || {
        let mut world = World::pair(18);
        world.faults.lose = 100;
        world.trace = Some(Vec::new());
        exchange(&mut world, BULK, [100_000, 100_000]);
        world.trace
    };
    assert!(run() == run());
}
