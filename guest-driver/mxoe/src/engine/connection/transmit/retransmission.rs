//! Retransmission (7.4, 7.5): when a partner's unacknowledged messages are sent again, and when they are given up.

use ether::Time;

use super::{
    super::{message::Kind, patience::did_not_run, rtt::Rtt},
    SendState, Transmitter,
};
use crate::engine::{SendId, Timing};

/// An answer that comes sooner after the last repetition may be one to it, which the network duplicated, in nanoseconds.
const PROMPT_NS: u64 = 300_000;

/// The retransmission timer of one partner.
#[derive(Debug)]
pub(in crate::engine) struct Retransmission {
    /// The round trips of messages and their acknowledgements.
    pub(in crate::engine) rtt: Rtt,
    /// The time when the oldest unacknowledged message may have to be sent again; it may be too early, but never too
    /// late.
    pub(in crate::engine) due: Time,
    /// This process did not run when the timer was due: messages wait once more for what came meanwhile.
    waits_once_more: bool,
}

impl Retransmission {
    /// The state before anything was sent.
    pub(super) const NEW: Self = Self {
        rtt: Rtt::NEW,
        due: Time::MAX,
        waits_once_more: false,
    };

    /// A message of this partner is in flight and is given up at `deadline`: arms the timer, if it is due sooner than it
    /// was, and returns the time then.
    #[inline]
    pub(in crate::engine) fn arm(
        &mut self,
        now: Time,
        deadline: Time,
        timing: &Timing,
        short_acks: bool,
    ) -> Option<Time> {
        // The time-out is not shorter than that: the one that runs comes first.
        if self.due <= now.plus_nanos(timing.rto_min_short_ns).min(deadline) {
            return None;
        }
        let due = now.plus_nanos(self.rtt.rto_ns(timing, short_acks)).min(deadline);
        if due >= self.due {
            return None;
        }
        self.due = due;
        Some(due)
    }

    /// Stops the timer: nothing is in flight any more.
    pub(super) fn stop(&mut self) {
        self.due = Time::MAX;
        self.rtt.answered();
    }
}

/// What [`Transmitter::handle_timeout`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Resent {
    /// This many messages are to be sent again.
    Messages(u32),
    /// A message waited for its acknowledgement for too long.
    GivenUp,
}

impl Transmitter {
    /// Queues every message of a partner again that was sent long enough ago (7.4), and finds when the next one will be due.
    pub(in crate::engine) fn handle_timeout(
        &mut self,
        now: Time,
        state: &mut SendState,
        timing: &Timing,
        short_acks: bool,
    ) -> Resent {
        let rto = state.retransmission.rtt.rto_ns(timing, short_acks);
        let rto = rto.max(self.patience.rto_ns(now));
        let is_late = did_not_run(now, core::mem::replace(&mut state.retransmission.due, Time::MAX));
        // Not twice: a process that never runs in time is to send again, too.
        let waits = is_late && !state.retransmission.waits_once_more;
        state.retransmission.waits_once_more = waits;
        let mut next = Time::MAX;
        let mut resent = 0u32;
        let mut at = state.unacked.head;
        while let Some(message) = self.messages.get_mut(at) {
            let this = at;
            at = message.next;
            if message.sent.times == 0 || message.queued || message.done {
                continue;
            }
            let deadline = message.sent.first_at.plus_nanos(message.give_up_ns);
            if deadline <= now {
                return Resent::GivenUp;
            }
            let mut due = message.sent.last_at.plus_nanos(rto);
            if waits {
                due = due.max(now.plus_nanos(timing.rto_min_short_ns));
            }
            if due <= now {
                message.queued = true;
                resent += 1;
                self.queue.push_back((this, self.messages.generation(this)));
                next = next.min(deadline);
            } else {
                next = next.min(due).min(deadline);
            }
        }
        if resent > 0 {
            state.retransmission.rtt.unanswered();
        }
        state.retransmission.due = next;
        Resent::Messages(resent)
    }

    /// A partner says that what was sent again was there before, and no process had acknowledged it.
    pub(in crate::engine) fn sent_too_early(&mut self, now: Time, state: &mut SendState) {
        let Some(sent) = state.repeated.take() else { return };
        if now.nanos_since(sent.last_at) >= PROMPT_NS {
            self.patience.too_early(now, now.nanos_since(sent.first_at));
        }
    }

    /// Limits one message that is not over to this time; returns what the other parts have to know.
    pub(in crate::engine) fn set_give_up(&mut self, send: SendId, give_up_ns: u64) -> Option<GiveUp> {
        if !self.messages.is_current(send.slot, send.generation) {
            return None;
        }
        let message = self.messages.get_mut(send.slot)?;
        message.give_up_ns = give_up_ns;
        if message.sent.times == 0 {
            return None;
        }
        Some(GiveUp {
            partner: message.partner,
            due: message.sent.first_at.plus_nanos(give_up_ns),
            region: match message.kind {
                Kind::Rndv { region } => region,
                _ => None,
            },
        })
    }
}

/// The changes that follow from a new limit for a message.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct GiveUp {
    pub partner: u32,
    /// When the message is given up.
    pub due: Time,
    /// Its region, if it has one.
    pub region: Option<u8>,
}
