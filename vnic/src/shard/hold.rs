//! How long frames wait for a receiver that has no buffer for them, and when it is worth trying again.
//!
//! Frames wait in their sender's ring, so overload costs the sender time instead of frames. Whoever takes few frames earns
//! little of that time: a receiver that stalls again and again, or that posts one small buffer now and then, cannot slow
//! its senders, nor who sends and receives beside them.

use ether::Time;

use super::Inner;
use super::forward::Outcome;
use super::frame::FrameRef;
use super::port::Port;
use super::transmit::{Held, TxOrigin};

/// How long a frame may wait in its sender's ring for a receiver that still takes frames. Long enough for a guest whose
/// processor was just taken away to come back; after it frames are dropped until the receiver has earned new patience, so
/// nobody waits for a dead one twice.
pub const HOLD_NS_MAX: u64 = 5_000_000;

/// Patience earned by a delivered frame, and by each of its bytes: a receiver that takes 20,000 frames/s or 500 Mbit/s, as
/// an emulated guest does, is always waited for, and one that took 100 frames since the last time has all of it.
const EARNED_NS_PER_FRAME: u64 = 50_000;
const EARNED_NS_PER_BYTE: u64 = 16;

/// What is left of the time for which others wait for one guest.
#[derive(Debug)]
pub struct Patience {
    left_ns: u64,
    /// The port's counters of delivered frames and bytes when `left_ns` was right.
    frames: u64,
    bytes: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            left_ns: HOLD_NS_MAX,
            frames: 0,
            bytes: 0,
        }
    }
}

impl Patience {
    /// Adds what was earned until the port had delivered so many frames and bytes in all.
    fn earn(&mut self, frames: u64, bytes: u64) {
        let earned_ns = (frames - self.frames)
            .saturating_mul(EARNED_NS_PER_FRAME)
            .saturating_add((bytes - self.bytes).saturating_mul(EARNED_NS_PER_BYTE));
        self.left_ns = self.left_ns.saturating_add(earned_ns).min(HOLD_NS_MAX);
        (self.frames, self.bytes) = (frames, bytes);
    }

    /// Others waited for so long.
    fn waited(&mut self, ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(ns);
    }
}

impl Inner {
    /// Leaves the head frame of `origin`'s ring there until receive queue `queue` of port `port` has buffers.
    #[cold]
    #[inline(never)]
    pub(super) fn hold(&mut self, origin: TxOrigin, port: usize, queue: usize, now: Time) -> Outcome {
        let side = &mut self.ports[origin.port()].pairs[origin.pair()].tx;
        side.held = Some(Held { port, queue });
        side.held_until = now.plus_nanos(HOLD_NS_MAX);
        Outcome::Hold
    }

    /// Tries a frame again that was held; it was switched already, and counted then.
    #[cold]
    #[inline(never)]
    pub(super) fn carry_held(&mut self, port: usize, origin: TxOrigin, frame: &FrameRef<'_>, now: Time) -> Outcome {
        let until = self.ports[origin.port()].pairs[origin.pair()].tx.held_until;
        let outcome = self.carry_to_port(port, origin, frame, now, now < until);
        self.ports[origin.port()].pairs[origin.pair()].tx.held_until = until;
        // Its switches decided about it in an earlier batch, and about others since; a trunk may lie between. No row may follow it:
        // the next frame is counted, and asked about, wherever it passes.
        self.last_straight = None;
        outcome
    }
}

impl Port {
    /// No buffer for a frame at `queue`: true if it may wait a little longer.
    #[cold]
    #[inline(never)]
    pub fn may_hold(&mut self, queue: usize, now: Time) -> bool {
        let since = match self.pairs[queue].rx.stalled_since {
            Some(since) => since,
            None => {
                let batches = || self.pairs.iter().map(|pair| &pair.rx);
                let frames = batches().map(|side| side.batch_frames).sum::<u64>() + self.counters.rx_frames;
                let bytes = batches().map(|side| side.batch_bytes).sum::<u64>() + self.counters.rx_bytes;
                self.patience.earn(frames, bytes);
                self.pairs[queue].rx.stalled_since = Some(now);
                now
            }
        };
        now.nanos_since(since) < self.patience.left_ns
    }

    /// Queue `queue` took a frame, so the wait for it is over.
    #[cold]
    #[inline(never)]
    pub fn end_stall(&mut self, queue: usize, now: Time) {
        if let Some(since) = self.pairs[queue].rx.stalled_since.take() {
            self.patience.waited(now.nanos_since(since));
        }
    }

    /// When the patience with a stalled receive queue of this port ends, if frames may wait for one now.
    pub fn hold_ends(&self, now: Time) -> Option<Time> {
        (0..self.pairs.len())
            .filter_map(|queue| self.queue_hold_ends(queue, now))
            .min()
    }

    fn queue_hold_ends(&self, queue: usize, now: Time) -> Option<Time> {
        self.pairs[queue]
            .rx
            .stalled_since
            .map(|since| since.plus_nanos(self.patience.left_ns))
            .filter(|at| *at > now)
    }

    /// True if a frame that waits for receive queue `queue` must go on waiting, because trying again would find too few
    /// buffers again. Looks at each new buffer once.
    pub fn still_stalled(&mut self, queue: usize, now: Time) -> bool {
        let waits = self.queue_hold_ends(queue, now).is_some();
        let side = &mut self.pairs[queue].rx;
        // A broken rule ends the wait: the delivery finds it again and reports it.
        waits && side.is_ready() && self.map.as_ref().is_some_and(|map| side.is_short(map) == Ok(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_spent_by_waiting_and_earned_by_taking_frames() {
        let mut patience = Patience::default();
        patience.earn(1_000, 60_000);
        assert_eq!(patience.left_ns, HOLD_NS_MAX, "never more than all of it");
        patience.waited(2 * HOLD_NS_MAX);
        assert_eq!(patience.left_ns, 0);
        patience.earn(1_001, 60_060);
        assert_eq!(patience.left_ns, EARNED_NS_PER_FRAME + 60 * EARNED_NS_PER_BYTE);
        patience.earn(1_101, 66_060);
        assert_eq!(patience.left_ns, HOLD_NS_MAX);
    }
}
