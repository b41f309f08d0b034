//! Acknowledgement of a partner's messages: with the next packet to it, after a delay, or immediately (7.2).

use ether::Time;

use crate::engine::{Timing, seq::Seq};

/// Towards peers that agreed on short delays, this many messages of up to 128 bytes count as one when it is decided
/// whether to acknowledge: such messages were copied, so they are complete for the program that sent them.
const INLINE_PER_MESSAGE: u16 = 4;

/// The latest time at which the completed messages of a partner have to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum AckDue {
    /// The time stays: no message waits for an acknowledgement, or a delay runs already.
    AsBefore,
    /// The acknowledgement is due after a delay that ends at this time.
    At(Time),
    /// The acknowledgement is due immediately.
    Now,
}

/// The schedule of the acknowledgements to one partner.
#[derive(Debug)]
pub(in crate::engine) struct AckSchedule {
    /// The value of the last acknowledgement.
    sent: Seq,
    /// The time when a delayed acknowledgement is due.
    due: Time,
    /// An acknowledgement is due immediately.
    is_due_now: bool,
    /// A message that was completed since the last acknowledgement has a sender that may wait for it.
    is_awaited: bool,
    /// The partner stands in the queue of acknowledgements.
    is_queued: bool,
    /// The number of packets that carried only an acknowledgement.
    packets: u32,
}

impl AckSchedule {
    /// The state with nothing to acknowledge.
    pub(in crate::engine) const NEW: Self = Self {
        sent: Seq::FIRST,
        due: Time::MAX,
        is_due_now: false,
        is_awaited: false,
        is_queued: false,
        packets: 0,
    };

    /// Returns how many complete messages, up to `expected`, were not acknowledged yet.
    #[inline]
    pub(in crate::engine) const fn pending(&self, expected: Seq) -> u16 {
        expected.since(self.sent)
    }

    /// Returns when a delayed acknowledgement is due that is not in the queue.
    #[inline]
    pub(in crate::engine) const fn due(&self) -> Time {
        if self.is_due_now { Time::MAX } else { self.due }
    }

    /// Whether a delayed acknowledgement is due at `now`.
    #[inline]
    pub(in crate::engine) fn is_due(&self, now: Time) -> bool {
        self.due <= now
    }

    /// Notes that a packet made just now acknowledges everything before `expected`; returns the value for the packet.
    #[inline]
    pub(in crate::engine) const fn take_along(&mut self, expected: Seq) -> u16 {
        self.sent = expected;
        self.due = Time::MAX;
        self.is_due_now = false;
        self.is_awaited = false;
        expected.0
    }

    /// Notes that a message was completed whose sender may wait for the acknowledgement.
    #[inline]
    pub(in crate::engine) const fn awaited(&mut self) {
        self.is_awaited = true;
    }

    /// Sees to it that the complete messages before `expected` are acknowledged in time.
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

    /// Makes an acknowledgement due immediately, unless a message carries it. True: the partner is to be put in the
    /// queue.
    pub(in crate::engine) const fn demand(&mut self) -> bool {
        self.is_due_now = true;
        !core::mem::replace(&mut self.is_queued, true)
    }

    /// Notes that the partner was taken out of the queue, and returns whether the acknowledgement is still due.
    pub(in crate::engine) const fn leave_queue(&mut self) -> bool {
        self.is_queued = false;
        self.is_due_now
    }

    /// Returns how many packets carried only an acknowledgement.
    pub(in crate::engine) const fn packets(&self) -> u32 {
        self.packets
    }

    /// Goes on after so many packets that carried only an acknowledgement.
    pub(in crate::engine) const fn take_over(&mut self, packets: u32) {
        self.packets = packets;
    }

    /// Returns the number of the next packet that carries only an acknowledgement.
    pub(in crate::engine) const fn next_packet(&mut self) -> u32 {
        self.packets = self.packets.wrapping_add(1);
        self.packets
    }

    /// Ends the conversation: nothing before `at` is to be acknowledged any more.
    pub(in crate::engine) const fn end_conversation(&mut self, at: Seq) {
        self.packets = 0;
        self.due = Time::MAX;
        self.is_due_now = false;
        self.is_awaited = false;
        self.sent = at;
    }

    /// Restarts the numbers: nothing before `at` is to be acknowledged any more.
    pub(in crate::engine) const fn restart(&mut self, at: Seq) {
        self.sent = at;
    }
}
