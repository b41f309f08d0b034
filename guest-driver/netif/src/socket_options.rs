//! Setting and reading options of sockets, and binding them.

use std::{
    io,
    mem::MaybeUninit,
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

/// The value of an option that can be read.
///
/// # Safety
/// Any bytes are a value of the type.
pub(crate) unsafe trait Value {}
// SAFETY: a number.
unsafe impl Value for c_int {}
// SAFETY: a number.
unsafe impl Value for u64 {}
// SAFETY: numbers.
unsafe impl Value for libc::tpacket_stats {}
// SAFETY: numbers.
unsafe impl Value for libc::xdp_mmap_offsets {}

/// Reads an option of any level; [`io::ErrorKind::Unsupported`] where the kernel has another form of it.
pub(crate) fn option_of<T: Value>(socket: BorrowedFd<'_>, level: c_int, option: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: pointer and length describe `value`, which outlives the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    if len as usize != size_of::<T>() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: zeroed above, and any bytes that the kernel wrote are a value.
    Ok(unsafe { value.assume_init() })
}

/// Binds a socket to an address of its family.
pub(crate) fn bind<T: Copy>(socket: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    let address_ptr = std::ptr::from_ref(address).cast();
    // SAFETY: pointer and length describe `address`, which outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), address_ptr, size_of::<T>() as socklen_t) })
}

/// Returns the error of a system call that gave `-1`.
#[inline]
pub(crate) fn check<T: Default + PartialOrd>(result: T) -> io::Result<()> {
    if result < T::default() {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
