//! A thread that spins for one message after the other keeps out of the way of what brings them.
//!
//! Each look at an empty slot of the port's ring takes the slot's line from the core that is about to fill it, which must get it back
//! first. Over veth that is the sender's core, which does all the kernel's work for a frame and is the limit: looks that find nothing
//! make messages fewer. Who takes messages one after the other and sends none waits for no answer, so it rests after each. Messages of
//! 128 bytes over veth, one every 1.2 us, were 0.79 times as many as bare frames whose receiver looks without a pause; 0.79 with rests of
//! 0.25 us too, which end before the next message is there, 0.83 … 0.85 with 0.4 … 3 us, most with 2 and 3 (medians of five runs of 9
//! rounds, in turns). Messages inside a host come three times as fast, and nobody rests for those.

/// Messages in a row, with nothing sent by the program between them, after which a thread rests: who answers them, be it in windows
/// of a few, never does.
const ROW_MIN: u32 = 32;
/// How long a rest is, in nanoseconds: as much later a message may be seen.
pub(crate) const REST_NS: u64 = 2000;

/// What is known of the messages that came last.
#[derive(Debug)]
pub(crate) struct Pace {
    row: u32,
    /// One came since the last rest.
    rest_is_due: bool,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self {
            row: 0,
            rest_is_due: false,
        }
    }

    /// Messages came by the port that completed so many requests.
    #[inline]
    pub(crate) fn received(&mut self, count: u64) {
        if count > 0 {
            self.row = self.row.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            self.rest_is_due = self.row >= ROW_MIN;
        }
    }

    /// The program sends: it may wait for an answer next.
    #[inline]
    pub(crate) const fn sent(&mut self) {
        self.row = 0;
        self.rest_is_due = false;
    }

    /// Whether the thread is to rest before it looks again: once, then it looks without a pause until the next message is there.
    #[inline]
    pub(crate) const fn take_rest(&mut self) -> bool {
        std::mem::replace(&mut self.rest_is_due, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_messages_in_a_row_rests_once_after_each() {
        let mut pace = Pace::new();
        for message in 1..3 * ROW_MIN {
            pace.received(1);
            assert_eq!(pace.take_rest(), message >= ROW_MIN, "message {message}");
            pace.received(0);
            assert!(!pace.take_rest(), "nothing came");
        }
    }

    #[test]
    fn who_answers_never_rests() {
        let mut pace = Pace::new();
        for _ in 0..100 {
            for _ in 0..ROW_MIN - 1 {
                pace.received(1);
                assert!(!pace.take_rest());
            }
            pace.sent();
        }
        pace.received(u64::from(ROW_MIN));
        pace.sent();
        assert!(!pace.take_rest(), "it sent since");
    }
}
