//! Frames go out: short packets first, then requests of blocks, then messages and asked-for blocks in turn.

use ether::{MacAddr, Time};

use super::{Counter, Engine, HEAD_BUFFER_LEN, Payload, Peers, Transmit, connect::Control, message::Kind};
use crate::wire::{
    Ack, Connect, ConnectKind, Eager, FRAME_LEN_MIN, HEADER_LEN_MAX, Head, Medium, NackLib, NackMcp, Notify, Packet,
    Pull, PullReply, Rndv,
};

impl<P: Peers> Engine<P> {
    /// The next frame to be sent, its first bytes written to `out`. `None`: nothing more for now.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        if self.losses.is_empty() {
            return self.next_transmit(now, out);
        }
        self.transmit_but_for_losses(now, out)
    }

    #[cold]
    fn transmit_but_for_losses(&mut self, now: Time, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        loop {
            let transmit = self.next_transmit(now, out)?;
            if !self.loses(out) {
                return Some(transmit);
            }
        }
    }

    #[inline(always)]
    fn next_transmit(&mut self, now: Time, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        while let Some(control) = self.control.pop_front() {
            if let Some(transmit) = self.emit_control(now, control, out) {
                return Some(transmit);
            }
        }
        while let Some(slot) = self.acks.pop_front() {
            if let Some(transmit) = self.emit_ack(slot, out) {
                return Some(transmit);
            }
        }
        if self.pulls.may_ask()
            && let Some((slot, pull)) = self.next_pull(now)
        {
            return self.emit_pull(slot, &pull, out);
        }
        // Messages and replies take turns.
        if !self.regions.blocks.is_empty() {
            self.replies_next = !self.replies_next;
            if self.replies_next
                && let Some(transmit) = self.emit_reply(out)
            {
                return Some(transmit);
            }
        }
        if let Some(transmit) = self.emit_message(now, out) {
            return Some(transmit);
        }
        if !self.regions.blocks.is_empty()
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
        let p = &self.partners[slot as usize];
        self.head(p.mac, p.peer, wants_mark && p.marks)
    }

    /// A whole frame into the buffer.
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

    /// A header into the buffer, for data that lie with the caller.
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
            Control::ConnectRequest { slot, generation } => self.emit_connect(now, slot, generation, out),
            Control::ConnectReply { mac, peer, mut connect } => {
                let session = connect.src_session;
                // The newest word about what is expected next.
                if let Some(partner) = self.find_partner(mac, connect.dst_endpoint)
                    && self.partners[partner as usize].back == session
                {
                    connect.recv_seqnum_start = self.partners[partner as usize].recv_next.0;
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

    fn emit_connect(&mut self, now: Time, slot: u32, generation: u32, out: &mut [u8]) -> Option<Transmit> {
        if !self.connects.pending.is_current(slot, generation) {
            return None;
        }
        let pending = self.connects.pending.get_mut(slot)?;
        if pending.sends == 0 {
            pending.first_sent = now;
        }
        pending.sends += 1;
        let (key, connect_seqnum, partner) = (pending.key, pending.connect_seqnum, pending.partner);
        let p = &self.partners[partner as usize];
        let connect = Connect {
            dst_endpoint: p.endpoint,
            src_endpoint: self.config.endpoint,
            seqnum: 0,
            peer_index: p.peer,
            src_session: self.config.session,
            recv_seqnum_start: p.recv_next.0,
            connect_seqnum,
            kind: ConnectKind::Request { key },
            extension: self.config.extension,
        };
        let head = self.partner_head(partner, false);
        self.emit(&head, &Packet::Connect(connect), Counter::SendConnectRequest, out)
    }

    /// An acknowledgement goes out to this partner, in whatever packet; returns its value.
    #[inline]
    pub(super) fn acknowledge(&mut self, slot: u32) -> u16 {
        let p = &mut self.partners[slot as usize];
        p.ack_sent = p.expected;
        p.ack_at = Time::MAX;
        p.ack_now = false;
        p.ack_awaited = false;
        p.expected.0
    }

    fn emit_ack(&mut self, slot: u32, out: &mut [u8]) -> Option<Transmit> {
        let p = &mut self.partners[slot as usize];
        p.ack_queued = false;
        if !p.ack_now || !p.known {
            return None;
        }
        p.acknum_out = p.acknum_out.wrapping_add(1);
        let (session, acknum, dst_endpoint) = (p.back, p.acknum_out, p.endpoint);
        let value = self.acknowledge(slot);
        let ack = Ack {
            dst_endpoint,
            src_endpoint: self.config.endpoint,
            session,
            ack: value,
            session_id: session,
            acknum,
            send_seq: value,
            resent: 0,
        };
        let head = self.partner_head(slot, false);
        self.emit(&head, &Packet::Ack(ack), Counter::SendLiback, out)
    }

    fn emit_pull(&mut self, slot: u32, pull: &Pull, out: &mut [u8]) -> Option<Transmit> {
        let head = self.partner_head(slot, true);
        self.emit(&head, &Packet::Pull(*pull), Counter::SendPullReq, out)
    }

    /// The next frame of the blocks that were asked for.
    fn emit_reply(&mut self, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        loop {
            let block = self.regions.blocks.front_mut()?;
            let region = block.region;
            let len = block.room.min(block.remaining);
            let reply = PullReply {
                frame_seqnum: block.frame_seqnum,
                msg_offset: block.msg_offset,
                handle: block.handle,
                magic: block.magic,
                data: &[],
            };
            let offset = block.msg_offset + block.rdma_offset;
            let (mac, peer, use_counter) = (block.mac, block.peer, block.use_counter);
            block.frame_seqnum = block.frame_seqnum.wrapping_add(1);
            block.msg_offset += len;
            block.remaining -= len;
            block.room = self.dialect.sizes().reply_payload();
            let last = block.remaining == 0;
            let marked = block.marks && last;
            if last {
                self.regions.blocks.pop_front();
            }
            // The message may be over meanwhile.
            let region = self.regions.get(region.into());
            let Some(region) = region.filter(|region| region.use_counter == use_counter) else {
                if !last {
                    self.regions.blocks.pop_front();
                }
                continue;
            };
            let payload = Payload {
                token: region.token,
                offset,
                len,
            };
            let head = self.head(mac, peer, marked);
            return self.emit_with(&head, &Packet::PullReply(reply), payload, Counter::SendPullReply, out);
        }
    }

    /// The next message, or fragment of one.
    #[inline(always)]
    fn emit_message(&mut self, now: Time, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        loop {
            let (at, generation) = *self.send_queue.front()?;
            let wanted = self.messages.is_current(at, generation)
                && self.messages.get_mut(at).is_some_and(|message| !message.done);
            if !wanted {
                self.send_queue.pop_front();
                continue;
            }
            if !self.is_settled() && self.messages.get(at).is_some_and(|message| message.sends > 0) {
                // It may have been acknowledged since it was queued again.
                self.settle();
                continue;
            }
            if let Some(transmit) = self.emit_one(now, at, out) {
                return Some(transmit);
            }
            self.send_queue.pop_front();
        }
    }

    #[inline(always)]
    fn emit_one(&mut self, now: Time, at: u32, out: &mut [u8; HEAD_BUFFER_LEN]) -> Option<Transmit> {
        let message = self.messages.get(at)?;
        let (slot, kind, seq, token) = (message.partner, message.kind, message.seq.0, message.token);
        let (match_info, length, cursor) = (message.match_info, message.length, message.cursor);
        let sizes = *self.dialect.sizes();
        let last_fragment = match kind {
            Kind::Medium { .. } => u32::from(cursor) + 1 >= sizes.fragments_of(length),
            _ => true,
        };
        let head = self.partner_head(slot, last_fragment);
        let piggyack = self.acknowledge(slot);
        let p = &self.partners[slot as usize];
        let (dst_endpoint, src_endpoint) = (p.endpoint, self.config.endpoint);
        let (forward, back) = (p.forward, p.back);
        let transmit = match kind {
            Kind::Tiny | Kind::Small => {
                let message = self.messages.get(at)?;
                let eager = Eager {
                    dst_endpoint,
                    src_endpoint,
                    seqnum: seq,
                    piggyack,
                    match_info,
                    session: forward,
                    data: &message.data[..length as usize],
                };
                let (head_len, counter) = match kind {
                    Kind::Tiny => (self.dialect.emit(&head, &Packet::Tiny(eager), out), Counter::SendTiny),
                    _ => (self.dialect.emit(&head, &Packet::Small(eager), out), Counter::SendSmall),
                };
                let head_len = head_len.ok()?;
                self.counters.count(counter);
                Transmit {
                    head_len,
                    payload: None,
                    pad_len: 0,
                }
            }
            Kind::Medium { copied } => {
                let offset = u32::from(cursor) * sizes.fragment_payload();
                let medium = Medium {
                    dst_endpoint,
                    src_endpoint,
                    length,
                    seqnum: seq,
                    piggyack,
                    match_info,
                    session: forward,
                    frag_seqnum: cursor,
                    frag_pipeline: Medium::pipeline_of(&sizes),
                    data: &[],
                };
                let payload = Payload {
                    token,
                    offset,
                    len: (length - offset).min(sizes.fragment_payload()),
                };
                let counter = if copied {
                    Counter::SendMediumsqFrag
                } else {
                    Counter::SendMediumvaFrag
                };
                self.emit_with(&head, &Packet::Medium(medium), payload, counter, out)?
            }
            Kind::Rndv { region } => {
                let rndv = Rndv {
                    dst_endpoint,
                    src_endpoint,
                    seqnum: seq,
                    piggyack,
                    match_info,
                    session: forward,
                    msg_length: length,
                    rdma_id: region,
                    rdma_seqnum: self.regions.get(region.into())?.use_counter,
                    rdma_offset: 0,
                };
                self.emit(&head, &Packet::Rndv(rndv), Counter::SendRndv, out)?
            }
            Kind::Notify { rdma_id, rdma_seqnum } => {
                let notify = Notify {
                    dst_endpoint,
                    src_endpoint,
                    session: back,
                    total_length: length,
                    rdma_id,
                    rdma_seqnum,
                    seqnum: seq,
                    piggyack,
                };
                self.emit(&head, &Packet::Notify(notify), Counter::SendNotify, out)?
            }
        };
        self.sent(now, at, last_fragment);
        Some(transmit)
    }

    /// A frame of a message went out.
    #[inline]
    pub(super) fn sent(&mut self, now: Time, at: u32, last_fragment: bool) {
        let Some(message) = self.messages.get_mut(at) else {
            return;
        };
        if !last_fragment {
            message.cursor += 1;
            return;
        }
        self.send_queue.pop_front();
        message.cursor = 0;
        message.queued = false;
        if message.sends == 0 {
            message.first_sent = now;
        }
        message.sends = message.sends.saturating_add(1);
        message.last_sent = now;
        let slot = message.partner;
        let deadline = now.plus_nanos(message.give_up_ns);
        let p = &mut self.partners[slot as usize];
        // The time-out is not shorter than that: the one that runs comes first.
        if p.rto_at <= now.plus_nanos(self.config.timing.rto_min_short_ns).min(deadline) {
            return;
        }
        let rto_at = now
            .plus_nanos(p.rtt.rto_ns(&self.config.timing, p.short_acks))
            .min(deadline);
        if rto_at < p.rto_at {
            p.rto_at = rto_at;
            self.partner_timers.at_latest(slot, rto_at);
        }
    }
}
