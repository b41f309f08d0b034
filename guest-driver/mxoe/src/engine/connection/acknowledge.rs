//! Acknowledgement of a partner's messages: with the next packet to it, after a delay, or immediately (7.2).

use ether::Time;

use crate::engine::{Timing, seq::Seq};

/// Towards peers that agreed on short delays, this many messages of up to 128 bytes count as one when it is decided
/// whether to acknowledge: such messages were copied, so they are complete for the program that sent them.
const INLINE_PER_MESSAGE: u16 = 4;

/// A partner whose message came again this soon after the acknowledgement left cannot have known it, in nanoseconds.
const JUST_LEFT_NS: u64 = 1_000_000;
/// As many messages count as acknowledged just before.
const JUST_LEFT_MAX: u16 = 1024;

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
    /// When the last acknowledgement left that said something new, and what was acknowledged before those that left just before it.
    left_at: Time,
    left_from: Seq,
    /// When something was last handled that shows a loss.
    loss_at: Time,
    /// The next packet that carries only an acknowledgement says that the partner repeated a message too early.
    says_too_early: bool,
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
        left_at: Time::ZERO,
        left_from: Seq::FIRST,
        loss_at: Time::ZERO,
        says_too_early: false,
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
    pub(in crate::engine) fn take_along(&mut self, now: Time, expected: Seq) -> u16 {
        if self.pending(expected) > 0 {
            let is_old = now.nanos_since(self.left_at) > JUST_LEFT_NS || expected.since(self.left_from) > JUST_LEFT_MAX;
            if is_old {
                self.left_from = self.sent;
            }
            self.left_at = now;
        }
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

    /// Notes that something was handled that shows a loss: messages that had to wait for one before them, or a part of one that came late.
    pub(in crate::engine) const fn saw_loss(&mut self, now: Time) {
        self.loss_at = now;
    }

    /// Notes that a complete message came again, and returns whether it was too early: its acknowledgement has not left, or only just, so
    /// the partner cannot know it, because this process did not run. What waited for a lost one comes again with what was lost.
    pub(in crate::engine) fn repeated(&mut self, now: Time, seq: Seq, expected: Seq, timing: &Timing) -> bool {
        let has_just_left = now.nanos_since(self.left_at) < JUST_LEFT_NS;
        let from = if has_just_left { self.left_from } else { self.sent };
        let is_unknown = seq.since(from) < expected.since(from);
        let was_loss = self.loss_at != Time::ZERO && now.nanos_since(self.loss_at) < timing.rto_min_ns;
        let too_early = is_unknown && !was_loss;
        self.says_too_early |= too_early;
        too_early
    }

    /// Takes what the next packet with only an acknowledgement says of it.
    pub(in crate::engine) const fn take_too_early(&mut self) -> bool {
        core::mem::replace(&mut self.says_too_early, false)
    }

    /// Notes that the partner was taken out of the queue, and returns whether the acknowledgement is still due.
    pub(in crate::engine) const fn leave_queue(&mut self) -> bool {
        self.is_queued = false;
        self.is_due_now || self.says_too_early
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
        self.says_too_early = false;
        self.left_from = at;
        self.sent = at;
    }

    /// Restarts the numbers: nothing before `at` is to be acknowledged any more.
    pub(in crate::engine) const fn restart(&mut self, at: Seq) {
        self.left_from = at;
        self.sent = at;
    }
}
