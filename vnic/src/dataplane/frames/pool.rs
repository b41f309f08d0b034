//! The pool of frames in flight: buffers of a few sizes that are used again, so that steady traffic allocates nothing, and
//! the queue of the times at which frames arrive.
//!
//! What happens to a frame that arrives is decided elsewhere.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ether::Time;

use super::FRAME_LEN_MAX;
use super::frame_ref::FrameRef;
use super::transit::{SWITCHES, Transit};
use crate::memory::Piece;
use crate::offload::NetHeader;

/// Sizes of buffers: acknowledgements and other short frames, frames of the usual and of the largest MTU, and frames that are
/// still to be cut, of which senders make all sizes.
const SIZES: [usize; 6] = [256, 2048, 9000 + 14 + 8, 18_000, 36_000, FRAME_LEN_MAX];
/// Bytes that frames in the pool may occupy beyond the cards' reserves: 10 Gbit/s for 100 ms and some; more is a queue
/// that no model asks for.
pub const POOL_BYTES_MAX: usize = 128 << 20;
/// Bytes that frames of each sending card may always occupy, whatever the others do: 512 short frames, or 1 Gbit/s for 8 ms.
pub const RESERVE_BYTES: usize = 1 << 20;

/// Bytes of buffers that are kept for later frames while no frame is in the pool.
const FREE_BYTES_MAX: usize = 4 << 20;

/// What a pooled frame waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// To reach switch `switch` at its port `port`.
    Switch {
        /// Index of the switch.
        switch: usize,
        /// Its port.
        port: fabric::PortId,
    },
    /// To reach the card with this index.
    Card(usize),
}

/// A frame in the pool.
#[derive(Debug)]
pub struct Pooled {
    /// What it waits for.
    pub stage: Stage,
    /// Where it came from.
    pub transit: Transit,
    /// What is still to be done to it.
    pub header: NetHeader,
    bytes: Box<[u8]>,
    len: usize,
}

impl Pooled {
    /// The frame's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Bytes of its buffer.
    pub fn buffer_len(&self) -> usize {
        self.bytes.len()
    }

    /// Frames that it is on the wire.
    pub fn frames_on_wire(&self) -> u32 {
        let mut rest = [Piece::EMPTY];
        let frame = FrameRef::of_bytes(self.bytes(), &mut rest, self.header, self.transit);
        frame.on_wire().map_or(1, |wire| wire.frames)
    }

    /// Marks the frame as having met congestion, if its transport knows such marks; whether it carries the mark now.
    pub fn mark_ecn(&mut self) -> bool {
        ether::ecn::mark(&mut self.bytes[..self.len])
    }

    /// Flips bit `bit` (counted from the first byte's lowest), if it is inside the frame.
    pub fn flip_bit(&mut self, bit: u32) {
        if let Some(byte) = self.bytes[..self.len].get_mut(bit as usize / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// The frames in flight between the cards and switches of a data plane.
///
/// Each sending card has [`RESERVE_BYTES`] of its own, and of the common [`POOL_BYTES_MAX`] at most as much as it leaves
/// free: one greedy card gets half of it, two get a third each, and there is always something for the next one.
#[derive(Debug, Default)]
pub struct Pool {
    /// Buffers that are not in use, by size.
    free: [Vec<Box<[u8]>>; SIZES.len()],
    free_bytes: usize,
    /// Bytes that the frames of each sending card occupy; see `place_of`.
    used: Vec<usize>,
    /// What all cards together occupy beyond their reserves.
    common: usize,
    due: BinaryHeap<Reverse<(Time, u64, usize)>>,
    slots: Vec<Option<Pooled>>,
    free_slots: Vec<usize>,
    sequence: u64,
}

impl Pool {
    /// Copies the bytes of a plain frame into a buffer; `None` (the frame is dropped by the caller and counted) if it is longer
    /// than [`FRAME_LEN_MAX`] or the card it came from has used up its share.
    pub fn copy_of(&mut self, frame: &[u8], stage: Stage, transit: Transit) -> Option<Pooled> {
        let mut pooled = self.take(frame.len(), NetHeader::default(), stage, transit)?;
        pooled.bytes[..frame.len()].copy_from_slice(frame);
        Some(pooled)
    }

    /// Copies `frame` into a buffer as it is, with what is still to be done to it; `None` as in [`copy_of`](Self::copy_of).
    pub fn whole(&mut self, frame: &FrameRef<'_>, stage: Stage) -> Option<Pooled> {
        let mut pooled = self.take(frame.len as usize, frame.header, stage, frame.transit)?;
        frame.copy_into(&mut pooled.bytes);
        Some(pooled)
    }

    /// As [`whole`](Self::whole), whatever share of the pool the card has used up: the number of such frames is limited otherwise.
    pub fn whole_beyond_share(&mut self, frame: &FrameRef<'_>, stage: Stage) -> Option<Pooled> {
        let class = SIZES.iter().position(|size| frame.len as usize <= *size)?;
        let (used, common) = self.booked(frame.transit.card(), SIZES[class]);
        self.book(frame.transit.card(), used, common);
        let mut pooled = self.buffer(class, frame.len as usize, frame.header, stage, frame.transit);
        frame.copy_into(&mut pooled.bytes);
        Some(pooled)
    }

    fn take(&mut self, len: usize, header: NetHeader, stage: Stage, transit: Transit) -> Option<Pooled> {
        let class = SIZES.iter().position(|size| len <= *size)?;
        if !self.take_share(transit.card(), SIZES[class]) {
            return None;
        }
        Some(self.buffer(class, len, header, stage, transit))
    }

    fn buffer(&mut self, class: usize, len: usize, header: NetHeader, stage: Stage, transit: Transit) -> Pooled {
        let bytes = match self.free[class].pop() {
            Some(bytes) => {
                self.free_bytes -= bytes.len();
                bytes
            }
            None => vec![0; SIZES[class]].into_boxed_slice(),
        };
        Pooled {
            stage,
            transit,
            header,
            bytes,
            len,
        }
    }

    /// Gives memory back that a burst left behind, if no frame is in the pool.
    pub fn trim(&mut self) {
        if self.free_bytes > FREE_BYTES_MAX && self.used.iter().all(|used| *used == 0) {
            self.free = Default::default();
            self.free_bytes = 0;
            self.slots = Vec::new();
            self.free_slots = Vec::new();
            self.due = BinaryHeap::new();
        }
    }

    /// Frames of guests and cards that wait for their time.
    pub fn under_way(&self) -> usize {
        let frames = self.slots.iter().flatten();
        frames.filter(|frame| !frame.transit.is_from_switch()).count()
    }

    /// The place of a sending card in `used`; all switches together have the first.
    fn place_of(card: usize) -> usize {
        if card == SWITCHES { 0 } else { card + 1 }
    }

    /// Books `size` bytes to `card`. False, and nothing is booked, if its share is used up.
    fn take_share(&mut self, card: usize, size: usize) -> bool {
        let (used, common) = self.booked(card, size);
        let beyond = used.saturating_sub(RESERVE_BYTES);
        if beyond > 0 && beyond > POOL_BYTES_MAX.saturating_sub(common) {
            return false;
        }
        self.book(card, used, common);
        true
    }

    /// What `card` would use with `size` bytes more, and what all would use of what is common.
    fn booked(&self, card: usize, size: usize) -> (usize, usize) {
        let used = self.used.get(Self::place_of(card)).copied().unwrap_or(0);
        let before = used.saturating_sub(RESERVE_BYTES);
        let beyond = (used + size).saturating_sub(RESERVE_BYTES);
        (used + size, self.common + beyond - before)
    }

    fn book(&mut self, card: usize, used: usize, common: usize) {
        let place = Self::place_of(card);
        if self.used.len() <= place {
            self.used.resize(place + 1, 0);
        }
        self.used[place] = used;
        self.common = common;
    }

    /// Gives the buffer back.
    pub fn release(&mut self, frame: Pooled) {
        let used = &mut self.used[Self::place_of(frame.transit.card())];
        let before = used.saturating_sub(RESERVE_BYTES);
        *used -= frame.bytes.len();
        self.common -= before - used.saturating_sub(RESERVE_BYTES);
        self.free_bytes += frame.bytes.len();
        if let Some(class) = SIZES.iter().position(|size| frame.bytes.len() == *size) {
            self.free[class].push(frame.bytes);
        }
    }

    /// Bytes that frames in the pool occupy.
    #[cfg(test)]
    pub fn bytes_out(&self) -> usize {
        self.used.iter().sum()
    }

    /// Keeps `frame` until `at`. Frames with the same time leave in the order they came.
    pub fn wait(&mut self, frame: Pooled, at: Time) {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(frame);
        self.due.push(Reverse((at, self.sequence, slot)));
        self.sequence += 1;
    }

    /// When the next frame is due.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next frame that is due by `now`, and its time.
    pub fn take_due(&mut self, now: Time) -> Option<(Time, Pooled)> {
        let Reverse((at, _, slot)) = *self.due.peek()?;
        if at > now {
            return None;
        }
        self.due.pop();
        self.free_slots.push(slot);
        Some((at, self.slots[slot].take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = SIZES[2];

    fn from(port: usize) -> Transit {
        Transit::from_ring(port, 0)
    }

    #[test]
    fn frames_leave_by_time_then_by_order() {
        let mut pool = Pool::default();
        for (byte, at) in [(1, 20), (2, 10), (3, 10)] {
            let frame = pool.copy_of(&[byte; 60], Stage::Card(0), from(0)).unwrap();
            pool.wait(frame, Time::from_nanos(at));
        }
        assert_eq!(pool.next_due(), Some(Time::from_nanos(10)));
        assert!(pool.take_due(Time::from_nanos(9)).is_none());
        let mut order = Vec::new();
        while let Some((_, frame)) = pool.take_due(Time::from_nanos(30)) {
            order.push(frame.bytes()[0]);
            pool.release(frame);
        }
        assert_eq!(order, [2, 3, 1]);
        assert_eq!(pool.bytes_out(), 0);
    }

    #[test]
    fn no_port_takes_what_others_need_and_the_pool_is_bounded() {
        let mut pool = Pool::default();
        let mut frames = Vec::new();
        let mut fill = |pool: &mut Pool, port: usize| {
            let mut count = 0;
            while let Some(frame) = pool.copy_of(&[0; 9000], Stage::Card(0), from(port)) {
                frames.push(frame);
                count += 1;
            }
            count * LARGE
        };
        let near = |bytes: usize, share: usize| bytes.abs_diff(share + RESERVE_BYTES) <= 2 * LARGE;
        assert!(near(fill(&mut pool, 0), POOL_BYTES_MAX / 2), "alone, a port gets half");
        assert!(near(fill(&mut pool, 1), POOL_BYTES_MAX / 4));
        for port in 2..100 {
            assert!(fill(&mut pool, port) > RESERVE_BYTES - LARGE, "port {port}");
        }
        assert!(pool.bytes_out() <= POOL_BYTES_MAX + 100 * RESERVE_BYTES);
        frames.into_iter().for_each(|frame| pool.release(frame));
        assert_eq!((pool.bytes_out(), pool.common), (0, 0));
        assert!(pool.copy_of(&[0; FRAME_LEN_MAX + 1], Stage::Card(0), from(0)).is_none());
    }
}
