//! Calls that receive.

use std::{slice, sync::atomic::Ordering};

use ether::Time;
use libc::{c_int, c_uint, iovec, mmsghdr, msghdr, sockaddr, socklen_t, timespec};

use super::{check_places, parts, total};
use crate::{errno::Errno, host::now, state::State, stream::Stream, system};

/// One call that receives.
struct Receive<'a> {
    stream: &'a Stream,
    parts: &'a [iovec],
    len: usize,
    flags: c_int,
    done: usize,
}

impl Receive<'_> {
    /// Takes what is there: the result of the call, or `None` while it waits.
    fn attempt(&mut self, state: &mut State, now: Time) -> Option<Result<usize, Errno>> {
        let id = self.stream.id;
        let available = state.engine.available(id).unwrap_or(0);
        let peeks = self.flags & libc::MSG_PEEK != 0;
        let waits_for_all = self.flags & libc::MSG_WAITALL != 0 && self.stream.waits(self.flags);
        let is_over = state.connection(id).is_over() || state.connection(id).is_deaf;
        if peeks && waits_for_all && available < self.len && !is_over {
            return None;
        }
        if available > 0 {
            self.done += if self.flags & libc::MSG_TRUNC != 0 {
                state.engine.discard(id, self.len - self.done, now).unwrap_or(0)
            } else {
                self.copy(state, peeks, now)
            };
            if !peeks {
                state.show(id, false);
            }
        }
        if self.done > 0 && (self.done == self.len || !waits_for_all || is_over) {
            return Some(Ok(self.done));
        }
        // The whole stream came: what became of the connection afterwards concerns those that send.
        if state.connection(id).has_finished {
            return Some(Ok(self.done));
        }
        if let Some(error) = state.connection(id).error.take() {
            if self.done > 0 {
                state.connection(id).error = Some(error);
                return Some(Ok(self.done));
            }
            state.show(id, false);
            return Some(Err(error));
        }
        is_over.then_some(Ok(self.done))
    }

    /// Copies bytes to the program's parts, behind those that are done.
    fn copy(&self, state: &mut State, peeks: bool, now: Time) -> usize {
        let id = self.stream.id;
        let (mut skipped, mut copied) = (0, 0);
        for part in self.parts {
            let begin = self.done.saturating_sub(skipped).min(part.iov_len);
            skipped += part.iov_len;
            let len = part.iov_len - begin;
            if len == 0 {
                continue;
            }
            // SAFETY: the program's part, of which `check_places` checked that it is not null. Its bytes are only written to.
            let room = unsafe { slice::from_raw_parts_mut(part.iov_base.cast::<u8>().add(begin), len) };
            let Ok(now_copied) = state.engine.peek(id, copied, room) else {
                break;
            };
            copied += now_copied;
            if now_copied < len {
                break;
            }
        }
        if !peeks {
            let _ = state.engine.discard(id, copied, now);
        }
        copied
    }
}

/// Receives bytes.
///
/// # Safety
/// The parts describe room of the program.
///
/// # Errors
/// As `recv(2)` over TCP.
#[inline]
pub unsafe fn receive(stream: &Stream, parts: &[iovec], flags: c_int) -> Result<isize, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return Err(Errno(libc::EAGAIN));
    }
    let len = total(parts)?;
    if len == 0 {
        return Ok(0);
    }
    if flags & libc::MSG_TRUNC == 0 {
        check_places(parts)?;
    }
    let mut call = Receive {
        stream,
        parts,
        len,
        flags,
        done: 0,
    };
    let limit = stream.receive_limit_ns.load(Ordering::Relaxed);
    let result = stream.until(stream.waits(flags), limit, |state, now| call.attempt(state, now));
    match result {
        Err(_) if call.done > 0 => Ok(call.done as isize),
        other => other.map(|len| len as isize),
    }
}

/// Receives bytes; TCP names no sender.
///
/// # Safety
/// As [`receive`]; `from_len` points to a length or is null.
///
/// # Errors
/// As `recvfrom(2)` over TCP.
pub unsafe fn receive_from(
    stream: &Stream,
    part: iovec,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    let received = unsafe { receive(stream, &[part], flags) }?;
    if !from.is_null() && !from_len.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *from_len = 0 };
    }
    Ok(received)
}

/// Receives a message's worth of bytes.
///
/// # Safety
/// `message` describes room of the program.
///
/// # Errors
/// As `recvmsg(2)` over TCP.
pub unsafe fn receive_message(stream: &Stream, message: *mut msghdr, flags: c_int) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    let message = unsafe { message.as_mut() }.ok_or(Errno(libc::EFAULT))?;
    // SAFETY: the caller's promise.
    let received = unsafe { receive(stream, parts(message.msg_iov, message.msg_iovlen)?, flags) }?;
    message.msg_namelen = 0;
    message.msg_controllen = 0;
    message.msg_flags = 0;
    Ok(received)
}

/// Receives several messages' worth of bytes.
///
/// # Safety
/// As [`receive_message`], for each of `count` messages.
///
/// # Errors
/// As `recvmmsg(2)` over TCP.
pub unsafe fn receive_messages(
    stream: &Stream,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    let limit_ns = unsafe { limit.as_ref() }
        .map(|limit| system::ns_of(*limit))
        .transpose()?;
    let begin = now();
    let one_waits = flags & libc::MSG_WAITFORONE != 0;
    let mut done = 0;
    while done < count {
        let later = if one_waits && done > 0 { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: the caller's promise.
        let message = unsafe { &mut *messages.add(done as usize) };
        // SAFETY: as above.
        match unsafe { receive_message(stream, &raw mut message.msg_hdr, flags & !libc::MSG_WAITFORONE | later) } {
            Ok(len) => message.msg_len = len as u32,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        done += 1;
        if message.msg_len == 0 || limit_ns.is_some_and(|limit| now().nanos_since(begin) >= limit) {
            break;
        }
    }
    Ok(done as c_int)
}
