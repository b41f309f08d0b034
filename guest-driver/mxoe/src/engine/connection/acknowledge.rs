//! This module decides when a partner's messages are acknowledged: with the next packet to it, after a delay, or
//! immediately (7.2).

use ether::Time;

use crate::engine::{Timing, seq::Seq};

/// Towards peers that agreed on short delays, this many messages of up to 128 bytes count as one when it is decided
/// whether to acknowledge: such messages were copied, so they are complete for the program that sent them.
const INLINE_PER_MESSAGE: u16 = 4;

/// When the completed messages of a partner have to be acknowledged at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum AckDue {
    /// Nothing changed: no message waits for it, or a delay runs already.
    AsBefore,
    /// After a delay that ends then.
    At(Time),
    /// Immediately.
    Now,
}

/// This schedule decides when one partner gets its next acknowledgement.
#[derive(Debug)]
pub(in crate::engine) struct AckSchedule {
    /// What the last acknowledgement said.
    sent: Seq,
    /// When a delayed acknowledgement is due.
    due: Time,
    /// An acknowledgement is due immediately.
    is_due_now: bool,
    /// Among what was completed since the last acknowledgement is a message whose sender may wait for it.
    is_awaited: bool,
    /// The partner stands in the queue of acknowledgements.
    is_queued: bool,
    /// This counts the packets that carried only an acknowledgement.
    packets: u32,
}

impl AckSchedule {
    /// Nothing to acknowledge.
    pub(in crate::engine) const NEW: Self = Self {
        sent: Seq::FIRST,
        due: Time::MAX,
        is_due_now: false,
        is_awaited: false,
        is_queued: false,
        packets: 0,
    };

    /// Complete messages, up to `expected`, that were not acknowledged yet.
    #[inline]
    pub(in crate::engine) const fn pending(&self, expected: Seq) -> u16 {
        expected.since(self.sent)
    }

    /// When a delayed acknowledgement is due that does not stand in the queue.
    #[inline]
    pub(in crate::engine) const fn due(&self) -> Time {
        if self.is_due_now { Time::MAX } else { self.due }
    }

    /// Whether a delayed acknowledgement is due at `now`.
    #[inline]
    pub(in crate::engine) fn is_due(&self, now: Time) -> bool {
        self.due <= now
    }

    /// Everything before `expected` is acknowledged by a packet that is made just now; what it says.
    #[inline]
    pub(in crate::engine) const fn take_along(&mut self, expected: Seq) -> u16 {
        self.sent = expected;
        self.due = Time::MAX;
        self.is_due_now = false;
        self.is_awaited = false;
        expected.0
    }

    /// A message was completed whose sender may wait for the acknowledgement.
    #[inline]
    pub(in crate::engine) const fn awaited(&mut self) {
        self.is_awaited = true;
    }

    /// Messages before `expected` are complete: sees to it that they are acknowledged in time.
    #[inline]
    pub(in crate::engine) fn schedule(
        &mut self,
        now: Time,
        expected: Seq,
        short_acks: bool,
        timing: &Timing,
    ) -> AckDue {
        let pending = self.pending(expected);
        let inline_only = short_acks && !self.is_awaited;
        let messages_max = if inline_only {
            timing.ack_messages_max.saturating_mul(INLINE_PER_MESSAGE)
        } else {
            timing.ack_messages_max
        };
        if pending >= messages_max {
            AckDue::Now
        } else if pending > 0 && self.due == Time::MAX {
            let delay = if short_acks {
                timing.ack_delay_short_ns
            } else {
                timing.ack_delay_ns
            };
            self.due = now.plus_nanos(delay);
            AckDue::At(self.due)
        } else {
            AckDue::AsBefore
        }
    }

    /// An acknowledgement is due immediately, unless a message takes it along. True: the partner is to be put in the queue.
    pub(in crate::engine) const fn demand(&mut self) -> bool {
        self.is_due_now = true;
        !core::mem::replace(&mut self.is_queued, true)
    }

    /// The partner was taken out of the queue. Whether the acknowledgement is still due.
    pub(in crate::engine) const fn leave_queue(&mut self) -> bool {
        self.is_queued = false;
        self.is_due_now
    }

    /// The number of the next packet that holds nothing but an acknowledgement.
    pub(in crate::engine) const fn next_packet(&mut self) -> u32 {
        self.packets = self.packets.wrapping_add(1);
        self.packets
    }

    /// The conversation is over: nothing before `at` is to be acknowledged any more.
    pub(in crate::engine) const fn end_conversation(&mut self, at: Seq) {
        self.packets = 0;
        self.due = Time::MAX;
        self.is_due_now = false;
        self.is_awaited = false;
        self.sent = at;
    }

    /// Numbers begin anew: nothing before `at` is to be acknowledged any more.
    pub(in crate::engine) const fn restart(&mut self, at: Seq) {
        self.sent = at;
    }
}
