//! The path that replies to pulls take: their round trips, and how far frames overtake one another (6.4).

use crate::engine::{Timing, connection::rtt::Rtt};

/// So much reordering is assumed before any was seen, in frames: the third later one tells of a loss, as in TCP.
const REORDERING_FIRST: u16 = 2;
/// At most so much reordering is waited for, in frames: beyond it, asking again costs less than waiting.
const REORDERING_MAX: u16 = 24;
/// A frame that was asked for needlessly adds this to the reordering that is waited for.
const REORDERING_STEP: u16 = 2;

/// A late frame is waited for at least this long once later ones have arrived: cards keep frames back for up to 75 us.
const GAP_NS_MIN: u64 = 100_000;

/// The facts about a path by which a pull tells late frames from lost ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// This many frames may overtake another.
    pub reordering: u16,
    /// A reply comes no sooner than this after its request.
    pub shortest_ns: u64,
    /// A reply comes no later than this, unless the path is slower than it is known to be.
    pub longest_ns: u64,
}

/// The path of pulls from one partner.
#[derive(Debug)]
pub(in crate::engine) struct TransferPath {
    /// At most this many frames overtook others.
    reordering: u16,
    /// The time from a PULL to its first reply: no acknowledgement is delayed in it.
    rtt: Rtt,
}

impl TransferPath {
    /// The state before anything is known.
    pub(in crate::engine) const NEW: Self = Self {
        reordering: REORDERING_FIRST,
        rtt: Rtt::NEW,
    };

    /// Takes a measured round trip.
    pub(in crate::engine) fn sample(&mut self, rtt_ns: u64) {
        self.rtt.sample(rtt_ns);
    }

    /// Returns the shortest round trip in nanoseconds, 0 before the first sample.
    pub(super) const fn min_ns(&self) -> u32 {
        self.rtt.min_ns()
    }

    /// Notes that a frame came after so many that were asked for later.
    pub(super) fn overtaken(&mut self, by: u16) {
        self.reordering = self.reordering.max(by.min(REORDERING_MAX));
    }

    /// Notes that a frame was asked for again that was only late, and came this long after that in nanoseconds; 0 if it
    /// is not known how long.
    pub(super) fn spurious(&mut self, after_ns: u64) {
        if after_ns > 0 {
            // Two copies, two requests: it answers the second.
            self.rtt.sample(after_ns);
        }
        self.reordering = (self.reordering + REORDERING_STEP).min(REORDERING_MAX);
    }

    /// Returns the time of silence after which a pull that was asked again so many times has timed out, in nanoseconds.
    pub(super) fn rto_ns(&self, timing: &Timing, short_acks: bool, backoff: u8) -> u64 {
        self.rtt.rto_of(timing, short_acks, backoff)
    }

    /// Returns the facts by which pulls tell late frames from lost ones.
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

    /// Returns the time without arrivals after which a missing frame of a pull counts as lost, in nanoseconds.
    pub(super) fn gap_ns(&self) -> u64 {
        (2 * u64::from(self.rtt.srtt_ns())).max(GAP_NS_MIN)
    }

    /// Returns the time of silence after which a pull's oldest missing frame is asked for, in nanoseconds; `None`
    /// before any round trip was measured.
    pub(super) fn probe_ns(&self) -> Option<u64> {
        (self.rtt.srtt_ns() != 0).then(|| 2 * self.gap_ns())
    }
}
