//! The frames that go out: short packets first, then requests of blocks, then messages and asked-for blocks in turn.

use ether::{MacAddr, Time};

use super::{
    Counter, Engine, HEAD_BUFFER_LEN, Payload, Peers, Transmit,
    connection::{handshake::ConnectId, message::Kind},
    outbox::Control,
    transfers::receiver::Ends,
};
use crate::wire::{
    Ack, Connect, ConnectKind, Eager, FRAME_LEN_MIN, HEADER_LEN_MAX, Head, Medium, NackLib, NackMcp, Notify, Packet,
    Rndv,
};

impl<P: Peers> Engine<P> {
    /// Returns the next frame to be sent, whose first bytes are written to `out`. `None`: there is none for now.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        if self.faults.is_empty() {
            return self.next_transmit(now, out);
        }
        self.transmit_before_faults(now, out)
    }

    #[cold]
    fn transmit_before_faults(&mut self, now: Time, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        loop {
            let transmit = self.next_transmit(now, out)?;
            if !self.loses(out) {
                return Some(transmit);
            }
        }
    }

    #[inline(always)]
    fn next_transmit(&mut self, now: Time, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        while let Some(control) = self.outbox.poll_control() {
            if let Some(transmit) = self.emit_control(now, control, out) {
                return Some(transmit);
            }
        }
        while let Some(slot) = self.outbox.poll_ack() {
            if let Some(transmit) = self.emit_ack(now, slot, out) {
                return Some(transmit);
            }
        }
        if self.transfers_in.may_ask()
            && let Some(transmit) = self.emit_pull(now, out)
        {
            return Some(transmit);
        }
        // Messages and replies take turns.
        if !self.transfers_out.is_quiet()
            && self.outbox.take_turn()
            && let Some(transmit) = self.emit_reply(out)
        {
            return Some(transmit);
        }
        if let Some(transmit) = self.emit_message(now, out) {
            return Some(transmit);
        }
        if !self.transfers_out.is_quiet()
            && let Some(transmit) = self.emit_reply(out)
        {
            return Some(transmit);
        }
        if self.is_settled() {
            return None;
        }
        // Acknowledged messages make room for others.
        self.settle();
        self.emit_message(now, out)
    }

    fn head(&self, mac: MacAddr, peer: u16, marked: bool) -> Head {
        Head {
            dst: mac,
            src: self.config.mac,
            peer_index: self.peers.reverse(peer),
            marked,
        }
    }

    pub(super) fn partner_head(&self, slot: u32, wants_mark: bool) -> Head {
        let p = &self.partners[slot];
        let marked = wants_mark && p.conversation.abilities().marks;
        self.head(p.address.mac, p.address.peer, marked)
    }

    /// Writes a whole frame to the buffer.
    #[inline(always)]
    fn emit(&mut self, head: &Head, packet: &Packet<'_>, counter: Counter, out: &mut [u8]) -> Option<Transmit> {
        // Everything the engine makes can be encoded; were it not so, the packet would be lost like any other.
        let head_len = self.dialect.emit(head, packet, out).ok()?;
        self.counters.count(counter);
        Some(Transmit {
            head_len,
            payload: None,
            pad_len: 0,
        })
    }

    /// Writes a header to the buffer, for data in the caller's memory.
    #[inline(always)]
    fn emit_with(
        &mut self,
        head: &Head,
        packet: &Packet<'_>,
        payload: Payload,
        counter: Counter,
        out: &mut [u8; HEAD_BUFFER_LEN],
    ) -> Option<Transmit> {
        let header = out.first_chunk_mut::<HEADER_LEN_MAX>()?;
        let data_len = payload.len as usize;
        let head_len = self.dialect.emit_header_for(head, packet, data_len, header).ok()?;
        self.counters.count(counter);
        Some(Transmit {
            head_len,
            payload: Some(payload),
            pad_len: FRAME_LEN_MIN.saturating_sub(head_len + data_len),
        })
    }

    fn emit_control(&mut self, now: Time, control: Control, out: &mut [u8]) -> Option<Transmit> {
        match control {
            Control::ConnectRequest(id) => self.emit_connect(now, id, out),
            Control::ConnectReply { mac, peer, mut connect } => {
                // The request carries the newest number that is expected next.
                if let Some(partner) = self.partners.find(mac, connect.dst_endpoint)
                    && let p = &self.partners[partner]
                    && p.conversation.back() == connect.src_session
                {
                    connect.recv_seqnum_start = p.receive.next().0;
                }
                let head = self.head(mac, peer, false);
                self.emit(&head, &Packet::Connect(connect), Counter::SendConnectReply, out)
            }
            Control::NackLib {
                mac,
                peer,
                dst_endpoint,
                code,
                seqnum,
            } => {
                let head = self.head(mac, peer, false);
                let nack = NackLib {
                    src_endpoint: self.config.endpoint,
                    dst_endpoint,
                    code,
                    peer_index: head.peer_index,
                    seqnum,
                };
                self.emit(&head, &Packet::NackLib(nack), Counter::SendNackLib, out)
            }
            Control::NackMcp {
                mac,
                peer,
                src_endpoint,
                code,
                handle,
                magic,
            } => {
                let head = self.head(mac, peer, false);
                let nack = NackMcp {
                    src_endpoint,
                    code,
                    handle,
                    magic,
                };
                self.emit(&head, &Packet::NackMcp(nack), Counter::SendNackMcp, out)
            }
        }
    }

    fn emit_connect(&mut self, now: Time, id: ConnectId, out: &mut [u8]) -> Option<Transmit> {
        let request = self.handshake.poll_request(now, id)?;
        let p = &self.partners[request.partner];
        let connect = Connect {
            dst_endpoint: p.address.endpoint,
            src_endpoint: self.config.endpoint,
            seqnum: 0,
            peer_index: p.address.peer,
            src_session: self.config.session,
            recv_seqnum_start: p.receive.next().0,
            connect_seqnum: request.connect_seqnum,
            kind: ConnectKind::Request { key: request.key },
            extension: self.config.extension,
        };
        let head = self.partner_head(request.partner, false);
        self.emit(&head, &Packet::Connect(connect), Counter::SendConnectRequest, out)
    }

    /// Notes that a packet to this partner carries an acknowledgement; returns its value.
    #[inline]
    pub(super) fn acknowledge(&mut self, now: Time, slot: u32) -> u16 {
        let p = &mut self.partners[slot];
        p.acks.take_along(now, p.receive.expected())
    }

    fn emit_ack(&mut self, now: Time, slot: u32, out: &mut [u8]) -> Option<Transmit> {
        let p = &mut self.partners[slot];
        if !p.acks.leave_queue() || !p.conversation.is_known() {
            return None;
        }
        let session = p.conversation.back();
        let value = p.acks.take_along(now, p.receive.expected());
        let ack = Ack {
            dst_endpoint: p.address.endpoint,
            src_endpoint: self.config.endpoint,
            session,
            ack: value,
            session_id: session,
            acknum: p.acks.next_packet(),
            send_seq: value,
            resent: u8::from(p.acks.take_too_early()),
        };
        let head = self.partner_head(slot, false);
        self.emit(&head, &Packet::Ack(ack), Counter::SendLiback, out)
    }

    /// Writes the next request of a block.
    fn emit_pull(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let ask = self.transfers_in.poll_ask(self.dialect.sizes())?;
        let p = &self.partners[ask.partner];
        let ends = Ends {
            own: self.config.endpoint,
            partner: p.address.endpoint,
        };
        let waits = (&self.config.timing, p.conversation.abilities().short_acks);
        let pull = self.transfers_in.ask(now, ask, ends, &p.path, waits)?;
        let head = self.partner_head(ask.partner, true);
        self.emit(&head, &Packet::Pull(pull), Counter::SendPullReq, out)
    }

    /// Writes the next frame of the blocks that were asked for.
    #[inline]
    fn emit_reply(&mut self, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        let reply = self.transfers_out.poll_reply(self.dialect.sizes())?;
        let puller = reply.puller;
        let head = self.head(puller.mac, puller.peer, puller.marks && reply.is_last);
        let packet = Packet::PullReply(reply.packet);
        self.emit_with(&head, &packet, reply.payload, Counter::SendPullReply, out)
    }

    /// Writes the next message, or fragment of one.
    #[inline(always)]
    fn emit_message(&mut self, now: Time, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        loop {
            let at = self.transmitter.poll_queue()?;
            let message = self.transmitter.get(at)?;
            if !self.is_settled() && message.sent.times > 0 {
                // It may have been acknowledged since it was queued again.
                self.settle();
                continue;
            }
            if let Some(transmit) = self.emit_one(now, at, out) {
                return Some(transmit);
            }
            self.transmitter.skip();
        }
    }

    #[inline(always)]
    fn emit_one(&mut self, now: Time, at: u32, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        let message = self.transmitter.get(at)?;
        let (slot, kind) = (message.partner, message.kind);
        let last_fragment = match kind {
            Kind::Medium { .. } => u32::from(message.cursor) + 1 >= self.dialect.sizes().fragments_of(message.length),
            _ => true,
        };
        let head = self.partner_head(slot, last_fragment);
        let piggyack = self.acknowledge(now, slot);
        let transmit = match kind {
            Kind::Tiny | Kind::Small => self.emit_eager(&head, at, piggyack, out)?,
            Kind::Medium { copied } => self.emit_fragment(&head, at, piggyack, copied, out)?,
            Kind::Rndv { region } => self.emit_rndv(&head, at, piggyack, region?, out)?,
            Kind::Notify { rdma_id, rdma_seqnum } => {
                let message = self.transmitter.get(at)?;
                let p = &self.partners[slot];
                let notify = Notify {
                    dst_endpoint: p.address.endpoint,
                    src_endpoint: self.config.endpoint,
                    session: p.conversation.back(),
                    total_length: message.length,
                    rdma_id,
                    rdma_seqnum,
                    seqnum: message.seq.0,
                    piggyack,
                };
                self.emit(&head, &Packet::Notify(notify), Counter::SendNotify, out)?
            }
        };
        self.sent(now, at, last_fragment);
        Some(transmit)
    }

    #[inline(always)]
    fn emit_eager(&mut self, head: &Head, at: u32, piggyack: u16, out: &mut [u8]) -> Option<Transmit> {
        let message = self.transmitter.get(at)?;
        let p = &self.partners[message.partner];
        let eager = Eager {
            dst_endpoint: p.address.endpoint,
            src_endpoint: self.config.endpoint,
            seqnum: message.seq.0,
            piggyack,
            match_info: message.match_info,
            session: p.conversation.forward(),
            data: &message.data[..message.length as usize],
        };
        let (head_len, counter) = match message.kind {
            Kind::Tiny => (self.dialect.emit(head, &Packet::Tiny(eager), out), Counter::SendTiny),
            _ => (self.dialect.emit(head, &Packet::Small(eager), out), Counter::SendSmall),
        };
        let head_len = head_len.ok()?;
        self.counters.count(counter);
        Some(Transmit {
            head_len,
            payload: None,
            pad_len: 0,
        })
    }

    fn emit_fragment(
        &mut self,
        head: &Head,
        at: u32,
        piggyack: u16,
        copied: bool,
        out: &mut [u8; HEAD_BUFFER_LEN],
    ) -> Option<Transmit> {
        let sizes = *self.dialect.sizes();
        let message = self.transmitter.get(at)?;
        let p = &self.partners[message.partner];
        let offset = u32::from(message.cursor) * sizes.fragment_payload();
        let medium = Medium {
            dst_endpoint: p.address.endpoint,
            src_endpoint: self.config.endpoint,
            length: message.length,
            seqnum: message.seq.0,
            piggyack,
            match_info: message.match_info,
            session: p.conversation.forward(),
            frag_seqnum: message.cursor,
            frag_pipeline: Medium::pipeline_of(&sizes),
            data: &[],
        };
        let payload = Payload {
            token: message.token,
            offset,
            len: (message.length - offset).min(sizes.fragment_payload()),
        };
        let counter = if copied {
            Counter::SendMediumsqFrag
        } else {
            Counter::SendMediumvaFrag
        };
        self.emit_with(head, &Packet::Medium(medium), payload, counter, out)
    }

    fn emit_rndv(
        &mut self,
        head: &Head,
        at: u32,
        piggyack: u16,
        region: u8,
        out: &mut [u8; HEAD_BUFFER_LEN],
    ) -> Option<Transmit> {
        let message = self.transmitter.get(at)?;
        let p = &self.partners[message.partner];
        let rndv = Rndv {
            dst_endpoint: p.address.endpoint,
            src_endpoint: self.config.endpoint,
            seqnum: message.seq.0,
            piggyack,
            match_info: message.match_info,
            session: p.conversation.forward(),
            msg_length: message.length,
            rdma_id: region,
            rdma_seqnum: self.transfers_out.use_counter(region)?,
            rdma_offset: 0,
            head: &[],
        };
        let payload = Payload {
            token: message.token,
            offset: 0,
            len: message.length.min(self.config.announced_head_len.into()),
        };
        if payload.len == 0 {
            return self.emit(head, &Packet::Rndv(rndv), Counter::SendRndv, out);
        }
        self.emit_with(head, &Packet::Rndv(rndv), payload, Counter::SendRndv, out)
    }
}
