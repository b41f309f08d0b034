//! Calls on connections, as those of TCP's sockets: what they return and which errors they have.

mod copying;
mod receiving;
mod sending;

use std::{os::fd::RawFd, slice};

use libc::{c_int, iovec, sockaddr, socklen_t};

pub use self::{
    copying::{send_file, splice_from, splice_to},
    receiving::{receive, receive_from, receive_message, receive_messages},
    sending::{before_passing, send, send_message, send_messages},
};
use crate::{
    address::RawAddress,
    errno::Errno,
    stream::Stream,
    table::{self, Entry},
};

/// Most parts of one call (`IOV_MAX`).
const PARTS_MAX: usize = 1024;

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

/// Returns how many bytes the parts have.
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
