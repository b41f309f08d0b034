//! Round trips and the retransmission time-out that follows from them (RFC 6298, with another floor).

use crate::Timing;

/// The clock's granularity G of RFC 6298.
const GRANULARITY_NS: u64 = 1_000;

/// Longer round trips count as this one: 18 minutes.
pub(crate) const ROUND_TRIP_MAX_NS: u64 = 1 << 40;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rtt {
    /// Smoothed round trip in ns, 0 before one was measured.
    pub(crate) smoothed_ns: u64,
    pub(crate) variation_ns: u64,
    /// Shortest round trip of all, in ns.
    pub(crate) min_ns: u64,
    /// Time-outs in a row.
    pub(crate) backoff: u8,
}

impl Rtt {
    pub(crate) fn measured(&mut self, sample_ns: u64) {
        let sample_ns = sample_ns.clamp(1, ROUND_TRIP_MAX_NS);
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.variation_ns, self.min_ns) = (sample_ns, sample_ns / 2, sample_ns);
            return;
        }
        self.variation_ns = (3 * self.variation_ns + self.smoothed_ns.abs_diff(sample_ns)) / 4;
        self.smoothed_ns = (7 * self.smoothed_ns + sample_ns) / 8;
        self.min_ns = self.min_ns.min(sample_ns);
    }

    /// The time-out, time-outs in a row included.
    #[inline]
    pub(crate) fn timeout_ns(&self, timing: &Timing) -> u64 {
        let first = if self.smoothed_ns == 0 {
            timing.rto_initial_ns
        } else {
            self.smoothed_ns + (4 * self.variation_ns).max(GRANULARITY_NS)
        };
        let floored = first.max(timing.rto_min_ns);
        floored.saturating_mul(1 << self.backoff.min(20)).min(timing.rto_max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_out_follows_rfc_6298_but_for_its_bounds() {
        let timing = Timing::default();
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout_ns(&timing), 20_000_000);
        rtt.measured(8_000_000);
        assert_eq!((rtt.smoothed_ns, rtt.variation_ns), (8_000_000, 4_000_000));
        assert_eq!(rtt.timeout_ns(&timing), 24_000_000);
        rtt.measured(16_000_000);
        assert_eq!((rtt.smoothed_ns, rtt.variation_ns), (9_000_000, 5_000_000));
        rtt.backoff = 2;
        assert_eq!(rtt.timeout_ns(&timing), 4 * 29_000_000);
        rtt.backoff = 200;
        assert_eq!(rtt.timeout_ns(&timing), timing.rto_max_ns);
        let mut quick = Rtt::default();
        (0..50).for_each(|_| quick.measured(10_000));
        assert_eq!(quick.timeout_ns(&timing), timing.rto_min_ns);
    }
}
