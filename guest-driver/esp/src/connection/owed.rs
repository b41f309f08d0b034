//! How many packets an acknowledgement waits for.
//!
//! An acknowledgement costs both hosts nearly what a packet of data costs, so while packets come in order few are sent. A peer with a small
//! congestion window must not wait for one, though: its window grows by a packet a round at least, so after a loss, and whenever an
//! acknowledgement had to wait for its timer, the number is small again and grows as the root of what came, which is slower than the
//! peer's window. Short packets are what calls and answers consist of: the answer acknowledges them.

/// What an acknowledgement waits for, in parts of a packet.
const WHOLE: u32 = 16;
/// Packets in order after which short ones wait for an answer, and long ones for more of them: two, four, eight, sixteen.
const STEPS: [u32; 3] = [64, 256, 1024];
/// A new connection has a window of 64 packets, so the peer can be far from its end with eight.
const AT_START: u32 = STEPS[1];

/// Long packets of what may be a message that is answered at once.
const MESSAGE_PACKETS_MAX: u32 = 6;

/// What came since the last acknowledgement, and in what order.
#[derive(Debug)]
pub(super) struct Owed {
    /// In parts of what an acknowledgement waits for.
    parts: u32,
    packets: u32,
    long_packets: u32,
    /// Packets that came in order since one did not.
    in_order: u32,
}

impl Default for Owed {
    fn default() -> Self {
        Self {
            parts: 0,
            packets: 0,
            long_packets: 0,
            in_order: AT_START,
        }
    }
}

impl Owed {
    /// A packet came in order; `room`: how many more the peer may send without an acknowledgement. Whether one is to go now.
    #[inline]
    pub(super) fn came(&mut self, is_long: bool, room: u32) -> bool {
        self.packets += 1;
        self.long_packets += u32::from(is_long);
        self.parts += match self.in_order {
            in_order if in_order < STEPS[0] => WHOLE / 2,
            _ if !is_long => 1,
            in_order if in_order < STEPS[1] => WHOLE / 4,
            in_order if in_order < STEPS[2] => WHOLE / 8,
            _ => 1,
        };
        self.in_order = self.in_order.saturating_add(1);
        self.parts >= WHOLE || self.packets >= room
    }

    /// Whether so much came that a peer that has no more to send should not keep it until an acknowledgement is due. Less is a message,
    /// which an answer acknowledges.
    #[inline]
    pub(super) const fn is_end_of_many(&self) -> bool {
        self.long_packets > MESSAGE_PACKETS_MAX
    }

    /// A packet came that is not the next.
    pub(super) fn out_of_order(&mut self) {
        self.in_order = 0;
    }

    /// The timer ran off: a peer that had long packets to send may have waited for it.
    pub(super) fn waited(&mut self) {
        if self.long_packets > 1 {
            self.in_order = self.in_order.min(STEPS[2]) / 4;
        }
    }

    /// An acknowledgement goes out.
    #[inline]
    pub(super) fn acknowledged(&mut self) {
        (self.parts, self.packets, self.long_packets) = (0, 0, 0);
    }

    /// Whether anything came since the last one.
    #[inline]
    pub(super) const fn is_any(&self) -> bool {
        self.packets > 0
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Packets until an acknowledgement goes.
    fn packets(owed: &mut Owed, is_long: bool, room: u32) -> u32 {
        let mut count = 1;
        while !owed.came(is_long, room) {
            count += 1;
        }
        owed.acknowledged();
        count
    }

    #[test]
    fn long_packets_in_order_are_acknowledged_less_and_less_often() {
        let mut owed = Owed::default();
        assert_eq!(packets(&mut owed, true, 1000), 8);
        owed.out_of_order();
        let counts: Vec<_> = (0..200).map(|_| packets(&mut owed, true, 1000)).collect();
        assert!(counts.is_sorted());
        assert_eq!((counts[0], counts[31], counts[32], counts[199]), (2, 2, 4, 16));
        assert!(owed.came(true, 1), "the peer may send no more");
    }

    #[test]
    fn short_packets_wait_for_an_answer_unless_something_was_lost() {
        let mut owed = Owed::default();
        assert_eq!(packets(&mut owed, false, 1000), 16);
        owed.waited();
        assert_eq!(packets(&mut owed, false, 1000), 16);
        owed.out_of_order();
        assert_eq!(packets(&mut owed, false, 1000), 2);
    }

    #[test]
    fn a_peer_that_waited_for_the_timer_waits_for_fewer_packets_the_next_time() {
        let mut owed = Owed::default();
        let mut counts = Vec::new();
        for _ in 0..4 {
            counts.push(packets(&mut owed, true, 1000));
            owed.came(true, 1000);
            owed.came(true, 1000);
            owed.waited();
            owed.acknowledged();
        }
        assert_eq!(counts, [8, 4, 2, 2]);
    }
}
