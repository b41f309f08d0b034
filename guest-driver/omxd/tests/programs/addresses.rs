//! What an address means after the endpoint it names was opened anew, limits of single requests, and signals of the program's.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ether::MacAddr;
use omx::{Board, Endpoint, EndpointOptions, Error, Segment, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use weft_authority::without_signals;
use weft_guest_driver_testkit::Veth;

use crate::{
    rig::{LIMIT, in_own_world, open, wait_until},
    same_host::{isend, options, reach},
};

fn name(endpoint: &Endpoint) -> (MacAddr, u8) {
    (endpoint.address().mac(), endpoint.address().endpoint())
}

#[test]
fn the_source_of_a_message_is_the_endpoint_that_sent_it_also_when_its_number_was_opened_anew_since() {
    in_own_world(
        "addresses::the_source_of_a_message_is_the_endpoint_that_sent_it_also_when_its_number_was_opened_anew_since",
        || {
            let veth = Veth::new(1500);
            let a = open(&veth.a, None).unwrap();
            let b = open(&veth.b, Some(3)).unwrap();
            let to_a = reach(&b, name(&a));
            let mut buffer = [0; 2];
            // SAFETY: the buffer is kept until the request is over.
            let receive = unsafe { a.irecv(&[Segment::of_mut(&mut buffer)], 5, u64::MAX, 0) }.unwrap();
            b.send(b"ab", to_a, 5).unwrap();
            assert_eq!(a.peek(Some(LIMIT)).unwrap(), Some(receive));
            // No request waits for this one yet.
            b.send(b"cd", to_a, 6).unwrap();
            assert!(a.probe(6, u64::MAX, Some(LIMIT)).unwrap().is_some());
            let sender = b.address().session();
            b.close().unwrap();
            let successor = open(&veth.b, Some(3)).unwrap();
            assert_ne!(successor.address().session(), sender);
            let to_a = reach(&successor, name(&a));
            successor.send(b"ef", to_a, 7).unwrap();
            let status = a.test(receive).unwrap().expect("it is over");
            let source = status.address.unwrap();
            assert_eq!(source.session(), sender);
            let answer = a.wait(isend(&a, b"to whom?", source, 8), Some(LIMIT)).unwrap().unwrap();
            assert_eq!(answer.code, StatusCode::BadSession, "the answer is not its successor's");
            let status = a.receive(&mut buffer, 7, u64::MAX).unwrap();
            let source = status.address.unwrap();
            assert_eq!(source.session(), successor.address().session());
            assert_eq!(a.send(b"to you", source, 9).unwrap().code, StatusCode::Success);
            assert_eq!(successor.receive(&mut [0; 6], 9, u64::MAX).unwrap().transferred, 6);
        },
    );
}

#[test]
fn an_address_that_is_not_the_endpoints_own_or_is_from_before_disconnects_nobody() {
    in_own_world(
        "addresses::an_address_that_is_not_the_endpoints_own_or_is_from_before_disconnects_nobody",
        || {
            let veth = Veth::new(1500);
            let [a, c] = [(); 2].map(|()| open(&veth.a, None).unwrap());
            let b = open(&veth.b, Some(3)).unwrap();
            let before = reach(&a, name(&b));
            b.close().unwrap();
            let b = open(&veth.b, Some(3)).unwrap();
            let (of_a, of_c) = (reach(&a, name(&b)), reach(&c, name(&b)));
            let (beside, beside_of_c) = (reach(&a, name(&c)), reach(&c, name(&a)));
            let data = vec![7; 40_000];
            let send = isend(&a, &data, of_a, 1);
            let send_beside = isend(&a, &data, beside, 2);
            for wrong in [before, of_c, beside_of_c] {
                a.disconnect(wrong).unwrap();
            }
            let mut buffer = vec![0; data.len()];
            assert_eq!(b.receive(&mut buffer, 1, u64::MAX).unwrap().transferred, 40_000);
            assert_eq!(c.receive(&mut buffer, 2, u64::MAX).unwrap().transferred, 40_000);
            for send in [send, send_beside] {
                assert_eq!(a.wait(send, Some(LIMIT)).unwrap().unwrap().code, StatusCode::Success);
            }
            // The right one does.
            let send = isend(&a, &data, of_a, 3);
            a.disconnect(of_a).unwrap();
            assert_eq!(
                a.wait(send, Some(LIMIT)).unwrap().unwrap().code,
                StatusCode::Unreachable
            );
        },
    );
}

#[test]
fn a_limit_for_one_request_holds_for_connects_and_for_transfers_that_a_receive_waits_for() {
    in_own_world(
        "addresses::a_limit_for_one_request_holds_for_connects_and_for_transfers_that_a_receive_waits_for",
        || {
            let veth = Veth::new(1500);
            let asleep = |interface: &str| {
                Endpoint::open(&EndpointOptions {
                    progress: false,
                    single_copy: false,
                    ..options(interface)
                })
                .unwrap()
            };
            let a = asleep(&veth.a);
            let limit = Duration::from_millis(200);
            let absent = MacAddr([2, 9, 9, 9, 9, 9]);
            let connect = a.iconnect(absent, 0, 0, 0, 0).unwrap();
            a.set_request_timeout(Some(connect), limit).unwrap();
            let status = a.wait(connect, Some(LIMIT)).unwrap().expect("within the limit");
            assert_eq!(status.code, StatusCode::Unreachable);
            // Senders that announce a message and then do nothing any more: on another host, and on this one.
            for interface in [&veth.b, &veth.a] {
                for limit_comes_first in [true, false] {
                    let b = asleep(interface);
                    let connect = b.iconnect(name(&a).0, name(&a).1, 0, 0, 0).unwrap();
                    let mut status = None;
                    wait_until("connected", || {
                        a.progress();
                        status = b.test(connect).unwrap();
                        status.is_some()
                    });
                    let data = vec![1; 1 << 20];
                    let mut buffer = vec![0; 1 << 20];
                    let _send = isend(&b, &data, status.unwrap().address.unwrap(), 4);
                    if !limit_comes_first {
                        wait_until("announced", || {
                            b.progress();
                            a.iprobe(4, u64::MAX).unwrap().is_some()
                        });
                    }
                    // SAFETY: the buffer is kept until the request is over.
                    let receive = unsafe { a.irecv(&[Segment::of_mut(&mut buffer)], 4, u64::MAX, 0) }.unwrap();
                    a.set_request_timeout(Some(receive), limit).unwrap();
                    let mut status = None;
                    if limit_comes_first {
                        // It has to be announced.
                        b.progress();
                    }
                    wait_until("given up", || {
                        status = a.test(receive).unwrap();
                        status.is_some()
                    });
                    assert_eq!(
                        status.unwrap().code,
                        StatusCode::Timeout,
                        "{interface} {limit_comes_first}"
                    );
                }
            }
        },
    );
}

#[test]
fn a_blocking_connect_makes_progress_on_every_endpoint_of_the_process_where_that_is_wanted() {
    in_own_world(
        "addresses::a_blocking_connect_makes_progress_on_every_endpoint_of_the_process_where_that_is_wanted",
        || {
            let veth = Veth::new(1500);
            for wanted in [false, true] {
                let [a, b] = [&veth.a, &veth.b].map(|interface| {
                    Endpoint::open(&EndpointOptions {
                        progress: false,
                        connects_for_all: wanted,
                        ..options(interface)
                    })
                    .unwrap()
                });
                let (mac, number) = name(&b);
                if wanted {
                    reach(&a, (mac, number));
                } else {
                    let connected = a.connect(mac, number, 0, Some(Duration::from_millis(300)));
                    assert!(matches!(connected, Err(Error::Timeout)));
                }
            }
        },
    );
}

/// It holds however often another thread checks the connection to the authority at that moment.
#[test]
fn a_number_is_free_as_soon_as_its_endpoint_is_closed() {
    in_own_world("addresses::a_number_is_free_as_soon_as_its_endpoint_is_closed", || {
        let veth = Veth::new(1500);
        let other = open(&veth.a, Some(0)).unwrap();
        for _ in 0..300 {
            let endpoint = open(&veth.a, Some(1)).unwrap();
            let (mac, number) = name(&endpoint);
            // The helper thread begins to look at it.
            other.iconnect(mac, number, 0, 0, 0).unwrap();
            endpoint.close().unwrap();
        }
    });
}

/// The signals that a task has blocked, as bits.
fn blocked(task: &Path) -> u64 {
    let status = fs::read_to_string(task.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

#[test]
fn no_thread_of_the_library_takes_the_programs_signals_and_an_omxd_that_it_starts_takes_its_own() {
    in_own_world(
        "addresses::no_thread_of_the_library_takes_the_programs_signals_and_an_omxd_that_it_starts_takes_its_own",
        || {
            let veth = Veth::new(1500);
            // A program that waits for its signals itself, as with `sigwait`.
            let endpoint = without_signals(|| open(&veth.a, None)).unwrap();
            let (status, _) = Board::named(&veth.a).unwrap().status().unwrap();
            let omxd = PathBuf::from(format!("/proc/{}", status.pid));
            assert_eq!(blocked(&omxd), 0);
            kill_process(Pid::from_raw(status.pid.cast_signed()).unwrap(), Signal::TERM).unwrap();
            wait_until("the end of omxd", || !omxd.exists());
            drop(endpoint);
            // One that does not.
            let endpoint = open(&veth.a, None).unwrap();
            let named = |task: &PathBuf| {
                let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
                name.trim() == "omx-progress"
            };
            let mut tasks = fs::read_dir("/proc/self/task")
                .unwrap()
                .map(|task| task.unwrap().path());
            let helper = tasks.find(named).expect("the helper thread");
            for signal in [libc::SIGUSR1, libc::SIGTERM, libc::SIGALRM, libc::SIGCHLD] {
                assert_ne!(blocked(&helper) & 1 << (signal - 1), 0, "{signal}");
            }
            drop(endpoint);
        },
    );
}
