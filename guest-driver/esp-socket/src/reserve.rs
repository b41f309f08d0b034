//! The descriptors of the next connection, taken before there is one: a program that has no numbers left is told so as TCP tells it, before
//! a connection is taken out of its listener's queue, and connects by TCP, which needs one number only.

use std::sync::{Mutex, PoisonError, TryLockError};

use crate::{errno::Errno, mirror::Pair, own_fds::OwnFd, processes};

/// What a connection needs beside the program's own descriptor: three numbers.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) pair: Pair,
    /// Becomes a copy of the program's TCP socket.
    pub(crate) plain: OwnFd,
}

/// One that was not needed, and the process that has it: a forked child has descriptors of the same pair.
static SPARE: Mutex<Option<(u32, Reserved)>> = Mutex::new(None);

impl Reserved {
    fn new() -> Result<Self, Errno> {
        let pair = Pair::new()?;
        let plain = OwnFd::copy_of(pair.near()).ok_or(Errno(libc::EMFILE))?;
        Ok(Self { pair, plain })
    }

    /// Takes the descriptors of a connection.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub(crate) fn take() -> Result<Self, Errno> {
        // Another thread, or one of the parent at the time of a fork, may have it: then there is none.
        let spare = match SPARE.try_lock() {
            Ok(mut spare) => spare.take(),
            Err(TryLockError::Poisoned(spare)) => PoisonError::into_inner(spare).take(),
            Err(TryLockError::WouldBlock) => None,
        };
        match spare {
            Some((of, reserved)) if of == processes::generation() => Ok(reserved),
            _ => Self::new(),
        }
    }

    /// Keeps descriptors that were not needed for the next connection.
    pub(crate) fn put_back(reserved: Option<Self>) {
        if let (Some(reserved), Ok(mut spare)) = (reserved, SPARE.try_lock()) {
            *spare = Some((processes::generation(), reserved));
        }
    }
}
