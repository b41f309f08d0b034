//! The two rings of a card that is wired to itself, with chains of the caller's memory.
//!
//! Each frame has a *slot*: the same number in both rings, which are used one after the other from 0 on, and again from
//! 0 after the last. So the frame that comes out of the transmit chain of a slot goes into the receive chain of the same
//! slot, which is posted before it. What does not change between two frames of a slot is written once.
//!
//! A transmit chain that comes back although its frame did not arrive is lost: QEMU gives all of them back unsent while it has no
//! back end. It and all behind it are then sent again, into the same receive chains, so that the transmit ring runs
//! ahead of the receive ring from then on.
//!
//! ```text
//! page 0      descriptors of the receive ring, one for each slot: they name its table
//! page 1      available and used ring of it
//! pages 2, 3  the transmit ring, likewise
//! pages 4 …   slots: table of the transmit chain, table of the receive chain, header, notification value, and where the
//!             header comes back to
//! ```
//!
//! What the card says is untrusted: it has to use the buffers of both rings in order, and none that it does not have.

use std::sync::atomic::{Ordering, fence};

use super::{
    layout::{HEADER_LEN, PAGE, RING_SIZE_MAX},
    memory::{BusAddresses, SharedMemory},
    registers::QueueAddresses,
};

/// What stands before the data of each frame: as much as cards look at, so that no byte of the data is ever taken for
/// something that concerns them.
pub const FRAME_HEADER_LEN: usize = 64;
/// The first bytes of it; the others are zero.
pub type HeaderStart = [u8; 24];
/// Pieces of the data of a frame, at most, on either side.
pub const PIECES_MAX: usize = 64;
/// Bytes of a notification value.
const VALUE_LEN: u32 = 8;

const DESCRIPTOR_LEN: usize = 16;
const USED_LEN: usize = 8;
/// Flags of a descriptor.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Flag of the available ring: the driver polls.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: the card polls.
const NO_NOTIFY: u16 = 1;

/// The parts of a slot. No two slots share a page's border.
const TRANSMIT_TABLE: usize = 0;
const RECEIVE_TABLE: usize = 1088;
const HEADER: usize = 2176;
const VALUE: usize = 2256;
const RETURNED: usize = 2264;
const SLOT_LEN: usize = PAGE;
const SLOTS: usize = 4 * PAGE;
/// Entries of a ring that has room for the longest chain: no table may be longer than its ring.
pub(super) const RING_SIZE_MIN: u16 = 128;
/// Where the used ring begins in the page behind the descriptors.
const USED: usize = 1024;
/// All of a header.
const WHOLE_HEADER: usize = HEADER_LEN + FRAME_HEADER_LEN;

const _: () = assert!((PIECES_MAX + 2) * DESCRIPTOR_LEN <= RECEIVE_TABLE - TRANSMIT_TABLE);
const _: () = assert!((PIECES_MAX + 2) * DESCRIPTOR_LEN <= HEADER - RECEIVE_TABLE);
const _: () = assert!(PIECES_MAX + 2 <= RING_SIZE_MIN as usize);
const _: () = assert!(HEADER + WHOLE_HEADER <= VALUE && RETURNED + WHOLE_HEADER <= SLOT_LEN);

/// A part of memory, as the card knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The first byte's address for the card.
    pub address: u64,
    /// Bytes, at least 1.
    pub len: u32,
}

/// A frame: where its data is, and where it goes.
#[derive(Clone, Copy, Debug)]
pub struct LoopFrame<'a> {
    /// The first bytes of its header.
    pub header: HeaderStart,
    /// Where the data is; at most [`PIECES_MAX`].
    pub source: &'a [Piece],
    /// Where it goes: as many bytes.
    pub destination: &'a [Piece],
    /// The address of a variable for the card, and the value that it gets behind the data.
    pub notification: Option<(u64, u64)>,
}

/// Which ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Receive,
    Transmit,
}

impl Side {
    const ALL: [Self; 2] = [Self::Receive, Self::Transmit];

    const fn descriptors(self) -> usize {
        match self {
            Self::Receive => 0,
            Self::Transmit => 2 * PAGE,
        }
    }

    const fn available(self) -> usize {
        self.descriptors() + PAGE
    }

    const fn used(self) -> usize {
        self.available() + USED
    }

    const fn table(self) -> usize {
        match self {
            Self::Receive => RECEIVE_TABLE,
            Self::Transmit => TRANSMIT_TABLE,
        }
    }
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Frames that the card is done with.
    pub frames: u32,
    /// One of them did not arrive, or not whole.
    pub failed: bool,
}

/// Both rings, driven by this process alone.
pub(super) struct LoopRings {
    memory: SharedMemory,
    /// Slots, a power of two.
    size: u16,
    /// Frames that were posted, and those that were published.
    posted: u16,
    published: u16,
    /// Frames of which the receive chain and the transmit chain were seen used.
    received: u16,
    sent: u16,
    /// Where the notification values of slots are for the card.
    values: Vec<u64>,
    /// What the receive chains of slots get, in bytes.
    lens: [u32; RING_SIZE_MAX as usize],
    /// How far the transmit ring is ahead of the receive ring, by chains that were sent again.
    repeated: u16,
    /// The doorbell was not rung for what was published last, and the card may have stopped polling before it saw that.
    is_unsure: bool,
}

impl LoopRings {
    /// Returns how many bytes rings of so many slots take.
    pub(super) fn len(size: u16) -> usize {
        (SLOTS + usize::from(size) * SLOT_LEN).next_multiple_of(PAGE)
    }

    /// Returns the entries of rings where a queue may have so many.
    pub(super) fn size(size_max: u16) -> u16 {
        1 << size_max.clamp(1, RING_SIZE_MAX).ilog2()
    }

    /// Writes what does not change into memory that is all zero, of the length that [`LoopRings::len`] says.
    pub(super) fn new(memory: SharedMemory, size: u16, bus: &BusAddresses) -> Self {
        assert!(size.is_power_of_two() && size <= RING_SIZE_MAX && memory.len() >= Self::len(size));
        let rings = Self {
            memory,
            size,
            posted: 0,
            published: 0,
            received: 0,
            sent: 0,
            values: (0..size).map(|slot| bus.of(Self::slot(slot) + VALUE)).collect(),
            lens: [0; RING_SIZE_MAX as usize],
            repeated: 0,
            is_unsure: false,
        };
        for side in Side::ALL {
            let header = if side == Side::Receive { RETURNED } else { HEADER };
            for slot in 0..size {
                let at = Self::slot(slot);
                let table = side.descriptors() + usize::from(slot) * DESCRIPTOR_LEN;
                rings
                    .memory
                    .long(table)
                    .store(bus.of(at + side.table()).to_le(), Ordering::Relaxed);
                let first = rings.memory.long(at + side.table());
                first.store(bus.of(at + header).to_le(), Ordering::Relaxed);
            }
            rings.write_available(side);
            let available = rings.memory.half(side.available());
            available.store(NO_INTERRUPT.to_le(), Ordering::Release);
        }
        rings
    }

    /// Writes which slot each entry of an available ring names. No entry may be the card's.
    fn write_available(&self, side: Side) {
        for slot in 0..self.size {
            let entry = side.available() + 4 + 2 * self.entry(side, slot);
            self.memory.half(entry).store(slot.to_le(), Ordering::Relaxed);
        }
    }

    /// The entry of a ring for the frame with this number.
    fn entry(&self, side: Side, frame: u16) -> usize {
        usize::from(self.index(side, frame) & (self.size - 1))
    }

    /// The index of a ring for the frame with this number.
    const fn index(&self, side: Side, frame: u16) -> u16 {
        match side {
            Side::Receive => frame,
            Side::Transmit => frame.wrapping_add(self.repeated),
        }
    }

    const fn slot(slot: u16) -> usize {
        SLOTS + slot as usize * SLOT_LEN
    }

    /// Where the parts of a ring are for the card.
    pub(super) fn addresses(side: Side, bus: &BusAddresses) -> QueueAddresses {
        QueueAddresses {
            descriptors: bus.of(side.descriptors()),
            available: bus.of(side.available()),
            used: bus.of(side.used()),
        }
    }

    /// Writes the table of a chain behind the address of its header, and returns how many descriptors it has.
    #[inline]
    fn write_table(&self, table: usize, pieces: &[Piece], own: u16, last: Option<u64>) -> u16 {
        const FOLLOWS: u64 = (NEXT as u64) << 32;
        const NUMBER: u64 = 1 << 48;
        let last = last.map(|address| Piece {
            address,
            len: VALUE_LEN,
        });
        let count = pieces.len() + usize::from(last.is_some());
        // Flags, and which entry follows.
        let mut rest = (u64::from(own) << 32 | FOLLOWS) + NUMBER;
        let ends = |at: usize, rest: u64| if at == count { rest & !FOLLOWS } else { rest };
        let header = WHOLE_HEADER as u64 | ends(0, rest);
        let behind = pieces.iter().chain(&last).enumerate().map(|(at, piece)| {
            rest += NUMBER;
            [
                piece.address.to_le(),
                (u64::from(piece.len) | ends(at + 1, rest)).to_le(),
            ]
        });
        // SAFETY: the slot is this side's until its frame is posted, so that the card does not read the table.
        unsafe {
            self.memory.write_longs(table + 8, &[header.to_le()]);
            self.memory.write_pairs(table + DESCRIPTOR_LEN, count, behind);
        }
        count as u16 + 1
    }

    /// Returns how many frames can be posted now.
    pub(super) fn room(&self) -> u16 {
        let done = self.in_flight_of(self.received).max(self.in_flight_of(self.sent));
        self.size - done
    }

    const fn in_flight_of(&self, done: u16) -> u16 {
        self.posted.wrapping_sub(done)
    }

    /// Returns the number of the next frame, which wraps.
    pub(super) const fn next_number(&self) -> u16 {
        self.posted
    }

    /// Writes the chains of a frame, for the next [`LoopRings::publish`].
    ///
    /// # Panics
    /// Without room, and for a frame of too many or no pieces.
    #[inline]
    pub(super) fn post(&mut self, frame: &LoopFrame<'_>) {
        assert!(self.room() > 0 && frame.source.len() <= PIECES_MAX && frame.destination.len() <= PIECES_MAX);
        assert!(!frame.source.is_empty() || frame.notification.is_some());
        let slot = self.posted & (self.size - 1);
        let at = Self::slot(slot);
        // SAFETY: the slot is this side's until its frame is posted.
        unsafe { self.memory.write(at + HEADER + HEADER_LEN, &frame.header) };
        let (variable, value) = frame.notification.unzip();
        if let Some(value) = value {
            // As the processor has it: the variable is this machine's.
            self.memory.long(at + VALUE).store(value, Ordering::Relaxed);
        }
        let value = variable.map(|_| self.values[usize::from(slot)]);
        for (side, pieces, own, last) in [
            (Side::Receive, frame.destination, WRITE, variable),
            (Side::Transmit, frame.source, 0, value),
        ] {
            let entries = self.write_table(at + side.table(), pieces, own, last);
            let table_len = (u64::from(entries) * DESCRIPTOR_LEN as u64) | u64::from(INDIRECT) << 32;
            let descriptor = side.descriptors() + usize::from(slot) * DESCRIPTOR_LEN + 8;
            self.memory.long(descriptor).store(table_len.to_le(), Ordering::Relaxed);
        }
        let data: u32 = frame.destination.iter().map(|piece| piece.len).sum();
        let notification = if variable.is_some() { VALUE_LEN } else { 0 };
        self.lens[usize::from(slot)] = WHOLE_HEADER as u32 + data + notification;
        self.posted = self.posted.wrapping_add(1);
    }

    /// Makes what was posted available: first the buffers, then what goes into them. Whether the doorbell of the transmit ring is
    /// to be rung.
    pub(super) fn publish(&mut self) -> bool {
        if self.published == self.posted {
            return false;
        }
        self.published = self.posted;
        Side::ALL.into_iter().for_each(|side| self.show_published(side));
        // The card says that it polls no more, then looks at the index; this side published it and now looks at the flag.
        fence(Ordering::SeqCst);
        let wants = self.card_sleeps();
        self.is_unsure = !wants;
        wants
    }

    fn show_published(&self, side: Side) {
        let index = self.memory.half(side.available() + 2);
        index.store(self.index(side, self.published).to_le(), Ordering::Release);
    }

    /// Sends the frames again that were lost, once all transmit chains came back. To be asked when nothing has arrived for a while;
    /// before, what is taken for lost may only not have been announced yet, which costs time alone: a card knows by its header that
    /// a frame comes a second time.
    pub(super) fn repeat_lost(&mut self) {
        let lost = self.sent.wrapping_sub(self.received);
        if self.sent != self.published || lost == 0 || lost > self.size {
            return;
        }
        self.repeated = self.repeated.wrapping_add(lost);
        self.sent = self.received;
        self.write_available(Side::Transmit);
        self.show_published(Side::Transmit);
    }

    /// Whether the doorbell is to be rung after all for what was published. To be asked now and then.
    #[inline]
    pub(super) fn wants_late_doorbell(&mut self) -> bool {
        if !self.is_unsure {
            return false;
        }
        let is_behind = self.used_index(Side::Transmit) != self.index(Side::Transmit, self.published);
        let wants = is_behind && self.card_sleeps();
        self.is_unsure = is_behind && !wants;
        wants
    }

    #[inline]
    fn card_sleeps(&self) -> bool {
        let flags = self.memory.half(Side::Transmit.used()).load(Ordering::Relaxed);
        u16::from_le(flags) & NO_NOTIFY == 0
    }

    #[inline]
    fn used_index(&self, side: Side) -> u16 {
        u16::from_le(self.memory.half(side.used() + 2).load(Ordering::Acquire))
    }

    /// Sees what the card is done with.
    ///
    /// # Errors
    /// A sentence about the rule that the card broke: nothing that it says counts any more.
    pub(super) fn reap(&mut self) -> Result<Reaped, &'static str> {
        let mut failed = false;
        let before = self.in_flight_of(self.received).max(self.in_flight_of(self.sent));
        for side in Side::ALL {
            // The number of the frame, as `received` and `sent` are.
            let used = self.used_index(side).wrapping_sub(self.index(side, 0));
            let seen = match side {
                Side::Receive => self.received,
                Side::Transmit => self.sent,
            };
            if used.wrapping_sub(seen) > self.published.wrapping_sub(seen) {
                return Err("it used more buffers than it has");
            }
            for index in 0..used.wrapping_sub(seen) {
                let frame = seen.wrapping_add(index);
                let slot = frame & (self.size - 1);
                let at = side.used() + 4 + self.entry(side, frame) * USED_LEN;
                let word = |at: usize| u32::from_le(self.memory.word(at).load(Ordering::Relaxed));
                if word(at) != u32::from(slot) {
                    return Err("it used buffers in another order than it got them");
                }
                failed |= side == Side::Receive && word(at + 4) != self.lens[usize::from(slot)];
            }
            match side {
                Side::Receive => self.received = used,
                Side::Transmit => self.sent = used,
            }
        }
        let after = self.in_flight_of(self.received).max(self.in_flight_of(self.sent));
        Ok(Reaped {
            frames: u32::from(before - after),
            failed,
        })
    }

    /// Returns how many frames the card has.
    pub(super) fn in_flight(&self) -> u16 {
        self.size - self.room()
    }
}
