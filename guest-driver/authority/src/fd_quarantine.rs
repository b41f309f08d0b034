//! The quarantine for descriptors from other programs. A program that sends a descriptor through a local socket can
//! choose what it takes to close it: the last close of a TCP socket, say, waits for as long as its owner set. A process
//! that reads such a message without room for descriptors, or closes a socket with such a message in it, closes the
//! descriptors. So messages are inspected before they are read, and both are left to a thread that ends afterwards: the
//! kernel does not let a task that ends wait so.

use std::{
    io::{self, ErrorKind, IoSliceMut},
    mem::{ManuallyDrop, MaybeUninit},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    ptr,
    sync::{OnceLock, mpsc},
    thread,
};

use rustix::{
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, recv, recvmsg, shutdown,
        sockopt::{set_socket_linger, set_socket_passcred},
    },
    process::{Pid, getpid},
};

use crate::signals::without_signals;

/// The stack of a quarantine thread, in bytes.
const STACK_LEN: usize = 256 << 10;
/// The kernel lets so many descriptors go with one message; with room for all, it closes none of a stranger's.
pub(crate) const FDS_OF_A_MESSAGE_MAX: usize = 253;

/// Words of one set of credentials with its head.
// SAFETY: computes a length.
const CREDENTIALS_WORDS: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) as usize } / 8;

/// What comes first out of a socket, where it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// There is no message now.
    Nothing,
    /// A message comes first, alone or with the credentials that the kernel adds.
    Plain,
    /// A message with descriptors comes first.
    Descriptors,
    /// There will be no message any more.
    Over,
}

/// Peeks at what comes first out of a local socket that preserves message boundaries; `credentials`: the socket says
/// who sent a message. Without them an empty message is taken for the end.
pub fn first(socket: BorrowedFd<'_>, credentials: bool) -> First {
    let mut byte = 0_u8;
    let mut part = libc::iovec {
        iov_base: ptr::from_mut(&mut byte).cast(),
        iov_len: 1,
    };
    let mut control = [0_u64; CREDENTIALS_WORDS];
    // SAFETY: all zeros is an empty message head.
    let mut head: libc::msghdr = unsafe { std::mem::zeroed() };
    head.msg_iov = &raw mut part;
    head.msg_iovlen = 1;
    if credentials {
        // They come first and fill it: there is no room for descriptors.
        head.msg_control = control.as_mut_ptr().cast();
        head.msg_controllen = size_of_val(&control);
    }
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: `head` names `part`, which names `byte`, and `control`; all live through the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut head, flags) };
    match received {
        0.. if head.msg_flags & libc::MSG_CTRUNC != 0 => First::Descriptors,
        // An empty message has credentials, too.
        0 if !credentials || head.msg_controllen == 0 => First::Over,
        0.. => First::Plain,
        _ => match io::Error::last_os_error().kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => First::Nothing,
            _ => First::Over,
        },
    }
}

/// A local socket whose other end may be any program's. No program can make its closing wait.
#[derive(Debug)]
pub struct QuarantinedSocket {
    socket: ManuallyDrop<OwnedFd>,
    /// The process that has it: a forked child closes its copy and does nothing more.
    process: Pid,
}

impl QuarantinedSocket {
    /// Whether descriptors are in the socket, after which no more messages come in. Takes the messages before them.
    fn holds_descriptors(&self) -> bool {
        // Nothing is added from now on.
        let _ = shutdown(self.as_fd(), Shutdown::Read);
        // Credentials distinguish an empty message from none.
        let credentials = set_socket_passcred(self.as_fd(), true).is_ok();
        loop {
            match first(self.as_fd(), credentials) {
                First::Descriptors => return true,
                First::Nothing | First::Over => return false,
                First::Plain => {
                    let _ = recv(self.as_fd(), &mut [0; 1], RecvFlags::DONTWAIT);
                }
            }
        }
    }
}

impl From<OwnedFd> for QuarantinedSocket {
    fn from(socket: OwnedFd) -> Self {
        Self {
            socket: ManuallyDrop::new(socket),
            process: getpid(),
        }
    }
}

impl AsFd for QuarantinedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for QuarantinedSocket {
    fn drop(&mut self) {
        // The quarantine thread has the socket, too, until this process has closed its own.
        let is_own = self.process == getpid();
        let mut elsewhere = None;
        if is_own && self.holds_descriptors() {
            if is_available() {
                elsewhere = in_quarantine(self.as_fd(), |_| ());
                if elsewhere.is_none() {
                    tracing::error!(
                        "a socket with a stranger's descriptors in it stays open: there is no thread to close it"
                    );
                    return;
                }
            } else {
                while let First::Descriptors = first(self.as_fd(), true) {
                    drop(receive_without_linger(self.as_fd()));
                    if !self.holds_descriptors() {
                        break;
                    }
                }
            }
        }
        // SAFETY: not used after this.
        unsafe { ManuallyDrop::drop(&mut self.socket) };
        drop(elsewhere);
    }
}

/// Whether threads can have descriptors of their own here: some containers do not allow it.
pub(crate) fn is_available() -> bool {
    static CAN_BE: OnceLock<bool> = OnceLock::new();
    *CAN_BE.get_or_init(|| {
        let allowed = || {
            // SAFETY: changes which table this thread's descriptors are in; it uses none.
            unsafe { libc::unshare(libc::CLONE_FILES) == 0 }
        };
        let is_allowed = without_signals(|| thread::spawn(allowed)).join().unwrap_or(false);
        if !is_allowed {
            tracing::info!(
                "unshare(2) is not allowed here: a stranger's descriptors are closed by the thread that gets them"
            );
        }
        is_allowed
    })
}

/// Sees to it that closing these sockets never waits: for where threads cannot have descriptors of their own.
pub(crate) fn disable_linger(fds: &[OwnedFd]) {
    for fd in fds {
        // What is no socket, or does not wait, has no such option.
        let _ = set_socket_linger(fd, None);
    }
}

/// Receives the descriptors of the next message, [not lingering](disable_linger).
fn receive_without_linger(socket: BorrowedFd<'_>) -> Vec<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(FDS_OF_A_MESSAGE_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut fds = Vec::new();
    if recvmsg(socket, &mut parts, &mut ancillary, flags).is_ok() {
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
    }
    disable_linger(&fds);
    fds
}

/// Keeps a quarantine thread alive until it is dropped.
pub(crate) struct Quarantine {
    _goes_on: mpsc::Sender<()>,
}

/// Runs `work` in a thread that has descriptors of its own: `socket`, and what it opens or receives. All that it has
/// then is closed when it ends, which is when the returned [`Quarantine`] is dropped; so nothing of a stranger's may be
/// dropped in `work`. `None`: such a thread cannot be started now.
pub(crate) fn in_quarantine<T: Send + 'static>(
    socket: BorrowedFd<'_>,
    work: impl FnOnce(BorrowedFd<'_>) -> T + Send + 'static,
) -> Option<(T, Quarantine)> {
    let number = socket.as_raw_fd();
    let (answer, answered) = mpsc::sync_channel(1);
    let (goes_on, end) = mpsc::channel();
    let body = move || {
        if !has_own_descriptors_but(number) {
            return;
        }
        // SAFETY: the caller has it open until there is an answer, and this thread from now on.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        if answer.send(work(socket)).is_ok() {
            let _ = end.recv();
        }
    };
    // The program's signal handlers may need its descriptors.
    let builder = thread::Builder::new()
        .name("omx-quarantine".to_owned())
        .stack_size(STACK_LEN);
    without_signals(|| builder.spawn(body)).ok()?;
    let answer = answered.recv().ok()?;
    Some((answer, Quarantine { _goes_on: goes_on }))
}

/// Gives the calling thread its own table of descriptors, in which only this one is open.
fn has_own_descriptors_but(number: RawFd) -> bool {
    // SAFETY: changes which table this thread's descriptors are in; they stay open there.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return false;
    }
    let number = number.cast_unsigned();
    for (first, last) in [(0, number.checked_sub(1)), (number + 1, Some(u32::MAX))] {
        if let Some(last) = last {
            // SAFETY: closes copies that only this thread has and does not use. Where the system cannot do that they
            // are open a little longer.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::{
        io::{IoSlice, Write},
        mem::MaybeUninit,
        net::{TcpListener, TcpStream},
        time::{Duration, Instant},
    };

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send, sendmsg,
        socketpair, sockopt,
    };

    use super::*;

    /// How long the last close of [`Lingering::take`] would take.
    const LINGER: Duration = Duration::from_secs(20);

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .unwrap()
    }

    /// A connection whose other end reads nothing.
    struct Lingering {
        _peer: TcpStream,
        socket: TcpStream,
    }

    impl Lingering {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let _peer = listener.accept().unwrap().0;
            sockopt::set_socket_linger(&socket, Some(LINGER)).unwrap();
            socket.set_nonblocking(true).unwrap();
            while socket.write(&[0; 1 << 16]).is_ok() {}
            Self { _peer, socket }
        }

        /// Sends the connection to a socket, where alone it is afterwards.
        fn send_with(self, byte: u8, to: &OwnedFd) -> TcpStream {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let fds = [self.socket.as_fd()];
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
            sendmsg(to, &[IoSlice::new(&[byte])], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
            self._peer
        }
    }

    #[test]
    fn what_comes_first_is_told_and_stays() {
        for credentials in [false, true] {
            let (own, other) = pair();
            sockopt::set_socket_passcred(&own, credentials).unwrap();
            let peek = || first(own.as_fd(), credentials);
            assert_eq!(peek(), First::Nothing);
            send(&other, b"plain", SendFlags::empty()).unwrap();
            assert_eq!((peek(), peek()), (First::Plain, First::Plain));
            let _peer = Lingering::new().send_with(1, &other);
            assert_eq!(peek(), First::Plain);
            recv(&own, &mut [0; 8], RecvFlags::DONTWAIT).unwrap();
            assert_eq!((peek(), peek()), (First::Descriptors, First::Descriptors));
            drop(QuarantinedSocket::from(own));
        }
        let (own, other) = pair();
        drop(other);
        assert_eq!(first(own.as_fd(), false), First::Over);
    }

    #[test]
    fn to_close_a_socket_with_a_strangers_descriptors_takes_no_time() {
        let begin = Instant::now();
        let (own, other) = pair();
        for before in [&b"before"[..], b""] {
            send(&other, before, SendFlags::empty()).unwrap();
        }
        let peer = Lingering::new().send_with(1, &other);
        drop(QuarantinedSocket::from(own));
        assert!(begin.elapsed() < LINGER / 2, "{:?}", begin.elapsed());
        // And it is closed: the other end learns it.
        assert!(send(&other, b"after", SendFlags::NOSIGNAL).is_err());
        drop(peer);
    }

    #[test]
    fn a_child_that_closes_what_it_was_born_with_leaves_it_to_its_parent() {
        let (own, other) = pair();
        let own = QuarantinedSocket {
            socket: ManuallyDrop::new(own),
            process: Pid::INIT,
        };
        let parents = own.as_fd().try_clone_to_owned().unwrap();
        drop(own);
        send(&other, b"goes on", SendFlags::NOSIGNAL).unwrap();
        assert_eq!(first(parents.as_fd(), false), First::Plain);
    }

    #[test]
    fn a_thread_apart_has_one_descriptor_and_closes_what_it_received_when_it_ends() {
        let begin = Instant::now();
        let (own, other) = pair();
        let peer = Lingering::new().send_with(7, &other);
        let count = || std::fs::read_dir("/proc/thread-self/fd").unwrap().count();
        let here = count();
        let (seen, quarantine) = in_quarantine(own.as_fd(), move |socket| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = rustix::net::RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let mut parts = [io::IoSliceMut::new(&mut byte)];
            rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::DONTWAIT).unwrap();
            std::mem::forget(ancillary);
            (byte[0], count())
        })
        .unwrap();
        // The socket, what it received, and the directory that is read.
        assert_eq!(seen, (7, 3));
        assert!(here > 3);
        drop(quarantine);
        assert!(begin.elapsed() < LINGER / 2, "{:?}", begin.elapsed());
        drop(peer);
    }
}
