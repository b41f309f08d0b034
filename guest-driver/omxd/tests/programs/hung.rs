//! Authorities that are there and say nothing: whoever asks one gets an answer all the same, and nobody else waits for it.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::mpsc,
    thread,
};

use netif::{Interface, testing::Veth};
use omx::{Counter, Segment, StatusCode};
use omxd::{OmxdError, Place, Session};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with},
    process::{Pid, Signal, kill_process},
};

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
    /// There is no moment in which nobody is there.
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
        assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "somebody asks within the limit");
        Asker(accept_with(&self.0, SocketFlags::CLOEXEC).unwrap())
    }
}

struct Asker(OwnedFd);

impl Asker {
    /// It has neither an answer nor lost its patience.
    fn waits(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)) == Ok(0)
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[test]
fn whoever_asks_a_stopped_authority_hears_so_though_many_asked_before() {
    in_own_world(
        "hung::whoever_asks_a_stopped_authority_hears_so_though_many_asked_before",
        || {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            let interface = Interface::find(&veth.a).unwrap();
            let path = Place::of(interface.index).unwrap().socket();
            signal(omxd.child.id(), Signal::STOP);
            // More than the kernel lets wait.
            let mut before = Vec::new();
            loop {
                let asker = socket(SocketFlags::NONBLOCK);
                match connect(&asker, &address(&path)) {
                    Ok(()) => before.push(asker),
                    Err(error) => break assert_eq!(error, Errno::AGAIN),
                }
            }
            let (tell, told) = mpsc::channel();
            let ways = [
                |interface: &Interface| Session::connect(interface).map(drop),
                |interface: &Interface| Session::connect_to_running(interface).map(drop),
            ];
            for way in ways {
                let (tell, interface) = (tell.clone(), interface.clone());
                thread::spawn(move || tell.send(way(&interface)));
            }
            for _ in ways {
                let answer = told.recv_timeout(LIMIT).expect("an answer");
                assert!(matches!(answer, Err(OmxdError::Late)), "{answer:?}");
            }
            drop(before);
            signal(omxd.child.id(), Signal::CONT);
            assert_eq!(omxd.status().0.pid, omxd.child.id());
        },
    );
}

#[test]
fn an_endpoint_closes_though_its_authority_is_being_asked() {
    in_own_world("hung::an_endpoint_closes_though_its_authority_is_being_asked", || {
        let ways = [
            |endpoint: omx::Endpoint| drop(endpoint),
            |endpoint: omx::Endpoint| endpoint.close().unwrap(),
        ];
        for close in ways {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            let endpoint = open(&veth.a, None).unwrap();
            let silent = Silent::instead_of(omxd, &veth.a);
            let asker = silent.asked();
            close(endpoint);
            assert!(asker.waits(), "closed no sooner than nobody asked any more");
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
            // To count is no progress: the helper thread answers whoever fetches the data.
            wait_until("the end of a long message", || {
                endpoint.counters().get(Counter::RecvNotify) > 0
            });
            assert!(asker.waits(), "only when nobody asked any more");
            let status = endpoint.wait(request, Some(LIMIT)).unwrap().unwrap();
            assert_eq!(status.code, StatusCode::Success);
        },
    );
}

#[test]
fn endpoints_of_one_interface_meet_though_their_authority_answers_late() {
    in_own_world(
        "hung::endpoints_of_one_interface_meet_though_their_authority_answers_late",
        || {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            let mut echo = Echo::start(&veth.a, &[]);
            let (mac, number) = echo.go_as();
            let endpoint = open(&veth.a, None).unwrap();
            signal(omxd.child.id(), Signal::STOP);
            // It is asked, and has not answered, when this returns.
            let request = endpoint.iconnect(mac, number, 0, 0, 0).unwrap();
            assert!(endpoint.test(request).unwrap().is_none());
            signal(omxd.child.id(), Signal::CONT);
            let status = endpoint.wait(request, Some(LIMIT)).unwrap().expect("within the limit");
            assert_eq!(status.code, StatusCode::Success);
            exchange(&endpoint, status.address.unwrap(), 100_000, 1);
        },
    );
}
