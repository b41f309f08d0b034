//! Data of large messages on a socket of its own: where there is one, where there is not, and when others had one before.

use std::{
    collections::HashSet, fs, io::IoSliceMut, mem::MaybeUninit, num::NonZeroI32, os::fd::AsFd, process::Command,
    sync::mpsc, thread,
};

use ether::EtherType;
use netif::Interface;
use omx::{Address, Counter, Endpoint, EndpointOptions, Error, Segment, StatusCode, Waiting};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect as connect_to, recvmsg, send, socket_with,
};
use weft_authority::Place;
use weft_guest_driver_testkit::{Veth, group_of, set_option};

use crate::{
    authority::Omxd,
    rig::{Echo, LIMIT, exchange, in_own_world, open, wait_until},
};

const LEN: usize = 1 << 20;

fn open_to(interface: &str, waiting: Waiting) -> Endpoint {
    let options = EndpointOptions {
        interface: Some(interface.to_owned()),
        waiting,
        ..EndpointOptions::default()
    };
    Endpoint::open(&options).unwrap()
}

fn connect(from: &Endpoint, to: &Endpoint) -> Address {
    let to = to.address();
    from.connect(to.mac(), to.endpoint(), 0, Some(LIMIT)).unwrap()
}

/// Whether a thread of this process sleeps.
fn is_asleep(tid: NonZeroI32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().starts_with('S')
}

/// A large message arrives whole.
fn transfer(from: &Endpoint, to: &Endpoint, at: Address, match_info: u64) {
    let data: Vec<u8> = (0..LEN).map(|i| (i * 7 + i / 251) as u8 ^ match_info as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| from.send(&data, at, match_info).unwrap());
        let mut received = vec![0; LEN];
        let status = to.receive(&mut received, match_info, u64::MAX).unwrap();
        assert_eq!((status.code, status.transferred as usize), (StatusCode::Success, LEN));
        assert!(received == data, "changed in transit");
    });
}

#[test]
fn large_messages_arrive_with_and_without_a_data_socket_and_where_it_may_not_have_memory() {
    in_own_world(
        "data_socket::large_messages_arrive_with_and_without_a_data_socket_and_where_it_may_not_have_memory",
        || {
            let without = ["setpriv", "--bounding-set", "-net_admin"];
            // Whether it is used, is up to what an endpoint finds out.
            for (before, options, has_one) in [
                (&[][..], &[][..], [true, true]),
                (&[], &["--data-socket", "true"], [true, true]),
                (&[], &["--data-socket", "false"], [false, false]),
                (&without, &[], [false, false]),
            ] {
                for (mtu, has_one) in [1500, 9000].into_iter().zip(has_one) {
                    let veth = Veth::new(mtu);
                    let omxds = [&veth.a, &veth.b].map(|interface| Omxd::start(before, interface, options));
                    let opened = omxds[0].session().unwrap().open_endpoint(None).unwrap();
                    assert_eq!(opened.port.bulk_fd().is_some(), has_one, "{before:?} {options:?}");
                    assert_ne!(group_of(opened.port.as_fd()), 0, "it can join another's group");
                    for waiting in [Waiting::Spin, Waiting::Sleep] {
                        let ends = [&veth.a, &veth.b].map(|interface| open_to(interface, waiting));
                        let at = connect(&ends[0], &ends[1]);
                        // Until each path that there is was tried.
                        for match_info in 0..12 {
                            transfer(&ends[0], &ends[1], at, match_info);
                        }
                    }
                }
            }
        },
    );
}

/// The authority's own socket shares the kernel's look at frames with one of them at a time.
#[test]
fn one_endpoint_after_the_other_gets_its_data_whatever_becomes_of_the_sockets_of_those_before() {
    in_own_world(
        "data_socket::one_endpoint_after_the_other_gets_its_data_whatever_becomes_of_the_sockets_of_those_before",
        || {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.b, &[]);
            let sender = open(&veth.a, None).unwrap();
            let session = omxd.session().unwrap();
            // The first keeps its sockets when it is over.
            let kept = session.open_endpoint(Some(5)).unwrap();
            drop(session);
            for round in 0..6 {
                let number = [5, 6][round % 2];
                let first = open_when_free(&veth.b, number);
                let second = open(&veth.b, None).unwrap();
                for switched in [false, true] {
                    if switched {
                        for up in [false, true] {
                            veth.set_up(&veth.b, up);
                        }
                        veth.await_running();
                    }
                    for (receiver, match_info) in [(&first, 1), (&second, 2)] {
                        let at = connect(&sender, receiver);
                        transfer(&sender, receiver, at, match_info);
                        transfer(receiver, &sender, connect(receiver, &sender), match_info);
                    }
                }
                let mac = first.address().mac();
                first.close().unwrap();
                // The authority still gets the frames for endpoints that are not open.
                let refused = sender.connect(mac, number, 0, Some(LIMIT));
                assert!(
                    matches!(refused, Err(Error::Failed(StatusCode::EndpointClosed))),
                    "{refused:?}"
                );
            }
            drop(kept);
        },
    );
}

/// Without an authority the kernel chooses among fewer sockets, and anew whenever the link comes back.
#[test]
fn messages_of_all_lengths_arrive_while_there_is_no_authority_and_the_link_goes_down_and_up() {
    in_own_world(
        "data_socket::messages_of_all_lengths_arrive_while_there_is_no_authority_and_the_link_goes_down_and_up",
        || {
            let veth = Veth::new(1500);
            let mut omxds = [&veth.a, &veth.b].map(|interface| Omxd::start(&[], interface, &[]));
            let ends = [&veth.a, &veth.b].map(|interface| open_to(interface, Waiting::Sleep));
            let directions =
                [[0, 1], [1, 0]].map(|[from, to]| (&ends[from], &ends[to], connect(&ends[from], &ends[to])));
            let exchange = || {
                for (from, to, at) in &directions {
                    transfer(from, to, *at, 1);
                    from.send(b"short", *at, 2).unwrap();
                    let mut received = [0; 5];
                    to.receive(&mut received, 2, u64::MAX).unwrap();
                    assert_eq!(&received, b"short");
                }
            };
            exchange();
            for omxd in &mut omxds {
                omxd.kill();
            }
            exchange();
            for _ in 0..2 {
                for up in [false, true] {
                    veth.set_up(&veth.b, up);
                }
                veth.await_running();
                exchange();
            }
        },
    );
}

/// Counts the sockets, or groups of them, for which the kernel looks up each of our frames of an interface.
fn lookups(interface: &str) -> usize {
    let output = Command::new("ss").args(["-0", "-e", "-n"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let bound = format!("[{}]:{interface} ", EtherType::MXOE.0);
    let sockets = text.split("p_raw").filter(|socket| socket.contains(&bound));
    let group = |socket: &str| Some(socket.split_once("fanout(id:")?.1.split_once(',')?.0.to_owned());
    let (alone, groups): (Vec<_>, Vec<_>) = sockets.map(group).partition(Option::is_none);
    alone.len() + groups.iter().collect::<HashSet<_>>().len()
}

#[test]
fn an_endpoint_with_a_data_socket_costs_a_frame_no_further_look() {
    in_own_world(
        "data_socket::an_endpoint_with_a_data_socket_costs_a_frame_no_further_look",
        || {
            let veth = Veth::new(1500);
            let _omxd = Omxd::start(&[], &veth.b, &[]);
            let alone = lookups(&veth.b);
            assert_eq!(alone, 1, "the authority's");
            for _ in 0..2 {
                // The authority's port before goes a little later.
                let first = open(&veth.b, None).unwrap();
                wait_until("no further lookup for the first", || lookups(&veth.b) == alone);
                let second = open(&veth.b, None).unwrap();
                wait_until("one for the second, whose data come through its ring", || {
                    lookups(&veth.b) == alone + 1
                });
                drop(first);
                wait_until("the first endpoint's sockets to be gone", || sockets(&veth.b)[0] == 2);
                assert_eq!(lookups(&veth.b), alone + 1);
                drop(second);
                wait_until("both to be gone", || lookups(&veth.b) == alone);
            }
        },
    );
}

/// Packet sockets for our frames of an interface: all, and those whose filter was taken off.
fn sockets(interface: &str) -> [usize; 2] {
    let output = Command::new("ss").args(["-0", "-b", "-n"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let bound = format!("[{}]:{interface} ", EtherType::MXOE.0);
    let sockets = text.split("p_raw").filter(|socket| socket.contains(&bound));
    let (filtered, others): (Vec<_>, Vec<_>) = sockets.partition(|socket| socket.contains("bpf filter"));
    [filtered.len() + others.len(), others.len()]
}

/// A filter costs every frame some time, and keeps nothing from who may open packet sockets of its own.
#[test]
fn only_a_program_that_may_read_every_frame_has_sockets_without_a_filter() {
    in_own_world(
        "data_socket::only_a_program_that_may_read_every_frame_has_sockets_without_a_filter",
        || {
            let user = ["setpriv", "--reuid=65533", "--regid=65534", "--clear-groups"];
            let deprived = ["setpriv", "--bounding-set", "-net_raw"];
            let pretender = [&deprived[..], &["unshare", "--map-root-user"]].concat();
            for (mtu, before, wanted) in [
                // The authority's; ring, data and rest.
                (1500, &[][..], [4, 2]),
                (1500, &user, [3, 0]),
                (1500, &deprived, [3, 0]),
                // All that in a user namespace of its own, where it means nothing to the network namespace.
                (1500, &pretender, [3, 0]),
                (9000, &[], [4, 2]),
                (9000, &deprived, [3, 0]),
            ] {
                let veth = Veth::new(mtu);
                let _omxd = Omxd::start(&[], &veth.b, &["--group", "nogroup"]);
                let mut program = Echo::start(&veth.b, before);
                let (mac, number) = program.go_as();
                wait_until("the authority's port before to be gone", || {
                    sockets(&veth.b)[0] <= wanted[0]
                });
                assert_eq!(sockets(&veth.b), wanted, "{mtu} {before:?}");
                let sender = open(&veth.a, None).unwrap();
                let to = sender.connect(mac, number, 0, Some(LIMIT)).unwrap();
                for len in [0, 100, LEN] {
                    exchange(&sender, to, len, 1);
                }
                if wanted[0] > 2 {
                    // One at a time shares the authority's look.
                    let second = open(&veth.b, None).unwrap();
                    assert_eq!(
                        sockets(&veth.b)[1],
                        wanted[1],
                        "of the second endpoint: {mtu} {before:?}"
                    );
                    second.close().unwrap();
                }
            }
        },
    );
}

#[test]
fn sockets_without_a_filter_get_nothing_of_others_when_the_authority_is_gone() {
    in_own_world(
        "data_socket::sockets_without_a_filter_get_nothing_of_others_when_the_authority_is_gone",
        || {
            for mtu in [1500, 9000] {
                let veth = Veth::new(mtu);
                let mut omxd = Omxd::start(&[], &veth.b, &[]);
                let [first, second] = [0, 1].map(|_| open(&veth.b, None).unwrap());
                assert_ne!(sockets(&veth.b)[1], 0, "the first one's sockets have none");
                let sender = open(&veth.a, None).unwrap();
                let ends = [&first, &second].map(|receiver| (connect(&sender, receiver), receiver));
                omxd.kill();
                for switched in [false, true] {
                    if switched {
                        for up in [false, true] {
                            veth.set_up(&veth.b, up);
                        }
                        veth.await_running();
                    }
                    for (at, receiver) in &ends {
                        transfer(&sender, receiver, *at, 1);
                        sender.send(b"short", *at, 2).unwrap();
                        receiver.receive(&mut [0; 5], 2, u64::MAX).unwrap();
                    }
                    first.progress();
                    let counters = first.counters();
                    // What comes again, because it was late, is no frame of others.
                    let of_others = |counter: Counter| {
                        counter.name().ends_with("BAD_ENDPOINT") || counter.name().ends_with("MAGIC_ENDPOINT")
                    };
                    let dropped: Vec<_> = counters.nonzero().filter(|(counter, _)| of_others(*counter)).collect();
                    assert_eq!(dropped, [], "MTU {mtu}, link switched: {switched}");
                }
            }
        },
    );
}

/// Otherwise a program with an endpoint could take frames of the authority, or of another endpoint when the authority
/// is gone.
#[test]
fn whoever_has_an_endpoint_joins_no_group_and_changes_none_whatever_becomes_of_sockets_and_authority() {
    in_own_world(
        "data_socket::whoever_has_an_endpoint_joins_no_group_and_changes_none_whatever_becomes_of_sockets_and_authority",
        || {
            let veth = Veth::new(1500);
            let mut omxd = Omxd::start(&[], &veth.b, &["--data-socket", "true"]);
            let mac = Interface::find(&veth.b).unwrap().mac;
            let sender = open(&veth.a, None).unwrap();
            let hears = || {
                let refused = sender.connect(mac, 9, 0, Some(LIMIT));
                assert!(
                    matches!(refused, Err(Error::Failed(StatusCode::EndpointClosed))),
                    "{refused:?}"
                );
            };
            let sessions = [omxd.session().unwrap(), omxd.session().unwrap()];
            let [first, second] = sessions.each_ref().map(|session| session.open_endpoint(None).unwrap());
            let group = group_of(first.port.as_fd());
            assert_ne!(group, 0, "the first one's sockets are in a group");
            let kept = [first.port.as_fd(), first.port.bulk_fd().unwrap()].map(|fd| fd.try_clone_to_owned().unwrap());
            // Its ring is not mapped here any more.
            drop(first);
            let others_cannot_join = || {
                for socket in [second.port.as_fd(), second.port.bulk_fd().unwrap()] {
                    let joined = set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &group);
                    assert_eq!(joined, Err(Some(libc::EALREADY)));
                }
            };
            hears();
            for socket in &kept {
                for kind in [libc::PACKET_RX_RING, libc::PACKET_TX_RING] {
                    assert_eq!(
                        set_option(socket.as_fd(), libc::SOL_PACKET, kind, &[0_u32; 4]),
                        Err(Some(libc::EBUSY))
                    );
                }
            }
            hears();
            others_cannot_join();
            drop(kept);
            others_cannot_join();
            hears();
            omxd.kill();
            others_cannot_join();
        },
    );
}

/// Its sockets are kept by the authority until then.
#[test]
fn an_endpoint_that_is_closed_while_the_link_is_down_is_refused_when_it_is_up() {
    in_own_world(
        "data_socket::an_endpoint_that_is_closed_while_the_link_is_down_is_refused_when_it_is_up",
        || {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.b, &[]);
            let mac = Interface::find(&veth.b).unwrap().mac;
            let sender = open(&veth.a, None).unwrap();
            for _ in 0..3 {
                let receiver = open_when_free(&veth.b, 5);
                veth.set_up(&veth.b, false);
                drop(receiver);
                wait_until("the authority to see that it is closed", || {
                    omxd.status().0.endpoints.is_empty()
                });
                veth.set_up(&veth.b, true);
                veth.await_running();
                let refused = sender.connect(mac, 5, 0, Some(LIMIT));
                assert!(
                    matches!(refused, Err(Error::Failed(StatusCode::EndpointClosed))),
                    "{refused:?}"
                );
            }
        },
    );
}

/// Its number is free as soon as the authority saw that the program before is gone.
fn open_when_free(interface: &str, number: u8) -> Endpoint {
    let mut opened = open(interface, Some(number));
    wait_until("a free number", || {
        if opened.is_err() {
            opened = open(interface, Some(number));
        }
        opened.is_ok()
    });
    opened.unwrap()
}

/// Nothing was asked for when it fell asleep.
#[test]
fn a_thread_asleep_wakes_for_data_that_another_thread_asked_for() {
    in_own_world(
        "data_socket::a_thread_asleep_wakes_for_data_that_another_thread_asked_for",
        || {
            let veth = Veth::new(1500);
            let sender = open(&veth.a, None).unwrap();
            // Only its own threads make progress.
            let options = EndpointOptions {
                interface: Some(veth.b.clone()),
                waiting: Waiting::Sleep,
                progress: false,
                ..EndpointOptions::default()
            };
            let receiver = Endpoint::open(&options).unwrap();
            let at = thread::scope(|scope| {
                let connected = scope.spawn(|| connect(&sender, &receiver));
                while !connected.is_finished() {
                    receiver.progress();
                }
                connected.join().unwrap()
            });
            let data = vec![0x5a; LEN];
            let mut received = [vec![0; LEN], vec![0; 8]];
            let [large, small] = &mut received;
            thread::scope(|scope| {
                scope.spawn(|| {
                    sender.send(&data, at, 1).unwrap();
                    // When the large one has arrived.
                    sender.send(&data[..8], at, 2).unwrap();
                });
                // It is announced, and no receive asks for it.
                let announced = receiver.probe(1, u64::MAX, Some(LIMIT)).unwrap();
                assert_eq!(announced.unwrap().length as usize, LEN);
                // SAFETY: the buffer outlives the request, which this function waits for.
                let last = unsafe { receiver.irecv(&[Segment::of_mut(small)], 2, u64::MAX, 0) }.unwrap();
                let (endpoint, (tell, told)) = (&receiver, mpsc::channel());
                let sleeper = scope.spawn(move || {
                    tell.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                    endpoint.wait(last, Some(LIMIT)).unwrap().unwrap()
                });
                let tid = told.recv().unwrap();
                wait_until("it sleeps", || is_asleep(tid));
                // SAFETY: as above.
                let request = unsafe { receiver.irecv(&[Segment::of_mut(large)], 1, u64::MAX, 0) }.unwrap();
                assert_eq!(sleeper.join().unwrap().code, StatusCode::Success);
                let status = receiver.wait(request, Some(LIMIT)).unwrap().unwrap();
                assert_eq!(status.transferred as usize, LEN);
            });
            assert!(received[0] == data && received[1] == data[..8]);
            assert!(sender.counters().get(Counter::SendPullReply) > 0);
        },
    );
}

/// A program that was there before data sockets were: it has room for no more descriptors than it asks for.
#[test]
fn a_program_that_does_not_know_data_sockets_gets_none() {
    in_own_world(
        "data_socket::a_program_that_does_not_know_data_sockets_gets_none",
        || {
            let veth = Veth::new(1500);
            let _omxd = Omxd::start(&[], &veth.a, &[]);
            let place = Place::of(Interface::find(&veth.a).unwrap().index).unwrap();
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
            connect_to(&socket, &SocketAddrUnix::new(place.socket()).unwrap()).unwrap();
            send(
                &socket,
                br#"{"Open":{"endpoint":3,"command":"old"}}"#,
                SendFlags::empty(),
            )
            .unwrap();
            let mut text = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(
                &socket,
                &mut [IoSliceMut::new(&mut text)],
                &mut ancillary,
                RecvFlags::empty(),
            )
            .unwrap();
            let text = String::from_utf8_lossy(&text[..received.bytes]);
            assert!(text.contains("\"Opened\""), "{text}");
            assert!(!received.flags.contains(ReturnFlags::CTRUNC), "more than four");
        },
    );
}

/// Nothing makes progress meanwhile that would hear of the link.
#[test]
fn a_thread_asleep_sleeps_on_when_the_link_goes_down_while_progress_is_off() {
    in_own_world(
        "data_socket::a_thread_asleep_sleeps_on_when_the_link_goes_down_while_progress_is_off",
        || {
            let veth = Veth::new(1500);
            let endpoint = open_to(&veth.a, Waiting::Sleep);
            endpoint.disable_progression();
            // SAFETY: what is posted lies in no memory.
            let request = unsafe { endpoint.irecv(&[], 1, u64::MAX, 0) }.unwrap();
            thread::scope(|scope| {
                let (endpoint, (tell, told)) = (&endpoint, mpsc::channel());
                scope.spawn(move || {
                    tell.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                    assert!(endpoint.wait(request, None).unwrap().is_none(), "woken up");
                });
                let sleeper = told.recv().unwrap();
                wait_until("it sleeps", || is_asleep(sleeper));
                veth.set_up(&veth.a, false);
                let mut asleep = 0;
                wait_until("it sleeps whenever it is checked", || {
                    asleep = if is_asleep(sleeper) { asleep + 1 } else { 0 };
                    asleep == 10
                });
                endpoint.wakeup();
            });
        },
    );
}
