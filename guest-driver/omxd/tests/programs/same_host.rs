//! Endpoints of one interface: over shared memory, with long messages copied once or twice, and with programs that end or do not
//! read.

use std::{process::Command, thread, time::Duration};

use omx::{Address, Board, Counter, Endpoint, EndpointOptions, Error, Segment, StatusCode};
use weft_authority::Session;
use weft_guest_driver_testkit::Veth;

use crate::rig::{Echo, LIMIT, exchange, in_own_world, open, sent_frames, wait_until};

const LENGTHS: [usize; 10] = [0, 1, 32, 129, 4096, 4097, 32_768, 100_000, 1 << 20, 4 << 20];

pub fn options(interface: &str) -> EndpointOptions {
    EndpointOptions {
        interface: Some(interface.to_owned()),
        ..EndpointOptions::default()
    }
}

/// Posts a message; the tests keep the bytes until it is over.
pub fn isend(from: &Endpoint, data: &[u8], to: Address, match_info: u64) -> omx::Request {
    // SAFETY: as the tests promise.
    unsafe { from.isend(&[Segment::of(data)], to, match_info, 0, false) }.unwrap()
}

pub fn reach(from: &Endpoint, (mac, number): (ether::MacAddr, u8)) -> Address {
    from.connect(mac, number, 0, Some(LIMIT)).unwrap()
}

#[test]
fn programs_of_one_interface_exchange_every_length_without_a_frame() {
    in_own_world(
        "same_host::programs_of_one_interface_exchange_every_length_without_a_frame",
        || {
            let veth = Veth::new(1500);
            // Another user's program cannot read this one's memory: it gets long messages in pieces.
            let omxd = Command::new(env!("CARGO_BIN_EXE_omxd"))
                .args(["--interface", &veth.a, "--group", "nogroup"])
                .spawn();
            let mut omxd = omxd.unwrap();
            let board = Board::named(&veth.a).unwrap();
            let running = || Session::connect_to_running(board.interface()).unwrap().is_some();
            wait_until("omxd", running);
            let stranger = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
            let mut echoes = [Echo::start(&veth.a, &[]), Echo::start(&veth.a, &stranger)];
            let endpoint = open(&veth.a, None).unwrap();
            let before = sent_frames(&veth.a);
            for echo in &mut echoes {
                let to = reach(&endpoint, echo.go_as());
                for (match_info, len) in (1..).zip(LENGTHS) {
                    exchange(&endpoint, to, len, match_info);
                }
            }
            // The authority asks for peers now and then; no message is among the frames.
            assert!(sent_frames(&veth.a) - before < 5);
            let counters = endpoint.counters();
            assert_eq!(counters.get(Counter::SendTiny) + counters.get(Counter::SendRndv), 0);
            assert!(counters.get(Counter::SharedTiny) >= 2 && counters.get(Counter::SharedRndv) >= 2);
            omxd.kill().unwrap();
            omxd.wait().unwrap();
        },
    );
}

#[test]
fn endpoints_of_one_process_connect_to_each_other_at_the_same_time() {
    in_own_world(
        "same_host::endpoints_of_one_process_connect_to_each_other_at_the_same_time",
        || {
            let veth = Veth::new(1500);
            for single_copy in [true, false] {
                let endpoints: Vec<Endpoint> = (0..4)
                    .map(|_| {
                        Endpoint::open(&EndpointOptions {
                            single_copy,
                            ..options(&veth.a)
                        })
                        .unwrap()
                    })
                    .collect();
                let all: Vec<_> = endpoints
                    .iter()
                    .map(|e| (e.address().mac(), e.address().endpoint()))
                    .collect();
                thread::scope(|scope| {
                    for (own, endpoint) in endpoints.iter().enumerate() {
                        let all = &all;
                        scope.spawn(move || {
                            let to: Vec<Address> = all.iter().map(|name| reach(endpoint, *name)).collect();
                            for (len, match_info) in [(9, 0), (70_000, 1), (3000, 2)] {
                                let data = vec![own as u8; len];
                                let sends: Vec<_> =
                                    to.iter().map(|to| isend(endpoint, &data, *to, match_info)).collect();
                                let mut seen = Vec::new();
                                for _ in all {
                                    let mut buffer = vec![0xff; len];
                                    let status = endpoint.receive(&mut buffer, match_info, u64::MAX).unwrap();
                                    assert_eq!(status.transferred as usize, len);
                                    let source = status.address.unwrap();
                                    assert_eq!(
                                        to[usize::from(buffer[0])],
                                        source,
                                        "the address is the one it was connected to"
                                    );
                                    assert!(buffer.iter().all(|byte| *byte == buffer[0]));
                                    seen.push(buffer[0]);
                                }
                                seen.sort_unstable();
                                assert_eq!(seen, [0, 1, 2, 3], "one from each, itself included");
                                for send in sends {
                                    let status = endpoint.wait(send, Some(LIMIT)).unwrap().unwrap();
                                    assert_eq!((status.code, status.transferred as usize), (StatusCode::Success, len));
                                }
                            }
                        });
                    }
                });
            }
        },
    );
}

#[test]
fn a_program_of_this_host_that_ends_is_noticed_and_its_successor_found() {
    in_own_world(
        "same_host::a_program_of_this_host_that_ends_is_noticed_and_its_successor_found",
        || {
            let veth = Veth::new(1500);
            let endpoint = open(&veth.a, None).unwrap();
            let mac = endpoint.address().mac();
            let failed = |number, key| match endpoint.connect(mac, number, key, Some(LIMIT)) {
                Err(Error::Failed(code)) => code,
                other => panic!("{other:?}"),
            };
            assert_eq!(failed(7, 0), StatusCode::EndpointClosed);
            assert_eq!(failed(200, 0), StatusCode::BadEndpoint);
            let mut echo = Echo::start(&veth.a, &[]);
            let name = echo.go_as();
            assert_eq!(failed(name.1, 5), StatusCode::BadKey);
            let to = reach(&endpoint, name);
            // Its answer is in the ring when it ends.
            endpoint.send(b"last", to, 1).unwrap();
            assert!(endpoint.probe(1, u64::MAX, Some(LIMIT)).unwrap().is_some());
            // This one is not taken: the echo is busy with its answer to it, which is not taken either.
            let data = vec![1; 1 << 20];
            // SAFETY: `data` lives until the request is over.
            let pending = unsafe { endpoint.isend(&[Segment::of(&data)], to, 2, 0, true) }.unwrap();
            assert_eq!(
                endpoint.wait(pending, Some(LIMIT)).unwrap().unwrap().code,
                StatusCode::Success
            );
            let stop = rustix::process::Signal::STOP;
            let pid = rustix::process::Pid::from_child(&echo.0.child);
            rustix::process::kill_process(pid, stop).unwrap();
            // SAFETY: as above.
            let pending = unsafe { endpoint.isend(&[Segment::of(&data)], to, 3, 0, false) }.unwrap();
            assert!(
                endpoint
                    .wait(pending, Some(Duration::from_millis(50)))
                    .unwrap()
                    .is_none()
            );
            let late = isend(&endpoint, &data, to, 3);
            endpoint
                .set_request_timeout(Some(late), Duration::from_millis(1))
                .unwrap();
            assert_eq!(
                endpoint.wait(late, Some(LIMIT)).unwrap().unwrap().code,
                StatusCode::Timeout
            );
            drop(echo);
            assert_eq!(
                endpoint.wait(pending, Some(LIMIT)).unwrap().unwrap().code,
                StatusCode::EndpointClosed
            );
            let mut buffer = [0; 8];
            assert_eq!(
                endpoint.receive(&mut buffer, 1, u64::MAX).unwrap().transferred,
                4,
                "what had arrived stays"
            );
            let board = Board::named(&veth.a).unwrap();
            wait_until("its number to be free", || {
                board.status().unwrap().0.endpoints.len() == 1
            });
            let mut echo = Echo::start(&veth.a, &[]);
            assert_eq!(echo.go_as(), name);
            let gone = endpoint.send(b"x", to, 1);
            assert!(
                matches!(
                    gone,
                    Err(Error::Failed(StatusCode::EndpointClosed | StatusCode::BadSession))
                ),
                "{gone:?}"
            );
            let again = reach(&endpoint, name);
            assert_ne!(again, to);
            exchange(&endpoint, again, 50_000, 4);
            // Given up from this side: the code says so until there is a new connection.
            endpoint.disconnect(again).unwrap();
            let gone = endpoint.send(b"x", again, 1);
            assert!(matches!(gone, Err(Error::Failed(StatusCode::Unreachable))), "{gone:?}");
            let again = reach(&endpoint, name);
            exchange(&endpoint, again, 50_000, 6);
            // The authority ends: what is connected goes on, and others can be met once it is back.
            let (status, _) = board.status().unwrap();
            let omxd = rustix::process::Pid::from_raw(status.pid as i32).unwrap();
            rustix::process::kill_process(omxd, rustix::process::Signal::KILL).unwrap();
            exchange(&endpoint, again, 50_000, 5);
            wait_until("both endpoints with the new omxd", || {
                let (after, _) = board.status().unwrap();
                after.pid != status.pid && after.endpoints.len() == 2
            });
            exchange(&endpoint, again, 50_000, 6);
            let mut third = Echo::start(&veth.a, &[]);
            let other = reach(&endpoint, third.go_as());
            exchange(&endpoint, other, 50_000, 7);
        },
    );
}

#[test]
fn a_receiver_that_does_not_read_is_waited_for_and_nothing_is_lost() {
    in_own_world(
        "same_host::a_receiver_that_does_not_read_is_waited_for_and_nothing_is_lost",
        || {
            let veth = Veth::new(1500);
            let [a, b] = [(); 2].map(|()| {
                Endpoint::open(&EndpointOptions {
                    unexpected_bytes_max: 64 << 10,
                    ..options(&veth.a)
                })
                .unwrap()
            });
            let to = reach(&a, (b.address().mac(), b.address().endpoint()));
            let data: Vec<u8> = (0..4000).map(|i| i as u8).collect();
            let post = |n: u64| {
                let len = if n.is_multiple_of(5) { 4000 } else { n as usize % 50 };
                // SAFETY: `data` lives longer than the endpoints' requests.
                unsafe { a.isend(&[Segment::of(&data[..len])], to, n, 0, false) }.unwrap()
            };
            // Far more than ring and limit hold.
            let sends: Vec<_> = (0..2000).map(post).collect();
            let counted = |endpoint: &Endpoint, counter| endpoint.counters().get(counter) > 0;
            wait_until("both are at their limits", || {
                counted(&a, Counter::SendsThrottled) && counted(&b, Counter::UnexpEventqFull)
            });
            let mut buffer = vec![0; 4000];
            for n in 0..2000 {
                let status = b.receive(&mut buffer, 0, 0).unwrap();
                assert_eq!(status.match_info, n, "in the order of sending");
                assert!(buffer[..status.transferred as usize] == data[..status.transferred as usize]);
            }
            for send in sends {
                assert_eq!(a.wait(send, Some(LIMIT)).unwrap().unwrap().code, StatusCode::Success);
            }
        },
    );
}
