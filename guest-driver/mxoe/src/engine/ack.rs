//! Acknowledgements: what a peer's say about our messages, and when ours are due (7.2).

use ether::Time;

use super::{Counter, Engine, Peers, Status, message::Kind, seq::Seq, slab::NIL};
use crate::wire::{Ack, Head};

/// As many messages of up to 128 bytes count as one where it is counted when to acknowledge towards peers that agreed on short
/// delays: they were copied and are complete for the program that sent them.
const INLINE_PER_MESSAGE: u16 = 4;

/// Whether a number named one of our messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckOutcome {
    Taken,
    NotOurs,
}

impl<P: Peers> Engine<P> {
    /// Everything before `ack` is completely received by the partner: acted on when there is nothing to send, or before it
    /// matters, because whoever waits for a message waits for nothing of this.
    #[inline]
    pub(super) fn note_ack(&mut self, now: Time, slot: u32, ack: Seq) {
        let p = &mut self.partners[slot as usize];
        let before = if p.ack_in_listed { p.ack_in } else { p.unacked_first };
        let count = ack.since(before);
        if count == 0 {
            return;
        }
        if count > p.send_next.since(before) {
            self.counters.count(Counter::DropOldAck);
            return;
        }
        p.rtt.answered();
        p.ack_in = ack;
        p.ack_in_at = now;
        if !p.ack_in_listed {
            p.ack_in_listed = true;
            self.unsettled.push(slot);
        }
    }

    /// Acts on the acknowledgements that came in.
    pub(super) fn settle(&mut self) {
        while let Some(&slot) = self.unsettled.last() {
            self.settle_partner(slot);
        }
    }

    /// The same for one partner.
    pub(super) fn settle_partner(&mut self, slot: u32) {
        let p = &mut self.partners[slot as usize];
        if core::mem::take(&mut p.ack_in_listed) {
            let (at, ack) = (p.ack_in_at, p.ack_in);
            self.unsettled.retain(|listed| *listed != slot);
            self.handle_ack_value(at, slot, ack);
        }
    }

    /// Everything before `ack` is completely received by the partner.
    fn handle_ack_value(&mut self, now: Time, slot: u32, ack: Seq) {
        let p = &mut self.partners[slot as usize];
        let count = ack.since(p.unacked_first);
        if count == 0 {
            return;
        }
        if count > p.send_next.since(p.unacked_first) {
            self.counters.count(Counter::DropOldAck);
            return;
        }
        p.unacked_first = ack;
        p.rtt.answered();
        let mut sample = None;
        loop {
            let p = &mut self.partners[slot as usize];
            let at = p.unacked.head;
            let Some(message) = self.messages.get(at) else { break };
            // From `ack` up to the next number: not acknowledged.
            if message.seq.since(ack) < p.send_next.since(ack) {
                break;
            }
            p.unacked.head = message.next;
            if p.unacked.head == NIL {
                p.unacked.tail = NIL;
            }
            p.eager_bytes -= message.eager_bytes();
            if message.sends == 1 {
                sample = Some(message.last_sent);
            }
            if message.sends == 0 {
                // Acknowledged without having been sent: a peer that lies gets what it asked for.
                self.counters.count(Counter::DropOldAck);
            }
            self.acknowledged(now, at);
        }
        if let Some(sent) = sample {
            self.partners[slot as usize].rtt.sample(now.nanos_since(sent));
        }
        // What was refused while something before it was not acknowledged stands at the head now.
        self.drop_done(slot);
        self.pump(slot);
    }

    /// A message that left the list of unacknowledged ones.
    fn acknowledged(&mut self, now: Time, at: u32) {
        let Some(message) = self.messages.get(at) else { return };
        match message.kind {
            Kind::Rndv { region } if !message.done => self.region_acknowledged(now, region),
            _ => {
                let transferred = message.length;
                self.end_message(at, Status::Success, transferred);
            }
        }
    }

    /// A refusal names a message: it ends, and with it goes what stood before it and is over.
    pub(super) fn refuse_message(&mut self, slot: u32, seq: Seq, status: Status) -> AckOutcome {
        self.settle_partner(slot);
        let p = &self.partners[slot as usize];
        let reach = p.send_next.since(p.unacked_first);
        if !seq.same_session(p.send_next) || seq.since(p.unacked_first) >= reach {
            return AckOutcome::NotOurs;
        }
        let mut at = p.unacked.head;
        while let Some(message) = self.messages.get(at) {
            if message.seq == seq {
                break;
            }
            at = message.next;
        }
        let Some(message) = self.messages.get_mut(at) else {
            return AckOutcome::NotOurs;
        };
        if message.done {
            return AckOutcome::Taken;
        }
        let kind = message.kind;
        let ending = message.ending();
        message.done = true;
        self.report(ending, status, 0);
        if let Kind::Rndv { region } = kind {
            self.free_region(region);
        }
        self.drop_done(slot);
        self.pump(slot);
        AckOutcome::Taken
    }

    /// Messages at the head of the list that were refused are over: nobody will acknowledge them.
    fn drop_done(&mut self, slot: u32) {
        loop {
            let p = &mut self.partners[slot as usize];
            let at = p.unacked.head;
            let Some(message) = self.messages.get(at).filter(|message| message.done) else {
                return;
            };
            p.unacked.head = message.next;
            if p.unacked.head == NIL {
                p.unacked.tail = NIL;
            }
            p.unacked_first = message.seq.plus(1);
            p.eager_bytes -= message.eager_bytes();
            self.messages.remove(at);
        }
    }

    /// An acknowledgement of its own came in (7.3).
    pub(super) fn handle_liback(&mut self, now: Time, head: &Head, ack: &Ack) {
        if self.peers.mac(head.peer_index) != Some(head.src) {
            self.counters.count(Counter::DropBadPeerIndex);
            return;
        }
        if ack.dst_endpoint != self.config.endpoint {
            self.counters.count(Counter::DropBadEndpoint);
            return;
        }
        let found = self.find_partner(head.src, ack.src_endpoint);
        let both = [ack.session, ack.session_id];
        if both != [self.config.session; 2] && !both.iter().all(|session| self.may_leave_out(*session, found)) {
            self.counters.count(Counter::DropBadSession);
            return;
        }
        let Some(slot) = found else {
            self.counters.count(Counter::DropUnknownPartner);
            return;
        };
        let p = &mut self.partners[slot as usize];
        let value = Seq(ack.ack);
        if !p.known {
            self.counters.count(Counter::DropUnknownPartner);
            return;
        }
        if !value.same_session(p.send_next) {
            self.counters.count(Counter::DropOldConversation);
            return;
        }
        if ack.acknum.wrapping_sub(p.acknum_in) as i32 <= 0 {
            self.counters.count(Counter::DropOldAck);
            return;
        }
        p.acknum_in = ack.acknum;
        self.counters.count(Counter::RecvLiback);
        self.settle_partner(slot);
        self.handle_ack_value(now, slot, value);
    }

    /// Messages were completed: sees to it that they are acknowledged in time.
    #[inline]
    pub(super) fn schedule_ack(&mut self, now: Time, slot: u32) {
        let timing = &self.config.timing;
        let p = &mut self.partners[slot as usize];
        let pending = p.ack_pending();
        let inline_only = p.short_acks && !p.ack_awaited;
        let messages_max = if inline_only {
            timing.ack_messages_max.saturating_mul(INLINE_PER_MESSAGE)
        } else {
            timing.ack_messages_max
        };
        if pending >= messages_max {
            self.ack_at_once(slot);
        } else if pending > 0 && p.ack_at == Time::MAX {
            let delay = if p.short_acks {
                timing.ack_delay_short_ns
            } else {
                timing.ack_delay_ns
            };
            p.ack_at = now.plus_nanos(delay);
            let at = p.ack_at;
            self.partner_timers.at_latest(slot, at);
        }
    }

    /// Queues an acknowledgement, unless a message takes it along before.
    pub(super) fn ack_at_once(&mut self, slot: u32) {
        let p = &mut self.partners[slot as usize];
        p.ack_now = true;
        if !p.ack_queued {
            p.ack_queued = true;
            self.acks.push_back(slot);
        }
    }

    /// Makes every delayed acknowledgement due: before the endpoint closes (7.2).
    pub fn flush_acks(&mut self) {
        for slot in 0..self.partners.len() as u32 {
            if self.partners[slot as usize].ack_pending() > 0 {
                self.ack_at_once(slot);
            }
        }
    }
}
