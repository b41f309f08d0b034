//! Stream sockets over ESP, used as TCP's are.
//!
//! The library `libesp-preload.so` (crate `weft-esp-preload`) puts this crate's functions in the place of the C library's, so that programs
//! use ESP as they are. A connection is made by ESP where the peer's authority speaks it and a program listens there by it, and by
//! TCP otherwise.
//!
//! - [`connect`] and [`listener`] make connections; [`stream::Stream`] is one, behind a descriptor of the program.
//! - [`calls`], [`options`], [`polls`] and [`epoll_set`] are what programs do with them.
//! - [`table`] and [`descriptors`] say what is behind a descriptor; [`processes`], [`exec`], [`keeper`] and [`finisher`] what becomes of
//!   it when a program forks, starts another one, passes it on, or ends, and [`rights`] when it becomes another user.

mod address;
mod background;
mod bulk_watch;
mod c_interface;
pub mod calls;
pub mod connect;
mod connection;
pub mod counters;
pub mod descriptors;
pub mod epoll_set;
mod errno;
pub mod exec;
pub mod finisher;
pub mod host;
mod id_hasher;
pub mod keeper;
mod links;
pub mod listener;
mod mirror;
mod mtu;
pub mod options;
pub mod own_fds;
pub mod passed;
pub mod plain;
pub mod polls;
mod port;
pub mod processes;
mod report;
mod reserve;
pub mod rights;
mod settings;
mod signals;
mod sleepers;
mod spin;
pub mod starter;
mod state;
pub mod stream;
mod system;
pub mod table;
mod waiter;

use std::sync::atomic::{AtomicBool, Ordering};

pub use errno::Errno;

static IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether this process has, or had, anything to do with ESP.
#[inline]
pub fn is_in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

pub(crate) fn set_in_use() {
    if !IN_USE.swap(true, Ordering::Relaxed) {
        processes::at_exit();
    }
}

/// Returns a random number that peers cannot guess.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: pointer and length describe `bytes`. It does not fail for so few.
    unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    u64::from_ne_bytes(bytes)
}
