//! Programs of the same host that take, ring, ask or claim what is not theirs, and a program that lacks descriptors.

use std::{
    os::{fd::AsFd, unix::fs::PermissionsExt},
    process::Command,
    sync::atomic::Ordering,
    time::Duration,
};

use netif::Interface;
use omx::{Board, Counter, Endpoint, EndpointOptions, Segment, StatusCode};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use weft_authority::{News, OmxdError, Place, Session, next_visit};
use weft_guest_driver_testkit::Veth;

use crate::{
    authority::Omxd,
    liar::{Liar, map, next_pair},
    rig::{Echo, LIMIT, exchange, in_own_world, open, wait_until},
    same_host::{options, reach},
};

/// Rings of the memory, as the liar sees them.
const MESSAGES: usize = 0;
const ANSWERS: usize = 2;
const ANSWERS_OF_THE_OTHER: usize = 3;
const MESSAGES_OF_THE_OTHER: usize = 1;
const CONNECT: u64 = 1 << 32;
const EAGER: u64 = 3 << 32;

fn name(endpoint: &Endpoint) -> (ether::MacAddr, u8) {
    (endpoint.address().mac(), endpoint.address().endpoint())
}

#[test]
fn programs_that_do_not_look_at_their_visits_keep_nobody_from_opening() {
    in_own_world(
        "strangers::programs_that_do_not_look_at_their_visits_keep_nobody_from_opening",
        || {
            let veth = Veth::new(1500);
            // As its unit starts it, but with few descriptors: root with three capabilities.
            let mut omxd = Command::new("prlimit")
                .args([
                    "--nofile=1024",
                    "setpriv",
                    "--bounding-set",
                    "-all,+net_raw,+net_admin,+chown",
                ])
                .args(["--inh-caps", "-all"])
                .args([env!("CARGO_BIN_EXE_omxd"), "--interface", &veth.a])
                .spawn()
                .unwrap();
            let board = Board::named(&veth.a).unwrap();
            wait_until("omxd", || {
                Session::connect_to_running(board.interface()).unwrap().is_some()
            });
            let sleepers: Vec<_> = (0..8)
                .map(|_| {
                    let session = Session::connect(board.interface()).unwrap();
                    let opened = session.open_endpoint(None).unwrap();
                    (session, opened)
                })
                .collect();
            let (asking, own) = &sleepers[0];
            for (_, victim) in &sleepers[1..] {
                let mut last = None;
                // Until it is told that the other one does not take visits.
                while asking.pair(victim.endpoint, last).is_ok() {
                    last = next_pair(&own.visits).map(|pair| pair.id).or(last);
                }
            }
            let opened = Endpoint::open(&options(&veth.a)).map(drop);
            omxd.kill().unwrap();
            omxd.wait().unwrap();
            opened.unwrap();
        },
    );
}

/// A meeting that came about for one side alone has a number that no later one has, or its end would take messages of others along.
#[test]
fn a_stranger_who_cannot_be_met_takes_no_message_of_an_honest_program_along() {
    in_own_world(
        "strangers::a_stranger_who_cannot_be_met_takes_no_message_of_an_honest_program_along",
        || {
            let veth = Veth::new(1500);
            let victim = Endpoint::open(&EndpointOptions {
                progress: false,
                endpoint: Some(0),
                ..options(&veth.a)
            })
            .unwrap();
            let honest = open(&veth.a, Some(1)).unwrap();
            let board = Board::named(&veth.a).unwrap();
            let [stranger, other] = [2, 3].map(|number| {
                let session = Session::connect(board.interface()).unwrap();
                let opened = session.open_endpoint(Some(number)).unwrap();
                (session, opened)
            });
            // Until its own channel is full.
            let mut last = None;
            while stranger.0.pair(3, last).is_ok() {
                last = next_pair(&other.1.visits).map(|pair| pair.id).or(last);
            }
            assert!(
                stranger.0.pair(0, None).is_err(),
                "the victim has heard of it, the stranger not"
            );
            let connecting = honest.iconnect(victim.address().mac(), 0, 0, 0, 0).unwrap();
            let mut connected = None;
            wait_until("they are connected", || {
                victim.progress();
                connected = honest.test(connecting).unwrap();
                connected.is_some()
            });
            let data = vec![7; 100_000];
            // SAFETY: waited for below.
            let send = unsafe { honest.isend(&[Segment::of(&data)], connected.unwrap().address.unwrap(), 5, 0, false) }
                .unwrap();
            // It is announced, and the stranger's pair seen to be over.
            for _ in 0..10_000 {
                victim.progress();
            }
            let mut received = vec![0; data.len()];
            victim.receive(&mut received, 5, u64::MAX).unwrap();
            assert!(received == data);
            assert_eq!(
                honest.wait(send, Some(LIMIT)).unwrap().unwrap().code,
                StatusCode::Success
            );
        },
    );
}

/// It cannot be helped that others came and went while a program did not take its visits.
#[test]
fn an_endpoint_that_many_came_to_while_it_did_not_look_is_reached_when_it_does() {
    in_own_world(
        "strangers::an_endpoint_that_many_came_to_while_it_did_not_look_is_reached_when_it_does",
        || {
            let veth = Veth::new(1500);
            let busy = Endpoint::open(&EndpointOptions {
                progress: false,
                endpoint: Some(0),
                ..options(&veth.a)
            })
            .unwrap();
            let board = Board::named(&veth.a).unwrap();
            let is_full = (0..400).any(|_| {
                let session = Session::connect(board.interface()).unwrap();
                let _opened = session.open_endpoint(None).unwrap();
                session.pair(0, None).is_err()
            });
            assert!(is_full);
            let late = open(&veth.a, None).unwrap();
            let connecting = late.iconnect(busy.address().mac(), 0, 0, 0, 0).unwrap();
            assert!(
                late.wait(connecting, Some(Duration::from_millis(20)))
                    .unwrap()
                    .is_none(),
                "it does not take its visits"
            );
            let mut connected = None;
            wait_until("it takes its visits", || {
                busy.progress();
                connected = late.test(connecting).unwrap();
                connected.is_some()
            });
            assert_eq!(connected.unwrap().code, StatusCode::Success);
        },
    );
}

#[test]
fn a_wrong_key_does_not_tell_the_session() {
    in_own_world("strangers::a_wrong_key_does_not_tell_the_session", || {
        let veth = Veth::new(1500);
        let endpoint = Endpoint::open(&EndpointOptions {
            key: 4711,
            endpoint: Some(3),
            ..options(&veth.a)
        })
        .unwrap();
        let liar = Liar::pair_as(&veth.a, None, 3);
        liar.write(ANSWERS, &[vec![CONNECT, 77, 1 << 32 | 9, 0]]);
        let answer = Liar::data(ANSWERS_OF_THE_OTHER);
        wait_until("an answer", || {
            endpoint.progress();
            liar.words[answer].load(Ordering::Acquire) != 0
        });
        assert_eq!(liar.words[answer + 2].load(Ordering::Relaxed), 0);
        assert_eq!(liar.words[Liar::data(MESSAGES_OF_THE_OTHER)].load(Ordering::Relaxed), 0);
    });
}

#[test]
fn messages_of_a_program_that_ended_are_not_pushed_out_by_a_stranger() {
    in_own_world(
        "strangers::messages_of_a_program_that_ended_are_not_pushed_out_by_a_stranger",
        || {
            let veth = Veth::new(1500);
            let own = Endpoint::open(&EndpointOptions {
                unexpected_bytes_max: 64 << 10,
                endpoint: Some(0),
                progress: false,
                ..options(&veth.a)
            })
            .unwrap();
            let honest = open(&veth.a, None).unwrap();
            let connecting = honest.iconnect(name(&own).0, 0, 0, 0, 0).unwrap();
            let mut status = None;
            wait_until("connected", || {
                own.progress();
                status = honest.test(connecting).unwrap();
                status.is_some()
            });
            let to = status.unwrap().address.unwrap();
            let data = [7_u8; 4000];
            for _ in 0..25 {
                honest.send(&data, to, 1).unwrap();
            }
            drop(honest);
            wait_until("no room, and its end is known", || {
                own.progress();
                own.counters().get(Counter::UnexpEventqFull) > 0 && own.counters().get(Counter::PartnersLost) > 0
            });
            // Its number is the liar's now, who connects again and again and leaves a message each time.
            let liar = Liar::pair_as(&veth.a, None, 0);
            let (mut id, mut words) = (liar.id, liar.words);
            for turn in 1..=40 {
                for (ring, record) in [(ANSWERS, [CONNECT, 77, 9, 0]), (MESSAGES, [EAGER | 4000, 2, 0, 0])] {
                    for (at, word) in record.iter().enumerate().rev() {
                        words[Liar::data(ring) + at].store(*word, Ordering::Release);
                    }
                }
                let asked = own.counters().get(Counter::SharedConnectReply);
                wait_until("it is connected", || {
                    own.progress();
                    own.counters().get(Counter::SharedConnectReply) > asked || turn > 1
                });
                let mut pair = None;
                wait_until("a pair", || {
                    own.progress();
                    _ = liar.session.pair(0, Some(id));
                    pair = next_pair(&liar.visits);
                    pair.is_some()
                });
                let pair = pair.unwrap();
                (id, words) = (pair.id, map(&pair));
            }
            let mut buffer = [0; 4000];
            for number in 0..25 {
                // SAFETY: the buffer lives until the request is over.
                let receive = unsafe { own.irecv(&[Segment::of_mut(&mut buffer)], 1, u64::MAX, 0) }.unwrap();
                let status = own.wait(receive, Some(Duration::from_secs(10))).unwrap();
                assert!(status.is_some(), "message {number} is lost");
            }
        },
    );
}

#[test]
fn a_pair_that_one_side_had_no_descriptors_for_is_made_anew() {
    in_own_world(
        "strangers::a_pair_that_one_side_had_no_descriptors_for_is_made_anew",
        || {
            let veth = Veth::new(1500);
            let _victim = open(&veth.a, Some(0)).unwrap();
            let session = Session::connect(Board::named(&veth.a).unwrap().interface()).unwrap();
            let opened = session.open_endpoint(None).unwrap();
            session.pair(0, None).unwrap();
            let before = getrlimit(Resource::Nofile);
            let none = Rlimit {
                current: Some(3),
                ..before
            };
            setrlimit(Resource::Nofile, none).unwrap();
            let missed = next_visit(opened.visits.as_fd());
            setrlimit(Resource::Nofile, before).unwrap();
            let Ok(Some(News::Missed { id, endpoint: 0 })) = missed else {
                panic!("{missed:?}")
            };
            session.pair(0, Some(id)).unwrap();
            assert!(next_pair(&opened.visits).is_some());
        },
    );
}

#[test]
fn a_program_that_lacked_descriptors_for_a_moment_connects_afterwards() {
    in_own_world(
        "strangers::a_program_that_lacked_descriptors_for_a_moment_connects_afterwards",
        || {
            let veth = Veth::new(1500);
            let own = open(&veth.a, Some(0)).unwrap();
            let mut echo = Echo::start(&veth.a, &[]);
            let other = echo.go_as();
            let before = getrlimit(Resource::Nofile);
            let few = Rlimit {
                current: Some(200),
                ..before
            };
            setrlimit(Resource::Nofile, few).unwrap();
            let mut all = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                all.push(file);
            }
            // Whatever comes of this one.
            _ = own.connect(other.0, other.1, 0, Some(Duration::from_millis(300)));
            drop(all);
            own.connect(other.0, other.1, 0, Some(LIMIT)).unwrap();
        },
    );
}

#[test]
fn a_message_that_there_is_no_room_for_is_offered_to_receives_that_it_may_be_for_only() {
    in_own_world(
        "strangers::a_message_that_there_is_no_room_for_is_offered_to_receives_that_it_may_be_for_only",
        || {
            let veth = Veth::new(1500);
            let own = Endpoint::open(&EndpointOptions {
                unexpected_bytes_max: 1 << 10,
                ..options(&veth.a)
            })
            .unwrap();
            let from = open(&veth.a, None).unwrap();
            let to = reach(&from, name(&own));
            from.send(&[1; 2000], to, 7).unwrap();
            let refused = || own.counters().get(Counter::UnexpEventqFull);
            wait_until("it is refused", || refused() > 0);
            let before = refused();
            let mut others = Vec::new();
            for number in 0..100 {
                // SAFETY: no memory.
                others.push(unsafe { own.irecv(&[], 1000 + number, u64::MAX, 0) }.unwrap());
                own.progress();
            }
            assert_eq!(refused(), before);
            let mut buffer = [0; 2000];
            own.receive(&mut buffer, 7, u64::MAX).unwrap();
            assert_eq!(buffer, [1; 2000]);
        },
    );
}

#[test]
fn nobody_else_takes_a_running_programs_endpoint_when_omxd_was_restarted() {
    in_own_world(
        "strangers::nobody_else_takes_a_running_programs_endpoint_when_omxd_was_restarted",
        || {
            let veth = Veth::new(1500);
            let mut omxd = Omxd::start(&[], &veth.a, &[]);
            let mut echo = Echo::start(&veth.a, &[]);
            let name = echo.go_as();
            let program = Pid::from_raw(echo.0.child.id().cast_signed()).unwrap();
            kill_process(program, Signal::STOP).unwrap();
            omxd.kill();
            omxd = Omxd::start(&[], &veth.a, &[]);
            let mut stranger = Session::connect(Board::named(&veth.a).unwrap().interface()).unwrap();
            let taken = stranger.resume(name.1).map(|_| ());
            kill_process(program, Signal::CONT).unwrap();
            let Err(OmxdError::Refused { sentence, .. }) = taken else {
                panic!("{taken:?}")
            };
            assert!(sentence.contains("another program"), "{sentence}");
            let own = open(&veth.a, None).unwrap();
            let to = reach(&own, name);
            exchange(&own, to, 100, 1);
            assert_eq!(omxd.status().0.endpoints.len(), 2);
        },
    );
}

#[test]
fn who_can_read_the_files_of_an_authority_cannot_keep_the_next_one_from_starting() {
    in_own_world(
        "strangers::who_can_read_the_files_of_an_authority_cannot_keep_the_next_one_from_starting",
        || {
            let veth = Veth::new(1500);
            let mut omxd = Omxd::start(&[], &veth.a, &[]);
            omxd.kill();
            let place = Place::of(Interface::find(&veth.a).unwrap().index).unwrap();
            let mut locked = Vec::new();
            for file in std::fs::read_dir(place.dir()).unwrap() {
                let path = file.unwrap().path();
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                if mode & 0o044 != 0 && path.is_file() {
                    let file = std::fs::File::open(&path).unwrap();
                    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
                    locked.push(file);
                }
            }
            assert!(!locked.is_empty(), "the table is there for all");
            assert!(Omxd::start(&[], &veth.a, &[]).session().is_some());
        },
    );
}
