//! Programs that listen, at all kinds of addresses, and those who connect to them.

use std::{
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
};

use esp::{Reason, State, wire::Names};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use weft_authority::{
    OmxdError, Refusal,
    esp::{EspCounter, TOKEN_SOURCE},
};

use super::rig::{HOST, PEER, Program, Stage, on_stage, work_until};

#[test]
fn m_hr2_a_connection_is_agreed_on_announced_claimed_and_goes_on_at_the_programs_port() {
    on_stage(
        "esp::listeners::m_hr2_a_connection_is_agreed_on_announced_claimed_and_goes_on_at_the_programs_port",
        |stage| {
            let mut program = Program::start(stage, "0.0.0.0:0");
            let theirs = stage.connect(program.port());
            stage.await_state(theirs, State::Established);
            // Until the program has it, the host on the other end can send nothing.
            assert_eq!(stage.peer.engine.info(theirs).unwrap().peer_window, 0);
            let (socket, from) = program.accept(stage);
            assert_eq!(from.ip(), TOKEN_SOURCE);
            assert_eq!(stage.status().unclaimed, 1);
            let claimed = program.session.claim_esp(from, None).unwrap();
            drop(socket);
            assert_eq!(claimed.peer, format!("{PEER}:40000").parse().unwrap());
            assert_eq!(claimed.local, format!("{HOST}:{}", program.port()).parse().unwrap());
            let ours = program.station.attach(&claimed);
            program.exchange(stage, [theirs, ours]);
            let info = stage.peer.engine.info(theirs).unwrap();
            assert!(info.peer.port >= 4096 && info.listened_port == program.port());
            let status = stage.status();
            let counted = |counter: EspCounter| status.counters[counter as usize];
            assert_eq!((status.unclaimed, status.half_open, status.listeners), (0, 0, 1));
            assert_eq!((counted(EspCounter::Tokens), counted(EspCounter::Claims)), (1, 1));
            // It is claimed once.
            let refused = program.session.claim_esp(from, None);
            assert!(
                matches!(
                    refused,
                    Err(OmxdError::Refused {
                        reason: Refusal::NoToken,
                        ..
                    })
                ),
                "{refused:?}"
            );
            // Both ends close in order.
            let now = stage.peer.now();
            stage.peer.engine.shutdown_write(theirs, now).unwrap();
            let now = program.station.now();
            program.station.engine.shutdown_write(ours, now).unwrap();
            work_until(
                "an orderly end",
                &mut [&mut program.station, &mut stage.peer],
                |stations| stations[1].reason(theirs) == Some(Reason::Finished),
            );
        },
    );
}

/// A socket that listens with options that the standard library does not have.
fn tcp(address: &str, only_v6: bool, shared: bool, backlog: i32) -> TcpListener {
    let address: SocketAddr = address.parse().unwrap();
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket: OwnedFd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, only_v6).unwrap();
    }
    sockopt::set_socket_reuseport(&socket, shared).unwrap();
    bind(&socket, &address).unwrap();
    listen(&socket, backlog).unwrap();
    socket.into()
}

#[test]
fn listeners_of_any_address_and_family_get_their_connections_and_no_others() {
    on_stage(
        "esp::listeners::listeners_of_any_address_and_family_get_their_connections_and_no_others",
        |stage| {
            const V6: &str = "fd00:7::1";
            for (address, only_v6, takes, refuses) in [
                ("0.0.0.0:0", false, &[HOST][..], &[V6][..]),
                ("10.7.0.1:0", false, &[HOST], &[V6]),
                ("127.0.0.1:0", false, &[], &[HOST, V6]),
                ("[::]:0", false, &[HOST, V6], &[]),
                ("[::]:0", true, &[V6], &[HOST]),
                ("[fd00:7::1]:0", false, &[V6], &[HOST]),
            ] {
                let mut program = Program::with(stage, tcp(address, only_v6, false, 16), only_v6);
                for to in takes {
                    let theirs = stage.connect_to(to, program.port());
                    let (ours, claimed) = program.claim(stage);
                    assert_eq!(claimed.local, SocketAddr::new(to.parse().unwrap(), program.port()));
                    assert_eq!(claimed.peer.is_ipv6(), to.contains(':'));
                    program.exchange(stage, [theirs, ours]);
                }
                for to in refuses {
                    let theirs = stage.connect_to(to, program.port());
                    stage.await_end(theirs, Reason::Refused);
                }
            }
        },
    );
}

#[test]
fn sockets_that_share_an_address_share_its_connections() {
    on_stage(
        "esp::listeners::sockets_that_share_an_address_share_its_connections",
        |stage| {
            let first = tcp("0.0.0.0:0", false, true, 64);
            let address = first.local_addr().unwrap().to_string();
            let second = tcp(&address, false, true, 64);
            let mut programs = [first, second].map(|tcp| Program::with(stage, tcp, false));
            let port = programs[0].port();
            let mut got = [0, 0];
            for _ in 0..32 {
                let theirs = stage.connect(port);
                let mut accepted = None;
                work_until("a token", &mut [&mut stage.peer], |_| {
                    accepted = (0..2).find_map(|at| Some((at, programs[at].tcp.accept().ok()?)));
                    accepted.is_some()
                });
                let (at, (_socket, from)) = accepted.unwrap();
                let claimed = programs[at]
                    .session
                    .claim_esp(from, Some(programs[at].listener.key))
                    .unwrap();
                let ours = programs[at].station.attach(&claimed);
                programs[at].exchange(stage, [theirs, ours]);
                got[at] += 1;
            }
            assert!(got[0] > 0 && got[1] > 0, "{got:?}");
            // One that goes leaves the address to the other.
            let [gone, mut stays] = programs;
            let id = gone.listener.id;
            drop(gone);
            stage.await_count(EspCounter::ListenersGone, 1);
            assert!(
                stage
                    .session()
                    .esp_listeners()
                    .unwrap()
                    .iter()
                    .all(|listening| listening.id != id)
            );
            let both = stays.join(stage);
            stays.exchange(stage, both);
        },
    );
}

#[test]
fn a_full_queue_of_a_listener_fills_no_other_and_empties_when_its_program_accepts() {
    on_stage(
        "esp::listeners::a_full_queue_of_a_listener_fills_no_other_and_empties_when_its_program_accepts",
        |stage| {
            let mut lazy = Program::with(stage, tcp("0.0.0.0:0", false, false, 1), false);
            let mut busy = Program::start(stage, "0.0.0.0:0");
            let theirs: Vec<_> = (0..6).map(|_| stage.connect(lazy.port())).collect();
            stage.await_count(EspCounter::Tokens, 6);
            let both = busy.join(stage);
            busy.exchange(stage, both);
            // The kernel tries the tokens for which there was no place again, after a second.
            for _ in &theirs {
                lazy.claim(stage);
            }
            assert_eq!(stage.status().unclaimed, 0);
            for theirs in theirs {
                stage.await_state(theirs, State::Established);
            }
        },
    );
}

#[test]
fn who_claims_an_address_that_cannot_be_its_own_is_refused() {
    on_stage(
        "esp::listeners::who_claims_an_address_that_cannot_be_its_own_is_refused",
        |stage| {
            let program = Program::start(stage, "0.0.0.0:0");
            for from in [
                "127.0.0.1:1",
                "10.7.0.1:1",
                "10.8.0.1:1",
                "0.0.0.0:1",
                "224.0.0.1:1",
                "255.255.255.255:1",
                "10.7.0.2:0",
            ] {
                let names = Names::new(from.parse().unwrap(), HOST.parse().unwrap());
                let theirs = stage.peer.connect_as(stage.host, program.port(), names);
                stage.await_end(theirs, Reason::Refused);
            }
            assert_eq!(stage.count(EspCounter::SynBadAddress), 7);
            // One that says nothing is an unknown.
            stage.peer.connect_as(stage.host, program.port(), None);
            let (_socket, from) = program.accept(stage);
            let claimed = program.session.claim_esp(from, None).unwrap();
            assert!(claimed.peer.ip().is_unspecified() && claimed.peer.port() == 0);
        },
    );
}

#[test]
fn nobody_listens_where_no_socket_of_the_caller_listens() {
    on_stage(
        "esp::listeners::nobody_listens_where_no_socket_of_the_caller_listens",
        |stage: &mut Stage| {
            let theirs = stage.connect(80);
            stage.await_end(theirs, Reason::Refused);
            assert_eq!(stage.count(EspCounter::SynNoListener), 1);
            // Root may say what it likes, and is found out with the first connection.
            let session = stage.session();
            let _listener = session.listen_esp("0.0.0.0:80".parse().unwrap(), false).unwrap();
            let theirs = stage.connect(80);
            stage.await_end(theirs, Reason::Reset);
            stage.await_count(EspCounter::ListenersGone, 1);
            let theirs = stage.connect(80);
            stage.await_end(theirs, Reason::Refused);
        },
    );
}
