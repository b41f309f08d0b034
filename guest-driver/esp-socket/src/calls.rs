//! Calls on connections, as those of TCP's sockets: what they return and which errors they have.

use std::{os::fd::RawFd, slice, sync::atomic::Ordering};

use ether::Time;
use libc::{c_int, c_uint, iovec, mmsghdr, msghdr, off_t, sockaddr, socklen_t, timespec};

use crate::{
    address::RawAddress,
    errno::Errno,
    host::now,
    keeper,
    state::State,
    stream::Stream,
    system,
    table::{self, Entry},
};

/// Most parts of one call (`IOV_MAX`).
const PARTS_MAX: usize = 1024;
/// Bytes that `sendfile` and `splice` copy at a time.
const COPY_LEN: usize = 128 << 10;

/// Returns the parts of a call as a slice.
///
/// # Safety
/// `parts` points to `count` parts that live as long as the call.
///
/// # Errors
/// `EINVAL` for too many, `EFAULT`.
pub unsafe fn parts<'a>(parts: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count > PARTS_MAX {
        return Err(Errno(libc::EINVAL));
    }
    if count == 0 {
        return Ok(&[]);
    }
    if parts.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { slice::from_raw_parts(parts, count) })
}

fn total(parts: &[iovec]) -> Result<usize, Errno> {
    let sum = parts
        .iter()
        .try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len));
    let sum = sum
        .filter(|sum| isize::try_from(*sum).is_ok())
        .ok_or(Errno(libc::EINVAL))?;
    Ok(sum)
}

/// Refuses parts that are nowhere.
fn check_places(parts: &[iovec]) -> Result<(), Errno> {
    if parts.iter().any(|part| part.iov_base.is_null() && part.iov_len > 0) {
        return Err(Errno(libc::EFAULT));
    }
    Ok(())
}

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
        let is_over = state.connection(id).is_over || state.connection(id).is_deaf;
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
                Err(esp::Error::WouldBlock) => break,
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

/// Closes one direction or both.
///
/// # Errors
/// As `shutdown(2)` over TCP.
pub fn shutdown(stream: &Stream, how: c_int) -> Result<(), Errno> {
    if !(libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
        return Err(Errno(libc::EINVAL));
    }
    let id = stream.id;
    stream.host.run(|state, now| {
        let connection = state.connection(id);
        if connection.is_ended {
            return Err(Errno(libc::ENOTCONN));
        }
        if how != libc::SHUT_WR {
            connection.is_deaf = true;
        }
        if how != libc::SHUT_RD {
            connection.is_shut = true;
            // It fails only where the direction is over.
            let _ = state.engine.shutdown_write(id, now);
        }
        for waiter in &state.connection(id).waiters {
            waiter.wake();
        }
        state.show(id, false);
        Ok(())
    })
}

/// Returns own address and the peer's.
pub fn names(fd: RawFd) -> Option<(RawAddress, RawAddress)> {
    match table::get(fd)? {
        Entry::Stream(stream) => Some(stream.names),
        Entry::Passed(passed) => Some(passed.names),
        _ => None,
    }
}

/// Checks that the peer of a connection is known, as `getpeername(2)` does.
///
/// # Errors
/// `ENOTCONN` once the connection is over.
pub fn check_connected(fd: RawFd) -> Result<(), Errno> {
    match table::stream(fd) {
        Some(stream) if stream.host.lock().connection(stream.id).is_ended => Err(Errno(libc::ENOTCONN)),
        _ => Ok(()),
    }
}

/// Writes an address where the program wants it.
///
/// # Safety
/// `to` has the room that `len` says, or either is null.
///
/// # Errors
/// As `getsockname(2)`.
pub unsafe fn give_address(address: &RawAddress, to: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { address.give(to, len) }
}

/// Sends bytes of a file.
///
/// # Safety
/// `offset` points to an offset or is null.
///
/// # Errors
/// As `sendfile(2)`.
pub unsafe fn send_file(stream: &Stream, from: RawFd, offset: *mut off_t, count: usize) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    let mut offset = unsafe { offset.as_mut() };
    let mut buffer = vec![0; COPY_LEN.min(count)];
    let mut done = 0;
    while done < count {
        let want = buffer.len().min(count - done);
        let want = match room(stream, want, 0) {
            Ok(room) => room,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let at = match &offset {
            Some(offset) => **offset,
            None => {
                // SAFETY: a plain call.
                let at = unsafe { libc::syscall(libc::SYS_lseek, from, 0, libc::SEEK_CUR) };
                if at < 0 { return Err(Errno::last()) } else { at }
            }
        };
        let len = match system::read_at(from, &mut buffer[..want], at) {
            Ok(0) => break,
            Ok(len) => len,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let more = if done + len < count { libc::MSG_MORE } else { 0 };
        let part = iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: len,
        };
        // SAFETY: the part is this function's buffer.
        let sent = match unsafe { send(stream, &[part], more) } {
            Ok(sent) => sent as usize,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        match &mut offset {
            Some(offset) => **offset += sent as off_t,
            None => {
                // SAFETY: a plain call.
                unsafe { libc::syscall(libc::SYS_lseek, from, at + sent as i64, libc::SEEK_SET) };
            }
        }
        done += sent;
        if sent < len {
            break;
        }
    }
    stream.host.run(|state, now| state.engine.push(stream.id, now).ok());
    Ok(done as isize)
}

/// Returns how many of `want` bytes a call can send without waiting; waits for the first where the call waits.
fn room(stream: &Stream, want: usize, flags: c_int) -> Result<usize, Errno> {
    if stream.waits(flags) {
        return Ok(want);
    }
    stream.until(false, 0, |state, _| {
        let connection = state.connection(stream.id);
        if connection.is_ended || connection.is_shut || connection.error.is_some() {
            return Some(Ok(want));
        }
        let space = state.engine.space(stream.id).unwrap_or(0);
        if space == 0 {
            let _ = state.engine.want_room(stream.id);
            state.show(stream.id, false);
        }
        (space > 0).then_some(Ok(space.min(want)))
    })
}

/// Moves bytes of a pipe to a connection.
///
/// # Errors
/// As `splice(2)`.
pub fn splice_to(stream: &Stream, from: RawFd, len: usize, flags: c_uint, has_offsets: bool) -> Result<isize, Errno> {
    if has_offsets {
        return Err(Errno(libc::ESPIPE));
    }
    let waits_not = if flags & libc::SPLICE_F_NONBLOCK != 0 {
        libc::MSG_DONTWAIT
    } else {
        0
    };
    let want = room(stream, len.min(COPY_LEN), waits_not)?;
    let mut buffer = vec![0; want];
    if waits_not != 0 {
        let mut fds = [libc::pollfd {
            fd: from,
            events: libc::POLLIN,
            revents: 0,
        }];
        if system::poll(&mut fds, Some(0), std::ptr::null())? == 0 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    let got = system::read(from, &mut buffer)?;
    if got == 0 {
        return Ok(0);
    }
    let more = if flags & libc::SPLICE_F_MORE != 0 {
        libc::MSG_MORE
    } else {
        0
    };
    let part = iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: got,
    };
    // SAFETY: the part is this function's buffer.
    unsafe { send(stream, &[part], more) }
}

/// Moves bytes of a connection to a pipe.
///
/// # Errors
/// As `splice(2)`.
pub fn splice_from(stream: &Stream, to: RawFd, len: usize, flags: c_uint, has_offsets: bool) -> Result<isize, Errno> {
    if has_offsets {
        return Err(Errno(libc::ESPIPE));
    }
    let waits_not = if flags & libc::SPLICE_F_NONBLOCK != 0 {
        libc::MSG_DONTWAIT
    } else {
        0
    };
    let mut buffer = vec![0; len.min(COPY_LEN)];
    let part = iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: the part is this function's buffer.
    let got = unsafe { receive(stream, &[part], libc::MSG_PEEK | waits_not) }? as usize;
    if got == 0 {
        return Ok(0);
    }
    if waits_not != 0 {
        let mut fds = [libc::pollfd {
            fd: to,
            events: libc::POLLOUT,
            revents: 0,
        }];
        if system::poll(&mut fds, Some(0), std::ptr::null())? == 0 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    // A pipe that has room takes a page at least.
    let put = system::write(to, &buffer[..if waits_not != 0 { got.min(4096) } else { got }])?;
    stream.host.run(|state, now| {
        let _ = state.engine.discard(stream.id, put, now);
        state.show(stream.id, false);
    });
    Ok(put as isize)
}
