//! Decisions remembered per port, so that a frame between the stations of an earlier one costs a few nanoseconds.
//!
//! What makes one invalid is the switch's business: it keeps the generation.

use ether::{ETHERNET_HEADER_LEN, Time};

use super::{DropReason, Forward, table::SlotIndex};
use crate::ports::PortId;

/// Bytes of an address.
const ADDRESS_LEN: usize = 6;

/// Bytes of a word that addresses are compared in.
const WORD_LEN: usize = 8;

/// Decisions remembered per port (384 bytes): enough for a server that answers a few clients in turn.
pub(super) const DECISIONS_PER_PORT: usize = 8;

/// The twelve bytes of both addresses, as they are compared: the first eight, and the last eight, which repeat four.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PairKey(u64, u64);

impl PairKey {
    /// The addresses of a header, which has room for them. Arrays are copied whole: single bytes, some of which are used
    /// twice, would not be joined into two loads.
    #[inline(always)]
    pub(super) fn new(header: &[u8; ETHERNET_HEADER_LEN]) -> Self {
        const LAST_AT: usize = 2 * ADDRESS_LEN - WORD_LEN;
        let (first, _) = header.as_chunks::<WORD_LEN>();
        let (last, _) = header[LAST_AT..].as_chunks::<WORD_LEN>();
        Self(u64::from_le_bytes(first[0]), u64::from_le_bytes(last[0]))
    }

    /// Which of a port's remembered decisions may be for this pair. It depends on the last byte of both addresses, so
    /// neighbouring addresses, as labs number them, have different places.
    #[inline(always)]
    pub(super) fn place(self) -> usize {
        ((self.0 >> 40) ^ (self.1 >> 56)) as usize % DECISIONS_PER_PORT
    }
}

/// The decision for a pair of addresses seen on a port. It is valid while `generation` is that of the switch, and until
/// `valid_until`.
#[derive(Clone, Copy)]
pub(super) struct Decision {
    pub(super) key: PairKey,
    /// The source's place in the table; it is touched for every frame.
    pub(super) src_slot: SlotIndex,
    pub(super) forward: Forward,
    /// For [`Forward::One`], the port that counts the frame.
    pub(super) out: PortId,
    pub(super) generation: u64,
    pub(super) valid_until: Time,
}

impl Decision {
    /// None yet: generation 0 is never the switch's.
    pub(super) const NONE: Self = Self {
        key: PairKey(0, 0),
        src_slot: SlotIndex::NONE,
        forward: Forward::Drop(DropReason::PortDown),
        out: PortId(0),
        generation: 0,
        valid_until: Time::ZERO,
    };
}
