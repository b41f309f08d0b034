//! Handling of CONNECT and NACK_LIB packets: new instances of a peer, new conversations, and refusals (4.2, 4.3, 8.3).

use ether::{MacAddr, Time};

use super::{
    Counter, Engine, Event, PartnerId, Peers, Status,
    connection::{
        conversation::Abilities,
        handshake::{Agreement, RequestVerdict, reply_says},
    },
    outbox::Control,
    partner::PartnerAddress,
    seq::Seq,
};
use crate::wire::{Connect, ConnectKind, Extension, Head, NackLib, PEER_INDEX_UNKNOWN};

impl<P: Peers> Engine<P> {
    /// Handles a CONNECT (4.2, 4.3).
    pub(super) fn handle_connect(&mut self, now: Time, head: &Head, connect: &Connect) {
        let is_request = matches!(connect.kind, ConnectKind::Request { .. });
        let peer = if is_request {
            self.add_peer(head.src)
        } else {
            self.peers.index(head.src)
        };
        let Some(peer) = peer else {
            self.counters.count(Counter::DropBadPeerAddr);
            return;
        };
        self.peers.set_reverse(peer, connect.peer_index);
        if connect.dst_endpoint != self.config.endpoint {
            self.counters.count(Counter::DropBadEndpoint);
            return;
        }
        match connect.kind {
            ConnectKind::Request { key } => self.handle_request(head, peer, connect, key),
            ConnectKind::Reply { session, status } => self.handle_reply(now, head, connect, session, status),
        }
    }

    fn handle_request(&mut self, head: &Head, peer: u16, connect: &Connect, key: u32) {
        let own = self.config.extension.filter(|_| connect.extension.is_some());
        let session = self.config.session;
        let reply = |status, recv_next: Seq| Control::ConnectReply {
            mac: head.src,
            peer,
            connect: Connect {
                dst_endpoint: connect.src_endpoint,
                src_endpoint: connect.dst_endpoint,
                seqnum: 0,
                peer_index: peer,
                src_session: connect.src_session,
                recv_seqnum_start: recv_next.0,
                connect_seqnum: connect.connect_seqnum,
                kind: ConnectKind::Reply { session, status },
                extension: own,
            },
        };
        let abilities = match RequestVerdict::of(&self.config, connect, key) {
            RequestVerdict::Accept(abilities) => abilities,
            RequestVerdict::Drop(counter) => {
                self.counters.count(counter);
                return;
            }
            RequestVerdict::Refuse { counter, mismatch } => {
                self.counters.count(counter);
                if let Some((own, theirs)) = mismatch {
                    self.tell_mismatch(head.src, connect.src_endpoint, own, theirs);
                }
                let refusal = reply(ConnectKind::STATUS_BAD_KEY, Seq::FIRST);
                self.outbox.send(refusal, &mut self.counters);
                return;
            }
        };
        let address = PartnerAddress {
            mac: head.src,
            endpoint: connect.src_endpoint,
            peer,
        };
        let Some(slot) = self.make_partner(address) else {
            return;
        };
        self.counters.count(Counter::RecvConnectRequest);
        self.connected_by_peer(slot, connect, abilities);
        let recv_next = self.partners[slot].receive.next();
        let yes = reply(ConnectKind::STATUS_SUCCESS, recv_next);
        self.outbox.send(yes, &mut self.counters);
        self.pump(slot);
    }

    /// Accepts a peer's request.
    fn connected_by_peer(&mut self, slot: u32, connect: &Connect, abilities: Abilities) {
        let start = Seq(connect.recv_seqnum_start);
        let p = &self.partners[slot];
        let is_another_instance = p.conversation.is_another_instance(connect.src_session);
        // The peer gave up and we did not: it counts a later conversation. Earlier ones are late duplicates.
        let later = start.session().wrapping_sub(p.send.next().session()) & 3;
        let is_later = p.conversation.forward() == connect.src_session && (later == 1 || later == 2);
        if is_another_instance || is_later {
            self.end_conversation(slot, false);
        }
        let p = &mut self.partners[slot];
        if p.conversation.back() != connect.src_session {
            p.restart_receiving(p.receive.next().restarted());
        }
        if p.conversation.forward() != connect.src_session || is_later {
            p.send.restart(start);
        }
        p.conversation.establish(connect.src_session, abilities);
        self.note_partner(slot);
    }

    fn handle_reply(&mut self, now: Time, head: &Head, connect: &Connect, session: u32, status: u8) {
        let stray = Counter::DropStrayConnectReply;
        let Some(slot) = self.partners.find(head.src, connect.src_endpoint) else {
            self.counters.count(stray);
            return;
        };
        let Some((outcome, agreement)) = reply_says(self.config.extension, connect, session, status) else {
            self.counters.count(stray);
            return;
        };
        let found = self.handshake.find(slot, connect.connect_seqnum);
        let found = found.filter(|_| connect.src_session == self.config.session);
        let Some(answered) = found.and_then(|id| self.handshake.handle_reply(now, id)) else {
            self.counters.count(stray);
            return;
        };
        self.counters.count(Counter::RecvConnectReply);
        match agreement {
            Agreement::Mismatch { own, theirs } => {
                self.counters.count(Counter::DropConnectMismatch);
                self.tell_mismatch(head.src, connect.src_endpoint, own, theirs);
            }
            Agreement::Abilities(abilities) if outcome == Status::Success => {
                self.connected(slot, connect, session, abilities);
                if let Some(took_ns) = answered.took_ns {
                    let p = &mut self.partners[slot];
                    p.send.retransmission.rtt.sample(took_ns);
                    p.path.sample(took_ns);
                }
            }
            Agreement::Abilities(_) => {}
        }
        self.outbox.tell(Event::Connected {
            token: answered.token,
            partner: PartnerId(slot),
            status: outcome,
        });
        if outcome == Status::Success {
            self.pump(slot);
        }
    }

    /// Notes that a peer accepted a request of this endpoint.
    fn connected(&mut self, slot: u32, connect: &Connect, session: u32, abilities: Abilities) {
        self.settle_partner(slot);
        if self.partners[slot].conversation.is_another_instance(session) {
            self.end_conversation(slot, false);
        }
        let start = Seq(connect.recv_seqnum_start);
        let p = &mut self.partners[slot];
        // An endpoint that connects to itself has begun to receive anew since it asked, and says so first here.
        let is_own = p.is_at(self.config.mac, self.config.endpoint);
        let is_newer = is_own || p.send.next().same_session(start) && start.number() == Seq::FIRST.number();
        // Nothing was sent since the numbers were agreed: the newer word of the peer holds.
        if p.conversation.forward() != session || p.send.is_unused() && is_newer {
            p.send.restart(start);
        }
        p.conversation.establish(session, abilities);
        self.note_partner(slot);
    }

    fn tell_mismatch(&mut self, mac: MacAddr, endpoint: u8, own: Extension, theirs: Extension) {
        if let Some(event) = self.handshake.mismatch(mac, endpoint, own, theirs) {
            self.outbox.tell(event);
        }
    }

    /// Handles a NACK_LIB (8.3).
    pub(super) fn handle_nack_lib(&mut self, head: &Head, nack: &NackLib) {
        let Some(()) = self.check_nack_peer(head) else { return };
        if nack.dst_endpoint != self.config.endpoint {
            self.counters.count(Counter::DropBadEndpoint);
            return;
        }
        let Some(slot) = self.partners.find(head.src, nack.src_endpoint) else {
            self.counters.count(Counter::DropUnknownPartner);
            return;
        };
        self.counters.count(Counter::RecvNackLib);
        let status = Status::from(nack.code);
        if self.handle_refusal(slot, Seq(nack.seqnum), status) {
            return;
        }
        // A message's number: a second refusal of what was sent twice. It says nothing about a connect, which has number 0 (4.5)
        // and may be answered by an endpoint that was opened in between.
        if nack.seqnum != 0 {
            return;
        }
        if let Some(token) = self.handshake.remove_oldest(slot) {
            self.outbox.tell(Event::Connected {
                token,
                partner: PartnerId(slot),
                status,
            });
        }
    }

    /// Checks the peer of a refusal: an unknown index is found by address, any other wrong one is dropped.
    pub(super) fn check_nack_peer(&mut self, head: &Head) -> Option<()> {
        if head.peer_index == PEER_INDEX_UNKNOWN {
            if self.peers.index(head.src).is_none() {
                self.counters.count(Counter::DropBadPeerAddr);
                return None;
            }
        } else if self.peers.mac(head.peer_index) != Some(head.src) {
            self.counters.count(Counter::DropNackBadPeerIndex);
            return None;
        }
        Some(())
    }
}
