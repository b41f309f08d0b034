//! The receive window: what comes in order is matched, what comes early is kept, fragments find their message, the rest is
//! old (7.1, 5.3).

use ether::Time;

use super::{
    Arrival, Body, Counter, Engine, Host, PartnerId, Peers, Token, Verdict, early::Kept, large_receive::Large,
    seq::Seq, slab::NIL,
};
use crate::wire::{Eager, Medium, Packet, Rndv};

/// Numbers beyond the next one that are kept (7.1).
const EARLY_WINDOW: u16 = 255;

/// A medium message of which fragments are missing.
#[derive(Debug)]
pub(super) struct Partial {
    pub next: u32,
    pub token: Token,
    seq: Seq,
    match_info: u64,
    length: u32,
    received: u32,
    fragments: u32,
    frag_pipeline: u8,
}

/// What became of a packet in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is the next message: the number moves on.
    Matched,
    /// The host has no room.
    Refused,
}

impl<P: Peers> Engine<P> {
    /// A packet of a known partner's running conversation.
    #[inline]
    pub(super) fn receive<H: Host>(
        &mut self,
        now: Time,
        slot: u32,
        seq: Seq,
        packet: &Packet<'_>,
        frame: &[u8],
        host: &mut H,
    ) {
        let p = &self.partners[slot as usize];
        let at = seq.since(p.expected);
        let next = p.recv_next.since(p.expected);
        if at == next {
            if self.accept(now, slot, packet, host) == Outcome::Refused {
                self.counters.count(Counter::UnexpEventqFull);
                self.keep_refused(slot, seq, packet, frame);
                return;
            }
            let p = &self.partners[slot as usize];
            if p.refused || !p.early.is_empty() {
                self.receive_early(now, slot, host);
            }
            self.schedule_ack(now, slot);
        } else if at < next {
            self.receive_fragment(now, slot, seq, packet, host);
        } else if at <= next + EARLY_WINDOW {
            self.keep_early(slot, seq, packet, frame);
        } else {
            self.counters.count(Counter::DropOldMessage);
            if seq.plus(1).since(p.expected) == 0 {
                // The newest complete message again: its acknowledgement was probably lost.
                self.ack_at_once(slot);
            }
        }
    }

    /// The next message in order.
    #[inline]
    fn accept<H: Host>(&mut self, now: Time, slot: u32, packet: &Packet<'_>, host: &mut H) -> Outcome {
        if !matches!(packet, Packet::Tiny(_) | Packet::Small(_)) {
            self.partners[slot as usize].ack_awaited = true;
        }
        match packet {
            Packet::Tiny(p) => self.accept_eager(slot, p, true, host),
            Packet::Small(p) => self.accept_eager(slot, p, false, host),
            Packet::Medium(p) => self.accept_medium(now, slot, p, host),
            Packet::Rndv(p) => self.accept_rndv(now, slot, p, host),
            Packet::Notify(p) => {
                self.counters.count(Counter::RecvNotify);
                self.advance(slot);
                self.handle_notify(now, slot, p);
                if self.dialect.sizes().mode() == crate::wire::Mode::Wire
                    && self.partners[slot as usize].partials.is_empty()
                {
                    // MX before 1.2.5 needs it (7.2).
                    self.ack_at_once(slot);
                }
                Outcome::Matched
            }
            // No other packet has a sequence number.
            _ => Outcome::Matched,
        }
    }

    /// The same for a short message.
    #[inline]
    pub(super) fn accept_eager<H: Host>(&mut self, slot: u32, p: &Eager<'_>, is_tiny: bool, host: &mut H) -> Outcome {
        let verdict = host.arrive(Arrival {
            partner: PartnerId(slot),
            session: self.partners[slot as usize].forward,
            match_info: p.match_info,
            length: p.data.len() as u32,
            body: Body::Whole(p.data),
        });
        if verdict == Verdict::Refuse {
            return Outcome::Refused;
        }
        self.counters
            .count(if is_tiny { Counter::RecvTiny } else { Counter::RecvSmall });
        self.advance(slot);
        Outcome::Matched
    }

    /// The next number is matched, and complete if nothing before it is partial.
    #[inline]
    fn advance(&mut self, slot: u32) {
        let p = &mut self.partners[slot as usize];
        p.recv_next = p.recv_next.plus(1);
        if p.partials.is_empty() {
            p.expected = p.recv_next;
        }
    }

    fn accept_medium<H: Host>(&mut self, now: Time, slot: u32, p: &Medium<'_>, host: &mut H) -> Outcome {
        let whole = p.data.len() as u32 == p.length;
        if !whole && self.partials.is_full() {
            return Outcome::Refused;
        }
        let verdict = host.arrive(Arrival {
            partner: PartnerId(slot),
            session: self.partners[slot as usize].forward,
            match_info: p.match_info,
            length: p.length,
            body: if whole { Body::Whole(p.data) } else { Body::Fragments },
        });
        let token = match verdict {
            Verdict::Refuse => return Outcome::Refused,
            Verdict::Take(token) => Some(token),
            Verdict::Pull { .. } | Verdict::Consumed => None,
        };
        let (Some(token), false) = (token, whole) else {
            self.counters.count(Counter::RecvMediumFrag);
            self.advance(slot);
            return Outcome::Matched;
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
        if let Some(at) = self.partials.insert(partial) {
            let list = &mut self.partners[slot as usize].partials;
            let tail = core::mem::replace(&mut list.tail, at);
            match self.partials.get_mut(tail) {
                Some(before) => before.next = at,
                None => list.head = at,
            }
            self.advance(slot);
            self.add_fragment(now, slot, at, p, host);
        }
        Outcome::Matched
    }

    fn accept_rndv<H: Host>(&mut self, now: Time, slot: u32, p: &Rndv, host: &mut H) -> Outcome {
        let Some(large) = self.announce(Large::announced(slot, self.partners[slot as usize].epoch, p)) else {
            return Outcome::Refused;
        };
        let verdict = host.arrive(Arrival {
            partner: PartnerId(slot),
            session: self.partners[slot as usize].forward,
            match_info: p.match_info,
            length: p.msg_length,
            body: Body::Announced(large),
        });
        match verdict {
            Verdict::Refuse => {
                self.larges.remove(large.slot);
                return Outcome::Refused;
            }
            Verdict::Take(_) => {}
            // The announcement is there: it was put there just now.
            Verdict::Pull { receive, length } => {
                let _ = self.pull(now, large, receive, length);
                if let Some(limit_ns) = host.transfer_limit_ns(receive) {
                    self.set_pull_give_up(receive, limit_ns);
                }
            }
            Verdict::Consumed => _ = self.decline(large),
        }
        self.counters.count(Counter::RecvRndv);
        self.advance(slot);
        Outcome::Matched
    }

    /// A number that was matched already: a further fragment, or a duplicate.
    fn receive_fragment<H: Host>(&mut self, now: Time, slot: u32, seq: Seq, packet: &Packet<'_>, host: &mut H) {
        let mut at = self.partners[slot as usize].partials.head;
        while let Some(partial) = self.partials.get(at) {
            if partial.seq == seq {
                break;
            }
            at = partial.next;
        }
        match packet {
            Packet::Medium(p) if at != NIL => {
                self.add_fragment(now, slot, at, p, host);
                self.schedule_ack(now, slot);
            }
            _ => self.counters.count(Counter::DropOldMessage),
        }
    }

    fn add_fragment<H: Host>(&mut self, now: Time, slot: u32, at: u32, p: &Medium<'_>, host: &mut H) {
        let Some(partial) = self.partials.get_mut(at) else {
            return;
        };
        if p.length != partial.length || p.match_info != partial.match_info || p.frag_pipeline != partial.frag_pipeline
        {
            self.counters.count(Counter::DropFragmentMismatch);
            return;
        }
        let bit = 1u32 << p.frag_seqnum;
        if partial.fragments & bit != 0 {
            self.counters.count(Counter::DropDuplicateFragment);
            return;
        }
        partial.fragments |= bit;
        partial.received += p.data.len() as u32;
        self.counters.count(Counter::RecvMediumFrag);
        host.deliver(partial.token, p.offset(self.dialect.sizes()), p.data);
        if partial.received == partial.length {
            self.finish_partial(slot, at);
            return;
        }
        let p = &mut self.partners[slot as usize];
        p.fragment_at = now;
        let due = now.plus_nanos(self.give_up_ns);
        self.partner_timers.at_latest(slot, due);
    }

    fn finish_partial(&mut self, slot: u32, at: u32) {
        let list = self.partners[slot as usize].partials;
        let mut before = NIL;
        let mut walk = list.head;
        while walk != at {
            let Some(partial) = self.partials.get(walk) else { return };
            before = walk;
            walk = partial.next;
        }
        let Some(partial) = self.partials.remove(at) else {
            return;
        };
        match self.partials.get_mut(before) {
            Some(previous) => previous.next = partial.next,
            None => self.partners[slot as usize].partials.head = partial.next,
        }
        if partial.next == NIL {
            self.partners[slot as usize].partials.tail = before;
        }
        let p = &mut self.partners[slot as usize];
        p.ack_awaited = true;
        p.expected = self
            .partials
            .get(p.partials.head)
            .map_or(p.recv_next, |oldest| oldest.seq);
        self.events.push_back(super::Event::Received {
            receive: partial.token,
            status: super::Status::Success,
            transferred: partial.length,
        });
    }

    fn keep_early(&mut self, slot: u32, seq: Seq, packet: &Packet<'_>, frame: &[u8]) -> bool {
        let fragment = match packet {
            Packet::Medium(p) => p.frag_seqnum,
            _ => 0,
        };
        let p = &mut self.partners[slot as usize];
        let base = p.expected;
        match self.early.keep(&mut p.early, base, seq, fragment, frame) {
            Kept::Yes => self.counters.count(Counter::RecvEarly),
            Kept::Duplicate => self.counters.count(Counter::DropOldMessage),
            Kept::NoRoom => {
                self.counters.count(Counter::DropEarlyFull);
                return false;
            }
        }
        true
    }

    /// The next message was refused: kept if there is room, so that [`Engine::resume`] can offer it again.
    pub(super) fn keep_refused(&mut self, slot: u32, seq: Seq, packet: &Packet<'_>, frame: &[u8]) {
        if self.keep_early(slot, seq, packet, frame) {
            let p = &mut self.partners[slot as usize];
            if !p.refused {
                p.refused = true;
                self.refused.push_back(slot);
            }
        }
    }

    /// Packets whose turn has come.
    fn receive_early<H: Host>(&mut self, now: Time, slot: u32, host: &mut H) {
        loop {
            let p = &mut self.partners[slot as usize];
            let Some(seq) = self.early.first(&p.early) else { break };
            let (at, next) = (seq.since(p.expected), p.recv_next.since(p.expected));
            // Beyond the next number: still early. What became old meanwhile wraps round to beyond the window.
            if at > next && at <= next + EARLY_WINDOW {
                break;
            }
            let Some((buffer, len)) = self.early.pop(&mut p.early) else {
                break;
            };
            let frame = &buffer[..len];
            let mut refused = false;
            if let Ok((_, packet)) = self.dialect.decode(frame) {
                if at == next {
                    refused = self.accept(now, slot, &packet, host) == Outcome::Refused;
                    if refused {
                        self.counters.count(Counter::UnexpEventqFull);
                        self.keep_refused(slot, seq, &packet, frame);
                    }
                } else if at < next {
                    self.receive_fragment(now, slot, seq, &packet, host);
                } else {
                    self.counters.count(Counter::DropOldMessage);
                }
            }
            self.early.recycle(buffer);
            if refused {
                break;
            }
        }
        self.schedule_ack(now, slot);
    }

    /// The host has room again: offers it what it refused. Call it when unexpected messages were taken.
    pub fn resume<H: Host>(&mut self, now: Time, host: &mut H) {
        for _ in 0..self.refused.len() {
            let Some(slot) = self.refused.pop_front() else { return };
            if core::mem::take(&mut self.partners[slot as usize].refused) {
                self.receive_early(now, slot, host);
            }
        }
    }
}
