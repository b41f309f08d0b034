//! The congestion window, in packets: NewReno's rules, from another start, since a LAN needs no slow start from 1.

use crate::PACKETS_MAX;

/// Packets of the window at the start of a connection.
const INITIAL: u32 = 64;
/// The window is never smaller: with fewer packets in flight, a loss shows by a time-out only.
const MIN: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Congestion {
    pub(crate) window: u32,
    threshold: u32,
    /// Packets acknowledged towards the window's next packet.
    partial: u32,
}

impl Default for Congestion {
    fn default() -> Self {
        Self {
            window: INITIAL,
            threshold: PACKETS_MAX,
            partial: 0,
        }
    }
}

impl Congestion {
    /// Packets were acknowledged while the window was in use.
    #[inline]
    pub(crate) fn acknowledged(&mut self, packets: u32) {
        if self.window < self.threshold {
            self.window = (self.window + packets).min(self.threshold);
            return;
        }
        self.partial += packets;
        if self.partial >= self.window {
            self.partial -= self.window;
            self.window = (self.window + 1).min(PACKETS_MAX);
        }
    }

    /// Acknowledgements showed a loss with so many packets in flight.
    pub(crate) fn lost(&mut self, in_flight: u32) {
        self.threshold = (in_flight / 2).max(MIN);
        self.window = self.threshold;
        self.partial = 0;
    }

    /// Nothing came back in time. The first time, what was in flight may be little since the program had little to send, and says nothing
    /// of the network: half of the window counts, as in Linux. The peer may merely have been busy.
    pub(crate) fn timed_out(&mut self, in_flight: u32, is_again: bool) {
        let carried = if is_again { in_flight } else { self.window };
        self.threshold = (carried / 2).max(MIN);
        self.window = MIN;
        self.partial = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_by_a_packet_a_round_and_halves_at_a_loss() {
        let mut congestion = Congestion::default();
        assert_eq!(congestion.window, 64);
        congestion.acknowledged(64);
        assert_eq!(congestion.window, 128, "a slow start doubles it");
        congestion.lost(128);
        assert_eq!(congestion.window, 64);
        congestion.acknowledged(63);
        assert_eq!(congestion.window, 64);
        congestion.acknowledged(1);
        assert_eq!(congestion.window, 65);
        congestion.timed_out(5, false);
        assert_eq!(
            (congestion.window, congestion.threshold),
            (MIN, 32),
            "five packets were all there was"
        );
        congestion.timed_out(10, true);
        assert_eq!((congestion.window, congestion.threshold), (MIN, 5));
        (0..100_000).for_each(|_| congestion.acknowledged(100));
        assert_eq!(congestion.window, PACKETS_MAX);
    }
}
