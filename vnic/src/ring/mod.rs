//! Virtqueues without I/O: layouts, index logic, and the walk along a descriptor chain, each guest-written field read
//! exactly once.
//!
//! One file per layout (`split`); what is common to layouts (descriptors and chains, rules) is beside it. Rings of guests behind
//! an IOMMU are worked on in private memory (`shadow`). Nothing here knows
//! what a frame is, who is to be notified how, or which thread runs it.

mod chain_walk;
mod rules;
mod shadow;
mod split;
#[cfg(test)]
mod tests;

pub use rules::{Halt, Rule, RuleCounters};
pub use split::{DriverWords, RingAddresses, SplitRing};

use crate::memory::Access;

/// The largest ring that the specification has. QEMU gives a vhost-user NIC up to 1024 entries.
pub const RING_SIZE_MAX: u16 = 32768;

/// Pieces (and descriptors) of one chain: what the most scattered driver uses, Windows' with 256 fragments and their
/// headers; Linux needs 19 for a frame of 64 KiB, or 47 where it was built so, DPDK 33. The data plane works on a chain while all
/// its ports wait, so a chain of a whole large ring of single bytes would be their time.
pub const CHAIN_PIECES_MAX: usize = 258;

/// Pieces of all receive buffers that one frame takes: a whole ring of QEMU's, of buffers in one piece each.
pub const FRAME_PIECES_MAX: usize = 1024;

/// In which direction the device moves data on a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The driver sends: the device only reads.
    Transmit,
    /// The driver receives: the device only writes.
    Receive,
}

impl Direction {
    const fn access(self) -> Access {
        match self {
            Self::Transmit => Access::Read,
            Self::Receive => Access::Write,
        }
    }
}
