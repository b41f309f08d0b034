//! The functions of `esp.h`: sockets over ESP for C programs that ask for them by name. Each does for its descriptor what the function of
//! the same name does for TCP's; a descriptor whose connection was made by TCP goes to the kernel.

use std::{
    ffi::{c_int, c_void},
    os::fd::RawFd,
    panic::{AssertUnwindSafe, catch_unwind},
};

use ether::MacAddr;
use libc::{iovec, nfds_t, pollfd, sockaddr, socklen_t, ssize_t};

use crate::{calls, connect, descriptors, errno::Errno, listener, own_fds, polls, table};

/// `ESP_AF_ENET` of `esp.h`: a number that no family of Linux has.
const AF_ENET: u16 = 0x4553;

/// `struct esp_address` of `esp.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct EspAddress {
    family: u16,
    port: u16,
    interface: u32,
    mac: [u8; 6],
    _rest: [u8; 2],
}

/// Runs the body of a function: -1 and `errno` for an error, `EIO` for a panic.
fn guarded(body: impl FnOnce() -> Result<isize, Errno>) -> isize {
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno(libc::EIO))) {
        Ok(value) => value,
        Err(Errno(code)) => {
            // SAFETY: this thread's place.
            unsafe { *libc::__errno_location() = code };
            -1
        }
    }
}

fn of_kernel(result: libc::c_long) -> Result<isize, Errno> {
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(result as isize)
    }
}

/// Makes a socket of a family of IP's.
#[unsafe(no_mangle)]
extern "C" fn esp_socket(family: c_int) -> c_int {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    guarded(|| {
        if ![libc::AF_INET, libc::AF_INET6].contains(&family) {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        // SAFETY: a plain call.
        of_kernel(unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) })
    }) as c_int
}

/// Gives a socket an address of this host.
///
/// # Safety
/// `address` points to `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn esp_bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| of_kernel(unsafe { libc::syscall(libc::SYS_bind, fd, address, len) })) as c_int
}

/// Listens, for connections over ESP and TCP.
#[unsafe(no_mangle)]
extern "C" fn esp_listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: a plain call.
    let call = || of_kernel(unsafe { libc::syscall(libc::SYS_listen, fd, backlog) });
    guarded(|| listener::listen(fd, call)) as c_int
}

/// Accepts a connection.
///
/// # Safety
/// `from` has the room that `len` says, or is null.
#[unsafe(no_mangle)]
unsafe extern "C" fn esp_accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { listener::accept(fd, from, len, libc::SOCK_CLOEXEC) }.map(|fd| fd as isize)) as c_int
}

/// Connects to an IP address, or to an Ethernet address.
///
/// # Safety
/// `to` points to `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn esp_connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    guarded(|| {
        let has_family = !to.is_null() && len as usize >= size_of::<u16>();
        // SAFETY: the length was checked.
        if has_family && unsafe { to.cast::<u16>().read_unaligned() } == AF_ENET {
            if (len as usize) < size_of::<EspAddress>() {
                return Err(Errno(libc::EINVAL));
            }
            // SAFETY: as above.
            let address = unsafe { to.cast::<EspAddress>().read_unaligned() };
            let port = u16::from_be(address.port);
            return connect::by_mac(fd, address.interface, MacAddr(address.mac), port).map(|()| 0);
        }
        // SAFETY: the caller's promise.
        match unsafe { connect::by_esp(fd, to, len) } {
            connect::Way::Esp(result) => result.map(|()| 0),
            // SAFETY: as above.
            connect::Way::Tcp => of_kernel(unsafe { libc::syscall(libc::SYS_connect, fd, to, len) }),
        }
    }) as c_int
}

/// Sends bytes.
///
/// # Safety
/// `from` points to `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn esp_send(fd: c_int, from: *const c_void, len: usize, flags: c_int) -> ssize_t {
    let part = iovec {
        iov_base: from.cast_mut(),
        iov_len: len,
    };
    guarded(|| match table::stream(fd) {
        // SAFETY: the caller's promise.
        Some(stream) => unsafe { calls::send(&stream, &[part], flags) },
        // SAFETY: as above.
        None => of_kernel(unsafe { libc::syscall(libc::SYS_sendto, fd, from, len, flags, 0, 0) }),
    })
}

/// Receives bytes.
///
/// # Safety
/// `to` has room for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn esp_recv(fd: c_int, to: *mut c_void, len: usize, flags: c_int) -> ssize_t {
    let part = iovec {
        iov_base: to,
        iov_len: len,
    };
    guarded(|| match table::stream(fd) {
        // SAFETY: the caller's promise.
        Some(stream) => unsafe { calls::receive(&stream, &[part], flags) },
        // SAFETY: as above.
        None => of_kernel(unsafe { libc::syscall(libc::SYS_recvfrom, fd, to, len, flags, 0, 0) }),
    })
}

/// Sends the bytes of several places.
///
/// # Safety
/// `parts` points to `count` parts.
#[unsafe(no_mangle)]
unsafe extern "C" fn esp_sendv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    guarded(|| match table::stream(fd) {
        // SAFETY: the caller's promise.
        Some(stream) => unsafe { calls::send(&stream, calls::parts(parts, count as usize)?, 0) },
        // SAFETY: as above.
        None => of_kernel(unsafe { libc::syscall(libc::SYS_writev, fd, parts, count) }),
    })
}

/// Receives bytes to several places.
///
/// # Safety
/// `parts` points to `count` parts.
#[unsafe(no_mangle)]
unsafe extern "C" fn esp_recvv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    guarded(|| match table::stream(fd) {
        // SAFETY: the caller's promise.
        Some(stream) => unsafe { calls::receive(&stream, calls::parts(parts, count as usize)?, 0) },
        // SAFETY: as above.
        None => of_kernel(unsafe { libc::syscall(libc::SYS_readv, fd, parts, count) }),
    })
}

/// Waits for descriptors of any kind.
///
/// # Safety
/// `fds` points to `count` of them.
#[unsafe(no_mangle)]
unsafe extern "C" fn esp_poll(fds: *mut pollfd, count: nfds_t, limit_ms: c_int) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        if unsafe { polls::concerns(fds, count) } {
            let limit_ns = u64::try_from(limit_ms).ok().map(|limit| limit * 1_000_000);
            // SAFETY: the caller's promise.
            return unsafe { polls::poll(fds, count, limit_ns, std::ptr::null()) }.map(|ready| ready as isize);
        }
        // SAFETY: as above.
        of_kernel(unsafe { libc::syscall(libc::SYS_poll, fds, count, limit_ms) })
    }) as c_int
}

/// Closes one direction or both.
#[unsafe(no_mangle)]
extern "C" fn esp_shutdown(fd: c_int, how: c_int) -> c_int {
    guarded(|| match table::stream(fd) {
        Some(stream) => calls::shutdown(&stream, how).map(|()| 0),
        // SAFETY: a plain call.
        None => of_kernel(unsafe { libc::syscall(libc::SYS_shutdown, fd, how) }),
    }) as c_int
}

/// Whether a descriptor's connection is over ESP: 1, or 0.
#[unsafe(no_mangle)]
extern "C" fn esp_is_esp(fd: c_int) -> c_int {
    c_int::from(table::stream(fd).is_some())
}

/// Closes a descriptor.
#[unsafe(no_mangle)]
extern "C" fn esp_close(fd: RawFd) -> c_int {
    guarded(|| {
        if own_fds::is_own(fd) {
            return Err(Errno(libc::EBADF));
        }
        let closing = descriptors::before_close(fd);
        // SAFETY: a plain call.
        let result = of_kernel(unsafe { libc::syscall(libc::SYS_close, fd) });
        descriptors::after_close(closing);
        result
    }) as c_int
}
