//! Strangers' descriptors, which may take long to close: who gets them does not wait for that.

use std::{
    io::{IoSlice, Write},
    mem::MaybeUninit,
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    process::Command,
    sync::Once,
    time::{Duration, Instant},
};

use netif::Interface;
use omx::{Board, Endpoint, EndpointOptions};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType, connect, recv, send, sendmsg, socket_with, sockopt,
    },
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use weft_authority::{News, Place, Session, next_visit};
use weft_guest_driver_testkit::Veth;

use crate::{
    authority::Omxd,
    liar::{Liar, next_pair},
    rig::{in_own_world, open, wait_until},
    same_host::options,
};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How long the last close of what [`lingering`] gives takes who does not look out.
const LINGER: Duration = Duration::from_secs(20);

/// A connection whose other end reads nothing, and that end.
fn lingering() -> (TcpStream, TcpStream) {
    static UP: Once = Once::new();
    // Before there is such a connection: a child has a copy of it until it runs its program, and may be the last to close it.
    UP.call_once(|| {
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    sockopt::set_socket_linger(&socket, Some(LINGER)).unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 16]).is_ok() {}
    (socket, peer)
}

/// Sends the only descriptor of `what` beside `message`, to a program that does not read it at once.
fn send_away(what: TcpStream, message: &[u8], to: BorrowedFd<'_>) {
    send_beside(&what, message, to);
}

/// As [`send_away`], to a program that may be done with it before it is closed here.
fn throw_away(what: TcpStream, message: &[u8], to: BorrowedFd<'_>) {
    send_beside(&what, message, to);
    std::thread::spawn(move || drop(what));
}

fn send_beside(what: &TcpStream, message: &[u8], to: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [what.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(to, &[IoSlice::new(message)], &mut ancillary, SendFlags::empty()).unwrap();
}

#[test]
fn a_bell_with_descriptors_ends_its_pair_and_keeps_nobody_waiting() {
    in_own_world(
        "descriptors::a_bell_with_descriptors_ends_its_pair_and_keeps_nobody_waiting",
        || {
            let veth = Veth::new(1500);
            let endpoint = Endpoint::open(&EndpointOptions {
                progress: false,
                ..options(&veth.a)
            })
            .unwrap();
            let liar = Liar::pair_as(&veth.a, None, 0);
            endpoint.progress();
            let before = descriptors();
            let (what, peer) = lingering();
            send_away(what, &[1], liar.socket.as_fd());
            let begin = Instant::now();
            wait_until("the pair is over", || {
                endpoint.progress();
                send(&liar.socket, &[1], SendFlags::NOSIGNAL) == Err(Errno::PIPE)
            });
            assert!(begin.elapsed() < LINGER / 2, "{:?}", begin.elapsed());
            drop(peer);
            assert!(descriptors() < before, "{} and {before} before", descriptors());
        },
    );
}

#[test]
fn a_visit_that_there_are_no_descriptors_for_keeps_nobody_waiting() {
    in_own_world(
        "descriptors::a_visit_that_there_are_no_descriptors_for_keeps_nobody_waiting",
        || {
            let veth = Veth::new(1500);
            let _victim = open(&veth.a, Some(0)).unwrap();
            for free in [0, 1] {
                let connect = || Session::connect(Board::named(&veth.a).unwrap().interface()).unwrap();
                let (victim, liar) = (connect(), connect());
                let visits = victim.open_endpoint(Some(1)).unwrap().visits;
                let opened = liar.open_endpoint(Some(2)).unwrap();
                liar.pair(1, None).unwrap();
                let pair = next_pair(&opened.visits).unwrap();
                let (what, peer) = lingering();
                send_away(what, &[1], pair.socket.as_fd());
                let begin = Instant::now();
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
                all.truncate(all.len() - free);
                let missed = next_visit(visits.as_fd());
                drop(all);
                setrlimit(Resource::Nofile, before).unwrap();
                assert!(
                    matches!(missed, Ok(Some(News::Missed { endpoint: 2, .. }))),
                    "{missed:?}"
                );
                assert!(begin.elapsed() < LINGER / 2, "{:?}", begin.elapsed());
                drop(peer);
            }
        },
    );
}

#[test]
fn a_message_with_descriptors_keeps_omxd_from_nothing() {
    in_own_world(
        "descriptors::a_message_with_descriptors_keeps_omxd_from_nothing",
        || {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            let place = Place::of(Interface::find(&veth.a).unwrap().index).unwrap();
            let address = SocketAddrUnix::new(place.socket()).unwrap();
            let begin = Instant::now();
            let mut peers = Vec::new();
            // A request that is answered, nonsense after which the connection ends, one that hangs up before it is read.
            for (message, hang_up) in [
                (&b"\"Hello\""[..], false),
                (b"{", false),
                (b"", false),
                (b"\"Hello\"", true),
            ] {
                let socket =
                    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
                connect(&socket, &address).unwrap();
                let (what, peer) = lingering();
                throw_away(what, message, socket.as_fd());
                peers.push(peer);
                if !hang_up {
                    let mut answer = [0; 256];
                    let answered = recv(&socket, &mut answer, RecvFlags::empty()).map_or(0, |(_, len)| len);
                    assert_eq!(answered > 0, message == b"\"Hello\"");
                    if answered > 0 {
                        // Another one that may stay unread.
                        let (what, peer) = lingering();
                        throw_away(what, message, socket.as_fd());
                        peers.push(peer);
                    }
                }
                drop(socket);
                assert!(omxd.status().0.endpoints.is_empty());
            }
            assert!(begin.elapsed() < LINGER / 2, "{:?}", begin.elapsed());
        },
    );
}
