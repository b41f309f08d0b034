//! Promises of the AF_PACKET port, over a veth pair in a network namespace of the test's own.

mod bulk;
mod direct;

use std::{
    io::IoSlice,
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use netif::{
    AfPacket, AfPacketOptions, BURST_MAX, FrameCounter, Instruction, Interest, Interface, Netif, NetifError,
    PreparedSocket, UnboundSocket, Wake,
};
use weft_guest_driver_testkit::{Veth, in_private_network};

const LIMIT: Duration = Duration::from_secs(10);

fn open(name: &str) -> AfPacket {
    open_with(name, false)
}

fn open_with(name: &str, linear_head: bool) -> AfPacket {
    let options = AfPacketOptions {
        linear_head,
        ..AfPacketOptions::default()
    };
    AfPacket::open(name, EtherType::MXOE, &options).unwrap()
}

fn header(dst: MacAddr, src: MacAddr, ether_type: EtherType) -> [u8; 14] {
    let mut bytes = [0; 14];
    bytes[..6].copy_from_slice(&dst.0);
    bytes[6..12].copy_from_slice(&src.0);
    bytes[12..].copy_from_slice(&ether_type.0.to_be_bytes());
    bytes
}

fn next_frame(port: &mut AfPacket) -> Vec<u8> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(frame) = port.poll_receive().unwrap() {
            return frame.to_vec();
        }
        assert_eq!(
            port.wait(Interest::Receive, deadline, None).unwrap(),
            Wake::Ready,
            "no frame within the limit"
        );
    }
}

#[test]
fn frames_of_every_length_arrive_whole_and_in_order() {
    in_private_network("frames_of_every_length_arrive_whole_and_in_order", || {
        for (mtu, step, linear_heads) in [
            (1500, 1, [false, true]),
            (9000, 37, [false, false]),
            (9000, 37, [true, false]),
            (9000, 37, [false, true]),
            (9000, 37, [true, true]),
        ] {
            let veth = Veth::new(mtu);
            let (mut a, mut b) = (open_with(&veth.a, linear_heads[0]), open_with(&veth.b, linear_heads[1]));
            assert_eq!((a.mtu(), b.mtu()), (mtu, mtu));
            let head = header(b.mac(), a.mac(), EtherType::MXOE);
            let payload: Vec<u8> = (0..mtu).map(|i| (i * 7) as u8).collect();
            // More frames than the ring has slots: it goes round.
            for len in (0..=mtu).rev().step_by(step) {
                let (first, second) = payload[..len].split_at(len / 3);
                assert!(
                    a.send(&[IoSlice::new(&head), IoSlice::new(first), IoSlice::new(second)])
                        .unwrap()
                );
                let frame = next_frame(&mut b);
                assert_eq!((&frame[..14], &frame[14..]), (&head[..], &payload[..len]));
            }
            assert!(a.poll_receive().unwrap().is_none(), "a port does not hear itself");
            let counters = b.counters();
            assert_eq!(counters.received, a.counters().sent);
            assert_eq!(
                (counters.dropped_no_buffer, counters.dropped_too_long, counters.skipped),
                (0, 0, 0)
            );
        }
    });
}

#[test]
fn a_burst_arrives_complete_and_in_order_from_one_call() {
    in_private_network("a_burst_arrives_complete_and_in_order_from_one_call", || {
        for (mtu, linear_head) in [(1500, false), (9000, true)] {
            let veth = Veth::new(mtu);
            let (mut a, mut b) = (open_with(&veth.a, linear_head), open_with(&veth.b, linear_head));
            let head = header(b.mac(), a.mac(), EtherType::MXOE);
            let numbers: Vec<[u8; 4]> = (0..BURST_MAX as u32 + 9).map(u32::to_be_bytes).collect();
            let data = vec![0x5a; mtu - 100];
            let frames: Vec<[IoSlice<'_>; 3]> = numbers
                .iter()
                .map(|n| [IoSlice::new(&head), IoSlice::new(n), IoSlice::new(&data)])
                .collect();
            let frames: Vec<&[IoSlice<'_>]> = frames.iter().map(|parts| &parts[..]).collect();
            assert_eq!(a.send_burst(&frames).unwrap(), BURST_MAX);
            assert_eq!(a.send_burst(&frames[BURST_MAX..]).unwrap(), 9);
            assert_eq!(a.send_burst(&[]).unwrap(), 0);
            for number in &numbers {
                let frame = next_frame(&mut b);
                assert_eq!((&frame[14..18], &frame[18..]), (&number[..], &data[..]));
            }
        }
    });
}

#[test]
fn a_frame_of_many_parts_and_one_shorter_than_any_head_arrive_whole() {
    in_private_network(
        "a_frame_of_many_parts_and_one_shorter_than_any_head_arrive_whole",
        || {
            for linear_head in [false, true] {
                let veth = Veth::new(9000);
                let (mut a, mut b) = (open_with(&veth.a, linear_head), open_with(&veth.b, linear_head));
                let head = header(b.mac(), a.mac(), EtherType::MXOE);
                for count in [0, 1, 5, 6, 7, 8, 256] {
                    let pieces: Vec<[u8; 31]> = (0..count).map(|piece| [piece as u8; 31]).collect();
                    let mut parts = vec![IoSlice::new(&head)];
                    parts.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
                    assert!(a.send(&parts).unwrap());
                    assert_eq!(a.send_burst(&[&parts, &parts[..1]]).unwrap(), 2);
                    for len in [count * 31, count * 31, 0] {
                        let frame = next_frame(&mut b);
                        assert_eq!(frame[..14], head);
                        assert_eq!(frame[14..], pieces.concat()[..len]);
                    }
                }
            }
        },
    );
}

#[test]
fn an_interface_names_its_driver_unless_it_is_gone() {
    in_private_network("an_interface_names_its_driver_unless_it_is_gone", || {
        let veth = Veth::new(1500);
        let mut interface = Interface::find(&veth.a).unwrap();
        assert_eq!(interface.driver().as_deref(), Some("veth"));
        interface.name = "gone".to_owned();
        assert_eq!(interface.driver(), None);
    });
}

#[test]
fn other_protocols_and_other_stations_are_left_out() {
    in_private_network("other_protocols_and_other_stations_are_left_out", || {
        let veth = Veth::new(1500);
        let (mut a, mut b) = (open(&veth.a), open(&veth.b));
        let stranger = MacAddr([2, 9, 9, 9, 9, 9]);
        for (dst, ether_type, tag) in [
            (b.mac(), EtherType::CARD_TO_CARD, 1),
            (stranger, EtherType::MXOE, 2),
            (MacAddr::BROADCAST, EtherType::MXOE, 3),
            (b.mac(), EtherType::MXOE, 4),
        ] {
            let head = header(dst, a.mac(), ether_type);
            assert!(a.send(&[IoSlice::new(&head), IoSlice::new(&[tag; 46])]).unwrap());
        }
        assert_eq!(next_frame(&mut b)[14], 3);
        assert_eq!(next_frame(&mut b)[14], 4);
        assert!(b.poll_receive().unwrap().is_none());
        assert_eq!(b.counters().skipped, 1);
    });
}

#[test]
fn a_sleeping_receiver_wakes_for_a_frame_a_stop_and_a_deadline() {
    in_private_network("a_sleeping_receiver_wakes_for_a_frame_a_stop_and_a_deadline", || {
        let veth = Veth::new(1500);
        let (mut a, mut b) = (open(&veth.a), open(&veth.b));
        let head = header(b.mac(), a.mac(), EtherType::MXOE);
        let start = Instant::now();
        let wake = b
            .wait(Interest::Receive, start + Duration::from_millis(30), None)
            .unwrap();
        assert_eq!(wake, Wake::Deadline);
        assert!(start.elapsed() >= Duration::from_millis(30));

        let (stop, stopper) = std::os::unix::net::UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let sleeper = scope.spawn(move || {
                let woken = b
                    .wait(Interest::Receive, Instant::now() + LIMIT, Some(stop.as_fd()))
                    .unwrap();
                (b, stop, woken)
            });
            assert!(a.send(&[IoSlice::new(&head), IoSlice::new(&[1; 46])]).unwrap());
            let (mut b, stop, woken) = sleeper.join().unwrap();
            assert_eq!(woken, Wake::Ready);
            // A frame that is lent does not count as new.
            assert!(b.poll_receive().unwrap().is_some());
            assert_eq!(
                b.wait(Interest::Receive, Instant::now(), Some(stop.as_fd())).unwrap(),
                Wake::Deadline
            );
            assert_eq!(
                b.wait(Interest::Both, Instant::now() + LIMIT, Some(stop.as_fd()))
                    .unwrap(),
                Wake::Ready
            );

            let sleeper = scope.spawn(move || {
                b.wait(Interest::Receive, Instant::now() + LIMIT, Some(stop.as_fd()))
                    .unwrap()
            });
            drop(stopper);
            assert_eq!(sleeper.join().unwrap(), Wake::Stop);
        });
    });
}

#[test]
fn frames_beyond_the_ring_are_counted_and_the_port_goes_on() {
    in_private_network("frames_beyond_the_ring_are_counted_and_the_port_goes_on", || {
        let veth = Veth::new(1500);
        let mut a = open(&veth.a);
        let options = AfPacketOptions {
            ring_len: 128 << 10,
            ..AfPacketOptions::default()
        };
        let mut b = AfPacket::open(&veth.b, EtherType::MXOE, &options).unwrap();
        let head = header(b.mac(), a.mac(), EtherType::MXOE);
        let sent = 1000;
        for i in 0..sent as u32 {
            assert!(
                a.send(&[
                    IoSlice::new(&head),
                    IoSlice::new(&i.to_be_bytes()),
                    IoSlice::new(&[0; 42])
                ])
                .unwrap()
            );
        }
        let mut received = 0_u32;
        while let Some(frame) = b.poll_receive().unwrap() {
            assert_eq!(frame[14..18], received.to_be_bytes(), "the oldest are kept");
            received += 1;
        }
        let counters = b.counters();
        assert!(counters.received >= 64 && counters.dropped_no_buffer > 0);
        assert_eq!(counters.received + counters.dropped_no_buffer, sent);
        assert!(a.send(&[IoSlice::new(&head), IoSlice::new(&[0xff; 46])]).unwrap());
        assert_eq!(next_frame(&mut b)[14], 0xff);
    });
}

#[test]
fn a_port_whose_interface_goes_down_says_so_and_recovers_when_opened_again() {
    in_private_network(
        "a_port_whose_interface_goes_down_says_so_and_recovers_when_opened_again",
        || {
            let veth = Veth::new(1500);
            let mut b = open(&veth.b);
            let deadline = Instant::now() + LIMIT;
            veth.set_up(&veth.b, false);
            let error = b.wait(Interest::Receive, deadline, None).unwrap_err();
            assert!(matches!(error, NetifError::Down { .. }), "{error}");
            let frame = [0; 60];
            let error = b.send(&[IoSlice::new(&frame)]).unwrap_err();
            assert!(matches!(error, NetifError::Down { .. }), "{error}");
            let error = AfPacket::open(&veth.b, EtherType::MXOE, &AfPacketOptions::default())
                .err()
                .unwrap();
            assert_eq!(
                error.to_string(),
                format!(
                    "{0} is down (`ip link set {0} up` switches it on); nothing is sent or received",
                    veth.b
                )
            );
            veth.set_up(&veth.b, true);
            veth.await_running();
            let (mut a, mut b) = (open(&veth.a), open(&veth.b));
            let head = header(b.mac(), a.mac(), EtherType::MXOE);
            assert!(a.send(&[IoSlice::new(&head), IoSlice::new(&[5; 46])]).unwrap());
            assert_eq!(next_frame(&mut b)[14], 5);
        },
    );
}

#[test]
fn a_frame_longer_than_the_interface_takes_is_refused_with_the_limit() {
    in_private_network(
        "a_frame_longer_than_the_interface_takes_is_refused_with_the_limit",
        || {
            let veth = Veth::new(1500);
            let mut a = open(&veth.a);
            let frame = [0; 2000];
            let error = a.send(&[IoSlice::new(&frame)]).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "{} takes frames of at most 1514 bytes; the longer frame was not sent",
                    veth.a
                )
            );
        },
    );
}

#[test]
fn an_interface_that_does_not_exist_is_named_in_the_error() {
    for name in ["nosuch0", "", "a-name-that-is-far-too-long"] {
        let error = AfPacket::open(name, EtherType::MXOE, &AfPacketOptions::default())
            .err()
            .unwrap();
        assert_eq!(
            error.to_string(),
            format!("there is no network interface named {name:?} (`ip link` lists those that exist)")
        );
    }
}

#[test]
fn a_prepared_socket_gets_only_what_its_filter_passes_and_keeps_it() {
    in_private_network(
        "a_prepared_socket_gets_only_what_its_filter_passes_and_keeps_it",
        || {
            let veth = Veth::new(1500);
            // Frames whose first byte of payload is 7.
            let filter = [
                Instruction::load_byte(14),
                Instruction::if_equal(7, 0, 1),
                Instruction::pass(),
                Instruction::drop(),
            ];
            let options = AfPacketOptions::default();
            let prepared = PreparedSocket::new(&veth.b, EtherType::MXOE, &options, &filter).unwrap();
            let (mut a, mut b) = (open(&veth.a), AfPacket::from_prepared(prepared).unwrap());
            let head = header(b.mac(), a.mac(), EtherType::MXOE);
            for first in [1, 7, 9] {
                let payload = [first; 50];
                assert!(a.send(&[IoSlice::new(&head), IoSlice::new(&payload)]).unwrap());
            }
            assert_eq!(next_frame(&mut b)[14], 7);
            assert!(b.poll_receive().unwrap().is_none());
            assert!(
                b.set_filter(&[Instruction::pass()]).is_err(),
                "the filter of a prepared socket cannot be widened"
            );
            a.set_filter(&[Instruction::drop()]).unwrap();
            let mut wrong = PreparedSocket::new(&veth.b, EtherType::MXOE, &options, &filter).unwrap();
            wrong.layout.blocks += 1;
            assert!(matches!(AfPacket::from_prepared(wrong), Err(NetifError::Io { .. })));
        },
    );
}

#[test]
fn a_counter_counts_every_frame_that_passes_its_filter_though_nobody_takes_them() {
    in_private_network(
        "a_counter_counts_every_frame_that_passes_its_filter_though_nobody_takes_them",
        || {
            let veth = Veth::new(1500);
            let interface = Interface::find(&veth.b).unwrap();
            // Frames whose first byte of payload is 1.
            let filter = [
                Instruction::load_byte(14),
                Instruction::if_equal(1, 0, 1),
                Instruction::pass(),
                Instruction::drop(),
            ];
            let mut counter = FrameCounter::open(&interface, EtherType::MXOE, &filter).unwrap();
            let mut sender = open(&veth.a);
            let mut receiver = open(&veth.b);
            let to = header(interface.mac, MacAddr([2, 0, 0, 0, 0, 9]), EtherType::MXOE);
            for number in 0..200_u32 {
                let mut frame = to.to_vec();
                frame.extend([u8::from(number % 4 == 0); 100]);
                assert!(sender.send(&[IoSlice::new(&frame)]).unwrap());
                next_frame(&mut receiver);
            }
            assert_eq!(counter.frames().unwrap(), 50);
            assert_eq!(counter.frames().unwrap(), 50, "it adds up");
        },
    );
}

#[test]
fn a_socket_made_ahead_receives_what_it_is_bound_for() {
    in_private_network("a_socket_made_ahead_receives_what_it_is_bound_for", || {
        let veth = Veth::new(1500);
        let interface = Interface::find(&veth.b).unwrap();
        let made = UnboundSocket::new(&veth.b, &AfPacketOptions::default()).unwrap();
        assert!(made.fits(&interface) && !made.fits(&Interface::find(&veth.a).unwrap()));
        let mut sender = open(&veth.a);
        let frame = |byte: u8| {
            let head = header(interface.mac, MacAddr([2, 0, 0, 0, 0, 9]), EtherType::MXOE);
            [&head[..], &[byte; 100]].concat()
        };
        // Nobody is there yet.
        assert!(sender.send(&[IoSlice::new(&frame(1))]).unwrap());
        let filter = [
            Instruction::load_byte(14),
            Instruction::if_equal(3, 0, 1),
            Instruction::pass(),
            Instruction::drop(),
        ];
        let prepared = made.bind(EtherType::MXOE, &filter).unwrap();
        let mut receiver = AfPacket::from_prepared(prepared).unwrap();
        for byte in [2, 3] {
            assert!(sender.send(&[IoSlice::new(&frame(byte))]).unwrap());
        }
        assert_eq!(next_frame(&mut receiver), frame(3), "the others did not pass");
        assert_eq!(receiver.poll_receive().unwrap(), None);
        // With a second socket, and a port of no filter.
        let made = UnboundSocket::with_bulk(&veth.b, &AfPacketOptions::default(), 1 << 20).unwrap();
        let port = UnboundSocket::new(&veth.b, &AfPacketOptions::default()).unwrap();
        assert!(made.has_bulk() && made.fits(&interface) && !port.has_bulk());
        let [messages, bulk] = [4, 5].map(|byte| {
            [
                Instruction::load_byte(14),
                Instruction::if_equal(byte, 0, 1),
                Instruction::pass(),
                Instruction::drop(),
            ]
        });
        let prepared = made.bind_both(EtherType::MXOE, &messages, &bulk).unwrap();
        assert!(prepared.bulk.is_some());
        let mut both = AfPacket::from_prepared(prepared).unwrap();
        let mut port = port.open(EtherType::MXOE).unwrap();
        both.expect_bulk(true);
        for byte in [5, 3, 4, 5] {
            assert!(sender.send(&[IoSlice::new(&frame(byte))]).unwrap());
        }
        for byte in [4, 5, 5] {
            assert_eq!(next_frame(&mut both), frame(byte), "the ring is looked into first");
        }
        assert_eq!(both.poll_receive().unwrap(), None);
        for byte in [5, 3, 4, 5] {
            assert_eq!(next_frame(&mut port), frame(byte));
        }
    });
}
