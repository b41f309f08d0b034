//! The ring of packets that arrived and whose DMA has not completed.
//!
//! The ring has a fixed size and is allocated once. It knows nothing of interrupts.

use alloc::{boxed::Box, vec};

use ether::Time;

use crate::PacketInfo;

/// How many packets of one queue may be in flight to host memory.
///
/// Each of them occupies a receive descriptor of the guest, so a ring of that size has no use for more; what a larger one has
/// waits there.
/// A power of two, so that positions wrap with a mask.
pub const PENDING_MAX: usize = 1024;

/// A packet in flight to host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) arrived: Time,
    /// [`AT_POLL`] if no time is modelled.
    pub(crate) completes_at: Time,
    pub(crate) packet: PacketInfo,
}

/// The sums over packets that were added together.
pub(crate) struct Added {
    pub(crate) bytes: u64,
    pub(crate) marked: u64,
}

/// In [`Slot::completes_at`]: at whatever time the driver polls next.
pub(crate) const AT_POLL: Time = Time::ZERO;

const EMPTY: Slot = Slot {
    arrived: Time::ZERO,
    completes_at: AT_POLL,
    packet: PacketInfo { len: 0, marked: false },
};

#[derive(Clone, Debug)]
pub(crate) struct PendingRing {
    slots: Box<[Slot; PENDING_MAX]>,
    head: usize,
    len: usize,
    /// Marked packets in the ring.
    marked: u32,
    /// A packet with a modelled time of completion was added since the ring was last empty.
    may_be_timed: bool,
}

impl PendingRing {
    pub(crate) fn new() -> Self {
        let Ok(slots) = vec![EMPTY; PENDING_MAX].into_boxed_slice().try_into() else {
            unreachable!("the vector was made with this length")
        };
        Self {
            slots,
            head: 0,
            len: 0,
            marked: 0,
            may_be_timed: false,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= PENDING_MAX
    }

    /// How many packets are marked.
    #[inline]
    pub(crate) fn marked(&self) -> u32 {
        self.marked
    }

    /// False only if no packet has a modelled time of completion.
    #[inline]
    pub(crate) fn may_be_timed(&self) -> bool {
        self.may_be_timed
    }

    /// The packet that is added next has a modelled time of completion.
    #[inline]
    pub(crate) fn note_timed(&mut self) {
        self.may_be_timed = true;
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Slot> {
        (self.len != 0).then(|| &self.slots[self.head & (PENDING_MAX - 1)])
    }

    /// The newest packet.
    pub(crate) fn back(&self) -> Option<&Slot> {
        let newest = self.head + self.len.checked_sub(1)?;
        Some(&self.slots[newest & (PENDING_MAX - 1)])
    }

    /// Adds a packet. In a full ring it would take the place of the oldest: see [`PendingRing::is_full`].
    #[inline]
    pub(crate) fn push(&mut self, slot: Slot) {
        debug_assert!(!self.is_full());
        self.slots[(self.head + self.len) & (PENDING_MAX - 1)] = slot;
        self.len += 1;
        self.marked += u32::from(slot.packet.marked);
    }

    /// Adds packets that arrived at once and take no modelled time; there must be room for all. Returns their sums.
    #[inline]
    pub(crate) fn extend(&mut self, arrived: Time, packets: impl Iterator<Item = PacketInfo>) -> Added {
        let mut added = Added { bytes: 0, marked: 0 };
        let mut end = self.head + self.len;
        for packet in packets {
            debug_assert!(end - self.head < PENDING_MAX);
            self.slots[end & (PENDING_MAX - 1)] = Slot {
                arrived,
                completes_at: AT_POLL,
                packet,
            };
            end += 1;
            added.bytes += u64::from(packet.len);
            added.marked += u64::from(packet.marked);
        }
        self.len = end - self.head;
        self.marked += added.marked as u32;
        added
    }

    /// Removes the oldest packet, if there is one.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Slot> {
        let slot = *self.front()?;
        if self.len == 1 {
            self.clear();
        } else {
            self.len -= 1;
            self.head = (self.head + 1) & (PENDING_MAX - 1);
            self.marked -= u32::from(slot.packet.marked);
        }
        Some(slot)
    }

    /// An empty ring starts over, so that small batches stay in a few cache lines.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.head = 0;
        self.len = 0;
        self.marked = 0;
        self.may_be_timed = false;
    }
}
