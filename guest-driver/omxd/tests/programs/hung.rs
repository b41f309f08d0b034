//! Authorities that run and do not answer: a program that asks one still gets an error in time, and no other program
//! waits for it.

use std::{
    collections::HashSet,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, thread::JoinHandleExt},
    },
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use ether::MacAddr;
use netif::Interface;
use omx::{Counter, Segment, StatusCode};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
        listen, recv, send, socket_with,
    },
    process::{Pid, Signal, kill_process},
};
use weft_authority::{OmxdError, Place, Session};
use weft_guest_driver_testkit::Veth;

use crate::{
    authority::Omxd,
    rig::{Echo, LIMIT, exchange, in_own_world, open, wait_until},
};

fn socket(flags: SocketFlags) -> OwnedFd {
    socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags | SocketFlags::CLOEXEC,
        None,
    )
    .unwrap()
}

fn address(path: &Path) -> SocketAddrUnix {
    SocketAddrUnix::new(path.as_os_str().as_bytes()).unwrap()
}

/// Takes connections where programs look for their authority, and says nothing.
struct Silent(OwnedFd);

impl Silent {
    /// At every moment a socket is there.
    fn instead_of(mut omxd: Omxd, interface: &str) -> Self {
        let place = Place::of(Interface::find(interface).unwrap().index).unwrap();
        let path = place.dir().join(format!("silent-{interface}"));
        let listener = socket(SocketFlags::empty());
        bind(&listener, &address(&path)).unwrap();
        listen(&listener, 8).unwrap();
        std::fs::rename(&path, place.socket()).unwrap();
        omxd.kill();
        Self(listener)
    }

    /// The next who asks.
    fn asked(&self) -> Asker {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: LIMIT.as_secs() as i64,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "a request within the limit");
        Asker(accept_with(&self.0, SocketFlags::CLOEXEC).unwrap())
    }
}

struct Asker(OwnedFd);

impl Asker {
    /// It has neither an answer nor lost its patience.
    fn waits(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::RDHUP)];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&no_wait)) == Ok(0)
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Connections that wait for an authority, as many as the kernel lets wait.
fn fill(path: &Path) -> Vec<OwnedFd> {
    let mut waiting = Vec::new();
    loop {
        let asker = socket(SocketFlags::NONBLOCK);
        match connect(&asker, &address(path)) {
            Ok(()) => waiting.push(asker),
            Err(error) => {
                assert_eq!(error, Errno::AGAIN);
                return waiting;
            }
        }
    }
}

#[test]
fn whoever_asks_a_stopped_authority_hears_so_though_many_asked_before_and_signals_come_all_the_time() {
    in_own_world(
        "hung::whoever_asks_a_stopped_authority_hears_so_though_many_asked_before_and_signals_come_all_the_time",
        || {
            signal_hook::flag::register(libc::SIGUSR1, Arc::default()).unwrap();
            let links = [Veth::new(1500), Veth::new(1500)];
            let omxds = links.each_ref().map(|veth| Omxd::start(&[], &veth.a, &[]));
            let interfaces = links.each_ref().map(|veth| Interface::find(&veth.a).unwrap());
            for omxd in &omxds {
                signal(omxd.child.id(), Signal::STOP);
            }
            let waiting = fill(&Place::of(interfaces[0].index).unwrap().socket());
            let calls = [
                |interface: &Interface| Session::connect(interface).map(drop),
                |interface: &Interface| Session::connect_to_running(interface).map(drop),
            ];
            let (tell, told) = mpsc::channel();
            let asked = interfaces
                .iter()
                .flat_map(|interface| calls.map(|call| (interface.clone(), call)));
            let askers: Vec<_> = asked
                .map(|(interface, call)| {
                    let tell = tell.clone();
                    thread::spawn(move || {
                        tell.send(call(&interface)).unwrap();
                        // Signals find it until all have answered.
                        thread::park();
                    })
                })
                .collect();
            let begin = Instant::now();
            let mut answers = 0;
            while answers < askers.len() {
                match told.recv_timeout(Duration::from_millis(20)) {
                    Ok(answer) => {
                        assert!(matches!(answer, Err(OmxdError::Late)), "{answer:?}");
                        answers += 1;
                    }
                    Err(_) => assert!(begin.elapsed() < LIMIT, "answers within the limit"),
                }
                for asker in &askers {
                    // SAFETY: the thread was not joined, and this program has a handler for the signal.
                    unsafe { libc::pthread_kill(asker.as_pthread_t(), libc::SIGUSR1) };
                }
            }
            drop(waiting);
            for omxd in &omxds {
                signal(omxd.child.id(), Signal::CONT);
                assert_eq!(omxd.status().0.pid, omxd.child.id());
            }
        },
    );
}

/// As a program does that takes its endpoint back over a new connection.
#[test]
fn who_hangs_up_and_asks_for_the_same_number_gets_it_whatever_the_authority_hears_first() {
    in_own_world(
        "hung::who_hangs_up_and_asks_for_the_same_number_gets_it_whatever_the_authority_hears_first",
        || {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            for new_first in [false, true] {
                let mut sessions = [(); 2].map(|()| omxd.session().unwrap());
                if new_first {
                    sessions.reverse();
                }
                let [old, new] = sessions;
                drop(old.open_endpoint(Some(3)).unwrap());
                signal(omxd.child.id(), Signal::STOP);
                drop(old);
                let asks = br#"{"Open":{"endpoint":3,"command":"same"}}"#;
                send(new.as_fd(), asks, SendFlags::empty()).unwrap();
                signal(omxd.child.id(), Signal::CONT);
                let mut answer = [0; 4096];
                let (len, _) = recv(new.as_fd(), &mut answer, RecvFlags::empty()).unwrap();
                let answer = String::from_utf8_lossy(&answer[..len]);
                assert!(answer.contains("\"Opened\""), "{answer}");
            }
        },
    );
}

#[test]
fn an_endpoint_closes_though_its_authority_is_being_asked() {
    in_own_world("hung::an_endpoint_closes_though_its_authority_is_being_asked", || {
        let calls = [
            |endpoint: omx::Endpoint| drop(endpoint),
            |endpoint: omx::Endpoint| endpoint.close().unwrap(),
        ];
        for close in calls {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            let endpoint = open(&veth.a, None).unwrap();
            let silent = Silent::instead_of(omxd, &veth.a);
            let asker = silent.asked();
            close(endpoint);
            assert!(asker.waits(), "closed only after the question had ended");
        }
    });
}

#[test]
fn an_authority_that_says_nothing_keeps_no_endpoint_of_another_interface_from_its_messages() {
    in_own_world(
        "hung::an_authority_that_says_nothing_keeps_no_endpoint_of_another_interface_from_its_messages",
        || {
            let (veth, other) = (Veth::new(1500), Veth::new(1500));
            let omxd = Omxd::start(&[], &veth.a, &[]);
            let _endpoint = open(&veth.a, None).unwrap();
            let mut echo = Echo::start(&other.b, &[]);
            let endpoint = open(&other.a, None).unwrap();
            let (mac, number) = echo.go_as();
            let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
            exchange(&endpoint, to, 100, 1);
            let silent = Silent::instead_of(omxd, &veth.a);
            let asker = silent.asked();
            let data = vec![7; 1 << 20];
            // SAFETY: the data outlive the request, which is waited for.
            let request = unsafe { endpoint.isend(&[Segment::of(&data)], to, 2, 0, false) }.unwrap();
            // Counting makes no progress: the helper thread answers the program that fetches the data.
            wait_until("the end of a long message", || {
                endpoint.counters().get(Counter::RecvNotify) > 0
            });
            assert!(asker.waits(), "only after the question had ended");
            let status = endpoint.wait(request, Some(LIMIT)).unwrap().unwrap();
            assert_eq!(status.code, StatusCode::Success);
        },
    );
}

#[test]
fn what_a_killed_authority_did_not_answer_is_not_awaited_from_its_successor() {
    in_own_world(
        "hung::what_a_killed_authority_did_not_answer_is_not_awaited_from_its_successor",
        || {
            let veth = Veth::new(1500);
            let mut omxd = Omxd::start(&[], &veth.a, &[]);
            let mut session = omxd.session().unwrap();
            let opened = session.open_endpoint(Some(3)).unwrap();
            signal(omxd.child.id(), Signal::STOP);
            let unanswered = session.try_add_peer(MacAddr([2, 0, 0, 0, 0, 0x99]));
            assert!(matches!(unanswered, Err(OmxdError::Late)), "{unanswered:?}");
            omxd.kill();
            let omxd = Omxd::start(&[], &veth.a, &[]);
            drop(session.resume(opened.endpoint).unwrap());
            assert_eq!(omxd.status().0.endpoints[0].endpoint, 3);
        },
    );
}

/// The connections that an authority accepted, by their numbers.
fn accepted(path: &Path) -> HashSet<String> {
    // Bound before it was where programs look, it has a longer name.
    let path = path.to_str().unwrap();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let connected = |line: &&str| line.contains(path) && line.split_whitespace().nth(5) == Some("03");
    let number = |line: &str| line.split_whitespace().nth(6).unwrap().to_owned();
    sockets.lines().filter(connected).map(number).collect()
}

#[test]
fn endpoints_of_one_interface_meet_though_their_authority_answers_late_or_nobody_waits_any_more() {
    in_own_world(
        "hung::endpoints_of_one_interface_meet_though_their_authority_answers_late_or_nobody_waits_any_more",
        || {
            for gives_up in [false, true] {
                let veth = Veth::new(1500);
                let omxd = Omxd::start(&[], &veth.a, &[]);
                let ends = [(); 2].map(|()| open(&veth.a, None).unwrap());
                let [asks, other] = ends.each_ref();
                let (mac, number) = (other.address().mac(), other.address().endpoint());
                let path = Place::of(Interface::find(&veth.a).unwrap().index).unwrap().socket();
                wait_until("no connections but those of the two", || accepted(&path).len() == 2);
                let before = accepted(&path);
                signal(omxd.child.id(), Signal::STOP);
                // It is asked, and has not answered, when this returns.
                let request = asks.iconnect(mac, number, 0, 0, 0).unwrap();
                assert!(asks.test(request).unwrap().is_none());
                if gives_up {
                    assert!(asks.cancel(request).unwrap());
                }
                signal(omxd.child.id(), Signal::CONT);
                // The second answer is of a later turn than the one to the endpoint, which stays there unread now.
                let known = || omxd.status().0.endpoints.len();
                assert_eq!((known(), known()), (2, 2));
                if !gives_up {
                    let status = asks.wait(request, Some(LIMIT)).unwrap().expect("within the limit");
                    assert_eq!(status.code, StatusCode::Success);
                }
                for [from, to] in [[other, asks], [asks, other]] {
                    let to = to.address();
                    from.connect(to.mac(), to.endpoint(), 0, Some(LIMIT)).unwrap();
                }
                // It was not taken for the end of the connection: there is no other one.
                assert_eq!(known(), 2);
                wait_until("the connections of the two alone", || accepted(&path).len() == 2);
                assert_eq!(accepted(&path), before);
            }
        },
    );
}
