//! Copies by a card that is wired to itself: the processor says what is to be copied and does something else, and learns from a
//! variable that it is done (Ciaccio, *Using a Self-connected Gigabit Ethernet Adapter as a memcpy() Low-Overhead Engine for MPI*).
//!
//! A NIC with `loopback = true` that programs drive is such a card. [`Engine`] has the calls of the paper: [`Engine::icopy`],
//! [`Engine::icopy_notif`], and the same out of receive buffers; [`Engine::test`] and [`Engine::wait`] look at the variable.

mod backend;
mod engine;
mod error;
mod limits;
mod memory;
mod probe;
mod registrations;
mod runs;

pub use backend::{Backend, Reaped};
pub use engine::{Counters, Engine, ListedCopy, Options};
pub use error::CopyError;
pub use limits::{COPIES_MAX, COPY_LEN_MAX, REGISTRATIONS_MAX};
pub use memory::Memory;
pub use netif::virtio::{CardAddress, LoopFrame, PAGE, Piece, VirtioError};
pub use registrations::CacheCounters;

/// What registered memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Memory of the program: source and destination of copies, and notification variables.
    Program,
    /// Buffers in which a port receives frames: source of copies into the program's memory ([`Engine::icopy_k2u`]).
    Receive,
}

impl Use {
    /// Returns the words for such memory.
    const fn what(self) -> &'static str {
        match self {
            Self::Program => "memory of the program",
            Self::Receive => "a receive buffer",
        }
    }

    /// Returns the calls that are for it.
    const fn copies(self) -> &'static str {
        match self {
            Self::Program => "icopy and icopy_notif",
            Self::Receive => "icopy_k2u and icopy_k2u_notif",
        }
    }
}
