//! Wire ports: which frames a program gets, and how many ports it may have.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use esp::wire::{Body, Header, Kind, Moved, Ping, Question, Ranges, ResetCode};
use netif::{AfPacket, Interest, Netif};
use weft_authority::{
    OmxdError, Refusal,
    esp::{EspCounter, REPORT_LEN, SESSION_BLOCKS_MAX},
};

use super::rig::on_stage;

/// The kinds of frames that come to a port, which all were sent before this.
fn kinds(port: &mut AfPacket, last: u32) -> Vec<u8> {
    let mut kinds = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < crate::rig::LIMIT {
        while let Some(frame) = port.poll_receive().unwrap() {
            if frame[19..23] == last.to_be_bytes() {
                return kinds;
            }
            kinds.push(frame[14] >> 4);
        }
        let soon = Instant::now() + Duration::from_millis(10);
        port.wait(Interest::Receive, soon, None).unwrap();
    }
    panic!("the last frame does not come");
}

#[test]
fn a_program_gets_the_frames_of_its_own_ports_alone_and_no_syns_nor_pings() {
    on_stage(
        "esp::blocks::a_program_gets_the_frames_of_its_own_ports_alone_and_no_syns_nor_pings",
        |stage| {
            let sessions = [stage.session(), stage.session()];
            let mut ports = sessions.each_ref().map(|session| session.open_esp().unwrap().port);
            assert_ne!(ports[0].block, ports[1].block);
            for at in 0..2 {
                let (first, last) = (*ports[at].ports.start(), *ports[at].ports.end());
                for to in [first, last, first - 1, last.wrapping_add(1), 80] {
                    let header = Header {
                        ack: Some(1),
                        window: Some(1),
                        ..Header::new(9, to)
                    };
                    let bare = Header {
                        ack: Some(1),
                        ..Header::new(9, to)
                    };
                    let moved = Moved {
                        old_port: 9,
                        instance: 9,
                    };
                    stage.send_frame(&Header::new(9, to), &Body::Data(b"x"));
                    stage.send_frame(&header, &Body::Ack(Ranges::NONE));
                    stage.send_frame(&bare, &Body::Fin);
                    stage.send_frame(&bare, &Body::Reset(ResetCode::Unknown));
                    stage.send_frame(&bare, &Body::Probe);
                    stage.send_frame(&header, &Body::Moved(moved));
                    let question = Question::Anyone;
                    stage.send_frame(&Header::new(9, to), &Body::Ping(Ping { cookie: 1, question }));
                    stage.send_frame(&Header::new(9, to), &Body::Datagram(b"x"));
                }
                let last_number = 0x1a57;
                for to in [first, *ports[1 - at].ports.start()] {
                    let header = Header {
                        number: last_number,
                        ..Header::new(9, to)
                    };
                    stage.send_frame(&header, &Body::Data(b"last"));
                }
                let of_own =
                    [Kind::Data, Kind::Ack, Kind::Fin, Kind::Reset, Kind::Probe, Kind::Moved].map(|kind| kind as u8);
                let seen = kinds(&mut ports[at].port, last_number);
                let neighbour =
                    ports[1 - at].ports.contains(&(first - 1)) || ports[1 - at].ports.contains(&last.wrapping_add(1));
                assert_eq!(seen, [of_own, of_own].concat());
                let others = kinds(&mut ports[1 - at].port, last_number);
                assert_eq!(others, if neighbour { of_own.to_vec() } else { Vec::new() });
            }
        },
    );
}

#[test]
fn marked_packets_come_by_a_socket_of_their_own_and_reach_the_authority_when_the_program_has_ended() {
    on_stage(
        "esp::blocks::marked_packets_come_by_a_socket_of_their_own_and_reach_the_authority_when_the_program_has_ended",
        |stage| {
            let sessions = [stage.session(), stage.session()];
            let mut ports = sessions.each_ref().map(|session| session.open_esp().unwrap().port);
            let first_ports = ports.each_ref().map(|port| *port.ports.start());
            let header = |to, number, bulk| Header {
                number,
                bulk,
                ..Header::new(9, to)
            };
            // The first shares the lookup with the authority's port, the second does not.
            for at in 0..2 {
                assert!(ports[at].port.bulk_fd().is_some());
                ports[at].port.expect_bulk(true);
                for to in first_ports {
                    stage.send_frame(&header(to, 1, true), &Body::Data(b"marked"));
                    stage.send_frame(&header(to, 2, false), &Body::Data(&[7; 200]));
                    stage.send_frame(&header(to, 3, true), &Body::Data(&[7; 200]));
                    stage.send_frame(&header(to, 4, true), &Body::Data(b"last"));
                }
                for port in &mut ports {
                    let mut numbers = Vec::new();
                    while numbers.len() < 4 {
                        if let Some(frame) = port.port.poll_receive().unwrap() {
                            numbers.push(frame[22]);
                        }
                    }
                    assert_eq!(numbers, [2, 1, 3, 4], "the ring is looked into first");
                }
            }
            // Others may have its sockets, and nobody knows what has become of them.
            let [first, second] = sessions;
            let sockets = [Some(ports[0].port.as_fd()), ports[0].port.bulk_fd()];
            let kept = sockets.map(|socket| socket.unwrap().try_clone_to_owned().unwrap());
            drop(first);
            crate::rig::wait_until("its block is free", || second.esp_status().unwrap().blocks == 1);
            for bulk in [false, true] {
                let frames = stage.count(EspCounter::Frames);
                // The authority's port may get all frames a little later.
                let begin = Instant::now();
                while stage.count(EspCounter::Frames) == frames {
                    assert!(begin.elapsed() < crate::rig::LIMIT, "{bulk}");
                    stage.send_frame(&header(first_ports[0], 5, bulk), &Body::Data(b"late"));
                }
            }
            drop(kept);
            // The next one shares it again.
            let next = stage.session();
            let mut port = next.open_esp().unwrap().port;
            port.port.expect_bulk(true);
            stage.send_frame(&header(*port.ports.start(), 6, true), &Body::Data(b"marked"));
            while port.port.poll_receive().unwrap().is_none() {}
            let frames = stage.count(EspCounter::Frames);
            stage.send_frame(&header(1, 7, false), &Body::Data(b"for the authority"));
            stage.await_count(EspCounter::Frames, frames + 1);
        },
    );
}

#[test]
fn a_session_has_so_many_ports_and_gives_them_back_with_its_program() {
    on_stage(
        "esp::blocks::a_session_has_so_many_ports_and_gives_them_back_with_its_program",
        |stage| {
            let session = stage.session();
            let refused = |error: OmxdError| match error {
                OmxdError::Refused { reason, .. } => reason,
                error => panic!("{error}"),
            };
            assert_eq!(refused(session.more_esp_ports().err().unwrap()), Refusal::NotOpen);
            let opened = session.open_esp().unwrap();
            let memory = rustix::fs::fstat(&opened.report).unwrap();
            // Nobody else who gets it for reading can open it for writing.
            assert_eq!((memory.st_size, memory.st_mode & 0o777), (REPORT_LEN as i64, 0o400));
            let mut ports = vec![opened.port];
            for _ in 1..SESSION_BLOCKS_MAX {
                ports.push(session.more_esp_ports().unwrap());
            }
            assert_eq!(refused(session.more_esp_ports().err().unwrap()), Refusal::Busy);
            assert_eq!(stage.status().blocks, SESSION_BLOCKS_MAX);
            let listed = stage.session().esp_programs().unwrap();
            let blocks: Vec<u8> = ports.iter().map(|port| port.block).collect();
            assert_eq!((listed[0].pid, &listed[0].blocks), (std::process::id(), &blocks));
            // Opening anew gives back what there was.
            session.open_esp().unwrap();
            assert_eq!(stage.status().blocks, 1);
            drop(session);
            let watching = stage.session();
            crate::rig::wait_until("no block is taken", || watching.esp_status().unwrap().blocks == 0);
        },
    );
}

#[test]
fn a_program_cannot_have_its_port_show_other_programs_frames() {
    on_stage(
        "esp::blocks::a_program_cannot_have_its_port_show_other_programs_frames",
        |stage| {
            let sessions = [stage.session(), stage.session()];
            let mut ports = sessions.each_ref().map(|session| session.open_esp().unwrap().port);
            let (own, others) = (*ports[0].ports.start(), *ports[1].ports.start());
            let socket = ports[0].port.as_fd().as_raw_fd();
            let (none, len) = (0_i32, size_of::<i32>() as u32);
            let option = libc::SO_DETACH_FILTER;
            // SAFETY: pointer and length describe `none`.
            let result = unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, option, (&raw const none).cast(), len) };
            let error = io::Error::last_os_error().raw_os_error();
            assert_eq!((result, error), (-1, Some(libc::EPERM)));
            // Who has a packet socket may bind it to all frames without a privilege, but not one in a group, even if it is alone there.
            // SAFETY: all zeros is an address.
            let mut all: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            all.sll_family = libc::AF_PACKET as u16;
            all.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            all.sll_ifindex = netif::Interface::find(&stage.veth.a).unwrap().index;
            let (address, len) = ((&raw const all).cast(), size_of_val(&all) as u32);
            // SAFETY: pointer and length describe the address.
            let result = unsafe { libc::bind(socket, address, len) };
            let error = io::Error::last_os_error().raw_os_error();
            assert_eq!((result, error), (-1, Some(libc::EINVAL)));
            let last = 0x1a57;
            for (to, number) in [(others, 1), (80, 2), (1, 3), (own, last)] {
                let header = Header {
                    number,
                    ..Header::new(9, to)
                };
                stage.send_frame(&header, &Body::Data(b"secret"));
            }
            assert!(kinds(&mut ports[0].port, last).is_empty());
        },
    );
}
