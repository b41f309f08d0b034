//! Programs in two network namespaces or on two interfaces: over the wire, with the authority killed, the link switched, as
//! ordinary users.

use std::{fs, process::Command};

use omx::{Board, Counter, Error, Segment, StatusCode};
use weft_authority::{OmxdError, Session};
use weft_guest_driver_testkit::Veth;

use crate::rig::{Echo, LIMIT, exchange, in_own_world, open, sent_frames, wait_until};

#[test]
fn programs_in_two_namespaces_talk_and_the_interface_counts_their_frames() {
    in_own_world(
        "two_hosts::programs_in_two_namespaces_talk_and_the_interface_counts_their_frames",
        || {
            for mtu in [1500, 9000] {
                let veth = Veth::new(mtu);
                let mut echo = Echo::start(&veth.b, &["unshare", "--net"]);
                let pid = echo.0.child.id().to_string();
                // Its namespace is its own as soon as `unshare` runs the program.
                let own = fs::read_link("/proc/self/ns/net").unwrap();
                wait_until("a namespace", || {
                    fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|theirs| theirs != own)
                });
                let ip = |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success());
                ip(&["link", "set", &veth.b, "netns", &pid]);
                let up = ["-t", &pid, "-n", "ip", "link", "set", &veth.b, "up"];
                assert!(Command::new("nsenter").args(up).status().unwrap().success());
                let endpoint = open(&veth.a, None).unwrap();
                let (mac, number) = echo.go_as();
                let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
                let before = sent_frames(&veth.a);
                for round in 0..100 {
                    exchange(&endpoint, to, 16, round);
                }
                let tiny = sent_frames(&veth.a) - before;
                assert!(
                    (100..150).contains(&tiny),
                    "{tiny} frames for 100 messages and some acknowledgements"
                );
                for len in [0, 129, 5000, 32_768, 100_000, 4 << 20] {
                    exchange(&endpoint, to, len, 7);
                }
                assert!(endpoint.counters().get(Counter::SendPullReply) as usize >= (4 << 20) / mtu);
                endpoint.close().unwrap();
            }
        },
    );
}

#[test]
fn two_programs_share_an_interface_and_a_killed_omxd_comes_back_unnoticed() {
    in_own_world(
        "two_hosts::two_programs_share_an_interface_and_a_killed_omxd_comes_back_unnoticed",
        || {
            let veth = Veth::new(9000);
            let mut echoes = [Echo::start(&veth.b, &[]), Echo::start(&veth.b, &[])];
            let addresses = [echoes[0].go_as(), echoes[1].go_as()];
            assert_ne!(addresses[0].1, addresses[1].1, "each has a number of its own");
            let endpoint = open(&veth.a, None).unwrap();
            let to = addresses.map(|(mac, number)| endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap());
            let board = Board::named(&veth.b).unwrap();
            let (before, peers_before) = board.status().unwrap();
            assert_eq!(before.endpoints.len(), 2);
            for round in 0..300u64 {
                if round == 100 {
                    let pid = rustix::process::Pid::from_raw(before.pid as i32).unwrap();
                    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                }
                exchange(&endpoint, to[round as usize % 2], 100 + 500 * round as usize, round);
            }
            wait_until("both endpoints with the new omxd", || {
                let (after, _) = board.status().unwrap();
                after.pid != before.pid && after.endpoints == before.endpoints
            });
            let (_, peers_after) = board.status().unwrap();
            for peer in &peers_before {
                let same = peers_after.iter().find(|after| after.mac == peer.mac).unwrap();
                assert_eq!(same.index, peer.index);
            }
            assert_eq!(
                endpoint.counters().get(Counter::RecvNackLib),
                0,
                "no peer was told of a closed endpoint"
            );
            // A program that ends frees its number, and others learn that the endpoint is not open.
            drop(echoes);
            wait_until("no endpoint open", || board.status().unwrap().0.endpoints.is_empty());
            let closed = endpoint.connect(addresses[0].0, addresses[0].1, 0, Some(LIMIT));
            assert!(
                matches!(closed, Err(Error::Failed(StatusCode::EndpointClosed))),
                "{closed:?}"
            );
            let bad = endpoint.connect(addresses[0].0, 200, 0, Some(LIMIT));
            assert!(matches!(bad, Err(Error::Failed(StatusCode::BadEndpoint))), "{bad:?}");
        },
    );
}

#[test]
fn a_link_that_goes_down_and_up_loses_nothing() {
    in_own_world("two_hosts::a_link_that_goes_down_and_up_loses_nothing", || {
        let veth = Veth::new(1500);
        let mut echo = Echo::start(&veth.b, &[]);
        let (mac, number) = echo.go_as();
        let endpoint = open(&veth.a, None).unwrap();
        let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
        for (round, name) in [&veth.a, &veth.b].into_iter().enumerate() {
            let data = vec![round as u8; 2 << 20];
            let sender = std::thread::spawn({
                let (endpoint, data) = (endpoint.clone(), data.clone());
                move || endpoint.send(&data, to, 3).unwrap()
            });
            veth.set_up(name, false);
            // One more, of which it is certain that the outage hits it.
            let resent = || endpoint.counters().get(Counter::ResentMessages);
            let before = resent();
            // SAFETY: an empty message.
            let late = unsafe { endpoint.isend(&[Segment::of(&[])], to, 4, 0, false) }.unwrap();
            wait_until("what the outage took is sent again", || resent() > before);
            veth.set_up(name, true);
            let mut back = vec![0xff; data.len()];
            assert_eq!(
                endpoint.receive(&mut back, 3, u64::MAX).unwrap().transferred as usize,
                data.len()
            );
            assert!(back == data);
            assert_eq!(sender.join().unwrap().code, StatusCode::Success);
            assert_eq!(
                endpoint.wait(late, Some(LIMIT)).unwrap().unwrap().code,
                StatusCode::Success
            );
            assert_eq!(
                endpoint.receive(&mut [], 4, u64::MAX).unwrap().code,
                StatusCode::Success
            );
        }
    });
}

#[test]
fn ordinary_users_of_the_group_open_endpoints_and_others_get_a_sentence() {
    in_own_world(
        "two_hosts::ordinary_users_of_the_group_open_endpoints_and_others_get_a_sentence",
        || {
            let veth = Veth::new(1500);
            let member = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
            let stranger = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"];
            let sentence = Echo::start(&veth.b, &stranger).go();
            assert!(
                sentence.contains("no omxd runs") && sentence.contains("CAP_NET_RAW"),
                "{sentence}"
            );
            let mut omxd = Command::new(env!("CARGO_BIN_EXE_omxd"))
                .args(["--interface", &veth.b, "--group", "nogroup"])
                .spawn()
                .unwrap();
            let board = Board::named(&veth.b).unwrap();
            let running = || {
                weft_authority::Session::connect_to_running(board.interface())
                    .unwrap()
                    .is_some()
            };
            wait_until("omxd", running);
            let sentence = Echo::start(&veth.b, &stranger).go();
            assert!(sentence.contains("only members of the group nogroup"), "{sentence}");
            let mut echo = Echo::start(&veth.b, &member);
            let (mac, number) = echo.go_as();
            let endpoint = open(&veth.a, Some(3)).unwrap();
            let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
            exchange(&endpoint, to, 100_000, 1);
            let busy = open(&veth.a, Some(3)).err().unwrap();
            assert!(
                matches!(busy, Error::Busy { .. }) && busy.to_string().contains("open already"),
                "{busy}"
            );
            assert!(matches!(open(&veth.a, Some(32)), Err(Error::BadEndpoint)));
            assert!(matches!(open("nowhere0", None), Err(Error::BoardNotFound { .. })));
            // Told to end, it ends cleanly and leaves no socket behind.
            let pid = rustix::process::Pid::from_child(&omxd);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            assert!(omxd.wait().unwrap().success());
            assert!(
                !weft_authority::Place::of(board.interface().index)
                    .unwrap()
                    .socket()
                    .exists()
            );
        },
    );
}

#[test]
fn an_authority_that_answers_late_is_understood_afterwards() {
    in_own_world(
        "two_hosts::an_authority_that_answers_late_is_understood_afterwards",
        || {
            let veth = Veth::new(1500);
            let session = Session::connect(Board::named(&veth.a).unwrap().interface()).unwrap();
            let pid = rustix::process::Pid::from_raw(session.status().unwrap().0.pid as i32).unwrap();
            let peer = ether::MacAddr([2, 0, 0, 0, 0, 0x77]);
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
            let late = session.try_add_peer(peer);
            rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
            assert!(matches!(late, Err(OmxdError::Late)), "{late:?}");
            let (_, table) = session.status().unwrap();
            let index = session.add_peer(peer).unwrap();
            assert_eq!(table.mac(index), Some(peer), "it was added once");
        },
    );
}
