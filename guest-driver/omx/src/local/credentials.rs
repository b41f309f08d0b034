//! The socket of a pair: it wakes the other side, tells it which process did so (the kernel says that, not the sender),
//! and ends with the other program.

use std::{
    io::ErrorKind,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use rustix::net::{SendFlags, send};
use weft_authority::{First, first};

/// Words of one set of credentials with its head.
// SAFETY: computes a length.
const CONTROL_WORDS: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) as usize } / 8;

/// A result of reading the socket.
pub(super) enum Heard {
    /// A message came, from this process if its memory may be read: it can be named here and is of this process's user.
    From(Option<i32>),
    Nothing,
    Gone,
}

/// Sends the first message, with which the kernel says which process this is.
pub(super) fn greet(socket: BorrowedFd<'_>) {
    ring(socket);
}

/// Wakes the other side. A full socket is readable anyway, and one that ended shows when it is read.
pub(super) fn ring(socket: BorrowedFd<'_>) {
    let _ = send(socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Takes one message.
pub(super) fn hear(socket: BorrowedFd<'_>) -> Heard {
    match first(socket, true) {
        First::Plain => {}
        First::Nothing => return Heard::Nothing,
        // A bell with descriptors: the close could take any time.
        First::Descriptors | First::Over => return Heard::Gone,
    }
    let mut byte = 0_u8;
    let mut part = libc::iovec {
        iov_base: ptr::from_mut(&mut byte).cast(),
        iov_len: 1,
    };
    // Room for one set of credentials, aligned for its head.
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: all zeros is an empty message head.
    let mut head: libc::msghdr = unsafe { std::mem::zeroed() };
    head.msg_iov = &raw mut part;
    head.msg_iovlen = 1;
    head.msg_control = control.as_mut_ptr().cast();
    head.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: `head` names `part`, which names `byte`, and `control`; all live through the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut head, flags) };
    if received < 0 {
        return match std::io::Error::last_os_error().kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Heard::Nothing,
            _ => Heard::Gone,
        };
    }
    if received == 0 {
        return Heard::Gone;
    }
    // SAFETY: `head` was filled by the system and `control` lives.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const head) };
    if first.is_null() {
        return Heard::From(None);
    }
    // SAFETY: a whole control message head inside `control`, as the system says.
    let (level, kind) = unsafe { ((*first).cmsg_level, (*first).cmsg_type) };
    if (level, kind) != (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) {
        return Heard::From(None);
    }
    // SAFETY: credentials follow the head of a message of this kind.
    let who: libc::ucred = unsafe { ptr::read_unaligned(libc::CMSG_DATA(first).cast()) };
    // 0: a process that has no number in this namespace. Another user's memory may be such that reading it takes for ever.
    let same_user = who.uid == rustix::process::geteuid().as_raw();
    Heard::From(Some(who.pid).filter(|pid| *pid > 0 && same_user))
}
