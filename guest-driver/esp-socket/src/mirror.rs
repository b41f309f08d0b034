//! The kernel's picture of a connection, for sets of epoll: the program's descriptor is one end of a pair of local sockets, which the
//! library keeps readable exactly while there is something to read, and writable exactly while there is room.

use std::os::fd::{AsRawFd, RawFd};

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

/// The pair of a connection that is in sets of epoll.
#[derive(Debug)]
pub(crate) struct Mirror {
    /// The program's end.
    near: OwnFd,
    /// The library's end, until the connection has failed.
    far: Option<OwnFd>,
    bytes: usize,
    shown: Readiness,
}

impl Mirror {
    /// Makes the mirror of a connection that was just made. `near`: the program's descriptor; `far`: the other end of its pair.
    pub(crate) fn new(near: RawFd, far: RawFd) -> Result<Self, Errno> {
        let near = OwnFd::copy_of(near).ok_or(Errno(libc::EMFILE))?;
        let far = OwnFd::copy_of(far).ok_or(Errno(libc::EMFILE))?;
        system::set_option(near.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &1_i32)?;
        Ok(Self {
            near,
            far: Some(far),
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
        let Some(far) = self.far.as_ref().map(AsRawFd::as_raw_fd) else {
            return;
        };
        let near = self.near.as_raw_fd();
        if readiness.failed && !self.shown.failed {
            // A pair whose end is closed with something unread in it has an error, as a connection that was reset has.
            let _ = system::send_now(near, &[0]);
            self.far = None;
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
