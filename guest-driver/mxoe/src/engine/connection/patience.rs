//! How long partners may take for an acknowledgement because a process does not run: theirs, or this one. Such a time says nothing of
//! the network, so nothing is sent again in it (7.4).

use ether::Time;

/// The time-out is at least this long for as long as nothing shows it too short, in nanoseconds.
const KEPT_NS: u64 = 10_000_000_000;
/// The longest time-out for this reason, in nanoseconds: what was lost is not to wait longer.
const LONGEST_NS: u64 = 200_000_000;
/// A timer that is handled so much too late shows that this process did not run, in nanoseconds.
const LATE_NS: u64 = 1_000_000;

/// The shortest time-out that the partners of an endpoint showed to be long enough.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Patience {
    rto_min_ns: u64,
    /// When it is halved.
    until: Time,
}

impl Patience {
    /// The state before anything was sent again needlessly.
    pub(in crate::engine) const NEW: Self = Self {
        rto_min_ns: 0,
        until: Time::ZERO,
    };

    /// Notes that what was sent again had arrived, and was acknowledged `took_ns` after it was first sent.
    pub(in crate::engine) fn too_early(&mut self, now: Time, took_ns: u64) {
        self.rto_min_ns = self.rto_ns(now).max(2 * took_ns).min(LONGEST_NS);
        self.until = now.plus_nanos(KEPT_NS);
    }

    /// Returns the shortest time-out now, in nanoseconds.
    pub(in crate::engine) fn rto_ns(&mut self, now: Time) -> u64 {
        if self.rto_min_ns > 0 && self.until <= now {
            self.rto_min_ns /= 2;
            self.until = now.plus_nanos(KEPT_NS);
        }
        self.rto_min_ns
    }
}

/// Whether this process did not run when a timer was due that is handled `now`: what came meanwhile is to be read first.
pub(in crate::engine) fn did_not_run(now: Time, due: Time) -> bool {
    due != Time::MAX && now.nanos_since(due) > LATE_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_too_early_holds_for_a_while_and_is_halved_then() {
        let at = |seconds: u64| Time::from_nanos(1 + seconds * 1_000_000_000);
        let mut patience = Patience::NEW;
        assert_eq!(patience.rto_ns(at(0)), 0);
        patience.too_early(at(0), 12_000_000);
        patience.too_early(at(1), 4_000_000);
        assert_eq!(patience.rto_ns(at(10)), 24_000_000);
        assert_eq!(patience.rto_ns(at(11)), 12_000_000);
        assert_eq!(patience.rto_ns(at(20)), 12_000_000);
        assert_eq!(patience.rto_ns(at(40)), 6_000_000);
        patience.too_early(at(41), 900_000_000);
        assert_eq!(patience.rto_ns(at(41)), LONGEST_NS);
        assert!(did_not_run(at(1), at(0)) && !did_not_run(at(0), at(0)) && !did_not_run(at(0), Time::MAX));
    }
}
