//! Promises of a port's second socket, for frames that come in numbers.

use std::{
    io::{Error, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use netif::{
    AfPacket, AfPacketOptions, FrameLender, Instruction, Interest, Interface, Netif, NetifError, PreparedSocket,
    RingLayout, Wake,
};
use weft_guest_driver_testkit::{Veth, group_of, in_private_network, set_option};

use crate::{LIMIT, header, next_frame, open};

/// Passes frames whose first byte of payload is `first`, seen from behind `skipped` bytes, ending with `then`.
fn first_byte_is(first: u32, skipped: u32, then: Instruction) -> [Instruction; 4] {
    [
        Instruction::load_byte(14 - skipped),
        Instruction::if_equal(first, 0, 1),
        then,
        Instruction::drop(),
    ]
}

/// What `port` has received of frames whose payload begins with a number, until nothing more is there.
fn numbers(port: &mut AfPacket) -> Vec<u8> {
    let mut numbers = Vec::new();
    while let Some(frame) = port.poll_receive().unwrap() {
        numbers.push(frame[14]);
    }
    numbers
}

/// Opens a port that takes frames whose first byte is 7 by the socket for frames that come in numbers, and those whose
/// first byte is 1 by the ring.
fn open_with_bulk(name: &str) -> AfPacket {
    let interface = Interface::find(name).unwrap();
    let data = first_byte_is(7, 0, Instruction::pass());
    let not_data = first_byte_is(1, 0, Instruction::pass());
    let bulk = PreparedSocket::bulk(&interface, EtherType::MXOE, 4 << 20, &data).unwrap();
    let ring = PreparedSocket::new(name, EtherType::MXOE, &AfPacketOptions::default(), &not_data).unwrap();
    let bulk = Some(bulk);
    AfPacket::from_prepared(PreparedSocket { bulk, ..ring }).unwrap()
}

#[test]
fn frames_that_come_in_numbers_have_a_socket_of_their_own_that_is_read_while_they_are_expected() {
    in_private_network(
        "bulk::frames_that_come_in_numbers_have_a_socket_of_their_own_that_is_read_while_they_are_expected",
        || {
            for mtu in [1500, 9000] {
                let veth = Veth::new(mtu);
                let (mut a, mut b) = (open(&veth.a), open_with_bulk(&veth.b));
                let head = header(b.mac(), a.mac(), EtherType::MXOE);
                let payload: Vec<u8> = (0..mtu).map(|i| (i * 7) as u8).collect();
                let mut send = |first: u8, len: usize| {
                    let first = [first];
                    let parts = [&head[..], &first, &payload[1..len]].map(IoSlice::new);
                    assert!(a.send(&parts).unwrap());
                };
                // More than are read at once, of all lengths.
                b.expect_bulk(true);
                for len in (50..=mtu).step_by(mtu / 100) {
                    send(7, len);
                    send(7, len);
                    for _ in 0..2 {
                        let frame = next_frame(&mut b);
                        assert_eq!((frame[14], &frame[15..]), (7, &payload[1..len]));
                    }
                }
                for _ in 0..100 {
                    send(7, mtu);
                }
                assert_eq!(numbers(&mut b).len(), 100);
                assert!(b.bulk_fd().is_some());
                // The others come first, and who expects nothing finds what is there nevertheless, some time.
                b.expect_bulk(false);
                send(7, 60);
                send(1, 60);
                assert_eq!(numbers(&mut b), [1]);
                assert_eq!(b.wait(Interest::Receive, Instant::now(), None).unwrap(), Wake::Deadline);
                let polls = (0..100_000).find(|_| b.poll_receive().unwrap().is_some());
                assert!(polls.is_some_and(|polls| polls > 100), "{polls:?}");
                // A sleeper is woken by both sockets, and a caller does not sleep while something that was read is left.
                b.expect_bulk(true);
                for first in [7, 1] {
                    send(first, 60);
                    send(first, 60);
                    for _ in 0..2 {
                        let limit = Instant::now() + LIMIT;
                        assert_eq!(b.wait(Interest::Receive, limit, None).unwrap(), Wake::Ready);
                        assert_eq!(b.poll_receive().unwrap().unwrap()[14], first);
                    }
                }
                let counters = b.counters();
                assert_eq!((counters.dropped_no_buffer, counters.skipped), (0, 0));
            }
        },
    );
}

#[test]
fn m_om_a_frames_of_both_sockets_stay_as_they_are_while_they_are_kept() {
    in_private_network(
        "bulk::m_om_a_frames_of_both_sockets_stay_as_they_are_while_they_are_kept",
        || {
            for mtu in [1500, 9000] {
                let veth = Veth::new(mtu);
                let (mut a, mut b) = (open(&veth.a), open_with_bulk(&veth.b));
                let head = header(b.mac(), a.mac(), EtherType::MXOE);
                b.expect_bulk(true);
                let kept_max = b.kept_max();
                assert!(kept_max >= 8 && !b.keep(), "{kept_max}, and there is no frame");
                let mut kept: Vec<(*const u8, Vec<u8>)> = Vec::new();
                // Several times round the ring, in bursts that are read at once.
                for number in 0..600_usize {
                    for at in 0..4 {
                        let first = if (number + at) % 3 == 0 { 1 } else { 7 };
                        let payload = vec![(number * 4 + at) as u8; mtu - 1];
                        assert!(a.send(&[&head[..], &[first], &payload].map(IoSlice::new)).unwrap());
                    }
                    let mut received = 0;
                    while received < 4 {
                        let Some(frame) = b.poll_receive().unwrap() else {
                            continue;
                        };
                        received += 1;
                        let (memory, bytes) = (frame.as_ptr(), frame.to_vec());
                        if received % 2 == 0 {
                            continue;
                        }
                        if kept.len() == kept_max {
                            assert!(!b.keep(), "no more than are promised");
                            let count = 1 + number % kept_max;
                            b.release(count);
                            kept.drain(..count);
                        }
                        assert!(b.keep());
                        kept.push((memory, bytes));
                    }
                    for (memory, bytes) in &kept {
                        // SAFETY: the frame is kept.
                        let now = unsafe { std::slice::from_raw_parts(*memory, bytes.len()) };
                        assert!(now == &bytes[..], "frame {number} wrote to one that is kept");
                    }
                }
                b.release(kept.len());
                assert!(b.may_wait());
                assert_eq!(b.wait(Interest::Receive, Instant::now(), None).unwrap(), Wake::Deadline);
                let counters = b.counters();
                assert_eq!((counters.received, counters.dropped_no_buffer), (2400, 0));
            }
        },
    );
}

#[test]
fn a_second_socket_leaves_out_other_stations_and_counts_what_is_too_long_or_too_much() {
    in_private_network(
        "bulk::a_second_socket_leaves_out_other_stations_and_counts_what_is_too_long_or_too_much",
        || {
            let veth = Veth::new(1500);
            let interface = Interface::find(&veth.b).unwrap();
            let (all, none) = ([Instruction::pass()], [Instruction::drop()]);
            let bulk = PreparedSocket::bulk(&interface, EtherType::MXOE, 64 << 10, &all).unwrap();
            let ring = PreparedSocket::new(&veth.b, EtherType::MXOE, &AfPacketOptions::default(), &none).unwrap();
            let bulk = Some(bulk);
            let mut b = AfPacket::from_prepared(PreparedSocket { bulk, ..ring }).unwrap();
            for name in [&veth.a, &veth.b] {
                veth.change(name, &["mtu", "3000", "promisc", "on"]);
            }
            let mut a = open(&veth.a);
            let own = header(b.mac(), a.mac(), EtherType::MXOE);
            let stranger = header(MacAddr([2, 9, 9, 9, 9, 9]), a.mac(), EtherType::MXOE);
            let mut send =
                |head: &[u8], payload: &[u8]| assert!(a.send(&[IoSlice::new(head), IoSlice::new(payload)]).unwrap());
            send(&stranger, &[1; 100]);
            send(&own, &[2; 2900]);
            send(&own, &[3; 100]);
            b.expect_bulk(true);
            assert_eq!(numbers(&mut b), [3]);
            let counters = b.counters();
            assert_eq!((counters.dropped_too_long, counters.received), (1, 1));
            for _ in 0..1000 {
                send(&own, &[4; 100]);
            }
            let kept = numbers(&mut b).len() as u64;
            assert!(kept > 10 && kept < 1000, "{kept}");
            assert_eq!(b.counters().dropped_no_buffer, 1000 - kept);
        },
    );
}

/// Sockets 0 and 1 of a group get frames that begin with 7 and 1, the port all others.
const AMONG: [Instruction; 6] = [
    Instruction::load_byte(0),
    Instruction::if_equal(7, 0, 1),
    Instruction::choose(0),
    Instruction::if_equal(1, 0, 1),
    Instruction::choose(1),
    Instruction::choose(2),
];

/// The kernel looks up each frame once for three sockets: each gets its own frames, whatever happens to the others or
/// to the link.
#[test]
fn a_port_and_the_sockets_it_shares_a_look_with_get_their_frames_whatever_becomes_of_the_others() {
    in_private_network(
        "bulk::a_port_and_the_sockets_it_shares_a_look_with_get_their_frames_whatever_becomes_of_the_others",
        || {
            for first_to_go in ["the port", "the sockets", "the program"] {
                let veth = Veth::new(1500);
                let interface = Interface::find(&veth.b).unwrap();
                let [data, own] = [7, 1].map(|first| first_byte_is(first, 0, Instruction::pass()));
                let bulk = PreparedSocket::bulk(&interface, EtherType::MXOE, 1 << 20, &data).unwrap();
                let options = AfPacketOptions::default();
                let ring = PreparedSocket::new(&veth.b, EtherType::MXOE, &options, &own).unwrap();
                let mut port = open(&veth.b);
                let others = [
                    Instruction::load_byte(14),
                    Instruction::if_equal(7, 2, 0),
                    Instruction::if_equal(1, 1, 0),
                    Instruction::pass(),
                    Instruction::drop(),
                ];
                port.set_filter(&others).unwrap();
                let mut a = open(&veth.a);
                let head = header(port.mac(), a.mac(), EtherType::MXOE);
                let mut send = |firsts: &[u8]| {
                    for first in firsts {
                        let payload = [*first; 60];
                        assert!(a.send(&[IoSlice::new(&head), IoSlice::new(&payload)]).unwrap());
                    }
                };
                send(&[1]);
                let members = [(bulk.as_fd(), RingLayout::page()), (ring.socket.as_fd(), ring.layout)];
                let shared = port.share_lookup(&members, &AMONG).unwrap();
                let again = port.share_lookup(&members, &AMONG);
                assert!(again.is_err(), "sockets share once");
                let bulk = Some(bulk);
                let mut b = AfPacket::from_prepared(PreparedSocket { bulk, ..ring }).unwrap();
                b.expect_bulk(true);
                assert_eq!(numbers(&mut b), [1], "from before");
                let switch = || {
                    for up in [false, true] {
                        veth.set_up(&veth.b, up);
                    }
                    veth.await_running();
                };
                for switched in [false, true] {
                    if switched {
                        switch();
                        // Each says so once.
                        for end in [&mut port, &mut b] {
                            let soon = Instant::now() + Duration::from_millis(1);
                            assert!(matches!(
                                end.wait(Interest::Receive, soon, None),
                                Err(NetifError::Down { .. })
                            ));
                            assert_eq!(end.wait(Interest::Receive, soon, None).unwrap(), Wake::Deadline);
                        }
                    }
                    send(&[2, 7, 1, 3, 7, 7, 1]);
                    assert_eq!(numbers(&mut port), [2, 3]);
                    assert_eq!(numbers(&mut b), [1, 1, 7, 7, 7]);
                }
                if first_to_go == "the port" {
                    drop((shared, port));
                    for _ in 0..2 {
                        send(&[2, 7, 1, 3, 7]);
                        assert_eq!(numbers(&mut b), [1, 7, 7], "and nothing that is not its own");
                        switch();
                        let _ = b.poll_receive();
                    }
                } else if first_to_go == "the program" {
                    AfPacket::take_all_of_group(port.as_fd(), 2).unwrap();
                    port.set_filter(&[Instruction::pass()]).unwrap();
                    for _ in 0..2 {
                        send(&[2, 7, 1]);
                        assert_eq!(numbers(&mut port), [2, 7, 1]);
                        assert_eq!(numbers(&mut b), [], "although its sockets are there");
                        switch();
                        let _ = b.poll_receive();
                    }
                    drop(shared);
                } else {
                    drop((shared, b));
                    port.set_filter(&[Instruction::pass()]).unwrap();
                    for _ in 0..2 {
                        send(&[2, 7, 1]);
                        assert_eq!(numbers(&mut port), [2, 7, 1]);
                        switch();
                    }
                }
            }
        },
    );
}

/// Binds a socket to every frame of an interface, sent ones included.
fn bind_to_all(socket: BorrowedFd<'_>, interface: &Interface) -> Result<(), Option<i32>> {
    // SAFETY: plain data for which all zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface.index;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: pointer and length describe `address`, which outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    if bound < 0 {
        Err(Error::last_os_error().raw_os_error())
    } else {
        Ok(())
    }
}

/// None of this needs a privilege, and each would take frames of others away, or change whose they are.
#[test]
fn whoever_gets_sockets_can_neither_take_them_out_of_their_group_nor_join_another_s_nor_change_what_they_receive() {
    in_private_network(
        "bulk::whoever_gets_sockets_can_neither_take_them_out_of_their_group_nor_join_another_s_nor_change_what_they_receive",
        || {
            let veth = Veth::new(1500);
            let interface = Interface::find(&veth.b).unwrap();
            let all = [Instruction::pass()];
            let bulk = || PreparedSocket::bulk(&interface, EtherType::MXOE, 1 << 20, &all).unwrap();
            let ring = || PreparedSocket::new(&veth.b, EtherType::MXOE, &AfPacketOptions::default(), &all).unwrap();
            let (sharing_bulk, sharing_ring) = (bulk(), ring());
            let port = open(&veth.b);
            let members = [
                (sharing_bulk.as_fd(), RingLayout::page()),
                (sharing_ring.socket.as_fd(), sharing_ring.layout),
            ];
            let _shared = port.share_lookup(&members, &AMONG).unwrap();
            let (alone_bulk, alone_ring) = (bulk(), ring());
            for socket in [alone_bulk.as_fd(), alone_ring.socket.as_fd()] {
                PreparedSocket::keep_alone(socket).unwrap();
            }
            let stranger = ring();
            let groups = [sharing_bulk.as_fd(), alone_bulk.as_fd(), alone_ring.socket.as_fd()].map(group_of);
            assert!(!groups.contains(&0));
            let group = groups[0];
            let program = libc::sock_fprog {
                len: 1,
                filter: all.as_ptr().cast_mut().cast(),
            };
            let no_ring = [0_u32; 4];
            let join = |socket| set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &group);
            for (socket, shares) in [
                (sharing_bulk.as_fd(), true),
                (sharing_ring.socket.as_fd(), true),
                (alone_bulk.as_fd(), false),
                (alone_ring.socket.as_fd(), false),
            ] {
                assert_eq!(join(socket), Err(Some(libc::EALREADY)));
                let chosen = set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &program);
                assert_eq!(chosen, Err(Some(libc::EPERM)));
                let filtered = set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program);
                assert_eq!(filtered, Err(Some(libc::EPERM)));
                assert!(bind_to_all(socket, &interface).is_err());
                // Would put it behind the other members.
                for kind in [libc::PACKET_RX_RING, libc::PACKET_TX_RING] {
                    let ring = set_option(socket, libc::SOL_PACKET, kind, &no_ring);
                    assert!(!shares || ring == Err(Some(libc::EBUSY)), "{ring:?}");
                }
            }
            for group in groups {
                let joined = set_option(stranger.socket.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &group);
                assert_eq!(joined, Err(Some(libc::ENOSPC)));
            }
            drop(port);
            for socket in [alone_bulk.as_fd(), alone_ring.socket.as_fd()] {
                assert_eq!(join(socket), Err(Some(libc::EALREADY)));
            }
        },
    );
}

/// Also while a socket that sees all of it makes the interface take what is for others.
#[test]
fn a_prepared_socket_that_is_bound_anew_receives_nothing_else() {
    in_private_network(
        "bulk::a_prepared_socket_that_is_bound_anew_receives_nothing_else",
        || {
            let veth = Veth::new(1500);
            let other = Veth::new(1500);
            let interface = Interface::find(&veth.b).unwrap();
            let all = [Instruction::pass()];
            let bulk = PreparedSocket::bulk(&interface, EtherType::MXOE, 1 << 20, &all).unwrap();
            let ring = PreparedSocket::new(&veth.b, EtherType::MXOE, &AfPacketOptions::default(), &all).unwrap();
            let bulk = Some(bulk);
            let mut b = AfPacket::from_prepared(PreparedSocket { bulk, ..ring }).unwrap();
            b.expect_bulk(true);
            veth.change(&veth.b, &["promisc", "on"]);
            let mut a = open(&veth.a);
            let (mut beside, mut elsewhere) = (open(&veth.b), open(&other.a));
            let [mac_a, mac_b] = [a.mac(), b.mac()];
            let stranger = MacAddr([2, 9, 9, 9, 9, 9]);
            let send = |port: &mut AfPacket, to, ether_type, first| {
                let head = header(to, port.mac(), ether_type);
                assert!(port.send(&[IoSlice::new(&head), IoSlice::new(&[first; 60])]).unwrap());
            };
            for (index, times) in [(None, 2), (Some(interface.index), 2), (Some(0), 2)] {
                if let Some(index) = index {
                    let anywhere = Interface {
                        index,
                        ..interface.clone()
                    };
                    for socket in [b.as_fd(), b.bulk_fd().unwrap()] {
                        bind_to_all(socket, &anywhere).unwrap();
                    }
                }
                send(&mut beside, mac_a, EtherType::MXOE, 1);
                send(&mut a, stranger, EtherType::MXOE, 2);
                send(&mut a, mac_b, EtherType(0x0800), 3);
                send(
                    &mut elsewhere,
                    Interface::find(&other.b).unwrap().mac,
                    EtherType::MXOE,
                    4,
                );
                send(&mut a, MacAddr::BROADCAST, EtherType::MXOE, 5);
                send(&mut a, mac_b, EtherType::MXOE, 6);
                let seen = numbers(&mut b);
                assert_eq!(seen, [5, 6].repeat(times), "bound to {index:?}");
            }
        },
    );
}

#[test]
fn only_a_packet_socket_of_this_network_namespace_whose_filter_can_be_changed_proves_that_every_frame_may_be_read() {
    in_private_network(
        "bulk::only_a_packet_socket_of_this_network_namespace_whose_filter_can_be_changed_proves_that_every_frame_may_be_read",
        || {
            let veth = Veth::new(1500);
            let proof = PreparedSocket::proof().unwrap();
            assert!(PreparedSocket::is_proof(proof.as_fd()));
            let all = [Instruction::pass()];
            let handed_out = PreparedSocket::new(&veth.b, EtherType::MXOE, &AfPacketOptions::default(), &all).unwrap();
            assert!(!PreparedSocket::is_proof(handed_out.socket.as_fd()));
            let another = std::net::UdpSocket::bind("[::]:0").unwrap();
            assert!(!PreparedSocket::is_proof(another.as_fd()));
            assert!(!PreparedSocket::is_proof(
                std::fs::File::open("/dev/null").unwrap().as_fd()
            ));
            // SAFETY: no pointers; the thread that this runs on ends with the test.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            assert!(!PreparedSocket::is_proof(proof.as_fd()), "of another network namespace");
        },
    );
}
