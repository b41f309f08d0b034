//! Direct transmit of short frames, as long as that hides them from no observer.

use std::{io::IoSlice, process::Command, thread};

use ether::{EtherType, Time};
use netif::{AfPacket, AfPacketOptions};
use omx::Board;
use weft_authority::{DirectLimit, OpenedEndpoint, Session};
use weft_guest_driver_testkit::{Veth, has_direct_pools};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    authority::Omxd,
    rig::{Echo, LIMIT, exchange, in_own_world, open, wait_until},
};

/// An endpoint that sends as `omx` does.
struct Sender {
    opened: OpenedEndpoint,
    limit: DirectLimit,
}

impl Sender {
    fn open(omxd: &Omxd) -> (Self, Session) {
        let session = omxd.session().unwrap();
        let opened = session.open_endpoint(None).unwrap();
        let limit = DirectLimit::default();
        (Self { opened, limit }, session)
    }

    fn frame_len_max(&mut self) -> usize {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now_ns = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
        self.limit.frame_len_max(&self.opened.table, Time::from_nanos(now_ns))
    }

    /// Sends a frame, and returns whether it went directly to the driver.
    fn sends_directly(&mut self) -> bool {
        let mut frame = [0; 100];
        frame[..12].fill(2);
        frame[12..14].copy_from_slice(&EtherType::MXOE.0.to_be_bytes());
        let limit = self.frame_len_max();
        let port = &mut self.opened.port;
        port.limit_direct(limit);
        let before = port.counters();
        assert!(port.send(&[IoSlice::new(&frame)]).unwrap());
        let after = port.counters();
        assert_eq!(after.sent, before.sent + 1);
        after.sent_direct > before.sent_direct
    }
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
            let (mut sender, _session) = Sender::open(&omxd);
            assert_eq!(sender.sends_directly(), has_direct_pools());
            if !has_direct_pools() {
                return;
            }
            let name = &veth.a;
            let shaper = ["root", "tbf", "rate", "1gbit", "burst", "64k", "latency", "10ms"];
            tc(&[&["qdisc", "add", "dev", name], &shaper[..]].concat());
            wait_until("frames are queued", || !sender.sends_directly());
            tc(&["qdisc", "del", "dev", name, "root"]);
            wait_until("no frame is queued", || sender.sends_directly());
            // As tcpdump has one.
            let everything = EtherType(libc::ETH_P_ALL as u16);
            let listener = AfPacket::open(name, everything, &AfPacketOptions::default()).unwrap();
            wait_until("frames are seen", || !sender.sends_directly());
            drop(listener);
            wait_until("no listener sees frames", || sender.sends_directly());
            // A program that opens an endpoint meanwhile does not wait for that.
            tc(&[&["qdisc", "add", "dev", name], &shaper[..]].concat());
            let (mut second, _session) = Sender::open(&omxd);
            assert!(!second.sends_directly());
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
                let (mut sender, _session) = Sender::open(&omxd);
                assert_eq!(sender.sends_directly(), expected && has_direct_pools());
            }
        },
    );
}

/// The queue stays with its user. The next authority gives it to no other user, and still says when it may be used.
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
            // As another endpoint reads it.
            let (mut sender, session) = Sender::open(&omxd);
            for killed in [false, true] {
                if killed {
                    omxd.kill();
                    // The limit is not checked any more, and what was published is valid for a while.
                    assert_eq!(sender.sends_directly(), has_direct_pools());
                    exchange(&endpoint, to, 1000, 7);
                    wait_until("frames are not hidden any more", || !sender.sends_directly());
                    omxd = Omxd::start(&[], &veth.a, &[]);
                    wait_until("the endpoint is back", || !omxd.status().0.endpoints.is_empty());
                }
                for len in [0, 128, 5000, 100_000] {
                    exchange(&endpoint, to, len, 1);
                }
                let expected = if has_direct_pools() || killed { 1514 } else { 0 };
                assert_eq!(sender.frame_len_max(), expected);
                assert_eq!(sender.sends_directly(), has_direct_pools());
                // Where it had nothing left to give, an endpoint works as well.
                let other = open(&veth.a, None).unwrap();
                let to = other.connect(mac, number, 0, Some(LIMIT)).unwrap();
                exchange(&other, to, 100_000, 2);
            }
            let board = Board::named(&veth.a).unwrap();
            drop((endpoint, session));
            // The number of one that did not come back is kept for it for a while.
            wait_until("no endpoint is open", || sender.frame_len_max() == 0);
            assert!(board.status().unwrap().0.endpoints.is_empty());
            // An orderly end withdraws the limit.
            let (mut sender, _session) = Sender::open(&omxd);
            assert_eq!(sender.frame_len_max() > 0, has_direct_pools());
            kill_process(Pid::from_child(&omxd.child), Signal::TERM).unwrap();
            omxd.child.wait().unwrap();
            assert_eq!(sender.frame_len_max(), 0);
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
