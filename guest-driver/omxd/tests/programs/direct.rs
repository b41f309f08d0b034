//! Short frames handed straight to the driver, as long as that hides them from nobody.

use std::{io::IoSlice, process::Command, thread};

use ether::EtherType;
use netif::{
    AfPacket, AfPacketOptions, Netif,
    testing::{Veth, has_direct_pools},
};
use omx::Board;
use omxd::OpenedEndpoint;

use crate::{
    authority::Omxd,
    rig::{Echo, LIMIT, exchange, in_own_world, open, wait_until},
};

/// A frame as an endpoint sends one; whether it went straight to the driver.
fn sends_directly(opened: &mut OpenedEndpoint) -> bool {
    let mut frame = [0; 100];
    frame[..12].fill(2);
    frame[12..14].copy_from_slice(&EtherType::MXOE.0.to_be_bytes());
    opened.port.limit_direct(opened.table.direct_frame_len_max());
    let before = opened.port.counters();
    assert!(opened.port.send(&[IoSlice::new(&frame)]).unwrap());
    let after = opened.port.counters();
    assert_eq!(after.sent, before.sent + 1);
    after.sent_direct > before.sent_direct
}

fn tc(arguments: &[&str]) {
    assert!(Command::new("tc").args(arguments).status().unwrap().success());
}

#[test]
fn frames_go_straight_to_the_driver_but_while_something_queues_or_sees_what_the_interface_sends() {
    in_own_world(
        "direct::frames_go_straight_to_the_driver_but_while_something_queues_or_sees_what_the_interface_sends",
        || {
            let veth = Veth::new(9000);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            let session = omxd.session().unwrap();
            let mut opened = session.open_endpoint(None).unwrap();
            assert_eq!(sends_directly(&mut opened), has_direct_pools());
            if !has_direct_pools() {
                return;
            }
            let name = &veth.a;
            let shaper = ["root", "tbf", "rate", "1gbit", "burst", "64k", "latency", "10ms"];
            tc(&[&["qdisc", "add", "dev", name], &shaper[..]].concat());
            wait_until("frames are queued", || !sends_directly(&mut opened));
            tc(&["qdisc", "del", "dev", name, "root"]);
            wait_until("no frame is queued", || sends_directly(&mut opened));
            // As tcpdump has one.
            let everything = EtherType(libc::ETH_P_ALL as u16);
            let listener = AfPacket::open(name, everything, &AfPacketOptions::default()).unwrap();
            wait_until("frames are seen", || !sends_directly(&mut opened));
            drop(listener);
            wait_until("nobody sees frames", || sends_directly(&mut opened));
            // Whoever opens an endpoint meanwhile does not wait for that.
            tc(&[&["qdisc", "add", "dev", name], &shaper[..]].concat());
            let session = omxd.session().unwrap();
            assert!(!sends_directly(&mut session.open_endpoint(None).unwrap()));
        },
    );
}

#[test]
fn no_frame_goes_straight_to_the_driver_where_that_is_switched_off() {
    in_own_world(
        "direct::no_frame_goes_straight_to_the_driver_where_that_is_switched_off",
        || {
            let veth = Veth::new(1500);
            for (options, expected) in [
                (&["--direct-transmit", "false"][..], false),
                (&["--direct-transmit", "true"], true),
            ] {
                let omxd = Omxd::start(&[], &veth.a, options);
                let session = omxd.session().unwrap();
                let mut opened = session.open_endpoint(None).unwrap();
                assert_eq!(sends_directly(&mut opened), expected && has_direct_pools());
            }
        },
    );
}

/// The queue stays theirs who have it. The next authority gives it to nobody else, and says when it may be used, all the same.
#[test]
fn endpoints_send_straight_to_the_driver_also_after_their_authority_was_restarted() {
    in_own_world(
        "direct::endpoints_send_straight_to_the_driver_also_after_their_authority_was_restarted",
        || {
            let veth = Veth::new(1500);
            let mut omxd = Omxd::start(&[], &veth.a, &[]);
            let endpoint = open(&veth.a, None).unwrap();
            let mut echo = Echo::start(&veth.b, &[]);
            let (mac, number) = echo.go_as();
            let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
            for killed in [false, true] {
                if killed {
                    omxd.kill();
                    exchange(&endpoint, to, 1000, 7);
                    omxd = Omxd::start(&[], &veth.a, &[]);
                    wait_until("the endpoint is back", || !omxd.status().0.endpoints.is_empty());
                }
                for len in [0, 128, 5000, 100_000] {
                    exchange(&endpoint, to, len, 1);
                }
                let expected = if has_direct_pools() { 1514 } else { 0 };
                assert_eq!(omxd.status().1.direct_frame_len_max(), expected);
                // Where it had nothing left to give, an endpoint works as well.
                let other = open(&veth.a, None).unwrap();
                let to = other.connect(mac, number, 0, Some(LIMIT)).unwrap();
                exchange(&other, to, 100_000, 2);
            }
            let board = Board::named(&veth.a).unwrap();
            drop(endpoint);
            wait_until("no endpoint is open", || board.status().unwrap().0.endpoints.is_empty());
            assert_eq!(omxd.status().1.direct_frame_len_max(), 0);
        },
    );
}

/// Each sends from a part of the memory that others have, too.
#[test]
fn many_endpoints_of_a_user_send_at_once_what_is_their_own() {
    in_own_world(
        "direct::many_endpoints_of_a_user_send_at_once_what_is_their_own",
        || {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            let mut echo = Echo::start(&veth.b, &[]);
            let (mac, number) = echo.go_as();
            thread::scope(|scope| {
                for thread in 0..8 {
                    let interface = &veth.a;
                    scope.spawn(move || {
                        let endpoint = open(interface, None).unwrap();
                        let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
                        for round in 0..50 {
                            exchange(&endpoint, to, 10 + 613 * round, thread << 32 | round as u64);
                        }
                    });
                }
            });
            drop(omxd);
        },
    );
}
