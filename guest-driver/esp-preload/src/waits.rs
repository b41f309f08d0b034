//! Functions that wait for several descriptors.

use std::ffi::c_int;

use esp_socket::{epoll_set, polls, table};
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::boundary::{aside, functions, guarded};

/// The limit of a call in nanoseconds; `None`: for ever.
fn limit_ms(limit: c_int) -> Option<u64> {
    u64::try_from(limit).ok().map(|limit| limit * 1_000_000)
}

/// Whether a connection is among the descriptors of a call.
fn concerns(fds: *const pollfd, count: nfds_t) -> bool {
    // SAFETY: the caller of the C library's function promises that they are there.
    unsafe { polls::concerns(fds, count) }
}

/// Whether a connection is in the sets of a call.
fn select_concerns(count: c_int, read: *const fd_set, write: *const fd_set, other: *const fd_set) -> bool {
    // SAFETY: as above.
    unsafe { polls::select_concerns(count, read, write, other) }
}

functions! {
    /// `poll(2)`.
    fn poll(fds: *mut pollfd, count: nfds_t, limit: c_int) -> c_int = |real| if concerns(fds, count) =>
        // SAFETY: the caller's promise.
        guarded(|| unsafe { polls::poll(fds, count, limit_ms(limit), std::ptr::null()) });

    /// `poll(2)` with a check of the array's length.
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, limit: c_int, room: size_t) -> c_int = |real|
    if count as usize * size_of::<pollfd>() <= room && concerns(fds, count) =>
        // SAFETY: the caller's promise.
        guarded(|| unsafe { polls::poll(fds, count, limit_ms(limit), std::ptr::null()) });

    /// `ppoll(2)`.
    fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t) -> c_int = |real| if concerns(fds, count) =>
        // SAFETY: the caller's promise.
        guarded(|| unsafe { polls::poll(fds, count, polls::limit_of(limit)?, mask) });

    /// `ppoll(2)` with a check of the array's length.
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t, room: size_t) -> c_int = |real|
    if count as usize * size_of::<pollfd>() <= room && concerns(fds, count) =>
        // SAFETY: the caller's promise.
        guarded(|| unsafe { polls::poll(fds, count, polls::limit_of(limit)?, mask) });

    /// `select(2)`.
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, limit: *mut timeval) -> c_int = |real|
    if select_concerns(count, read, write, other) =>
        // SAFETY: the caller's promise.
        guarded(|| unsafe { polls::select(count, [read, write, other], limit) });

    /// `pselect(2)`.
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, limit: *const timespec, mask: *const sigset_t) -> c_int = |real|
    if select_concerns(count, read, write, other) =>
        // SAFETY: the caller's promise.
        guarded(|| unsafe { polls::pselect(count, [read, write, other], polls::limit_of(limit)?, mask) });

    /// `epoll_ctl(2)`.
    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int = |real| if true => {
        aside(|| {
            epoll_set::before_control(set, operation, fd);
        });
        let result = real();
        if result == 0 {
            aside(|| {
                // SAFETY: the caller's promise.
                unsafe { epoll_set::after_control(set, operation, fd, event) };
            });
        }
        result
    };

    /// `epoll_wait(2)`.
    fn epoll_wait(set: c_int, events: *mut epoll_event, count: c_int, limit: c_int) -> c_int = |real| if table::is_known(set) =>
        match table::get(set) {
            // SAFETY: the caller's promise.
            Some(table::Entry::Epoll(known)) => guarded(|| unsafe { known.wait(set, events, count, limit_ms(limit), std::ptr::null()) }),
            _ => real(),
        };

    /// `epoll_pwait(2)`.
    fn epoll_pwait(set: c_int, events: *mut epoll_event, count: c_int, limit: c_int, mask: *const sigset_t) -> c_int = |real| if table::is_known(set) =>
        match table::get(set) {
            // SAFETY: the caller's promise.
            Some(table::Entry::Epoll(known)) => guarded(|| unsafe { known.wait(set, events, count, limit_ms(limit), mask) }),
            _ => real(),
        };

    /// `epoll_pwait2(2)`.
    fn epoll_pwait2(set: c_int, events: *mut epoll_event, count: c_int, limit: *const timespec, mask: *const sigset_t) -> c_int = |real| if table::is_known(set) =>
        match table::get(set) {
            // SAFETY: the caller's promise.
            Some(table::Entry::Epoll(known)) => guarded(|| unsafe { known.wait(set, events, count, polls::limit_of(limit)?, mask) }),
            _ => real(),
        };
}
