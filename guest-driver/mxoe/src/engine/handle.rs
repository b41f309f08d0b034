//! Handling of a received frame: it is decoded, checked in the order of section 11, and dispatched to the part that
//! knows the packet.

use ether::Time;

use super::{
    Arrival, Body, Counter, Engine, Host, PartnerId, Peers, Status, Verdict,
    connection::{
        receive::{Fragment, Outcome, Place, Reception, Sender},
        transmit::AckPacket,
    },
    count_undecodable,
    outbox::Control,
    seq::Seq,
    transfers::{
        receiver::{Large, Transfer, TransferReceiver},
        sender::Puller,
    },
};
use crate::wire::{
    Ack, Eager, Head, Mode, NackCode, NackMcp, Notify, Packet, Pull, PullReply, Rndv, Sequenced,
    endpoint_of_pull_magic, sequenced,
};

impl<P: Peers> Engine<P> {
    /// Takes a frame as it was received, whole and without frame check sequence. Every fault of the frame is counted.
    pub fn handle<H: Host>(&mut self, now: Time, frame: &[u8], host: &mut H) {
        if let Some((head, eager, is_tiny)) = self.dialect.decode_eager(frame)
            && self.handle_next(now, (&head, &eager, is_tiny), frame, host)
        {
            return;
        }
        let (head, packet) = match self.dialect.decode(frame) {
            Ok(decoded) => decoded,
            Err(error) => {
                count_undecodable(&mut self.counters, error);
                return;
            }
        };
        if head.dst != self.config.mac {
            // Flooded by a switch, or broadcast: only the authority may have a use for it.
            self.counters.count(Counter::DropNotMxoe);
            return;
        }
        if let Some(header) = sequenced(&packet) {
            if let Some(slot) = self.admit(&head, &header) {
                self.handle_sequenced(now, slot, &header, &packet, frame, host);
            }
            return;
        }
        match packet {
            Packet::PullReply(reply) => self.handle_pull_reply(now, &head, &reply, host),
            Packet::Pull(pull) => self.handle_pull(now, &head, &pull),
            Packet::Ack(ack) => self.handle_liback(now, &head, &ack),
            Packet::Connect(connect) => self.handle_connect(now, &head, &connect),
            Packet::NackLib(nack) => self.handle_nack_lib(&head, &nack),
            Packet::NackMcp(nack) => self.handle_nack_mcp(now, &head, &nack),
            // Only the authority of the interface takes such frames.
            _ => self.counters.count(Counter::DropBadEndpoint),
        }
    }

    /// Handles a short message on which latency depends: the next one of a running conversation, when nothing before it
    /// waits. False: it is another packet, and nothing was done.
    #[inline]
    fn handle_next<H: Host>(
        &mut self,
        now: Time,
        (head, eager, is_tiny): (&Head, &Eager<'_>, bool),
        frame: &[u8],
        host: &mut H,
    ) -> bool {
        let Some((slot, p)) = self.partners.last() else {
            return false;
        };
        let (seq, ack) = (Seq(eager.seqnum), Seq(eager.piggyack));
        let is_next = seq == p.receive.next()
            && p.is_at(head.src, eager.src_endpoint)
            && p.conversation.is_known()
            && !p.receive.keeps_packets()
            && ack.same_session(p.send.next())
            && eager.session == self.config.session
            && eager.dst_endpoint == self.config.endpoint
            && head.dst == self.config.mac
            && self.peers.mac(head.peer_index) == Some(head.src);
        if !is_next {
            return false;
        }
        self.note_ack(now, slot, ack);
        if self.accept_eager(slot, eager, is_tiny, host) == Outcome::Refused {
            let packet = if is_tiny {
                Packet::Tiny(*eager)
            } else {
                Packet::Small(*eager)
            };
            self.keep_refused(slot, seq, &packet, frame);
        } else {
            self.schedule_ack(now, slot);
        }
        true
    }

    /// Checks peer index, endpoint, session and partner, in that order, and sends the refusals that belong to them.
    #[inline]
    pub(super) fn admit(&mut self, head: &Head, header: &Sequenced) -> Option<u32> {
        if self.peers.mac(head.peer_index) != Some(head.src) {
            self.counters.count(Counter::DropBadPeerIndex);
            return None;
        }
        if header.dst_endpoint != self.config.endpoint {
            self.counters.count(Counter::DropBadEndpoint);
            return None;
        }
        let slot = self.partners.find(head.src, header.src_endpoint);
        let is_ours =
            header.session == self.config.session || header.is_back && self.may_leave_out(header.session, slot);
        if !is_ours {
            self.counters.count(Counter::DropBadSession);
            let nack = Control::NackLib {
                mac: head.src,
                peer: head.peer_index,
                dst_endpoint: header.src_endpoint,
                code: NackCode::BadSession,
                seqnum: header.seqnum,
            };
            self.outbox.send(nack, &mut self.counters);
            return None;
        }
        let slot = slot.filter(|slot| self.partners[*slot].conversation.is_known());
        if slot.is_none() {
            self.counters.count(Counter::DropUnknownPartner);
        }
        slot
    }

    /// Whether this endpoint accepts a packet that names no session where the sender's *back* session belongs: an
    /// Open-MX that has received no CONNECT sends such packets (4.3).
    fn may_leave_out(&self, session: u32, partner: Option<u32>) -> bool {
        let partner = partner.and_then(|slot| self.partners.get(slot));
        partner.is_some_and(|p| p.conversation.may_leave_out(session))
    }

    /// Handles a sequenced packet: first the conversation, then the acknowledgement, then the message.
    fn handle_sequenced<H: Host>(
        &mut self,
        now: Time,
        slot: u32,
        header: &Sequenced,
        packet: &Packet<'_>,
        frame: &[u8],
        host: &mut H,
    ) {
        let (seq, ack) = (Seq(header.seqnum), Seq(header.piggyack));
        let p = &self.partners[slot];
        if !seq.same_session(p.receive.next()) || !ack.same_session(p.send.next()) {
            self.counters.count(Counter::DropOldConversation);
            return;
        }
        self.note_ack(now, slot, ack);
        if matches!(packet, Packet::Notify(_)) {
            // The end of a large message comes after the acknowledgement of its announcement.
            self.settle_partner(slot);
        }
        match self.partners[slot].receive.place_of(seq) {
            Place::Next => {
                if self.accept(now, slot, packet, host) == Outcome::Refused {
                    self.keep_refused(slot, seq, packet, frame);
                    return;
                }
                if self.partners[slot].receive.keeps_packets() {
                    self.handle_kept(now, slot, host);
                }
                self.schedule_ack(now, slot);
            }
            Place::Matched => self.handle_fragment(now, slot, packet, host),
            Place::Ahead => {
                let state = &mut self.partners[slot].receive;
                self.receiver.keep(state, seq, packet, frame, &mut self.counters);
                if let Packet::Notify(notify) = packet {
                    // What is missing before it may never come: its sender has ended.
                    _ = self.transfer_notified(now, slot, notify);
                }
            }
            Place::Outside { is_newest } => {
                self.counters.count(Counter::DropOldMessage);
                let p = &mut self.partners[slot];
                let too_early = p.conversation.abilities().short_acks
                    && p.acks.repeated(now, seq, p.receive.expected(), &self.config.timing);
                // The acknowledgement of the newest one was probably lost.
                if is_newest || too_early {
                    self.acknowledge_now(slot);
                }
            }
        }
    }

    /// Describes the sender of a message of this partner for the host.
    #[inline]
    fn sender(&self, slot: u32) -> Sender {
        let partner = &self.partners[slot];
        Sender {
            partner: PartnerId(slot),
            session: partner.conversation.forward(),
            source: partner.address.source_key(),
        }
    }

    /// Accepts the next message in order.
    #[inline]
    fn accept<H: Host>(&mut self, now: Time, slot: u32, packet: &Packet<'_>, host: &mut H) -> Outcome {
        if !matches!(packet, Packet::Tiny(_) | Packet::Small(_)) {
            self.partners[slot].acks.awaited();
        }
        match packet {
            Packet::Tiny(p) => self.accept_eager(slot, p, true, host),
            Packet::Small(p) => self.accept_eager(slot, p, false, host),
            Packet::Medium(p) => {
                let from = self.sender(slot);
                let at = Reception {
                    now,
                    sizes: self.dialect.sizes(),
                    counters: &mut self.counters,
                };
                let state = &mut self.partners[slot].receive;
                let (outcome, fragment) = self.receiver.handle_medium(at, state, from, p, host);
                self.fragment_handled(now, slot, fragment);
                outcome
            }
            Packet::Rndv(p) => self.accept_rndv(now, slot, p, host),
            Packet::Notify(p) => {
                self.counters.count(Counter::RecvNotify);
                self.partners[slot].receive.advance();
                self.handle_notify(now, slot, p);
                if self.dialect.sizes().mode() == Mode::Wire && !self.partners[slot].receive.has_partials() {
                    // MX before 1.2.5 needs it (7.2).
                    self.acknowledge_now(slot);
                }
                Outcome::Matched
            }
            // No other packet has a sequence number.
            _ => Outcome::Matched,
        }
    }

    /// Accepts the next message in order, which is a short one.
    #[inline]
    fn accept_eager<H: Host>(&mut self, slot: u32, p: &Eager<'_>, is_tiny: bool, host: &mut H) -> Outcome {
        let from = self.sender(slot);
        let state = &mut self.partners[slot].receive;
        state.handle_eager(from, p, is_tiny, host, &mut self.counters)
    }

    /// Accepts the next message in order, which announces a large one.
    fn accept_rndv<H: Host>(&mut self, now: Time, slot: u32, p: &Rndv<'_>, host: &mut H) -> Outcome {
        let conversation = &self.partners[slot].conversation;
        let announced = Large::announced(slot, conversation.epoch(), p);
        let Some(large) = self.transfers_in.announce(announced) else {
            return Outcome::Refused;
        };
        let from = self.sender(slot);
        let verdict = host.arrive(Arrival {
            partner: from.partner,
            session: from.session,
            source: from.source,
            match_info: p.match_info,
            length: p.msg_length,
            body: Body::Announced { large, head: p.head },
        });
        match verdict {
            Verdict::Refuse => {
                self.transfers_in.forget(large);
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
        self.partners[slot].receive.advance();
        Outcome::Matched
    }

    /// Handles a packet of a message that was matched already: a further fragment, or a duplicate.
    fn handle_fragment<H: Host>(&mut self, now: Time, slot: u32, packet: &Packet<'_>, host: &mut H) {
        let at = Reception {
            now,
            sizes: self.dialect.sizes(),
            counters: &mut self.counters,
        };
        let p = &mut self.partners[slot];
        let expected = p.receive.expected();
        if let Some(fragment) = self.receiver.handle_fragment(at, &mut p.receive, packet, host) {
            let is_in_order = match (&fragment, packet) {
                (Fragment::Completed(_), Packet::Medium(medium)) => {
                    let count = self.dialect.sizes().fragments_of(medium.length);
                    u32::from(medium.frag_seqnum) + 1 == count && p.receive.expected().since(expected) <= 1
                }
                (fragment, _) => *fragment == Fragment::Added,
            };
            if !is_in_order {
                p.acks.saw_loss(now);
            }
            self.fragment_handled(now, slot, fragment);
            self.schedule_ack(now, slot);
        }
    }

    fn fragment_handled(&mut self, now: Time, slot: u32, fragment: Fragment) {
        match fragment {
            Fragment::Dropped => {}
            Fragment::Added => self.timers.at_latest(slot, now.plus_nanos(self.give_up_ns)),
            Fragment::Completed(event) => {
                self.partners[slot].acks.awaited();
                self.outbox.tell(event);
            }
        }
    }

    /// Keeps the next message, which the host refused because it has no room.
    fn keep_refused(&mut self, slot: u32, seq: Seq, packet: &Packet<'_>, frame: &[u8]) {
        self.counters.count(Counter::UnexpEventqFull);
        let state = &mut self.partners[slot].receive;
        self.receiver
            .keep_refused(slot, state, seq, packet, frame, &mut self.counters);
    }

    /// Handles kept packets whose turn has come.
    fn handle_kept<H: Host>(&mut self, now: Time, slot: u32, host: &mut H) {
        self.partners[slot].acks.saw_loss(now);
        while let Some((seq, place, buffer, len)) = self.receiver.poll_kept(&mut self.partners[slot].receive) {
            let frame = &buffer[..len];
            let mut refused = false;
            if let Ok((_, packet)) = self.dialect.decode(frame) {
                match place {
                    // What it says was acted on when it came.
                    Place::Next if matches!(packet, Packet::Notify(_)) => {
                        self.counters.count(Counter::RecvNotify);
                        self.partners[slot].receive.advance();
                    }
                    Place::Next => {
                        refused = self.accept(now, slot, &packet, host) == Outcome::Refused;
                        if refused {
                            self.keep_refused(slot, seq, &packet, frame);
                        }
                    }
                    Place::Matched => self.handle_fragment(now, slot, &packet, host),
                    Place::Ahead | Place::Outside { .. } => self.counters.count(Counter::DropOldMessage),
                }
            }
            self.receiver.recycle(buffer);
            if refused {
                break;
            }
        }
        self.schedule_ack(now, slot);
    }

    /// The host has room again: presents the messages that it refused. Call it when unexpected messages were taken.
    pub fn resume<H: Host>(&mut self, now: Time, host: &mut H) {
        for _ in 0..self.receiver.refused_len() {
            let Some(slot) = self.receiver.poll_refused() else {
                return;
            };
            if self.partners[slot].receive.take_refused() {
                self.handle_kept(now, slot, host);
            }
        }
    }

    /// Handles a packet that carries only an acknowledgement (7.3).
    pub(super) fn handle_liback(&mut self, now: Time, head: &Head, ack: &Ack) {
        if self.peers.mac(head.peer_index) != Some(head.src) {
            self.counters.count(Counter::DropBadPeerIndex);
            return;
        }
        if ack.dst_endpoint != self.config.endpoint {
            self.counters.count(Counter::DropBadEndpoint);
            return;
        }
        let found = self.partners.find(head.src, ack.src_endpoint);
        let both = [ack.session, ack.session_id];
        if both != [self.config.session; 2] && !both.iter().all(|session| self.may_leave_out(*session, found)) {
            self.counters.count(Counter::DropBadSession);
            return;
        }
        let Some(slot) = found.filter(|slot| self.partners[*slot].conversation.is_known()) else {
            self.counters.count(Counter::DropUnknownPartner);
            return;
        };
        let value = Seq(ack.ack);
        match self.partners[slot].send.handle_ack_packet(value, ack.acknum) {
            AckPacket::OtherConversation => self.counters.count(Counter::DropOldConversation),
            AckPacket::Old => self.counters.count(Counter::DropOldAck),
            AckPacket::New => {
                self.counters.count(Counter::RecvLiback);
                self.settle_partner(slot);
                self.handle_ack(now, slot, value);
                let p = &mut self.partners[slot];
                if ack.resent == 1 && p.conversation.abilities().short_acks {
                    self.transmitter.sent_too_early(now, &mut p.send);
                }
            }
        }
    }

    /// Handles a PULL: checks it in the order of 6.2 and queues the block.
    pub(super) fn handle_pull(&mut self, now: Time, head: &Head, pull: &Pull) {
        self.counters.count(Counter::RecvPullReq);
        if self.peers.mac(head.peer_index) != Some(head.src) {
            self.counters.count(Counter::DropBadPeerIndex);
            return;
        }
        if pull.dst_endpoint != self.config.endpoint {
            self.counters.count(Counter::DropBadEndpoint);
            return;
        }
        let partner = self.partners.find(head.src, pull.src_endpoint);
        if pull.session != self.config.session && !self.may_leave_out(pull.session, partner) {
            self.counters.count(Counter::DropBadSession);
            self.nack_pull(head, pull, NackCode::BadSession);
            return;
        }
        let puller = Puller {
            mac: head.src,
            peer: head.peer_index,
            marks: partner.is_some_and(|slot| self.partners[slot].conversation.abilities().marks),
        };
        let sizes = self.dialect.sizes();
        if let Err(dropped) = self.transfers_out.handle_pull(now, partner, puller, pull, sizes) {
            self.counters.count(dropped.counter);
            if let Some(code) = dropped.nack {
                self.nack_pull(head, pull, code);
            }
        }
    }

    fn nack_pull(&mut self, head: &Head, pull: &Pull, code: NackCode) {
        let nack = Control::NackMcp {
            mac: head.src,
            peer: head.peer_index,
            src_endpoint: pull.src_endpoint,
            code,
            handle: pull.handle,
            magic: pull.magic,
        };
        self.outbox.send(nack, &mut self.counters);
    }

    /// Handles the partner's word that a large message is over; its sequence number has been consumed.
    pub(super) fn handle_notify(&mut self, now: Time, slot: u32, notify: &Notify) {
        if let Err(counter) = self.transfer_notified(now, slot, notify) {
            self.counters.count(counter);
        }
    }

    fn transfer_notified(&mut self, now: Time, slot: u32, notify: &Notify) -> Result<(), Counter> {
        let ended = self.transfers_out.handle_notify(now, slot, notify)?;
        self.end_large(ended);
        Ok(())
    }

    /// Finds the running pull that a handle names, if it goes to this host, and its partner.
    #[inline]
    fn find_pull(&self, head: &Head, handle: u32) -> Option<(u16, u32)> {
        let found = self.transfers_in.find(handle);
        found.filter(|(_, partner)| self.partners[*partner].address.mac == head.src)
    }

    /// Returns the receiver of large messages, with what it needs to handle a frame or a time-out of one from this
    /// partner.
    #[inline]
    pub(super) fn transfer(&mut self, now: Time, partner: u32) -> (&mut TransferReceiver, Transfer<'_>) {
        let p = &mut self.partners[partner];
        let transfer = Transfer {
            now,
            path: &mut p.path,
            short_acks: p.conversation.abilities().short_acks,
            timing: &self.config.timing,
            sizes: self.dialect.sizes(),
            counters: &mut self.counters,
        };
        (&mut self.transfers_in, transfer)
    }

    /// Handles a PULL_REPLY.
    fn handle_pull_reply<H: Host>(&mut self, now: Time, head: &Head, reply: &PullReply<'_>, host: &mut H) {
        self.counters.count(Counter::RecvPullReply);
        if endpoint_of_pull_magic(reply.magic) != Some(self.config.endpoint) {
            self.counters.count(Counter::DropPullReplyBadMagicEndpoint);
            return;
        }
        let Some((at, partner)) = self.find_pull(head, reply.handle) else {
            self.counters.count(Counter::DropPullReplyBadWireHandle);
            return;
        };
        let (transfers, transfer) = self.transfer(now, partner);
        let Some(taken) = transfers.handle_reply(at, reply, transfer) else {
            return;
        };
        host.deliver(taken.receive, reply.msg_offset, reply.data);
        if let Some(length) = taken.complete {
            self.end_pull(now, at, Status::Success, length);
        }
    }

    /// Handles a NACK_MCP (8.3).
    fn handle_nack_mcp(&mut self, now: Time, head: &Head, nack: &NackMcp) {
        self.counters.count(Counter::RecvNackMcp);
        let Some(()) = self.check_nack_peer(head) else { return };
        if endpoint_of_pull_magic(nack.magic) != Some(self.config.endpoint) {
            self.counters.count(Counter::DropNackMcpBadMagicEndpoint);
            return;
        }
        match self.find_pull(head, nack.handle) {
            Some((at, _)) => self.end_pull(now, at, nack.code.into(), 0),
            None => self.counters.count(Counter::DropNackMcpBadWireHandle),
        }
    }
}
