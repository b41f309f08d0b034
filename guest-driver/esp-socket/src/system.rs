//! System calls without the C library's functions, which programs under `esp-run` get from this library.

use std::{
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

use libc::{c_int, c_void, pollfd, sigset_t, timespec};

use crate::{errno::Errno, own_fds::OwnFd};

fn checked(result: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::last())
}

/// Returns a descriptor to be watched until it can be read.
pub(crate) const fn readable(fd: RawFd) -> pollfd {
    pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Waits for descriptors; `limit_ns`: at most so long, for ever if `None`.
///
/// # Errors
/// The kernel's; `EINTR` after a signal.
pub(crate) fn poll(fds: &mut [pollfd], limit_ns: Option<u64>, mask: *const sigset_t) -> Result<usize, Errno> {
    let limit = limit_ns.map(time_of);
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the array is described as it is; the limit and the mask, eight bytes of signals, outlive the call.
    checked(unsafe { libc::syscall(libc::SYS_ppoll, fds.as_mut_ptr(), fds.len(), limit, mask, 8_usize) })
}

/// Returns nanoseconds as the kernel takes them.
pub(crate) const fn time_of(ns: u64) -> timespec {
    timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// Returns nanoseconds of a time as the kernel takes it.
///
/// # Errors
/// `EINVAL` for what is none.
pub(crate) fn ns_of(time: timespec) -> Result<u64, Errno> {
    let part = u64::try_from(time.tv_nsec).ok().filter(|part| *part < 1_000_000_000);
    match (u64::try_from(time.tv_sec), part) {
        (Ok(seconds), Some(part)) => Ok(seconds.saturating_mul(1_000_000_000).saturating_add(part)),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Sends bytes through a local socket without waiting.
pub(crate) fn send_now(fd: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: pointer and length describe `bytes`.
    checked(unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd,
            bytes.as_ptr(),
            bytes.len(),
            flags,
            0_usize,
            0_usize,
        )
    })
}

/// Receives bytes from a local socket without waiting.
pub(crate) fn receive_now(fd: RawFd, to: &mut [u8]) -> Result<usize, Errno> {
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: pointer and length describe `to`.
    checked(unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd,
            to.as_mut_ptr(),
            to.len(),
            flags,
            0_usize,
            0_usize,
        )
    })
}

/// Reads from any descriptor of the program.
pub(crate) fn read(fd: RawFd, to: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: pointer and length describe `to`.
    checked(unsafe { libc::syscall(libc::SYS_read, fd, to.as_mut_ptr(), to.len()) })
}

/// Writes to any descriptor of the program.
pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: pointer and length describe `bytes`.
    checked(unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) })
}

/// Reads a file at an offset.
pub(crate) fn read_at(fd: RawFd, to: &mut [u8], offset: i64) -> Result<usize, Errno> {
    // SAFETY: pointer and length describe `to`.
    checked(unsafe { libc::syscall(libc::SYS_pread64, fd, to.as_mut_ptr(), to.len(), offset) })
}

/// Makes a joined pair of local stream sockets.
pub(crate) fn socket_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut fds: [c_int; 2] = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: `fds` has room for two.
    checked(unsafe { libc::syscall(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    // SAFETY: the kernel just made them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Puts `from` on the program's number `to`, whose flag for `exec` stays as it is.
pub(crate) fn put_on(from: RawFd, to: RawFd) -> Result<(), Errno> {
    // SAFETY: plain calls; the kernel checks the numbers.
    let flags = checked(unsafe { libc::syscall(libc::SYS_fcntl, to, libc::F_GETFD) })?;
    let flags = if flags as c_int & libc::FD_CLOEXEC != 0 {
        libc::O_CLOEXEC
    } else {
        0
    };
    // SAFETY: as above.
    checked(unsafe { libc::syscall(libc::SYS_dup3, from, to, flags) }).map(drop)
}

/// Calls `fcntl` with a number.
pub(crate) fn control(fd: RawFd, command: c_int, argument: usize) -> Result<usize, Errno> {
    // SAFETY: commands with numbers only, so that the kernel checks all.
    checked(unsafe { libc::syscall(libc::SYS_fcntl, fd, command, argument) })
}

/// Sets an option of a socket.
pub(crate) fn set_option<T: Copy>(fd: RawFd, level: c_int, option: c_int, value: &T) -> Result<(), Errno> {
    let value = ptr::from_ref(value);
    // SAFETY: pointer and length describe `value`.
    checked(unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, option, value, size_of::<T>()) }).map(drop)
}

/// Reads an option of a socket that is a number.
pub(crate) fn option(fd: RawFd, level: c_int, option: c_int) -> Result<c_int, Errno> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`.
    checked(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, option, &raw mut value, &raw mut len) })?;
    Ok(value)
}

/// Returns the number by which the kernel names a socket, or another file of its own; 0 where it has none.
pub(crate) fn inode(fd: RawFd) -> u64 {
    // SAFETY: the number is only given to the kernel, which refuses one that is not open.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    rustix::fs::fstat(fd).map_or(0, |file| file.st_ino)
}

/// Makes a counter that can be waited for.
pub(crate) fn event() -> Result<OwnFd, Errno> {
    // SAFETY: a plain call.
    let fd = unsafe { libc::syscall(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    let fd = checked(fd)? as RawFd;
    // SAFETY: the kernel just made it.
    Ok(OwnFd::new(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Makes a counter readable.
pub(crate) fn signal(event: &OwnFd) {
    // It is readable already if this fails.
    let _ = write(event.as_raw_fd(), &1_u64.to_ne_bytes());
}

/// Makes a counter unreadable.
pub(crate) fn clear(event: &OwnFd) {
    // It is unreadable already if this fails.
    let _ = read(event.as_raw_fd(), &mut [0; 8]);
}

/// Accepts a connection.
///
/// # Safety
/// `from` and `len` describe room for an address, or are null.
pub(crate) unsafe fn accept(
    fd: RawFd,
    from: *mut c_void,
    len: *mut libc::socklen_t,
    flags: c_int,
) -> Result<RawFd, Errno> {
    // SAFETY: the caller's promise.
    checked(unsafe { libc::syscall(libc::SYS_accept4, fd, from, len, flags) }).map(|fd| fd as RawFd)
}
