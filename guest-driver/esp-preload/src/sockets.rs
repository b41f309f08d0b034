//! Functions that make, name and set sockets.

use std::ffi::{c_int, c_void};

use esp_socket::{Errno, calls, connect, listener, options, table};
use libc::{sockaddr, socklen_t};

use crate::boundary::{functions, guarded};

functions! {
    /// `connect(2)`.
    fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int = |real| if true =>
        // SAFETY: the caller's promise.
        match unsafe { connect::by_esp(fd, to, len) } {
            connect::Way::Tcp => real(),
            connect::Way::Esp(result) => guarded(|| result.map(|()| 0)),
        };

    /// `listen(2)`.
    fn listen(fd: c_int, backlog: c_int) -> c_int = |real| if true => guarded(|| {
        listener::listen(fd, || if real() == 0 { Ok(0) } else { Err(Errno::last()) })
    });

    /// `accept(2)`.
    fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int = |_real| if true =>
        // SAFETY: the caller's promise.
        guarded(|| unsafe { listener::accept(fd, from, len, 0) });

    /// `accept4(2)`.
    fn accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int = |_real| if true =>
        // SAFETY: the caller's promise.
        guarded(|| unsafe { listener::accept(fd, from, len, flags) });

    /// `shutdown(2)`.
    fn shutdown(fd: c_int, how: c_int) -> c_int = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            Some(stream) => guarded(|| calls::shutdown(&stream, how).map(|()| 0)),
            None => {
                listener::shut_down(fd);
                real()
            }
        };

    /// `getsockname(2)`.
    fn getsockname(fd: c_int, to: *mut sockaddr, len: *mut socklen_t) -> c_int = |real| if table::is_known(fd) =>
        match calls::names(fd) {
            // SAFETY: the caller's promise.
            Some(names) => guarded(|| unsafe { calls::give_address(&names.0, to, len) }.map(|()| 0)),
            None => real(),
        };

    /// `getpeername(2)`.
    fn getpeername(fd: c_int, to: *mut sockaddr, len: *mut socklen_t) -> c_int = |real| if table::is_known(fd) =>
        match calls::names(fd) {
            Some(names) => guarded(|| {
                calls::check_connected(fd)?;
                // SAFETY: the caller's promise.
                unsafe { calls::give_address(&names.1, to, len) }.map(|()| 0)
            }),
            None => real(),
        };

    /// `getsockopt(2)`.
    fn getsockopt(fd: c_int, level: c_int, option: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int = |real| if table::is_known(fd) =>
        match table::get(fd) {
            // SAFETY: the caller's promise.
            Some(table::Entry::Stream(stream)) => guarded(|| unsafe { options::get(&stream, level, option, value, len) }.map(|()| 0)),
            // SAFETY: the caller's promise.
            Some(table::Entry::Passed(passed)) if passed.has_option(level, option) => guarded(|| unsafe { passed.get_option(level, option, value, len) }.map(|()| 0)),
            _ => real(),
        };

    /// `setsockopt(2)`.
    fn setsockopt(fd: c_int, level: c_int, option: c_int, value: *const c_void, len: socklen_t) -> c_int = |real| if table::is_known(fd) =>
        match table::get(fd) {
            // SAFETY: the caller's promise.
            Some(table::Entry::Stream(stream)) => guarded(|| unsafe { options::set(&stream, level, option, value, len) }.map(|()| 0)),
            Some(table::Entry::Passed(passed)) if passed.has_option(level, option) => 0,
            _ => real(),
        };
}
