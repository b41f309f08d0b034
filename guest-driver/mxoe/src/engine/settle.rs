//! Settling: results of one part of the engine are taken to the others. They are acknowledgements that were acted on,
//! messages that are over, regions that are free, and conversations that end (7.1, 7.2, 7.6).

use ether::Time;

use super::{
    Counter, Engine, Event, PartnerId, Peers, Status,
    connection::{
        acknowledge::AckDue,
        message::{Ending, Kind, Message},
        transmit::{Acknowledged, Numbering, Refusal},
    },
    seq::Seq,
    transfers::{
        receiver::{Begin, Large, Over},
        sender::{Claim, Ended},
    },
};

impl<P: Peers> Engine<P> {
    /// Notes the acknowledgement in a packet of this partner; it is acted on later.
    #[inline]
    pub(super) fn note_ack(&mut self, now: Time, slot: u32, ack: Seq) {
        let state = &mut self.partners[slot].send;
        self.transmitter.note_ack(now, slot, state, ack, &mut self.counters);
    }

    /// Acts on the acknowledgements that came in.
    pub(super) fn settle(&mut self) {
        while let Some(slot) = self.transmitter.poll_noted() {
            self.settle_partner(slot);
        }
    }

    /// Acts on the acknowledgement of one partner that came in.
    pub(super) fn settle_partner(&mut self, slot: u32) {
        if let Some((at, ack)) = self.transmitter.take_noted(slot, &mut self.partners[slot].send) {
            self.handle_ack(at, slot, ack);
        }
    }

    /// Handles an acknowledgement of everything before `ack`.
    pub(super) fn handle_ack(&mut self, now: Time, slot: u32, ack: Seq) {
        if !self.partners[slot].send.handle_ack(ack, &mut self.counters) {
            return;
        }
        self.peers.note_acknowledged(PartnerId(slot), ack);
        let mut sent = None;
        loop {
            let state = &mut self.partners[slot].send;
            match self
                .transmitter
                .pop_acknowledged(state, ack, &mut sent, &mut self.counters)
            {
                Some(Acknowledged::Over(Some(ending))) => self.report(ending, Status::Success, ending.length),
                Some(Acknowledged::Over(None)) => {}
                Some(Acknowledged::Announced { region }) => {
                    let ended = self.transfers_out.handle_acknowledged(now, region);
                    self.end_large(ended);
                }
                None => break,
            }
        }
        let state = &mut self.partners[slot].send;
        if let Some(sent) = sent {
            state.retransmission.rtt.sample(now.nanos_since(sent));
        }
        // A message that was refused while an earlier one was not acknowledged may be the first one now.
        self.transmitter.drop_done(state);
        self.pump(slot);
    }

    /// Handles the partner's refusal of the message with this number. False: it names none.
    pub(super) fn handle_refusal(&mut self, slot: u32, seq: Seq, status: Status) -> bool {
        self.settle_partner(slot);
        match self.transmitter.refuse(&self.partners[slot].send, seq) {
            Refusal::NotOurs => return self.refuse_announced(slot, seq, status),
            Refusal::Again => return true,
            Refusal::Over { ending, region } => {
                self.report(ending, status, 0);
                if let Some(region) = region {
                    self.free_region(region);
                }
            }
        }
        self.transmitter.drop_done(&mut self.partners[slot].send);
        self.pump(slot);
        true
    }

    /// Handles the refusal of an announcement that was acknowledged before: the partner is gone since. False: there is none.
    fn refuse_announced(&mut self, slot: u32, seq: Seq, status: Status) -> bool {
        let is_it = |message| {
            let message = self.transmitter.get(message);
            message.is_some_and(|message| message.seq == seq)
        };
        let refused = self
            .transfers_out
            .acknowledged_to(slot)
            .find(|(_, message)| is_it(*message));
        let Some((region, message)) = refused else {
            return false;
        };
        self.end_large(Some(Ended {
            region,
            message,
            status,
            transferred: 0,
        }));
        true
    }

    /// Reports how a message ended, if that is reported.
    #[inline]
    pub(super) fn report(&mut self, ending: Ending, status: Status, transferred: u32) {
        if ending.is_reported(status) {
            self.outbox.tell(Event::Sent {
                token: ending.token,
                status,
                transferred,
            });
        }
    }

    /// Gives sequence numbers to queued messages as long as the window, the eager bytes and the regions allow.
    #[inline]
    pub(super) fn pump(&mut self, slot: u32) {
        let p = &self.partners[slot];
        if p.conversation.is_known() && p.send.has_queue() {
            self.pump_queue(slot);
        }
    }

    fn pump_queue(&mut self, slot: u32) {
        loop {
            let state = &mut self.partners[slot].send;
            match self.transmitter.number_next(state, &self.config.limits) {
                Numbering::Done => {
                    let is_last = !state.has_queue();
                    let numbered = state.numbered_last();
                    self.note_notify(numbered);
                    if is_last {
                        return;
                    }
                }
                Numbering::Empty => return,
                Numbering::Full => {
                    if !state.has_noted_ack() {
                        return;
                    }
                    self.settle_partner(slot);
                }
                Numbering::NeedsRegion {
                    message,
                    token,
                    length,
                    give_up_ns,
                } => {
                    let claim = Claim {
                        message,
                        partner: slot,
                        token,
                        length,
                        give_up_ns,
                    };
                    let Some(region) = self.transfers_out.claim(claim) else {
                        if state.wait_for_region() {
                            self.transfers_out.wait(slot);
                        }
                        return;
                    };
                    self.transmitter.set_region(message, region);
                }
            }
        }
    }

    /// Ends a large message that was sent.
    pub(super) fn end_large(&mut self, ended: Option<Ended>) {
        let Some(ended) = ended else { return };
        self.free_region(ended.region);
        if let Some(ending) = self.transmitter.remove(ended.message) {
            self.report(ending, ended.status, ended.transferred);
        }
    }

    /// Gives a region back and lets those go on that wait for one.
    fn free_region(&mut self, number: u8) {
        self.transfers_out.release(number);
        while let Some(waiter) = self.transfers_out.poll_waiter() {
            self.partners[waiter].send.stop_waiting();
            self.pump(waiter);
        }
    }

    /// Begins the pulls that wait, as long as there are slots.
    pub(super) fn begin_pulls(&mut self, now: Time) {
        while let Some(large) = self.transfers_in.poll_begin() {
            let begin = Begin {
                session: self.partners[large.partner].conversation.back(),
                payload: self.dialect.sizes().reply_payload(),
                give_up_ns: self.give_up_ns,
            };
            self.transfers_in.begin(now, large, begin);
        }
    }

    /// Ends the pull in this slot.
    pub(super) fn end_pull(&mut self, now: Time, at: u16, status: Status, transferred: u32) {
        let Some(Over {
            large,
            event,
            transferred,
        }) = self.transfers_in.end(now, at, status, transferred)
        else {
            return;
        };
        self.outbox.tell(event);
        self.notify(&large, transferred);
        self.begin_pulls(now);
    }

    /// Tells the sender of a large message that it is over, unless another conversation has begun.
    pub(super) fn notify(&mut self, large: &Large, transferred: u32) {
        let p = &mut self.partners[large.partner];
        if p.conversation.epoch() != large.epoch || !p.conversation.is_known() {
            return;
        }
        let kind = Kind::Notify {
            rdma_id: large.rdma_id,
            rdma_seqnum: large.rdma_seqnum,
        };
        let message = Message::new(large.partner, kind, 0, 0, transferred, self.give_up_ns);
        // Not behind large messages that wait for a region: the partner's may be given back by this very NOTIFY, and with it ours.
        if self.transmitter.prepend(&mut p.send, message).is_some() {
            self.pump(large.partner);
        }
    }

    /// Notes the message that got its number for the authority, if it is a NOTIFY.
    #[inline]
    fn note_notify(&mut self, at: u32) {
        if let Some(message) = self.transmitter.get(at)
            && let Kind::Notify { rdma_id, rdma_seqnum } = message.kind
        {
            let partner = PartnerId(message.partner);
            self.peers
                .note_notify(partner, message.seq, [rdma_id, rdma_seqnum], message.length);
        }
    }

    /// Sees to it that completed messages are acknowledged in time.
    #[inline]
    pub(super) fn schedule_ack(&mut self, now: Time, slot: u32) {
        let p = &mut self.partners[slot];
        let short_acks = p.conversation.abilities().short_acks;
        let expected = p.receive.expected();
        self.peers.note_received(PartnerId(slot), expected);
        match p.acks.schedule(now, expected, short_acks, &self.config.timing) {
            AckDue::Now => self.acknowledge_now(slot),
            AckDue::At(at) => self.timers.at_latest(slot, at),
            AckDue::AsBefore => {}
        }
    }

    /// Queues an acknowledgement, unless a message carries it before.
    pub(super) fn acknowledge_now(&mut self, slot: u32) {
        if self.partners[slot].acks.demand() {
            self.outbox.acknowledge(slot);
        }
    }

    /// Gives a partner up because a request to it was abandoned: everything else is abandoned, too, and the
    /// conversation gets a new number (7.6).
    pub(super) fn give_up(&mut self, slot: u32) {
        self.end_conversation(slot, true);
        while let Some(token) = self.handshake.remove_oldest(slot) {
            self.outbox.tell(Event::Connected {
                token,
                partner: PartnerId(slot),
                status: Status::Unreachable,
            });
        }
        let p = &mut self.partners[slot];
        p.restart_receiving(p.receive.next().next_session());
        p.conversation.give_up();
        self.note_partner(slot);
    }

    /// Ends everything pending with a partner but connects, which its next instance can still answer. `given_up` is as in
    /// [`Event::PartnerLost`].
    pub(super) fn end_conversation(&mut self, slot: u32, given_up: bool) {
        // What the partner has acknowledged so far counts.
        self.settle_partner(slot);
        let p = &mut self.partners[slot];
        let was_known = p.conversation.is_known();
        p.conversation.begin_epoch();
        p.send.end_conversation();
        self.receiver.end_conversation(&mut p.receive);
        p.acks.end_conversation(p.receive.next());
        while let Some(ending) = self.transmitter.pop_any(&mut self.partners[slot].send) {
            if let Some(ending) = ending {
                self.report(ending, Status::Unreachable, 0);
            }
        }
        while let Some(ended) = self.transfers_out.of_partner(slot) {
            self.end_large(Some(ended));
        }
        while let Some(event) = self.receiver.pop_partial(&mut self.partners[slot].receive) {
            self.outbox.tell(event);
        }
        let mut from = 0;
        while let Some(event) = self.transfers_in.pop_announced_by(slot, &mut from) {
            self.outbox.tell(event);
        }
        if was_known {
            self.counters.count(Counter::PartnersLost);
            self.outbox.tell(Event::PartnerLost {
                partner: PartnerId(slot),
                given_up,
            });
        }
    }

    /// Notes that a frame of a message went out.
    #[inline]
    pub(super) fn sent(&mut self, now: Time, at: u32, last_fragment: bool) {
        let Some((slot, deadline)) = self.transmitter.sent(now, at, last_fragment) else {
            return;
        };
        let p = &mut self.partners[slot];
        let short_acks = p.conversation.abilities().short_acks;
        let timing = &self.config.timing;
        if let Some(at) = p.send.retransmission.arm(now, deadline, timing, short_acks) {
            self.timers.at_latest(slot, at);
        }
    }
}
