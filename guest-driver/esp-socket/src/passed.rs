//! Connections that a keeper serves. The program's descriptor carries the bytes itself, as an end of a pair of local sockets whose other
//! end the keeper has; only names and TCP's options are known here.

use std::ffi::{c_int, c_void};

use libc::socklen_t;

use crate::{address::RawAddress, errno::Errno};

/// A connection that a keeper serves.
pub struct Passed {
    /// Own address and the peer's.
    pub(crate) names: (RawAddress, RawAddress),
}

impl Passed {
    /// Whether an option is answered here: the kernel's socket is no TCP socket.
    pub const fn has_option(&self, level: c_int, option: c_int) -> bool {
        level == libc::IPPROTO_TCP
            || level == libc::IPPROTO_IP
            || level == libc::IPPROTO_IPV6
            || level == libc::SOL_SOCKET && (option == libc::SO_DOMAIN || option == libc::SO_PROTOCOL)
    }

    /// Reads an option.
    ///
    /// # Safety
    /// `value` has the room that `len` says, or either is null.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL`.
    pub unsafe fn get_option(
        &self,
        level: c_int,
        option: c_int,
        value: *mut c_void,
        len: *mut socklen_t,
    ) -> Result<(), Errno> {
        if value.is_null() || len.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        if (level, option) == (libc::IPPROTO_IP, libc::IP_OPTIONS) {
            // SAFETY: the caller's promise.
            unsafe { *len = 0 };
            return Ok(());
        }
        let answer: c_int = match (level, option) {
            (libc::SOL_SOCKET, libc::SO_DOMAIN) if self.names.0.is_v6() => libc::AF_INET6,
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => libc::AF_INET,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => 1,
            _ => 0,
        };
        let answer = answer.to_ne_bytes();
        // SAFETY: the caller's promise.
        unsafe {
            let room = (*len as usize).min(answer.len());
            std::ptr::copy_nonoverlapping(answer.as_ptr(), value.cast(), room);
            *len = room as socklen_t;
        }
        Ok(())
    }
}
