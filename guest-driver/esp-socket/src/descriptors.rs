//! Copying and closing descriptors, and what they are told by `fcntl` and `ioctl`.

use std::{
    ffi::{c_int, c_uint, c_ulong},
    os::fd::RawFd,
    sync::atomic::Ordering,
};

use crate::{
    errno::Errno,
    keeper, own_fds,
    stream::Stream,
    system,
    table::{self, Entry},
};

/// `SIOCATMARK` and `SIOCOUTQNSD` of the kernel.
const SIOCATMARK: c_ulong = 0x8905;
const SIOCOUTQNSD: c_ulong = 0x894B;

/// What was behind a number that is being closed.
pub struct Closing(Option<Entry>);

/// Takes a number out of the table before it is closed: another thread may get it the moment it is free.
pub fn before_close(fd: RawFd) -> Closing {
    Closing(table::replace(fd, None))
}

/// Closes what was behind a number, if that was the last one.
pub fn after_close(closing: Closing) {
    drop(closing.0);
}

/// Notes that `copy` is a copy of `fd`.
pub fn copied(fd: RawFd, copy: RawFd) {
    if copy >= 0 {
        let entry = table::get(fd).filter(|entry| !matches!(entry, Entry::Plain(_)));
        drop(table::replace(copy, entry));
        if copy <= 2
            && fd > 2
            && let Some(stream) = table::stream(copy)
        {
            // The C library reads and writes its standard streams by itself, as a program does that is started next.
            keeper::pass(&stream);
        }
    }
}

/// Prepares that `to` becomes a copy of `fd`.
pub fn before_copy_to(fd: RawFd, to: RawFd) -> Closing {
    if to <= 2 && fd > 2 {
        // Programs that are started with a connection for their input have it there, and so this process is the one to use it.
        drop(table::stream(fd));
    }
    Closing(if fd == to { None } else { table::get(to) })
}

/// Notes that `to` became a copy of `fd`, if it did.
pub fn after_copy_to(closing: Closing, fd: RawFd, to: RawFd, copy: RawFd) {
    if copy >= 0 && fd != to {
        copied(fd, to);
    }
    drop(closing);
}

/// Notes what `fcntl` did.
pub fn controlled(fd: RawFd, command: c_int, argument: c_ulong, result: c_int) {
    if result < 0 {
        return;
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, result),
        libc::F_SETFL => {
            if let Some(Entry::Stream(stream)) = table::get(fd) {
                let waits_not = argument as c_int & libc::O_NONBLOCK != 0;
                stream.nonblocking.store(waits_not, Ordering::Relaxed);
                if argument as c_int & libc::O_ASYNC != 0 {
                    // The kernel sends a signal when the descriptor shows news.
                    let _ = stream.reflect();
                }
            }
        }
        _ => {}
    }
}

/// Answers a request of `ioctl`; `false`: the kernel is to answer it.
///
/// # Safety
/// `argument` points to a number where the request wants one.
///
/// # Errors
/// `EFAULT`.
pub unsafe fn input_output_control(stream: &Stream, request: c_ulong, argument: c_ulong) -> Result<bool, Errno> {
    let place = std::ptr::with_exposed_provenance_mut::<c_int>(argument as usize);
    let state = || stream.host.lock();
    let answer = match request {
        libc::FIONREAD => stream
            .host
            .run(|state, _| state.engine.available(stream.id).unwrap_or(0)),
        libc::TIOCOUTQ => {
            let state = state();
            let is_ended = state
                .connections
                .get(&stream.id)
                .is_none_or(|connection| connection.is_ended);
            let space = state.engine.space(stream.id).unwrap_or(state.send_len);
            if is_ended {
                0
            } else {
                state.send_len.saturating_sub(space)
            }
        }
        SIOCOUTQNSD => state().engine.info(stream.id).map_or(0, |info| info.unsent),
        SIOCATMARK => 0,
        libc::FIONBIO => {
            if place.is_null() {
                return Err(Errno(libc::EFAULT));
            }
            // SAFETY: the caller's promise.
            let waits_not = unsafe { place.read_unaligned() } != 0;
            stream.nonblocking.store(waits_not, Ordering::Relaxed);
            return Ok(false);
        }
        _ => return Ok(false),
    };
    if place.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    unsafe { place.write_unaligned(c_int::try_from(answer).unwrap_or(c_int::MAX)) };
    Ok(true)
}

/// Closes a range of numbers but for the library's own.
///
/// # Errors
/// As `close_range(2)`.
pub fn close_range(first: c_uint, last: c_uint, flags: c_uint) -> Result<(), Errno> {
    let raw = |from: c_uint, to: c_uint| {
        // SAFETY: none of the numbers is the library's.
        let result = unsafe { libc::syscall(libc::SYS_close_range, from, to, flags) };
        if result < 0 { Err(Errno::last()) } else { Ok(()) }
    };
    if first > last {
        return raw(first, last);
    }
    if flags & libc::CLOSE_RANGE_CLOEXEC == 0 {
        let end = table::end().min(i32::try_from(last).unwrap_or(i32::MAX).saturating_add(1));
        for fd in i32::try_from(first).unwrap_or(i32::MAX)..end {
            if table::is_known(fd) {
                after_close(before_close(fd));
            }
        }
    }
    let mut from = first;
    for own in own_fds::all() {
        let own = own as c_uint;
        if (from..=last).contains(&own) {
            if own > from {
                raw(from, own - 1)?;
            }
            from = own + 1;
        }
    }
    if from <= last { raw(from, last) } else { Ok(()) }
}

/// Returns whether a descriptor is closed by `exec`.
pub(crate) fn is_closed_by_exec(fd: RawFd) -> bool {
    system::control(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags as c_int & libc::FD_CLOEXEC != 0)
}
