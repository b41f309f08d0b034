//! Backpressure: how long frames wait for a receiver that has no buffer for them, and when it is worth trying again.
//!
//! Frames wait in their sender's ring, so overload costs the sender time instead of frames. A receiver that takes few frames
//! earns little of that time: one that stalls again and again, or that posts one small buffer now and then, cannot slow
//! its senders, nor other guests that exchange frames with them.

use ether::Time;

use super::Card;

/// How long a frame may wait in its sender's ring for a receiver that still takes frames. Long enough for a guest whose
/// processor was just taken away to come back; after it frames are dropped until the receiver has earned new time, so
/// a dead receiver is waited for only once.
pub const WAIT_NS_MAX: u64 = 5_000_000;

/// Waiting time earned by a delivered frame, and by each of its bytes: a receiver that takes 20,000 frames/s or 500 Mbit/s,
/// as an emulated guest does, is always waited for, and one that took 100 frames since the last time has all of it.
const EARNED_NS_PER_FRAME: u64 = 50_000;
const EARNED_NS_PER_BYTE: u64 = 16;

/// What is left of the time for which others wait for one guest.
#[derive(Debug)]
struct WaitBudget {
    left_ns: u64,
    /// The card's counters of delivered frames and bytes when `left_ns` was right.
    frames: u64,
    bytes: u64,
}

impl Default for WaitBudget {
    fn default() -> Self {
        Self {
            left_ns: WAIT_NS_MAX,
            frames: 0,
            bytes: 0,
        }
    }
}

impl WaitBudget {
    /// Adds what was earned until the card had delivered so many frames and bytes in all.
    fn earn(&mut self, frames: u64, bytes: u64) {
        let earned_ns = (frames - self.frames)
            .saturating_mul(EARNED_NS_PER_FRAME)
            .saturating_add((bytes - self.bytes).saturating_mul(EARNED_NS_PER_BYTE));
        self.left_ns = self.left_ns.saturating_add(earned_ns).min(WAIT_NS_MAX);
        (self.frames, self.bytes) = (frames, bytes);
    }

    /// Others waited for so long.
    fn spend(&mut self, ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(ns);
    }
}

/// The waiting of others for one guest's receive buffers.
#[derive(Debug, Default)]
pub(super) struct Backpressure {
    budget: WaitBudget,
    /// Frames wait for this guest's receive buffers; right while the data plane prepares to sleep.
    awaited: bool,
}

impl Card {
    /// There is no buffer for a frame at `queue`: true if it may wait a little longer.
    #[cold]
    #[inline(never)]
    pub fn may_wait_for(&mut self, queue: usize, now: Time) -> bool {
        if self.pairs[queue].rx.stalled_since().is_none() {
            let batches = self.pairs.iter().map(|pair| pair.rx.batch_counts());
            let (frames, bytes) = batches.fold(
                (self.counters.rx_frames, self.counters.rx_bytes),
                |(frames, bytes), batch| (frames + batch.0, bytes + batch.1),
            );
            self.backpressure.budget.earn(frames, bytes);
            self.pairs[queue].rx.begin_stall(now);
        }
        self.is_worth_waiting_for(queue, now)
    }

    /// Whether frames wait for buffers of receive queue `queue` already, and another one may wait with them.
    pub fn is_worth_waiting_for(&self, queue: usize, now: Time) -> bool {
        let since = self.pairs[queue].rx.stalled_since();
        since.is_some_and(|since| now.nanos_since(since) < self.backpressure.budget.left_ns)
    }

    /// Queue `queue` took a frame, so the wait for it is over.
    #[cold]
    #[inline(never)]
    pub(super) fn end_stall(&mut self, queue: usize, now: Time) {
        if let Some(since) = self.pairs[queue].rx.end_stall() {
            self.backpressure.budget.spend(now.nanos_since(since));
        }
    }

    /// When the wait for a stalled receive queue of this card ends, if frames may wait for one now.
    pub fn wait_ends(&self, now: Time) -> Option<Time> {
        (0..self.pairs.len())
            .filter_map(|queue| self.queue_wait_ends(queue, now))
            .min()
    }

    fn queue_wait_ends(&self, queue: usize, now: Time) -> Option<Time> {
        let since = self.pairs[queue].rx.stalled_since()?;
        Some(since.plus_nanos(self.backpressure.budget.left_ns)).filter(|at| *at > now)
    }

    /// True if a frame that waits for receive queue `queue` must go on waiting, because trying again would find too few
    /// buffers again. Checks each new buffer once.
    pub fn is_still_stalled(&mut self, queue: usize, now: Time) -> bool {
        let waits = self.queue_wait_ends(queue, now).is_some();
        let ring = &mut self.pairs[queue].rx;
        // A broken rule ends the wait: the delivery finds it again and reports it.
        let map = self.negotiated.map.as_ref();
        waits && ring.is_ready() && map.is_some_and(|map| ring.is_short(map) == Ok(true))
    }

    /// Whether a receive queue takes no frame before others have reached the guest's memory.
    pub fn is_in_flight(&self) -> bool {
        self.pairs.iter().any(|pair| pair.rx.is_in_flight())
    }

    /// True if trying again to deliver what receive queue `queue` refused would find too few buffers again. Checks each new buffer
    /// once.
    pub fn is_short(&mut self, queue: usize) -> bool {
        let ring = &mut self.pairs[queue].rx;
        let map = self.negotiated.map.as_ref();
        ring.is_ready() && map.is_some_and(|map| ring.is_short(map) == Ok(true))
    }

    /// True if a frame that waits for receive queue `queue` lacks a translation of the guest's IOMMU, which was asked for: its
    /// frontend answers, or its session ends.
    pub fn awaits_translation(&self, queue: usize) -> bool {
        self.pairs[queue].rx.awaits_translation()
    }

    /// Notes whether frames wait for this guest's receive buffers.
    pub fn set_awaited(&mut self, awaited: bool) {
        self.backpressure.awaited = awaited;
    }

    /// Whether frames wait for this guest's receive buffers, as was noted last.
    pub(super) fn is_awaited(&self) -> bool {
        self.backpressure.awaited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_spent_by_waiting_and_earned_by_taking_frames() {
        let mut budget = WaitBudget::default();
        budget.earn(1_000, 60_000);
        assert_eq!(budget.left_ns, WAIT_NS_MAX, "never more than all of it");
        budget.spend(2 * WAIT_NS_MAX);
        assert_eq!(budget.left_ns, 0);
        budget.earn(1_001, 60_060);
        assert_eq!(budget.left_ns, EARNED_NS_PER_FRAME + 60 * EARNED_NS_PER_BYTE);
        budget.earn(1_101, 66_060);
        assert_eq!(budget.left_ns, WAIT_NS_MAX);
    }
}
