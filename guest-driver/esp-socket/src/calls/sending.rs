//! Calls that send, and what goes to other programs.

use std::{os::fd::RawFd, slice, sync::atomic::Ordering};

use ether::Time;
use libc::{c_int, c_uint, iovec, mmsghdr, msghdr};

use super::{check_places, parts, total};
use crate::{errno::Errno, keeper, state::State, stream::Stream, table};

/// One call that sends.
struct Send<'a> {
    stream: &'a Stream,
    parts: &'a [iovec],
    len: usize,
    push: bool,
    done: usize,
}

impl Send<'_> {
    fn attempt(&mut self, state: &mut State, now: Time) -> Option<Result<usize, Errno>> {
        let id = self.stream.id;
        let connection = state.connection(id);
        if let Some(error) = connection.error.take() {
            if self.done > 0 {
                connection.error = Some(error);
                return Some(Ok(self.done));
            }
            state.show(id, false);
            return Some(Err(error));
        }
        if connection.is_ended || connection.is_shut {
            return Some(if self.done > 0 {
                Ok(self.done)
            } else {
                Err(Errno(libc::EPIPE))
            });
        }
        let mut skipped = 0;
        for part in self.parts {
            let begin = self.done.saturating_sub(skipped).min(part.iov_len);
            skipped += part.iov_len;
            let len = part.iov_len - begin;
            if len == 0 {
                continue;
            }
            // SAFETY: the program's part, of which `check_places` checked that it is not null.
            let bytes = unsafe { slice::from_raw_parts(part.iov_base.cast::<u8>().add(begin), len) };
            let is_last = self.done + len == self.len;
            match state.engine.send(id, bytes, self.push && is_last, now) {
                Ok(taken) => {
                    self.done += taken;
                    if taken < len {
                        break;
                    }
                }
                // A frozen connection is another process's, as `until` says.
                Err(esp::Error::WouldBlock | esp::Error::Frozen) => break,
                Err(error) => {
                    let error = Errno(error.errno());
                    return Some(if self.done > 0 { Ok(self.done) } else { Err(error) });
                }
            }
        }
        if self.done == self.len {
            return Some(Ok(self.done));
        }
        state.show(id, false);
        None
    }
}

/// Sends bytes.
///
/// # Safety
/// The parts describe bytes of the program.
///
/// # Errors
/// As `send(2)` over TCP; `EPIPE` comes with the signal.
#[inline]
pub unsafe fn send(stream: &Stream, parts: &[iovec], flags: c_int) -> Result<isize, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    check_places(parts)?;
    let mut call = Send {
        stream,
        parts,
        len: total(parts)?,
        push: flags & libc::MSG_MORE == 0,
        done: 0,
    };
    let limit = stream.send_limit_ns.load(Ordering::Relaxed);
    let result = stream.until(stream.waits(flags), limit, |state, now| call.attempt(state, now));
    match result {
        Err(_) if call.done > 0 => Ok(call.done as isize),
        Err(Errno(libc::EPIPE)) => {
            if flags & libc::MSG_NOSIGNAL == 0 {
                // SAFETY: a plain call, for this thread.
                unsafe { libc::raise(libc::SIGPIPE) };
            }
            Err(Errno(libc::EPIPE))
        }
        other => other.map(|len| len as isize),
    }
}

/// Sends a message's worth of bytes.
///
/// # Safety
/// `message` describes bytes of the program.
///
/// # Errors
/// As `sendmsg(2)` over TCP.
pub unsafe fn send_message(stream: &Stream, message: *const msghdr, flags: c_int) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    let message = unsafe { message.as_ref() }.ok_or(Errno(libc::EFAULT))?;
    // SAFETY: the caller's promise.
    unsafe { send(stream, parts(message.msg_iov, message.msg_iovlen)?, flags) }
}

/// Sends several messages' worth of bytes.
///
/// # Safety
/// As [`send_message`], for each of `count` messages.
///
/// # Errors
/// As `sendmmsg(2)` over TCP.
pub unsafe fn send_messages(
    stream: &Stream,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> Result<c_int, Errno> {
    let mut done = 0;
    while done < count {
        // SAFETY: the caller's promise.
        let message = unsafe { &mut *messages.add(done as usize) };
        // SAFETY: as above.
        match unsafe { send_message(stream, &raw const message.msg_hdr, flags) } {
            Ok(len) => message.msg_len = len as u32,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        done += 1;
    }
    Ok(done as c_int)
}

/// Gives connections that a message of another socket passes to another program to a keeper first.
///
/// # Safety
/// `message` is what `sendmsg(2)` gets.
pub unsafe fn before_passing(message: *const msghdr) {
    // SAFETY: the caller's promise.
    let Some(message) = (unsafe { message.as_ref() }) else {
        return;
    };
    // SAFETY: the header describes its ancillary data.
    let mut part = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: a part lies in the ancillary data with its whole header.
    while let Some(header) = unsafe { part.as_ref() } {
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(part) }.cast::<RawFd>();
            // SAFETY: computes a length.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = header.cmsg_len.saturating_sub(head) / size_of::<RawFd>();
            for at in 0..count {
                // SAFETY: descriptors fill the part.
                let fd = unsafe { data.add(at).read_unaligned() };
                if let Some(stream) = table::stream(fd) {
                    keeper::pass(&stream);
                }
            }
        }
        // SAFETY: as above.
        part = unsafe { libc::CMSG_NXTHDR(message, part) };
    }
}
