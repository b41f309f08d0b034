//! The retransmission time-out of a partner, from measured round trips (7.4). Samples from resent packets must not be
//! handed in (Karn's rule).

use crate::engine::Timing;

/// The estimate of one partner's round trip.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    srtt_ns: u32,
    rttvar_ns: u32,
    /// The shortest round trip that was measured.
    min_ns: u32,
    /// The number of transmissions without an answer.
    backoff: u8,
}

/// The time-out before the first sample, as a multiple of the shortest one.
const UNKNOWN_FACTOR: u64 = 4;

impl Rtt {
    /// The state before anything was measured.
    pub const NEW: Self = Self {
        srtt_ns: 0,
        rttvar_ns: 0,
        min_ns: 0,
        backoff: 0,
    };

    /// Takes a measured round trip.
    pub fn sample(&mut self, rtt_ns: u64) {
        let rtt = u32::try_from(rtt_ns).unwrap_or(u32::MAX).max(1);
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt;
            self.rttvar_ns = rtt / 2;
            self.min_ns = rtt;
        } else {
            self.min_ns = self.min_ns.min(rtt);
            let error = self.srtt_ns.abs_diff(rtt);
            self.rttvar_ns = self.rttvar_ns - self.rttvar_ns / 4 + error / 4;
            self.srtt_ns = self.srtt_ns - self.srtt_ns / 8 + rtt / 8;
        }
    }

    /// Notes that the partner answered: the next time-out is not longer than the estimate says.
    #[inline]
    pub fn answered(&mut self) {
        self.backoff = 0;
    }

    /// Notes that a time-out passed without an answer.
    pub fn unanswered(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// Returns the time-out for the next transmission of a message, in nanoseconds.
    pub fn rto_ns(&self, timing: &Timing, short_acks: bool) -> u64 {
        self.rto_of(timing, short_acks, self.backoff)
    }

    /// Returns the time-out after `backoff` transmissions without an answer.
    pub fn rto_of(&self, timing: &Timing, short_acks: bool, backoff: u8) -> u64 {
        let (floor, ack_delay) = if short_acks {
            (timing.rto_min_short_ns, timing.ack_delay_short_ns)
        } else {
            (timing.rto_min_ns, timing.ack_delay_ns)
        };
        let estimate = if self.srtt_ns == 0 {
            UNKNOWN_FACTOR * floor
        } else {
            u64::from(self.srtt_ns) + 4 * u64::from(self.rttvar_ns)
        };
        let rto = estimate.max(ack_delay * 3 / 2).max(floor);
        (rto << backoff).min(timing.rto_max_ns)
    }

    /// Returns the shortest round trip in nanoseconds, 0 before the first sample.
    pub const fn min_ns(&self) -> u32 {
        self.min_ns
    }

    /// Returns the smoothed round trip in nanoseconds, 0 before the first sample.
    pub const fn srtt_ns(&self) -> u32 {
        self.srtt_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_out_follows_the_round_trip_between_its_bounds() {
        let timing = Timing::DEFAULT;
        let mut rtt = Rtt::NEW;
        assert_eq!(rtt.rto_ns(&timing, true), 8_000_000);
        for _ in 0..100 {
            rtt.sample(20_000);
        }
        assert_eq!(rtt.rto_ns(&timing, true), 2_000_000, "never below the floor of our own");
        assert_eq!(
            rtt.rto_ns(&timing, false),
            25_000_000,
            "never below a foreign peer's acknowledgement"
        );
        for _ in 0..200 {
            rtt.sample(100_000_000);
        }
        let rto = rtt.rto_ns(&timing, true);
        assert!((100_000_000..110_000_000).contains(&rto), "{rto}");
        rtt.unanswered();
        assert_eq!(rtt.rto_ns(&timing, true), rto * 2);
        for _ in 0..100 {
            rtt.unanswered();
        }
        assert_eq!(rtt.rto_ns(&timing, true), 500_000_000);
        rtt.answered();
        assert_eq!(rtt.rto_ns(&timing, true), rto);
    }
}
