//! SIGTERM, SIGINT and SIGHUP as a readable descriptor, so that a sleep on a port ends cleanly and nothing is missed
//! between looking and sleeping.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Readable from the first request to end on. The second one kills the process as usual, should it hang.
pub struct Stop {
    receiver: UnixStream,
}

impl Stop {
    /// Takes the signals over for the rest of the process.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn on_signals() -> io::Result<Self> {
        let (receiver, sender) = UnixStream::pair()?;
        let seen = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            // In this order: the first signal finds the flag unset, the second one ends the process.
            signal_hook::flag::register_conditional_default(signal, seen.clone())?;
            signal_hook::flag::register(signal, seen.clone())?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { receiver })
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}
