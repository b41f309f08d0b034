//! The end of an endpoint: what it still owes is handed over, and an engine that takes it over pays. That one receives no new message,
//! acknowledges those that were received whole, and sends what was sent until it is acknowledged.

use alloc::vec::Vec;

use ether::Time;

use super::{
    Config, Counter, Engine, PartnerId, Peers, Seq, Token,
    connection::{
        conversation::Abilities,
        message::{Kind, Message},
    },
    handover::{HandedKind, HandedMessage, HandedPartner, Handover},
    outbox::Control,
    partner::PartnerAddress,
    transfers::sender::Claim,
};
use crate::wire::{Head, NackCode, Packet, SESSION_NONE, Sequenced, TINY_DATA_MAX, sequenced};

impl<P: Peers> Engine<P> {
    /// Returns what this endpoint owes to its partners, without changing anything but the acknowledgements that came in, which count.
    /// `read` returns the bytes of a message, which it knows by the caller's name; those that would make more than `room` bytes, or
    /// that it does not return, are not handed over, nor are messages that no frame was made of.
    pub fn hand_over(&mut self, mut room: usize, mut read: impl FnMut(Token) -> Option<Vec<u8>>) -> Handover {
        self.settle();
        let mut handover = Handover::new(self.config.endpoint, self.config.session);
        for slot in 0..self.partners.len() {
            let p = &self.partners[slot];
            // What goes to this interface never leaves its program.
            if !p.conversation.is_known() || p.address.mac == self.config.mac {
                continue;
            }
            let place = handover.partners.len() as u32;
            let before = handover.messages.len();
            let unacked = self.transmitter.unacked(&p.send);
            let announced = self.transfers_out.acknowledged_to(slot);
            let announced = announced.filter_map(|(_, message)| self.transmitter.get(message));
            for message in announced.chain(unacked) {
                let Some(handed) = self.handed(place, message, room, &mut read) else {
                    continue;
                };
                if let Some(left) = room.checked_sub(handed.data.len()) {
                    room = left;
                    handover.messages.push(handed);
                }
            }
            let has_received = p.receive.expected().number() != Seq::FIRST.number() || p.acks.packets() > 0;
            if has_received || handover.messages.len() > before {
                handover.add_partner(self.handed_partner(slot));
            }
        }
        handover
    }

    /// Notes for the authority how the conversation with a partner begins, or that it is over.
    pub(super) fn note_partner(&mut self, slot: u32) {
        let p = &self.partners[slot];
        let noted = (p.conversation.is_known() && p.address.mac != self.config.mac).then(|| self.handed_partner(slot));
        self.peers.note_partner(PartnerId(slot), noted.as_ref());
    }

    /// Notes all that there is for the authority: another one has come.
    pub fn note_all(&mut self) {
        for slot in 0..self.partners.len() {
            self.note_partner(slot);
            let unacked = self.transmitter.unacked(&self.partners[slot].send);
            for message in unacked.filter(|message| !message.done) {
                if let Kind::Notify { rdma_id, rdma_seqnum } = message.kind {
                    let (seq, region) = (message.seq, [rdma_id, rdma_seqnum]);
                    self.peers.note_notify(PartnerId(slot), seq, region, message.length);
                }
            }
        }
    }

    fn handed_partner(&self, slot: u32) -> HandedPartner {
        let p = &self.partners[slot];
        let abilities = p.conversation.abilities();
        HandedPartner {
            mac: p.address.mac,
            endpoint: p.address.endpoint,
            peer: p.address.peer,
            reverse: self.peers.reverse(p.address.peer),
            session: p.conversation.back(),
            marks: abilities.marks,
            short_acks: abilities.short_acks,
            is_foreign: abilities.is_foreign,
            expected: p.receive.expected(),
            next: p.send.next(),
            unacked_first: p.send.unacked_first(),
            acks_sent: p.acks.packets(),
            acks_heard: p.send.ack_packet(),
        }
    }

    fn handed(
        &self,
        partner: u32,
        message: &Message,
        room: usize,
        read: &mut impl FnMut(Token) -> Option<Vec<u8>>,
    ) -> Option<HandedMessage> {
        if message.done {
            return None;
        }
        let mut read = || (message.length as usize <= room).then(|| read(message.token))?;
        let (kind, data) = match message.kind {
            Kind::Tiny | Kind::Small => (HandedKind::Short, message.data[..message.length as usize].into()),
            Kind::Medium { .. } => (HandedKind::Medium, read()?),
            Kind::Rndv { region } => {
                let region = region?;
                let kind = HandedKind::Large {
                    region,
                    use_counter: self.transfers_out.use_counter(region)?,
                    acknowledged: self.transfers_out.is_acknowledged(region),
                };
                (kind, read()?)
            }
            Kind::Notify { rdma_id, rdma_seqnum } => (HandedKind::Notify { rdma_id, rdma_seqnum }, Vec::new()),
        };
        Some(HandedMessage {
            partner,
            seq: message.seq,
            kind,
            match_info: message.match_info,
            length: message.length,
            data,
        })
    }

    /// Makes the engine that finishes for a closed endpoint, at `now`. The token of each message is its place in the handover.
    pub(crate) fn take_over(now: Time, config: Config, peers: P, handover: &Handover) -> Self {
        let mut engine = Self::new(config, peers);
        let mut slots = Vec::with_capacity(handover.partners.len());
        for partner in &handover.partners {
            slots.push(engine.take_partner(partner));
        }
        for (token, message) in (0..).zip(&handover.messages) {
            if let Some(Some(slot)) = slots.get(message.partner as usize) {
                engine.take_message(now, *slot, token, message);
            }
        }
        engine
    }

    fn take_partner(&mut self, partner: &HandedPartner) -> Option<u32> {
        let slot = self.partners.find_or_add(PartnerAddress {
            mac: partner.mac,
            endpoint: partner.endpoint,
            peer: partner.peer,
        })?;
        let p = &mut self.partners[slot];
        let abilities = Abilities {
            marks: partner.marks,
            short_acks: partner.short_acks,
            is_foreign: partner.is_foreign,
        };
        p.conversation.establish(partner.session, abilities);
        p.restart_receiving(partner.expected);
        p.acks.take_over(partner.acks_sent);
        p.send
            .take_over(partner.next, partner.unacked_first, partner.acks_heard);
        // What was acknowledged last may have been lost: the partner need not ask.
        self.acknowledge_now(slot);
        Some(slot)
    }

    fn take_message(&mut self, now: Time, slot: u32, token: Token, handed: &HandedMessage) {
        let sizes = self.dialect.sizes();
        let kind = match handed.kind {
            HandedKind::Short if handed.length as usize <= TINY_DATA_MAX => Kind::Tiny,
            HandedKind::Short => Kind::Small,
            HandedKind::Medium if handed.length > sizes.medium_len_max() => return,
            HandedKind::Medium => Kind::Medium { copied: true },
            HandedKind::Large { region, .. } => Kind::Rndv { region: Some(region) },
            HandedKind::Notify { rdma_id, rdma_seqnum } => Kind::Notify { rdma_id, rdma_seqnum },
        };
        let mut message = Message::new(slot, kind, token, handed.match_info, handed.length, self.give_up_ns);
        message.seq = handed.seq;
        if handed.kind == HandedKind::Short {
            message.data[..handed.data.len()].copy_from_slice(&handed.data);
        }
        let state = &mut self.partners[slot].send;
        let Some(at) = self.transmitter.take_over(state, message, handed.is_acknowledged()) else {
            return;
        };
        if let HandedKind::Large {
            region,
            use_counter,
            acknowledged,
        } = handed.kind
        {
            let claim = Claim {
                message: at,
                partner: slot,
                token,
                length: handed.length,
                give_up_ns: self.give_up_ns,
            };
            if !self.transfers_out.take_over(region, use_counter, claim) {
                self.transmitter.forget(at);
            } else if acknowledged {
                let ended = self.transfers_out.handle_acknowledged(now, region);
                self.end_large(ended);
            }
        }
    }

    /// Handles a frame for a closed endpoint. False: it belongs to no conversation that this endpoint had.
    pub(crate) fn handle_late(&mut self, now: Time, head: &Head, packet: &Packet<'_>) -> bool {
        if let Some(header) = sequenced(packet) {
            if !self.is_mine(head, (header.dst_endpoint, header.src_endpoint), header.session) {
                return false;
            }
            if let Some(slot) = self.admit(head, &header) {
                self.handle_late_message(now, slot, &header, packet);
            }
            return true;
        }
        match packet {
            Packet::Ack(ack) if self.is_mine(head, (ack.dst_endpoint, ack.src_endpoint), ack.session) => {
                self.handle_liback(now, head, ack);
            }
            Packet::Pull(pull) if self.is_mine(head, (pull.dst_endpoint, pull.src_endpoint), pull.session) => {
                self.handle_pull(now, head, pull);
            }
            Packet::NackLib(nack)
                if self.is_mine(head, (nack.dst_endpoint, nack.src_endpoint), self.config.session) =>
            {
                self.handle_nack_lib(head, nack);
            }
            _ => return false,
        }
        true
    }

    fn is_mine(&mut self, head: &Head, (dst_endpoint, src_endpoint): (u8, u8), session: u32) -> bool {
        dst_endpoint == self.config.endpoint
            && (session == self.config.session || session == SESSION_NONE)
            && self.partners.find(head.src, src_endpoint).is_some()
    }

    /// Handles a message of a partner: one that was received whole is acknowledged again, any other one is refused.
    fn handle_late_message(&mut self, now: Time, slot: u32, header: &Sequenced, packet: &Packet<'_>) {
        let (seq, ack) = (Seq(header.seqnum), Seq(header.piggyack));
        let p = &self.partners[slot];
        if !seq.same_session(p.receive.next()) || !ack.same_session(p.send.next()) {
            self.counters.count(Counter::DropOldConversation);
            return;
        }
        self.note_ack(now, slot, ack);
        self.settle_partner(slot);
        if self.partners[slot].receive.has_received(seq) {
            self.counters.count(Counter::DropOldMessage);
            self.acknowledge_now(slot);
            return;
        }
        if let Packet::Notify(notify) = packet {
            let is_next = seq == self.partners[slot].receive.next();
            self.counters.count(Counter::RecvNotify);
            self.handle_notify(now, slot, notify);
            if is_next {
                self.partners[slot].receive.advance();
                self.acknowledge_now(slot);
                return;
            }
        }
        self.counters.count(Counter::DropBadEndpoint);
        let nack = Control::NackLib {
            mac: self.partners[slot].address.mac,
            peer: self.partners[slot].address.peer,
            dst_endpoint: header.src_endpoint,
            code: NackCode::EndpointClosed,
            seqnum: header.seqnum,
        };
        self.outbox.send(nack, &mut self.counters);
    }
}
