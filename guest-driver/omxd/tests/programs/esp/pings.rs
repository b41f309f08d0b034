//! Pings: those of others are answered, and hosts are found by them.

use std::{
    net::IpAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use esp::wire::{Body, Frame, Header, Path, Ping, Pong, Question};
use ether::{EtherType, MacAddr};
use weft_authority::{
    OmxdError, Refusal,
    esp::{EspCounter, EspRoute, EspTarget},
};

use super::rig::{HOST, PEER, Stage, add_address, on_stage};
use crate::rig::{OtherHost, wait_until};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pong_of(frame: &Frame<'_>) -> Option<Pong> {
    match frame.body(false) {
        Ok(Body::Pong(pong)) => Some(pong),
        _ => None,
    }
}

#[test]
fn m_hr1_pings_are_answered_with_addresses_and_mtu_by_the_host_that_is_meant() {
    on_stage(
        "esp::pings::m_hr1_pings_are_answered_with_addresses_and_mtu_by_the_host_that_is_meant",
        |stage| {
            let all = |destination| Path {
                destination,
                source: stage.peer.port.mac(),
                ether_type: EtherType::ESP,
            };
            let (to_host, to_all) = (all(stage.host), all(MacAddr::BROADCAST));
            let header = Header::new(7, 9);
            for (cookie, path, question, first) in [
                (1, &to_host, Question::Anyone, HOST),
                (2, &to_all, Question::Owner(ip("fd00:7::1")), "fd00:7::1"),
                (3, &to_all, Question::Owner(ip(HOST)), HOST),
                (4, &to_all, Question::Owner(ip("10.7.0.3")), ""),
                (5, &to_all, Question::Owner(ip("127.0.0.1")), ""),
                (6, &to_host, Question::Anyone, HOST),
            ] {
                stage.send_frame_as(path, &header, &Body::Ping(Ping { cookie, question }));
                if first.is_empty() {
                    continue;
                }
                let (ports, pong) = stage.hear(|frame| {
                    let ports = (frame.header.source_port, frame.header.destination_port);
                    Some((ports, pong_of(frame)?))
                });
                // In order, so nothing was said about the addresses of others.
                assert_eq!((ports, pong.cookie, pong.mtu), ((9, 7), cookie, 1500));
                let addresses = pong.addresses.as_slice();
                assert_eq!((addresses[0], addresses.len()), (ip(first), 2));
            }
            // A new address and another MTU are known soon.
            add_address(&stage.veth.a, "10.7.0.77/24");
            stage.veth.change(&stage.veth.a, &["mtu", "1400"]);
            let mut cookie = 100;
            wait_until("the pong has both", || {
                cookie += 1;
                let question = Question::Anyone;
                stage.send_frame(&header, &Body::Ping(Ping { cookie, question }));
                let pong = stage.hear(|frame| pong_of(frame).filter(|pong| pong.cookie == cookie));
                pong.mtu == 1400 && pong.addresses.as_slice().contains(&ip("10.7.0.77"))
            });
        },
    );
}

use netif::Netif;

#[test]
fn m_hr1_an_address_is_found_by_a_ping_to_all_and_remembered() {
    on_stage(
        "esp::pings::m_hr1_an_address_is_found_by_a_ping_to_all_and_remembered",
        |stage| {
            let session = stage.session();
            for own in [HOST, "127.0.0.1", "fd00:7::1", "::1"] {
                assert_eq!(session.resolve_esp(ip(own)).unwrap(), EspRoute::OwnHost, "{own}");
            }
            for far in ["10.8.0.1", "192.0.2.1", "2001:db8::1", "224.0.0.1", "0.0.0.0"] {
                assert_eq!(session.resolve_esp(ip(far)).unwrap(), EspRoute::Elsewhere, "{far}");
            }
            // Nobody answers for this one, which is remembered.
            let begin = Instant::now();
            assert_eq!(session.resolve_esp(ip("10.7.0.99")).unwrap(), EspRoute::Elsewhere);
            let asked = begin.elapsed();
            assert!(asked >= Duration::from_millis(300), "{asked:?}");
            assert_eq!(session.resolve_esp(ip("10.7.0.99")).unwrap(), EspRoute::Elsewhere);
            assert_eq!(
                (stage.count(EspCounter::Unresolved), stage.count(EspCounter::PingsSent)),
                (1, 3)
            );
            // Two programs ask at the same time.
            let asks = [PEER, PEER].map(|to| {
                let session = stage.session();
                std::thread::spawn(move || session.resolve_esp(ip(to)).unwrap())
            });
            let cookie = stage.hear(|frame| match frame.body(false) {
                Ok(Body::Ping(Ping {
                    cookie,
                    question: Question::Owner(asked),
                })) if asked == ip(PEER) => Some(cookie),
                _ => None,
            });
            let pong = |cookie| Pong {
                cookie,
                mtu: 9000,
                addresses: [ip(PEER)].into_iter().collect(),
            };
            stage.send_frame(&Header::new(0, 0), &Body::Pong(pong(cookie ^ 1)));
            stage.send_frame(&Header::new(0, 0), &Body::Pong(pong(cookie)));
            let found = EspRoute::Peer {
                mac: stage.peer.port.mac().0,
                mtu: 9000,
                own: Some(ip(HOST)),
            };
            for asked in asks {
                assert_eq!(asked.join().unwrap(), found);
            }
            assert_eq!(session.resolve_esp(ip(PEER)).unwrap(), found);
            assert_eq!(session.resolve_esp(ip(&format!("::ffff:{PEER}"))).unwrap(), found);
            assert_eq!(stage.count(EspCounter::PongsStray), 1);
        },
    );
}

#[test]
fn two_authorities_find_each_other_and_ping() {
    crate::rig::in_own_world("esp::pings::two_authorities_find_each_other_and_ping", || {
        let (stage, other) = (Stage::new(&[]), OtherHost::start());
        let mac = stage.peer.port.mac();
        let b = stage.veth.b.clone();
        other.take(&b);
        let inside = |words: &[&str]| {
            let enter = other.enter();
            let status = std::process::Command::new(&enter[0])
                .args(&enter[1..])
                .args(words)
                .status();
            assert!(status.unwrap().success());
        };
        inside(&["ip", "address", "add", &format!("{PEER}/24"), "dev", &b]);
        let enter = other.enter();
        let mut there = std::process::Command::new(&enter[0])
            .args(&enter[1..])
            .args([env!("CARGO_BIN_EXE_omxd"), &b])
            .spawn()
            .unwrap();
        let session = stage.session();
        let (never, _end) = rustix::pipe::pipe().unwrap();
        wait_until("the other host answers", || {
            session
                .ping_esp(EspTarget::Ip(ip(PEER)), Duration::from_millis(50), never.as_fd())
                .unwrap()
                .is_some()
        });
        let pong = session
            .ping_esp(EspTarget::Mac(mac.0), Duration::from_secs(1), never.as_fd())
            .unwrap()
            .unwrap();
        assert_eq!((pong.mac, pong.mtu), (mac.0, 1500));
        assert!(pong.addresses.contains(&ip(PEER)) && pong.round_trip_ns > 0);
        assert!(matches!(session.resolve_esp(ip(PEER)).unwrap(), EspRoute::Peer { mac: found, .. } if found == mac.0));
        let own = session.ping_esp(EspTarget::Mac(stage.host.0), Duration::from_secs(1), never.as_fd());
        assert!(
            matches!(
                own,
                Err(OmxdError::Refused {
                    reason: Refusal::NoPeer,
                    ..
                })
            ),
            "{own:?}"
        );
        there.kill().unwrap();
        there.wait().unwrap();
        assert_eq!(
            session
                .ping_esp(EspTarget::Mac(mac.0), Duration::from_millis(100), never.as_fd())
                .unwrap(),
            None
        );
    });
}
