//! Setting and reading options of sockets.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use libc::{c_int, c_void, socklen_t};

/// Sets an option of any level.
pub(crate) fn set_option_of<T: Copy>(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    })
}

/// Reads the value of a number option of any level.
pub(crate) fn number_of(socket: BorrowedFd<'_>, level: c_int, option: c_int) -> io::Result<c_int> {
    let mut value = [0; size_of::<c_int>()];
    option_of(socket, level, option, &mut value)?;
    Ok(c_int::from_ne_bytes(value))
}

/// Reads an option of any level into `value`.
pub(crate) fn option_of(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &mut [u8]) -> io::Result<()> {
    let mut len = value.len() as socklen_t;
    // SAFETY: pointer and length describe `value`, which outlives the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    })
}

/// Returns the error of a system call that gave `-1`.
pub(crate) fn check(result: c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
