//! Functions that copy, close and set descriptors.

use std::ffi::{c_int, c_uint, c_ulong};

use esp_socket::{Errno, descriptors, own_fds, table};

use crate::boundary::{aside, functions, guarded};

functions! {
    /// `close(2)`.
    fn close(fd: c_int) -> c_int = |real| if table::is_known(fd) || own_fds::is_own(fd) => {
        if own_fds::is_own(fd) {
            return guarded(|| Err(Errno(libc::EBADF)));
        }
        let closing = descriptors::before_close(fd);
        let result = real();
        aside(|| {
            descriptors::after_close(closing);
        });
        result
    };

    /// `dup(2)`.
    fn dup(fd: c_int) -> c_int = |real| if table::is_known(fd) => {
        let copy = real();
        aside(|| descriptors::copied(fd, copy));
        copy
    };

    /// `dup2(2)`.
    fn dup2(fd: c_int, to: c_int) -> c_int = |real| if table::is_known(fd) || table::is_known(to) || own_fds::is_own(to) => {
        let closing = descriptors::before_copy_to(fd, to);
        let copy = real();
        descriptors::after_copy_to(closing, fd, to, copy);
        copy
    };

    /// `dup3(2)`.
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = |real| if table::is_known(fd) || table::is_known(to) || own_fds::is_own(to) => {
        let closing = descriptors::before_copy_to(fd, to);
        let copy = real();
        descriptors::after_copy_to(closing, fd, to, copy);
        copy
    };

    /// `fcntl(2)`; the third argument, where there is one, is in a register.
    fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int = |real| if table::is_known(fd) => {
        let result = real();
        aside(|| descriptors::controlled(fd, command, argument, result));
        result
    };

    /// `fcntl(2)`.
    fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int = |real| if table::is_known(fd) => {
        let result = real();
        aside(|| descriptors::controlled(fd, command, argument, result));
        result
    };

    /// `ioctl(2)`.
    fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            // SAFETY: the caller's promise.
            Some(stream) => match guarded(|| unsafe { descriptors::input_output_control(&stream, request, argument) }.map(c_int::from)) {
                1 => 0,
                0 => real(),
                failed => failed,
            },
            None => real(),
        };
}

/// `close_range(2)`, which leaves the library's descriptors open.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    guarded(|| descriptors::close_range(first, last, flags as c_uint).map(|()| 0))
}

/// `closefrom(3)`, which leaves the library's descriptors open.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let _: c_int = guarded(|| descriptors::close_range(first.max(0) as c_uint, c_uint::MAX, 0).map(|()| 0));
}
