//! What is known of the path that replies to pulls take: their round trips, and how far frames overtake one another (6.4).

use crate::engine::{Timing, connection::rtt::Rtt};

/// Reordering that is taken for granted before any was seen, in frames: the third later one tells of a loss, as in TCP.
const REORDERING_FIRST: u16 = 2;
/// Reordering that is waited for at most, in frames: beyond it, asking again costs less than waiting.
const REORDERING_MAX: u16 = 24;
/// What a frame that was asked for needlessly adds to the reordering that is waited for.
const REORDERING_STEP: u16 = 2;

/// Least time that a late frame is waited for once later ones have arrived: cards hold frames back for up to 75 us.
const GAP_NS_MIN: u64 = 100_000;

/// What a pull needs to know of its path to tell late from lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Frames that may overtake another.
    pub reordering: u16,
    /// A reply to a request does not come sooner than this after it.
    pub shortest_ns: u64,
    /// Nor later, unless the path is slower than it is known to be.
    pub longest_ns: u64,
}

/// The path of pulls from one partner.
#[derive(Debug)]
pub(in crate::engine) struct TransferPath {
    /// Frames that overtook others, at most.
    reordering: u16,
    /// Time from a PULL to its first reply: no acknowledgement is delayed in it.
    rtt: Rtt,
}

impl TransferPath {
    /// Nothing is known.
    pub(in crate::engine) const NEW: Self = Self {
        reordering: REORDERING_FIRST,
        rtt: Rtt::NEW,
    };

    /// A round trip was measured.
    pub(in crate::engine) fn sample(&mut self, rtt_ns: u64) {
        self.rtt.sample(rtt_ns);
    }

    /// Shortest round trip in nanoseconds, 0 before the first sample.
    pub(super) const fn min_ns(&self) -> u32 {
        self.rtt.min_ns()
    }

    /// A frame came before which so many did that were asked for later.
    pub(super) fn overtaken(&mut self, by: u16) {
        self.reordering = self.reordering.max(by.min(REORDERING_MAX));
    }

    /// A frame was asked for again that was only late, and came this long after that in nanoseconds; 0 if it is not known how long.
    pub(super) fn spurious(&mut self, after_ns: u64) {
        if after_ns > 0 {
            // Two copies, two requests: it answers the second.
            self.rtt.sample(after_ns);
        }
        self.reordering = (self.reordering + REORDERING_STEP).min(REORDERING_MAX);
    }

    /// A pull is silent for too long after this, in nanoseconds, if it was asked again so many times.
    pub(super) fn rto_ns(&self, timing: &Timing, short_acks: bool, backoff: u8) -> u64 {
        self.rtt.rto_of(timing, short_acks, backoff)
    }

    /// What pulls need to know to tell late from lost.
    pub(super) const fn late_or_lost(&self, longest_ns: u64, after_silence: bool) -> Path {
        // A path that was silent is empty.
        let expected_ns = if after_silence {
            self.rtt.min_ns()
        } else {
            self.rtt.srtt_ns()
        };
        Path {
            reordering: self.reordering,
            shortest_ns: expected_ns as u64 * 3 / 4,
            longest_ns,
        }
    }

    /// A pull in which something is missing and nothing arrived for this long has lost it, in nanoseconds.
    pub(super) fn gap_ns(&self) -> u64 {
        (2 * u64::from(self.rtt.srtt_ns())).max(GAP_NS_MIN)
    }

    /// After this much silence of a pull its oldest missing frame is asked for, in nanoseconds; `None` before any
    /// round trip was measured.
    pub(super) fn probe_ns(&self) -> Option<u64> {
        (self.rtt.srtt_ns() != 0).then(|| 2 * self.gap_ns())
    }
}
