//! Functions that move data.

use std::ffi::{c_int, c_uint, c_void};

use esp_socket::{calls, table};
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::boundary::{aside, functions, guarded};

const fn part(base: *mut c_void, len: size_t) -> iovec {
    iovec {
        iov_base: base,
        iov_len: len,
    }
}

functions! {
    /// `read(2)`.
    fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::receive(&stream, &[part(to, len)], 0) }),
            None => real(),
        };

    /// `read(2)` with a check of the buffer's length.
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t = |real| if table::is_known(fd) && len <= room =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::receive(&stream, &[part(to, len)], 0) }),
            None => real(),
        };

    /// `recv(2)`.
    fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::receive(&stream, &[part(to, len)], flags) }),
            None => real(),
        };

    /// `recv(2)` with a check of the buffer's length.
    fn __recv_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t = |real| if table::is_known(fd) && len <= room =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::receive(&stream, &[part(to, len)], flags) }),
            None => real(),
        };

    /// `recvfrom(2)`.
    fn recvfrom(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t
    = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::receive_from(&stream, part(to, len), flags, from, from_len) }),
            None => real(),
        };

    /// `recvfrom(2)` with a check of the buffer's length.
    fn __recvfrom_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t
    = |real| if table::is_known(fd) && len <= room =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::receive_from(&stream, part(to, len), flags, from, from_len) }),
            None => real(),
        };

    /// `readv(2)`.
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::receive(&stream, calls::parts(parts, count as usize)?, 0) }),
            None => real(),
        };

    /// `recvmsg(2)`.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::receive_message(&stream, message, flags) }),
            None => real(),
        };

    /// `recvmmsg(2)`.
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, limit: *mut timespec) -> c_int = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::receive_messages(&stream, messages, count, flags, limit) }),
            None => real(),
        };

    /// `write(2)`.
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::send(&stream, &[part(from.cast_mut(), len)], 0) }),
            None => real(),
        };

    /// `send(2)`.
    fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::send(&stream, &[part(from.cast_mut(), len)], flags) }),
            None => real(),
        };

    /// `sendto(2)`.
    fn sendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t
    = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // A connected socket ignores the address.
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::send(&stream, &[part(from.cast_mut(), len)], flags) }),
            None => real(),
        };

    /// `writev(2)`.
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::send(&stream, calls::parts(parts, count as usize)?, 0) }),
            None => real(),
        };

    /// `sendmsg(2)`, which also passes descriptors to other programs.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = |real| if esp_socket::is_in_use() =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::send_message(&stream, message, flags) }),
            None => {
                // SAFETY: the caller's promise.
                aside(|| unsafe { calls::before_passing(message) });
                real()
            }
        };

    /// `sendmmsg(2)`.
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::send_messages(&stream, messages, count, flags) }),
            None => real(),
        };

    /// `sendfile(2)`.
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t = |real| if table::is_known(to) || table::is_known(from) =>
        match table::stream(to) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::send_file(&stream, from, offset, count) }),
            None if table::stream(from).is_some() => guarded(|| Err(esp_socket::Errno(libc::EINVAL))),
            None => real(),
        };

    /// `sendfile(2)`.
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t = |real| if table::is_known(to) || table::is_known(from) =>
        match table::stream(to) {
            // SAFETY: the caller's promise.
            Some(stream) => guarded(|| unsafe { calls::send_file(&stream, from, offset, count) }),
            None if table::stream(from).is_some() => guarded(|| Err(esp_socket::Errno(libc::EINVAL))),
            None => real(),
        };

    /// `splice(2)`.
    fn splice(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: c_uint) -> ssize_t
    = |real| if table::is_known(to) || table::is_known(from) =>
        match (table::stream(from), table::stream(to)) {
            (_, Some(stream)) => guarded(|| calls::splice_to(&stream, from, len, flags, !from_offset.is_null() || !to_offset.is_null())),
            (Some(stream), None) => guarded(|| calls::splice_from(&stream, to, len, flags, !from_offset.is_null() || !to_offset.is_null())),
            (None, None) => real(),
        };
}
