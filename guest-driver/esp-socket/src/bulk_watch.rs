//! When to look for packets that are marked as some of many: they come by a socket into which looking costs a system call.
//!
//! A peer marks packets behind many long ones without the mark, so those announce them. In case they did not (they were lost, or took long
//! to be handled), a thread that sleeps watches that socket too, and the port looks into it now and then.

use ether::Time;

/// So long after a long packet others may come, in nanoseconds.
const EXPECTED_NS: u64 = 1_000_000;
/// Long packets in so long that announce marked ones: as many as a peer sends before, and more than messages with answers have.
const LONG_FRAMES: u16 = 256;
/// Long packets in so long with which more marked ones are expected.
const LONG_FRAMES_ON: u16 = 64;

/// What is known of marked packets.
#[derive(Debug)]
pub(crate) struct BulkWatch {
    long_frame_len: usize,
    /// Long frames before `count_until`.
    long_frames: u16,
    count_until: Time,
    expected_until: Time,
    is_expected: bool,
}

impl BulkWatch {
    /// `frame_len`: bytes of the longest frame.
    pub(crate) const fn new(frame_len: usize) -> Self {
        Self {
            long_frame_len: frame_len / 2,
            long_frames: 0,
            count_until: Time::ZERO,
            expected_until: Time::ZERO,
            is_expected: false,
        }
    }

    /// Whether marked packets may come.
    #[inline]
    pub(crate) const fn is_expected(&self) -> bool {
        self.is_expected
    }

    /// Frames are going to be taken.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Time) {
        self.is_expected = now < self.expected_until;
    }

    /// A frame was taken.
    #[inline]
    pub(crate) fn took(&mut self, frame_len: usize, now: Time) {
        if frame_len < self.long_frame_len {
            return;
        }
        if now >= self.count_until {
            self.count_until = now.plus_nanos(EXPECTED_NS);
            self.long_frames = 0;
        }
        self.long_frames = self.long_frames.saturating_add(1);
        let enough = if self.is_expected { LONG_FRAMES_ON } else { LONG_FRAMES };
        if self.long_frames >= enough {
            // Those that show that they go on are counted anew.
            self.count_until = now.plus_nanos(EXPECTED_NS);
            self.long_frames = 0;
            self.came(now);
        }
    }

    /// Marked packets are there.
    pub(crate) fn came(&mut self, now: Time) {
        self.expected_until = now.plus_nanos(EXPECTED_NS);
        self.is_expected = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_packets_are_expected_for_a_while_after_several_long_ones_came_soon_after_another() {
        let mut watch = BulkWatch::new(1_514);
        let mut take = |len, times, now_ns| {
            let now = Time::from_nanos(now_ns);
            watch.begin_turn(now);
            for _ in 0..times {
                watch.took(len, now);
            }
            watch.is_expected()
        };
        assert!(!take(128, 1_000, 1));
        assert!(!take(1_514, 255, 10));
        assert!(take(1_514, 1, 10));
        assert!(take(1_514, 0, EXPECTED_NS), "until a while after the last");
        assert!(!take(1_514, 0, 10 + EXPECTED_NS));
        // Fewer show that they go on than that they begin.
        assert!(take(1_514, 256, 10_000_000));
        assert!(take(1_514, 63, 10_999_999));
        assert!(!take(1_514, 0, 11_000_000));
        assert!(take(1_514, 256, 20_000_000));
        assert!(take(1_514, 64, 20_999_999));
        assert!(take(1_514, 0, 21_900_000));
        assert!(
            (1..100).all(|at| !take(1_514, 1, 1_000_000_000 + at * EXPECTED_NS / 7)),
            "seldom"
        );
        let now = Time::from_nanos(5_000_000_000);
        watch.came(now);
        watch.begin_turn(now);
        assert!(watch.is_expected());
    }
}
