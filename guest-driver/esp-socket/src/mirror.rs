//! The kernel's picture of a connection, for sets of epoll: the program's descriptor is one end of a pair of local sockets, which the
//! library keeps readable exactly while there is something to read, and writable exactly while there is room.

use std::{
    os::fd::{AsRawFd, RawFd},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{errno::Errno, own_fds::OwnFd, system};

/// What makes the program's end unwritable: the kernel's smallest send buffer has no room beside it.
const FILLER: [u8; 3072] = [0; 3072];
/// Most bytes that are in the pair to be read: one for each edge.
const EDGES_MAX: usize = 64;

/// What a connection is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// There are bytes to be read, or the end of the stream.
    pub(crate) readable: bool,
    /// A call that sends would send something, or fail.
    pub(crate) writable: bool,
    /// The peer sends nothing more.
    pub(crate) finished: bool,
    /// Both directions are over.
    pub(crate) hung_up: bool,
    /// An error waits to be returned.
    pub(crate) failed: bool,
}

/// A pair of local sockets. All of its descriptors are there from the beginning, so that nothing that is done with a connection later
/// fails for want of one.
#[derive(Debug)]
pub(crate) struct Pair {
    /// A copy of the program's end.
    near: OwnFd,
    /// The library's end, until the connection has failed.
    far: Mutex<Option<OwnFd>>,
}

impl Pair {
    /// Makes a pair.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub(crate) fn new() -> Result<Self, Errno> {
        let (near, far) = system::socket_pair()?;
        Ok(Self {
            near: OwnFd::new(near),
            far: Mutex::new(Some(OwnFd::new(far))),
        })
    }

    /// Returns the library's copy of the program's end.
    pub(crate) fn near(&self) -> RawFd {
        self.near.as_raw_fd()
    }

    /// Returns the library's end; `None` once the connection has failed.
    pub(crate) fn far(&self) -> Option<RawFd> {
        let far = self.far.lock().unwrap_or_else(PoisonError::into_inner);
        far.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Closes the library's end, so that the program's has an error: that of a connection that was reset, as something is unread.
    fn fail(&self) {
        let far = self.far.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(far) = far {
            let _ = system::send_now(self.near(), &[0]);
            // A forked child may have a copy, which keeps it open.
            shut(far.as_raw_fd(), libc::SHUT_RDWR);
        }
    }
}

/// What the kernel was shown of a connection that is in sets of epoll.
#[derive(Debug)]
pub(crate) struct Mirror {
    pair: Arc<Pair>,
    bytes: usize,
    shown: Readiness,
}

impl Mirror {
    /// Makes the mirror of a connection in whose pair nothing is.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(pair: Arc<Pair>) -> Result<Self, Errno> {
        system::set_option(pair.near(), libc::SOL_SOCKET, libc::SO_SNDBUF, &1_i32)?;
        Ok(Self {
            pair,
            bytes: 0,
            shown: Readiness {
                writable: true,
                ..Readiness::default()
            },
        })
    }

    /// Takes everything out of the pair that was put there.
    pub(crate) fn clear(mut self) {
        let shown = Readiness {
            readable: false,
            writable: true,
            ..self.shown
        };
        self.show(shown, false);
    }

    /// Shows the kernel what the connection is ready for. `more`: there is more to be read than at the last time, which those want to
    /// know who asked for edges.
    pub(crate) fn show(&mut self, readiness: Readiness, more: bool) {
        let (near, Some(far)) = (self.pair.near(), self.pair.far()) else {
            return;
        };
        if readiness.failed && !self.shown.failed {
            self.pair.fail();
            self.shown = readiness;
            return;
        }
        if readiness.readable && (self.bytes == 0 || more && self.bytes < EDGES_MAX) && !readiness.finished {
            self.bytes += system::send_now(far, &[0]).unwrap_or(0);
        } else if !readiness.readable && self.bytes > 0 {
            let mut bytes = [0; EDGES_MAX];
            self.bytes = self
                .bytes
                .saturating_sub(system::receive_now(near, &mut bytes).unwrap_or(self.bytes));
        }
        if readiness.writable != self.shown.writable {
            if readiness.writable {
                while system::receive_now(far, &mut [0; 4096]).is_ok_and(|len| len > 0) {}
            } else {
                let _ = system::send_now(near, &FILLER);
            }
        }
        if readiness.finished && !self.shown.finished {
            shut(far, libc::SHUT_WR);
        }
        if readiness.hung_up && !self.shown.hung_up {
            shut(far, libc::SHUT_RDWR);
        }
        self.shown = readiness;
    }
}

fn shut(fd: RawFd, how: i32) {
    // SAFETY: a plain call on a descriptor of ours.
    unsafe { libc::syscall(libc::SYS_shutdown, fd, how) };
}
