//! One split ring from the driver's side (virtio 1.2 section 2.7), in memory that outlives its driver.
//!
//! What the ring's slots are doing is recorded beside it, so that another process can go on with a ring whose driver
//! was killed at any instruction: a slot is marked before the card can have it, and the mark is removed before its used
//! entry counts as seen ([`Ring::attach`] puts the rest together). What the card says is untrusted: the used index may
//! not run ahead of what was made available, an entry must name a slot that the card has.
//!
//! Notifications are suppressed by flags, not by event indices: a flag is exact for a driver that polls for ever, and a
//! ring whose driver is gone stays quiet.
//!
//! Whether the card polls is looked at behind a full barrier, and again until the card has taken what was published:
//! QEMU before 8.0 leaves barriers out when it emulates a single processor, so that the first look may be too early.

use std::sync::atomic::{Ordering, fence};

use super::{
    layout::{PAGE, PairLayout, RING_SIZE_MAX, RingPlace},
    memory::{BusAddresses, SharedMemory},
};

const DESCRIPTOR_LEN: usize = 16;
const USED_LEN: usize = 8;
/// Flags of a descriptor.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// Flag of the available ring: the driver polls.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: the card polls.
const NO_NOTIFY: u16 = 1;

/// Offsets in the record of a ring: the used index up to which entries were seen, how many of all entries were lies,
/// and a byte for each slot.
const SEEN: usize = 0;
const LIES: usize = 4;
const MARKS: usize = 64;
const FREE: u8 = 0;
const WITH_CARD: u8 = 1;

/// Who writes into the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The card.
    Receive,
    /// The driver.
    Transmit,
}

/// A slot that the card is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) slot: u16,
    /// Bytes that the card says it wrote.
    pub(super) len: u32,
}

/// A ring, driven by this process alone.
pub(super) struct Ring {
    memory: SharedMemory,
    layout: PairLayout,
    place: RingPlace,
    direction: Direction,
    /// The available index with what was posted, and the one that was published.
    posted: u16,
    published: u16,
    /// The used index up to which entries were seen.
    seen: u16,
    /// The slots that the card has, as this process knows it: the record can be written by others.
    with_card: [bool; RING_SIZE_MAX as usize],
    count_with_card: u16,
    /// The doorbell was not rung for what was published last, and the card may have stopped polling before it saw that.
    is_unsure: bool,
    /// Used entries that named no slot that the card has. Such slots stay with the card.
    lies: u32,
}

impl Ring {
    /// Writes the descriptors of a ring that no driver had before and the card does not know yet.
    pub(super) fn lay_out(
        memory: &SharedMemory,
        layout: PairLayout,
        place: RingPlace,
        direction: Direction,
        bus: &BusAddresses,
    ) {
        for slot in 0..layout.slots {
            let begin = place.slots + usize::from(slot) * layout.slot_len as usize;
            for piece in 0..layout.pieces {
                let at = place.descriptors + usize::from(slot * layout.pieces + piece) * DESCRIPTOR_LEN;
                let address = bus.of(begin + usize::from(piece) * PAGE);
                memory.long(at).store(address.to_le(), Ordering::Relaxed);
                let last = piece + 1 == layout.pieces;
                let len = if layout.pieces == 1 {
                    layout.slot_len
                } else {
                    PAGE as u32
                };
                let mut flags = if last { 0 } else { NEXT };
                if direction == Direction::Receive {
                    flags |= WRITE;
                }
                Self::describe(memory, at, len, flags, slot * layout.pieces + piece + 1);
            }
        }
        // A ring whose driver polls, or is not there, wants no interrupts.
        memory
            .half(place.available)
            .store(NO_INTERRUPT.to_le(), Ordering::Release);
    }

    fn describe(memory: &SharedMemory, at: usize, len: u32, flags: u16, next: u16) {
        memory.word(at + 8).store(len.to_le(), Ordering::Relaxed);
        memory.half(at + 12).store(flags.to_le(), Ordering::Relaxed);
        memory.half(at + 14).store(next.to_le(), Ordering::Relaxed);
    }

    /// Tells the card whether the driver of a ring wants interrupts; it wants none at first.
    pub(super) fn want_interrupts(memory: &SharedMemory, place: RingPlace, wanted: bool) {
        let flags = if wanted { 0 } else { NO_INTERRUPT };
        // The ring is looked at after this, and the card looks at the flag after it wrote to the ring.
        memory.half(place.available).store(flags.to_le(), Ordering::SeqCst);
    }

    /// Goes on with a ring, wherever its last driver was; entries that it has not seen are skipped. Slots that the card
    /// does not have are free.
    ///
    /// # Errors
    /// A sentence about indices and records that no driver and card that keep the rules could have left.
    pub(super) fn attach(
        memory: &SharedMemory,
        layout: PairLayout,
        place: RingPlace,
        direction: Direction,
    ) -> Result<Self, &'static str> {
        let half = |at: usize| u16::from_le(memory.half(at).load(Ordering::Acquire));
        let used = half(place.used + 2);
        let mut ring = Self {
            memory: memory.clone(),
            layout,
            place,
            direction,
            posted: half(place.available + 2),
            published: half(place.available + 2),
            seen: half(place.record + SEEN),
            with_card: [false; RING_SIZE_MAX as usize],
            count_with_card: 0,
            is_unsure: false,
            lies: u32::from_le(memory.word(place.record + LIES).load(Ordering::Relaxed)),
        };
        for slot in 0..layout.slots {
            let with_card = memory.byte(ring.mark(slot)).load(Ordering::Relaxed) == WITH_CARD;
            ring.with_card[usize::from(slot)] = with_card;
            ring.count_with_card += u16::from(with_card);
        }
        let unseen = used.wrapping_sub(ring.seen);
        if unseen > layout.ring_size {
            return Err("more used entries than the ring holds");
        }
        for _ in 0..unseen {
            // Its mark may be gone already: the driver ended between the two.
            if let Some(slot) = ring.slot_of(ring.read_used(ring.seen).0) {
                ring.take_from_card(slot);
            }
            ring.saw_one();
        }
        let unused = u32::from(ring.published.wrapping_sub(used));
        let outstanding = unused.saturating_add(ring.lies);
        if outstanding > layout.ring_size.into() {
            return Err("a used index ahead of the available one");
        }
        let outstanding = outstanding as u16;
        // What the last driver had posted and not published.
        for ahead in 0..ring.count_with_card.saturating_sub(outstanding) {
            if let Some(slot) = ring.slot_of(ring.read_available(ring.published.wrapping_add(ahead))) {
                ring.take_from_card(slot);
            }
        }
        if ring.count_with_card != outstanding {
            return Err("records of slots that do not agree with the indices");
        }
        Ok(ring)
    }

    fn mark(&self, slot: u16) -> usize {
        self.place.record + MARKS + usize::from(slot)
    }

    fn take_from_card(&mut self, slot: u16) {
        if std::mem::replace(&mut self.with_card[usize::from(slot)], false) {
            self.count_with_card -= 1;
        }
        self.memory.byte(self.mark(slot)).store(FREE, Ordering::Release);
    }

    fn saw_one(&mut self) {
        self.seen = self.seen.wrapping_add(1);
        self.memory
            .half(self.place.record + SEEN)
            .store(self.seen.to_le(), Ordering::Release);
    }

    /// Returns the slot whose first descriptor has this number.
    fn slot_of(&self, head: u32) -> Option<u16> {
        let slot = head / u32::from(self.layout.pieces);
        let is_head = head.is_multiple_of(u32::from(self.layout.pieces)) && slot < u32::from(self.layout.slots);
        is_head.then_some(slot as u16)
    }

    fn read_used(&self, index: u16) -> (u32, u32) {
        let entry = usize::from(index & (self.layout.ring_size - 1));
        let at = self.place.used + 4 + entry * USED_LEN;
        let word = |at: usize| u32::from_le(self.memory.word(at).load(Ordering::Relaxed));
        (word(at), word(at + 4))
    }

    fn available_entry(&self, index: u16) -> usize {
        self.place.available + 4 + 2 * usize::from(index & (self.layout.ring_size - 1))
    }

    fn read_available(&self, index: u16) -> u32 {
        u16::from_le(self.memory.half(self.available_entry(index)).load(Ordering::Relaxed)).into()
    }

    /// Returns where a slot begins in the memory.
    #[inline]
    pub(super) fn slot_offset(&self, slot: u16) -> usize {
        self.place.slots + usize::from(slot) * self.layout.slot_len as usize
    }

    /// Whether the card has a slot.
    pub(super) fn is_with_card(&self, slot: u16) -> bool {
        self.with_card[usize::from(slot)]
    }

    /// Returns how many slots the card has.
    #[cfg(test)]
    pub(super) fn with_card(&self) -> u16 {
        self.count_with_card
    }

    /// Returns the used index up to which entries were seen.
    #[inline]
    pub(super) fn seen(&self) -> u16 {
        self.seen
    }

    /// Returns how many used entries named no slot that the card had.
    pub(super) fn lies(&self) -> u32 {
        self.lies
    }

    /// Makes a transmit slot say how many bytes stand in it.
    #[inline]
    pub(super) fn set_len(&self, slot: u16, len: usize) {
        debug_assert!(self.direction == Direction::Transmit && len <= self.layout.slot_len as usize);
        let first = slot * self.layout.pieces;
        if self.layout.pieces == 1 {
            let at = self.place.descriptors + usize::from(first) * DESCRIPTOR_LEN;
            self.memory.word(at + 8).store((len as u32).to_le(), Ordering::Relaxed);
            return;
        }
        let mut left = len;
        for piece in 0..self.layout.pieces {
            let at = self.place.descriptors + usize::from(first + piece) * DESCRIPTOR_LEN;
            let here = left.min(PAGE);
            left -= here;
            let flags = if left > 0 { NEXT } else { 0 };
            Self::describe(&self.memory, at, here as u32, flags, first + piece + 1);
            if left == 0 {
                break;
            }
        }
    }

    /// Gives a free slot to the card, with the next [`Ring::publish`].
    ///
    /// # Panics
    /// For a slot that the card has.
    #[inline]
    pub(super) fn post(&mut self, slot: u16) {
        assert!(!std::mem::replace(&mut self.with_card[usize::from(slot)], true));
        self.count_with_card += 1;
        let entry = self.available_entry(self.posted);
        let head = slot * self.layout.pieces;
        self.memory.half(entry).store(head.to_le(), Ordering::Relaxed);
        // In this order: see the module.
        self.memory.byte(self.mark(slot)).store(WITH_CARD, Ordering::Release);
        self.posted = self.posted.wrapping_add(1);
    }

    /// Makes what was posted available.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.published = self.posted;
        self.memory
            .half(self.place.available + 2)
            .store(self.published.to_le(), Ordering::Release);
    }

    /// Whether the card wants its doorbell rung for what was published; then it is to be rung.
    #[inline]
    pub(super) fn wants_doorbell(&mut self) -> bool {
        // The card says that it polls no more, then looks at the index; this side published it and now looks at the flag.
        fence(Ordering::SeqCst);
        let wants = self.card_sleeps();
        self.is_unsure = !wants;
        wants
    }

    /// Whether the doorbell is to be rung after all for what was published. To be asked now and then.
    #[inline]
    pub(super) fn wants_late_doorbell(&mut self) -> bool {
        self.is_unsure && self.is_late()
    }

    fn is_late(&mut self) -> bool {
        let used = u16::from_le(self.memory.half(self.place.used + 2).load(Ordering::Relaxed));
        let wants = used != self.published && self.card_sleeps();
        // Only a transmit ring is ever used up; in a receive ring, a card that polls has seen the index by now.
        self.is_unsure = used != self.published && !wants && self.direction == Direction::Transmit;
        wants
    }

    #[inline]
    fn card_sleeps(&self) -> bool {
        u16::from_le(self.memory.half(self.place.used).load(Ordering::Relaxed)) & NO_NOTIFY == 0
    }

    /// Whether a used entry may be there.
    #[inline]
    pub(super) fn has_used(&self) -> bool {
        u16::from_le(self.memory.half(self.place.used + 2).load(Ordering::Relaxed)) != self.seen
    }

    /// Takes the next slot that the card is done with. Entries that name no slot that it has are counted and skipped.
    ///
    /// # Errors
    /// A sentence about a used index that runs ahead: nothing in the ring can be believed then.
    #[inline]
    pub(super) fn take_used(&mut self) -> Result<Option<Used>, &'static str> {
        loop {
            let used = u16::from_le(self.memory.half(self.place.used + 2).load(Ordering::Acquire));
            let unseen = used.wrapping_sub(self.seen);
            if unseen == 0 {
                return Ok(None);
            }
            // Entries with lies were used for slots that stay with the card for ever.
            if u64::from(unseen) > u64::from(self.published.wrapping_sub(self.seen)) {
                return Err("it used more buffers than it has");
            }
            let (head, len) = self.read_used(self.seen);
            let slot = self.slot_of(head).filter(|slot| self.with_card[usize::from(*slot)]);
            if let Some(slot) = slot {
                self.take_from_card(slot);
            }
            self.saw_one();
            match slot {
                Some(slot) => return Ok(Some(Used { slot, len })),
                None => {
                    self.lies = self.lies.saturating_add(1);
                    self.memory
                        .word(self.place.record + LIES)
                        .store(self.lies.to_le(), Ordering::Relaxed);
                }
            }
        }
    }
}
