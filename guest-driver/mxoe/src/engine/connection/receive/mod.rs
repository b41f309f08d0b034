//! The receiving side of messages (7.1, 5.3): packets in order are matched, early ones are kept, fragments join their
//! message, old ones are dropped. Large messages are announced here and transferred by
//! [`transfers`](crate::engine::transfers).

mod early;
mod state;

use alloc::{boxed::Box, collections::VecDeque};

use ether::Time;

use self::early::{EarlyStore, Kept};
pub(in crate::engine) use self::state::{Place, ReceiveState};
use super::message::List;
use crate::{
    engine::{
        Arrival, Body, Counter, Counters, Event, Host, Limits, PartnerId, Status, Token, Verdict,
        seq::Seq,
        slab::{NIL, Slab},
    },
    source_key::SourceKey,
    wire::{Medium, Packet, Sizes},
};

/// A medium message of which fragments are missing.
#[derive(Debug)]
struct Partial {
    next: u32,
    token: Token,
    seq: Seq,
    match_info: u64,
    length: u32,
    received: u32,
    fragments: u32,
    frag_pipeline: u8,
}

/// The fate of a packet in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Outcome {
    /// It is the next message: the number moves on.
    Matched,
    /// The host has no room.
    Refused,
}

/// The fate of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Fragment {
    /// It was dropped and counted.
    Dropped,
    /// The message still misses fragments.
    Added,
    /// The fragment was the last one of its message.
    Completed(Event),
}

/// The sender of a message, as the host is told.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Sender {
    /// The partner.
    pub partner: PartnerId,
    /// The session of its endpoint.
    pub session: u32,
    /// Its endpoint, for matching.
    pub source: SourceKey,
}

/// The data that every received packet needs.
#[derive(Debug)]
pub(in crate::engine) struct Reception<'a> {
    pub now: Time,
    pub sizes: &'a Sizes,
    pub counters: &'a mut Counters,
}

/// The messages that an endpoint received and has not handed over.
#[derive(Debug)]
pub(in crate::engine) struct Receiver {
    partials: Slab<Partial>,
    early: EarlyStore,
    /// Partners whose next packet the host refused.
    refused: VecDeque<u32>,
}

impl Receiver {
    pub(in crate::engine) const fn new(limits: &Limits, frame_len_max: usize) -> Self {
        Self {
            partials: Slab::new(limits.partials),
            early: EarlyStore::new(limits.early_packets, limits.early_packet_bytes, frame_len_max),
            refused: VecDeque::new(),
        }
    }

    /// Whether no message is partly received.
    pub(in crate::engine) const fn is_idle(&self) -> bool {
        self.partials.is_empty()
    }

    /// Returns the memory in use, in bytes.
    pub(in crate::engine) fn memory(&self) -> usize {
        self.partials.memory() + self.early.memory() + self.refused.capacity() * size_of::<u32>()
    }

    /// Handles the next message in order, which is a medium one; `p` is its first fragment.
    pub(in crate::engine) fn handle_medium<H: Host>(
        &mut self,
        at: Reception<'_>,
        state: &mut ReceiveState,
        from: Sender,
        p: &Medium<'_>,
        host: &mut H,
    ) -> (Outcome, Fragment) {
        let whole = p.data.len() as u32 == p.length;
        if !whole && self.partials.is_full() {
            return (Outcome::Refused, Fragment::Dropped);
        }
        let verdict = host.arrive(Arrival {
            partner: from.partner,
            session: from.session,
            source: from.source,
            match_info: p.match_info,
            length: p.length,
            body: if whole { Body::Whole(p.data) } else { Body::Fragments },
        });
        let token = match verdict {
            Verdict::Refuse => return (Outcome::Refused, Fragment::Dropped),
            Verdict::Take(token) => Some(token),
            Verdict::Pull { .. } | Verdict::Consumed => None,
        };
        let (Some(token), false) = (token, whole) else {
            at.counters.count(Counter::RecvMediumFrag);
            state.advance();
            return (Outcome::Matched, Fragment::Dropped);
        };
        let partial = Partial {
            next: NIL,
            token,
            seq: Seq(p.seqnum),
            match_info: p.match_info,
            length: p.length,
            received: 0,
            fragments: 0,
            frag_pipeline: p.frag_pipeline,
        };
        let Some(slot) = self.partials.insert(partial) else {
            return (Outcome::Matched, Fragment::Dropped);
        };
        let tail = core::mem::replace(&mut state.partials.tail, slot);
        match self.partials.get_mut(tail) {
            Some(before) => before.next = slot,
            None => state.partials.head = slot,
        }
        state.advance();
        (Outcome::Matched, self.add_fragment(at, state, slot, p, host))
    }

    /// Handles a further packet of a message that was matched already.
    pub(in crate::engine) fn handle_fragment<H: Host>(
        &mut self,
        at: Reception<'_>,
        state: &mut ReceiveState,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Option<Fragment> {
        if let Packet::Medium(p) = packet {
            let mut walk = state.partials.head;
            while let Some(partial) = self.partials.get(walk) {
                if partial.seq == Seq(p.seqnum) {
                    break;
                }
                walk = partial.next;
            }
            if walk != NIL {
                return Some(self.add_fragment(at, state, walk, p, host));
            }
        }
        at.counters.count(Counter::DropOldMessage);
        None
    }

    fn add_fragment<H: Host>(
        &mut self,
        Reception { now, sizes, counters }: Reception<'_>,
        state: &mut ReceiveState,
        partial_at: u32,
        p: &Medium<'_>,
        host: &mut H,
    ) -> Fragment {
        let Some(partial) = self.partials.get_mut(partial_at) else {
            return Fragment::Dropped;
        };
        if p.length != partial.length || p.match_info != partial.match_info || p.frag_pipeline != partial.frag_pipeline
        {
            counters.count(Counter::DropFragmentMismatch);
            return Fragment::Dropped;
        }
        let bit = 1u32 << p.frag_seqnum;
        if partial.fragments & bit != 0 {
            counters.count(Counter::DropDuplicateFragment);
            return Fragment::Dropped;
        }
        partial.fragments |= bit;
        partial.received += p.data.len() as u32;
        counters.count(Counter::RecvMediumFrag);
        host.deliver(partial.token, p.offset(sizes), p.data);
        if partial.received != partial.length {
            state.fragment_at = now;
            return Fragment::Added;
        }
        match self.finish_partial(state, partial_at) {
            Some(event) => Fragment::Completed(event),
            None => Fragment::Dropped,
        }
    }

    /// Takes out a message that is complete.
    fn finish_partial(&mut self, state: &mut ReceiveState, at: u32) -> Option<Event> {
        let mut before = NIL;
        let mut walk = state.partials.head;
        while walk != at {
            before = walk;
            walk = self.partials.get(walk)?.next;
        }
        let partial = self.partials.remove(at)?;
        match self.partials.get_mut(before) {
            Some(previous) => previous.next = partial.next,
            None => state.partials.head = partial.next,
        }
        if partial.next == NIL {
            state.partials.tail = before;
        }
        state.expected = self
            .partials
            .get(state.partials.head)
            .map_or(state.next, |oldest| oldest.seq);
        Some(Event::Received {
            receive: partial.token,
            status: Status::Success,
            transferred: partial.length,
        })
    }

    /// Keeps a packet that cannot be handled yet, if there is room.
    pub(in crate::engine) fn keep(
        &mut self,
        state: &mut ReceiveState,
        seq: Seq,
        packet: &Packet<'_>,
        frame: &[u8],
        counters: &mut Counters,
    ) -> bool {
        let fragment = match packet {
            Packet::Medium(p) => p.frag_seqnum,
            _ => 0,
        };
        let base = state.expected;
        let (counter, is_kept) = match self.early.keep(&mut state.early, base, seq, fragment, frame) {
            Kept::Yes => (Counter::RecvEarly, true),
            Kept::Duplicate => (Counter::DropOldMessage, true),
            Kept::NoRoom => (Counter::DropEarlyFull, false),
        };
        counters.count(counter);
        is_kept
    }

    /// Keeps the next message of a partner, which the host refused, if there is room, so that it can be presented to
    /// the host again ([`Receiver::poll_refused`]).
    pub(in crate::engine) fn keep_refused(
        &mut self,
        slot: u32,
        state: &mut ReceiveState,
        seq: Seq,
        packet: &Packet<'_>,
        frame: &[u8],
        counters: &mut Counters,
    ) {
        if self.keep(state, seq, packet, frame, counters) && !state.refused {
            state.refused = true;
            self.refused.push_back(slot);
        }
    }

    /// Returns how many partners have, or had, a kept refused packet.
    pub(in crate::engine) fn refused_len(&self) -> usize {
        self.refused.len()
    }

    /// Takes a partner that has, or had, a kept refused packet.
    pub(in crate::engine) fn poll_refused(&mut self) -> Option<u32> {
        self.refused.pop_front()
    }

    /// Takes the kept packet whose turn has come, with its number and place. The buffer goes back to
    /// [`Receiver::recycle`].
    pub(in crate::engine) fn poll_kept(&mut self, state: &mut ReceiveState) -> Option<(Seq, Place, Box<[u8]>, usize)> {
        let seq = self.early.first(&state.early)?;
        // What became old meanwhile wraps round to beyond the window.
        let place = state.place_of(seq);
        if place == Place::Ahead {
            return None;
        }
        let (buffer, len) = self.early.pop(&mut state.early)?;
        Some((seq, place, buffer, len))
    }

    /// Takes a buffer back that [`Receiver::poll_kept`] gave.
    pub(in crate::engine) fn recycle(&mut self, buffer: Box<[u8]>) {
        self.early.recycle(buffer);
    }

    /// Ends the conversation with a partner: its kept packets are forgotten. [`Receiver::pop_partial`] follows.
    pub(in crate::engine) fn end_conversation(&mut self, state: &mut ReceiveState) {
        state.refused = false;
        self.early.free_list(state.early.take().head);
        state.restart(state.next);
    }

    /// Takes out a partly received message, which will not be completed.
    pub(in crate::engine) fn pop_partial(&mut self, state: &mut ReceiveState) -> Option<Event> {
        let partial = self.partials.remove(state.partials.head)?;
        state.partials.head = partial.next;
        if partial.next == NIL {
            state.partials = List::EMPTY;
        }
        Some(Event::Received {
            receive: partial.token,
            status: Status::Unreachable,
            transferred: 0,
        })
    }
}
