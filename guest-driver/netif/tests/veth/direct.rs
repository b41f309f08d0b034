//! Direct transmit: frames that are handed directly to the driver.

use std::{
    io::ErrorKind,
    os::fd::AsFd,
    sync::atomic::{AtomicUsize, Ordering},
};

use netif::DirectPool;
use weft_guest_driver_testkit::has_direct_pools;

use super::*;

/// Runs `body` in a network namespace, where the kernel has pools at all; where it has not, it says so.
fn in_own_network(test: &str, body: impl FnOnce()) {
    in_private_network(test, || {
        if has_direct_pools() {
            return body();
        }
        let veth = Veth::new(1500);
        let refused = DirectPool::new(&Interface::find(&veth.a).unwrap(), 1).unwrap_err();
        let without_such_sockets = refused.raw_os_error() == Some(libc::EAFNOSUPPORT);
        assert!(
            refused.kind() == ErrorKind::Unsupported || without_such_sockets,
            "{refused}"
        );
    });
}

/// What a port of an interface sends without a filter, with a socket from this part of a pool.
fn port_of(pool: &DirectPool, part: u32, interface: &str) -> AfPacket {
    let options = AfPacketOptions::default();
    let mut prepared = PreparedSocket::new(interface, EtherType::MXOE, &options, &[Instruction::drop()]).unwrap();
    prepared.direct = Some(pool.socket(part).unwrap());
    AfPacket::from_prepared(prepared).unwrap()
}

fn pool(interface: &str, parts: u32) -> DirectPool {
    DirectPool::new(&Interface::find(interface).unwrap(), parts).unwrap()
}

/// Bytes of a frame that tells its number.
fn payload(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7) as u8).collect()
}

/// Sends frames of these lengths, behind their header, in bursts.
fn send_all(from: &mut AfPacket, head: &[u8; 14], payloads: &[Vec<u8>]) {
    for burst in payloads.chunks(BURST_MAX) {
        let parts: Vec<_> = burst
            .iter()
            .map(|payload| {
                let (first, second) = payload.split_at(payload.len() / 3);
                [IoSlice::new(head), IoSlice::new(first), IoSlice::new(second)]
            })
            .collect();
        let frames: Vec<&[IoSlice<'_>]> = parts.iter().map(|parts| &parts[..]).collect();
        let mut sent = 0;
        while sent < frames.len() {
            sent += from.send_burst(&frames[sent..]).unwrap();
        }
    }
}

#[test]
fn frames_handed_to_the_driver_arrive_whole_and_in_order_with_those_that_are_not() {
    let test = "direct::frames_handed_to_the_driver_arrive_whole_and_in_order_with_those_that_are_not";
    in_own_network(test, || {
        let veth = Veth::new(9000);
        let pool = pool(&veth.a, 2);
        let (mut a, mut b) = (port_of(&pool, 1, &veth.a), open(&veth.b));
        let head = header(b.mac(), a.mac(), EtherType::MXOE);
        // 2048 bytes with the header are the most, so some of each burst go by the packet socket; what is allowed changes meanwhile.
        let mut direct = 0;
        for (round, limit) in [0, 2048, 1 << 20, 60, 1514, 0].into_iter().enumerate() {
            a.limit_direct(limit);
            for count in 1..=BURST_MAX {
                let lens = (0..count).map(|at| if at % 29 == 28 { 8000 } else { (at * 331 + round) % 2035 });
                let payloads: Vec<_> = lens.enumerate().map(|(at, len)| payload(at, len)).collect();
                let limit = limit.min(2048);
                send_all(&mut a, &head, &payloads);
                for payload in &payloads {
                    let frame = next_frame(&mut b);
                    assert_eq!((&frame[..14], &frame[14..]), (&head[..], &payload[..]));
                }
                direct += payloads
                    .iter()
                    .take_while(|payload| payload.len() + 14 <= limit)
                    .count() as u64;
            }
            // One by one.
            for len in [0, 46, 1500, 2034, 2035, 8986] {
                let payload = payload(len, len);
                assert!(a.send(&[IoSlice::new(&head), IoSlice::new(&payload)]).unwrap());
                assert_eq!(next_frame(&mut b)[14..], payload);
                direct += u64::from(len + 14 <= limit.min(2048));
            }
        }
        let counters = a.counters();
        assert_eq!((counters.sent_direct, counters.sent), (direct, b.counters().received));
    });
}

/// Those that stand on others, too.
#[test]
fn frames_are_handed_to_every_driver_that_this_is_for() {
    let test = "direct::frames_are_handed_to_every_driver_that_this_is_for";
    in_own_network(test, || {
        let ip = |words: &str| {
            let status = std::process::Command::new("ip")
                .args(words.split(' '))
                .status()
                .unwrap();
            assert!(status.success(), "ip {words}");
        };
        for kind in ["veth", "bridge", "macvlan"] {
            let veth = Veth::new(1500);
            let [a, b] = [&veth.a, &veth.b].map(|below| {
                let above = format!("{below}x");
                match kind {
                    "veth" => return below.clone(),
                    "bridge" => {
                        ip(&format!("link add {above} type bridge"));
                        ip(&format!("link set {below} master {above}"));
                    }
                    _ => ip(&format!("link add {above} link {below} type macvlan mode private")),
                }
                ip(&format!("link set {above} addrgenmode none up"));
                above
            });
            let interface = Interface::find(&a).unwrap();
            assert!(
                interface.has_no_queue().unwrap() && DirectPool::copies_frames_of(&interface),
                "{kind}"
            );
            let pool = pool(&a, 1);
            let (mut a, mut b) = (port_of(&pool, 0, &a), open(&b));
            a.limit_direct(1514);
            let head = header(b.mac(), a.mac(), EtherType::MXOE);
            let payloads: Vec<_> = (0..200).map(|number| payload(number, 60 + number * 7)).collect();
            for _ in 0..5 {
                send_all(&mut a, &head, &payloads);
                for payload in &payloads {
                    assert_eq!(next_frame(&mut b)[14..], *payload, "{kind}");
                }
            }
            assert_eq!(a.counters().sent_direct, 1000, "{kind}");
        }
    });
}

/// More frames than the ring in which the kernel says what is over has entries, by sockets that all take them back.
#[test]
fn sockets_of_a_pool_send_at_once_and_each_what_is_its_own() {
    let test = "direct::sockets_of_a_pool_send_at_once_and_each_what_is_its_own";
    in_own_network(test, || {
        const SENDERS: usize = 4;
        const FRAMES: usize = 3000;
        let veth = Veth::new(1500);
        let pool = pool(&veth.a, SENDERS as u32);
        assert_eq!(pool.socket(SENDERS as u32).unwrap_err().kind(), ErrorKind::InvalidInput);
        let mut b = open(&veth.b);
        let to = b.mac();
        let ports: Vec<_> = (0..SENDERS).map(|part| port_of(&pool, part as u32, &veth.a)).collect();
        // The queue belongs to the ports, also after the pool that made them is gone.
        drop(pool);
        let again = DirectPool::new(&Interface::find(&veth.a).unwrap(), 1);
        assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EBUSY));
        let next: [AtomicUsize; SENDERS] = Default::default();
        let next = &next;
        thread::scope(|scope| {
            let senders: Vec<_> = ports
                .into_iter()
                .enumerate()
                .map(|(sender, mut port)| {
                    scope.spawn(move || {
                        port.limit_direct(1514);
                        let head = header(to, port.mac(), EtherType::MXOE);
                        for first in (0..FRAMES).step_by(50) {
                            let payloads: Vec<_> = (first..first + 50)
                                .map(|number| {
                                    let mut payload = payload(number, 1000);
                                    payload[0] = sender as u8;
                                    payload[1..3].copy_from_slice(&(number as u16).to_be_bytes());
                                    payload
                                })
                                .collect();
                            // Not more than the receiver has room for.
                            while next[sender].load(Ordering::Relaxed) + 200 < first {
                                thread::yield_now();
                            }
                            send_all(&mut port, &head, &payloads);
                        }
                        let counters = port.counters();
                        assert_eq!((counters.sent_direct, counters.sent), (FRAMES as u64, FRAMES as u64));
                    })
                })
                .collect();
            while next.iter().any(|next| next.load(Ordering::Relaxed) < FRAMES) {
                let frame = next_frame(&mut b);
                let (sender, number) = (
                    usize::from(frame[14]),
                    usize::from(frame[15]) << 8 | usize::from(frame[16]),
                );
                assert_eq!(
                    number,
                    next[sender].fetch_add(1, Ordering::Relaxed),
                    "frame of {sender}"
                );
                assert_eq!(frame[17..], payload(number, 1000)[3..]);
            }
            senders.into_iter().for_each(|sender| sender.join().unwrap());
        });
        assert_eq!(b.counters().dropped_no_buffer, 0);
    });
}

#[test]
fn a_port_says_that_its_link_is_down_and_sends_again_when_it_is_up() {
    let test = "direct::a_port_says_that_its_link_is_down_and_sends_again_when_it_is_up";
    in_own_network(test, || {
        let veth = Veth::new(1500);
        let pool = pool(&veth.a, 1);
        let (mut a, mut b) = (port_of(&pool, 0, &veth.a), open(&veth.b));
        a.limit_direct(1514);
        let head = header(b.mac(), a.mac(), EtherType::MXOE);
        for round in 0..4 {
            veth.set_up(&veth.a, false);
            // More calls than the ring has room for.
            for _ in 0..200 {
                let parts = [IoSlice::new(&head), IoSlice::new(&[9; 60])];
                let frames = [&parts[..]; BURST_MAX];
                assert!(matches!(a.send_burst(&frames), Err(NetifError::Down { .. })));
            }
            veth.set_up(&veth.a, true);
            veth.await_running();
            while b.poll_receive().unwrap().is_some() {}
            let payloads: Vec<_> = (0..100).map(|number| payload(number, 300 + round)).collect();
            send_all(&mut a, &head, &payloads);
            for payload in &payloads {
                assert_eq!(next_frame(&mut b)[14..], *payload);
            }
        }
        assert_eq!(a.counters().sent_direct, 400);
    });
}

/// A process that has a part can empty its file; then the kernel has other pages than a process that maps it.
#[test]
fn a_part_whose_memory_was_given_back_is_given_to_nobody() {
    let test = "direct::a_part_whose_memory_was_given_back_is_given_to_nobody";
    in_own_network(test, || {
        let veth = Veth::new(1500);
        let pool = pool(&veth.a, 2);
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&pool.socket(0).unwrap().memory, flags, 0, 4096).unwrap();
        assert_eq!(pool.socket(0).unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(pool.socket(1).is_ok());
    });
}

/// A process that has a socket of a pool reads nothing with it, and binds it to nothing else.
#[test]
fn a_socket_of_a_pool_receives_nothing_and_stays_where_it_is() {
    let test = "direct::a_socket_of_a_pool_receives_nothing_and_stays_where_it_is";
    in_own_network(test, || {
        let (veth, other) = (Veth::new(1500), Veth::new(1500));
        let pool = pool(&veth.a, 1);
        let direct = pool.socket(0).unwrap();
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: Interface::find(&other.a).unwrap().index.cast_unsigned(),
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: pointer and length describe `address`.
        let bound = unsafe {
            use std::os::fd::AsRawFd;
            libc::bind(
                direct.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        assert_eq!(
            (bound, std::io::Error::last_os_error().kind()),
            (-1, ErrorKind::ResourceBusy)
        );
        let mut b = open(&veth.b);
        let a = open(&veth.a);
        let head = header(a.mac(), b.mac(), EtherType::MXOE);
        assert!(b.send(&[IoSlice::new(&head), IoSlice::new(&[1; 60])]).unwrap());
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            direct.socket.as_fd(),
            rustix::event::PollFlags::IN,
        )];
        let soon = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        assert_eq!(rustix::event::poll(&mut fds, Some(&soon)).unwrap(), 0);
    });
}
