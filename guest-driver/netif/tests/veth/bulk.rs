//! Promises of a port's second socket, for frames that come in numbers.

use std::{
    io::{Error, IoSlice},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use netif::{
    AfPacket, AfPacketOptions, Instruction, Interest, Interface, Netif, NetifError, PreparedSocket, Share, Wake,
    testing::{Veth, in_private_network},
};

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

#[test]
fn frames_that_come_in_numbers_have_a_socket_of_their_own_that_is_read_while_they_are_expected() {
    in_private_network(
        "bulk::frames_that_come_in_numbers_have_a_socket_of_their_own_that_is_read_while_they_are_expected",
        || {
            for mtu in [1500, 9000] {
                let veth = Veth::new(mtu);
                let interface = Interface::find(&veth.b).unwrap();
                let data = first_byte_is(7, 0, Instruction::pass());
                let not_data = first_byte_is(1, 0, Instruction::pass());
                let options = AfPacketOptions::default();
                let bulk = PreparedSocket::bulk(&interface, EtherType::MXOE, 4 << 20, &data, None).unwrap();
                let ring = PreparedSocket::new(&veth.b, EtherType::MXOE, &options, &not_data).unwrap();
                let bulk = Some(bulk);
                let mut b = AfPacket::from_prepared(PreparedSocket { bulk, ..ring }).unwrap();
                let mut a = open(&veth.a);
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
                let looks = (0..100_000).find(|_| b.poll_receive().unwrap().is_some());
                assert!(looks.is_some_and(|looks| looks > 100), "{looks:?}");
                // Who sleeps is woken by both, and nobody sleeps while something that was read is left.
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
fn a_second_socket_leaves_out_other_stations_and_counts_what_is_too_long_or_too_much() {
    in_private_network(
        "bulk::a_second_socket_leaves_out_other_stations_and_counts_what_is_too_long_or_too_much",
        || {
            let veth = Veth::new(1500);
            let interface = Interface::find(&veth.b).unwrap();
            let (all, none) = ([Instruction::pass()], [Instruction::drop()]);
            let bulk = PreparedSocket::bulk(&interface, EtherType::MXOE, 64 << 10, &all, None).unwrap();
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
            assert_eq!(
                (counters.skipped, counters.dropped_too_long, counters.received),
                (1, 1, 1)
            );
            for _ in 0..1000 {
                send(&own, &[4; 100]);
            }
            let kept = numbers(&mut b).len() as u64;
            assert!(kept > 10 && kept < 1000, "{kept}");
            assert_eq!(b.counters().dropped_no_buffer, 1000 - kept);
        },
    );
}

/// One look of the kernel for two sockets: whatever becomes of either, or of the link, each gets its own frames.
#[test]
fn a_port_and_the_socket_it_shares_with_get_their_frames_whatever_becomes_of_the_other() {
    in_private_network(
        "bulk::a_port_and_the_socket_it_shares_with_get_their_frames_whatever_becomes_of_the_other",
        || {
            for first_to_go in ["the port", "the socket"] {
                let veth = Veth::new(1500);
                let interface = Interface::find(&veth.b).unwrap();
                let data = first_byte_is(7, 0, Instruction::pass());
                let port = open(&veth.b);
                let program = first_byte_is(7, 14, Instruction::choose(1));
                let share = || {
                    let share = Share {
                        port: &port,
                        program: &program,
                    };
                    PreparedSocket::bulk(&interface, EtherType::MXOE, 1 << 20, &data, Some(share))
                };
                let bulk = share().unwrap();
                assert!(share().is_err(), "a port shares once");
                let ring = PreparedSocket::new(
                    &veth.b,
                    EtherType::MXOE,
                    &AfPacketOptions::default(),
                    &[Instruction::drop()],
                )
                .unwrap();
                let (mut port, bulk) = (port, Some(bulk));
                let mut b = AfPacket::from_prepared(PreparedSocket { bulk, ..ring }).unwrap();
                b.expect_bulk(true);
                let mut a = open(&veth.a);
                let head = header(b.mac(), a.mac(), EtherType::MXOE);
                let mut send = |firsts: &[u8]| {
                    for first in firsts {
                        let payload = [*first; 60];
                        assert!(a.send(&[IoSlice::new(&head), IoSlice::new(&payload)]).unwrap());
                    }
                };
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
                    send(&[1, 7, 2, 7, 7]);
                    assert_eq!((numbers(&mut port), numbers(&mut b)), (vec![1, 2], vec![7, 7, 7]));
                }
                if first_to_go == "the port" {
                    drop(port);
                    for _ in 0..2 {
                        send(&[1, 7, 2, 7, 7]);
                        assert_eq!(numbers(&mut b), [7, 7, 7], "and nothing that is not its own");
                        switch();
                        let _ = b.poll_receive();
                    }
                } else {
                    drop(b);
                    for _ in 0..2 {
                        send(&[1, 7, 2]);
                        assert_eq!(numbers(&mut port), [1, 7, 2]);
                        switch();
                    }
                }
            }
        },
    );
}

/// None of this needs a privilege, and each would give the holder frames of others, or take theirs away.
#[test]
fn whoever_gets_sockets_can_neither_bind_them_anew_nor_let_them_join_others_nor_change_what_they_receive() {
    in_private_network(
        "bulk::whoever_gets_sockets_can_neither_bind_them_anew_nor_let_them_join_others_nor_change_what_they_receive",
        || {
            let veth = Veth::new(1500);
            let interface = Interface::find(&veth.b).unwrap();
            let all = [Instruction::pass()];
            let port = open(&veth.b);
            let share = Share {
                port: &port,
                program: &[Instruction::choose(1)],
            };
            let bulk = |share| PreparedSocket::bulk(&interface, EtherType::MXOE, 1 << 20, &all, share).unwrap();
            let (shares, alone) = (bulk(Some(share)), bulk(None));
            let ring = PreparedSocket::new(&veth.b, EtherType::MXOE, &AfPacketOptions::default(), &all).unwrap();
            let (mut group, mut len) = (0_i32, 4);
            // SAFETY: pointer and length describe a number that outlives the call.
            let asked = unsafe {
                libc::getsockopt(
                    shares.as_raw_fd(),
                    libc::SOL_PACKET,
                    libc::PACKET_FANOUT,
                    (&raw mut group).cast(),
                    &raw mut len,
                )
            };
            assert!(asked == 0 && group != 0);
            for socket in [&shares, &alone, &ring.socket] {
                // SAFETY: plain data for which all zeros are valid.
                let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
                address.sll_family = libc::AF_PACKET as u16;
                address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
                address.sll_ifindex = interface.index;
                let len = size_of_val(&address) as libc::socklen_t;
                // SAFETY: pointer and length describe `address`, which outlives the call.
                let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
                assert!(bound < 0, "bound anew");
                let program = libc::sock_fprog {
                    len: 1,
                    filter: all.as_ptr().cast_mut().cast(),
                };
                let program = (&raw const program).cast::<libc::c_void>();
                for (level, option, value, len) in [
                    (libc::SOL_PACKET, libc::PACKET_FANOUT, (&raw const group).cast(), 4),
                    (
                        libc::SOL_PACKET,
                        libc::PACKET_FANOUT_DATA,
                        program,
                        size_of::<libc::sock_fprog>(),
                    ),
                    (
                        libc::SOL_SOCKET,
                        libc::SO_ATTACH_FILTER,
                        program,
                        size_of::<libc::sock_fprog>(),
                    ),
                ] {
                    // SAFETY: pointer and length describe a value that outlives the call.
                    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len as _) };
                    let errno = Error::last_os_error().raw_os_error();
                    assert!(
                        set < 0 && matches!(errno, Some(libc::EPERM | libc::EALREADY)),
                        "{option}: {errno:?}"
                    );
                }
            }
        },
    );
}
