//! The receive state of one partner: the numbers that are expected next, and what is kept until their turn comes (7.1).

use ether::Time;

use super::{super::message::List, Outcome, Sender};
use crate::{
    engine::{Arrival, Body, Counter, Counters, Host, Verdict, seq::Seq},
    wire::Eager,
};

/// This many numbers beyond the next one are kept (7.1).
const EARLY_WINDOW: u16 = 255;

/// The place of a packet's number among the expected ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Place {
    /// The packet is the next one to be matched.
    Next,
    /// Its message was matched already and is not acknowledged: a further fragment, or a duplicate.
    Matched,
    /// Something before it is missing.
    Ahead,
    /// The number is old, or too far ahead. `is_newest`: the newest complete message came again.
    Outside { is_newest: bool },
}

/// The receive state of one partner.
#[derive(Debug)]
pub(in crate::engine) struct ReceiveState {
    /// Next number to match.
    pub(super) next: Seq,
    /// Oldest number that is not completely received.
    pub(super) expected: Seq,
    /// Partly received messages, oldest first.
    pub(super) partials: List,
    /// When the last fragment came that completed no message.
    pub(super) fragment_at: Time,
    /// Packets ahead of a missing one.
    pub(super) early: List,
    /// The next packet was refused by the host and is kept.
    pub(super) refused: bool,
}

impl ReceiveState {
    /// The state before anything was received.
    pub(in crate::engine) const NEW: Self = Self {
        next: Seq::FIRST,
        expected: Seq::FIRST,
        partials: List::EMPTY,
        fragment_at: Time::ZERO,
        early: List::EMPTY,
        refused: false,
    };

    /// Returns the next number to match.
    #[inline]
    pub(in crate::engine) const fn next(&self) -> Seq {
        self.next
    }

    /// Returns the oldest number that is not completely received.
    #[inline]
    pub(in crate::engine) const fn expected(&self) -> Seq {
        self.expected
    }

    /// Whether packets are kept, early ones or one that the host refused.
    #[inline]
    pub(in crate::engine) const fn keeps_packets(&self) -> bool {
        self.refused || !self.early.is_empty()
    }

    /// Whether a message is partly received.
    pub(in crate::engine) const fn has_partials(&self) -> bool {
        !self.partials.is_empty()
    }

    /// Returns when partly received messages are given up; `None`: there are none.
    pub(in crate::engine) fn partials_due(&self, give_up_ns: u64) -> Option<Time> {
        self.has_partials().then(|| self.fragment_at.plus_nanos(give_up_ns))
    }

    /// Forgets that the next packet was refused, and returns whether it was.
    pub(in crate::engine) const fn take_refused(&mut self) -> bool {
        core::mem::replace(&mut self.refused, false)
    }

    /// Sets both numbers; nothing is partly received then.
    pub(in crate::engine) const fn restart(&mut self, at: Seq) {
        self.next = at;
        self.expected = at;
    }

    /// Returns the place of a number.
    #[inline]
    pub(in crate::engine) const fn place_of(&self, seq: Seq) -> Place {
        let at = seq.since(self.expected);
        let next = self.next.since(self.expected);
        if at == next {
            Place::Next
        } else if at < next {
            Place::Matched
        } else if at <= next + EARLY_WINDOW {
            Place::Ahead
        } else {
            let is_newest = seq.plus(1).since(self.expected) == 0;
            Place::Outside { is_newest }
        }
    }

    /// Whether the message of this number was received whole. Numbers lie at most a window (7.1) from each other.
    pub(in crate::engine) const fn has_received(&self, seq: Seq) -> bool {
        seq.since(self.expected) >= 1 << 13
    }

    /// Notes that the next number is matched, and complete if nothing before it is partial.
    #[inline]
    pub(in crate::engine) const fn advance(&mut self) {
        self.next = self.next.plus(1);
        if self.partials.is_empty() {
            self.expected = self.next;
        }
    }

    /// Handles the next message in order, which is a short one.
    #[inline]
    pub(in crate::engine) fn handle_eager<H: Host>(
        &mut self,
        from: Sender,
        p: &Eager<'_>,
        is_tiny: bool,
        host: &mut H,
        counters: &mut Counters,
    ) -> Outcome {
        let verdict = host.arrive(Arrival {
            partner: from.partner,
            session: from.session,
            source: from.source,
            match_info: p.match_info,
            length: p.data.len() as u32,
            body: Body::Whole(p.data),
        });
        if verdict == Verdict::Refuse {
            return Outcome::Refused;
        }
        counters.count(if is_tiny { Counter::RecvTiny } else { Counter::RecvSmall });
        self.advance();
        Outcome::Matched
    }
}
