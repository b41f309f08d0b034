//! Connecting: requests and their repetition, replies, new instances of a peer, agreement on extensions (4, 17). Also the
//! short packets that wait to be sent: replies and refusals.

use alloc::vec::Vec;

use ether::{MacAddr, Time};

use super::{
    Counter, Engine, Event, PartnerId, Peers, SendError, Status, Token, ack::AckOutcome, seq::Seq, slab::Slab,
    timers::Timers,
};
use crate::wire::{Connect, ConnectKind, Extension, Head, NackCode, NackLib, SESSION_NONE};

/// A connect without an answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub partner: u32,
    pub key: u32,
    pub token: Token,
    pub connect_seqnum: u8,
    pub sends: u32,
    pub first_sent: Time,
    pub posted: Time,
    pub give_up_ns: u64,
    order: u64,
}

/// The connects of an endpoint.
#[derive(Debug)]
pub(super) struct Connects {
    pub pending: Slab<Pending>,
    pub timers: Timers,
    order_next: u64,
    /// Peers with other settings that were told about.
    mismatches: Vec<MacAddr>,
}

impl Connects {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            pending: Slab::new(limit),
            timers: Timers::default(),
            order_next: 0,
            mismatches: Vec::new(),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        self.pending.memory() + self.timers.memory()
    }

    /// Takes out the oldest connect to a partner.
    pub(super) fn remove_oldest(&mut self, partner: u32) -> Option<Token> {
        let mine = self.pending.iter().filter(|(_, pending)| pending.partner == partner);
        let (slot, _) = mine.min_by_key(|(_, pending)| pending.order)?;
        self.remove(slot).map(|pending| pending.token)
    }

    fn find(&self, partner: u32, connect_seqnum: u8) -> Option<u32> {
        self.pending
            .iter()
            .find(|(_, pending)| pending.partner == partner && pending.connect_seqnum == connect_seqnum)
            .map(|(slot, _)| slot)
    }

    fn remove(&mut self, slot: u32) -> Option<Pending> {
        self.timers.cancel(slot);
        self.pending.remove(slot)
    }
}

/// A short packet that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    ConnectRequest {
        slot: u32,
        generation: u32,
    },
    ConnectReply {
        mac: MacAddr,
        peer: u16,
        connect: Connect,
    },
    NackLib {
        mac: MacAddr,
        peer: u16,
        dst_endpoint: u8,
        code: NackCode,
        seqnum: u16,
    },
    NackMcp {
        mac: MacAddr,
        peer: u16,
        /// The puller's endpoint: what Open-MX writes.
        src_endpoint: u8,
        code: NackCode,
        handle: u32,
        magic: u32,
    },
}

/// What both ends agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreement {
    /// The peer is foreign, or one of us announces nothing.
    Nothing,
    Extensions {
        marks: bool,
        short_acks: bool,
    },
    /// Both announce, and are set differently.
    Mismatch {
        own: Extension,
        theirs: Extension,
    },
}

fn agree(own: Option<Extension>, theirs: Option<Extension>) -> Agreement {
    let (Some(own), Some(theirs)) = (own, theirs) else {
        return Agreement::Nothing;
    };
    if own.preset != theirs.preset || own.block_frames_log2 != theirs.block_frames_log2 {
        return Agreement::Mismatch { own, theirs };
    }
    Agreement::Extensions {
        marks: own.understands_mark() && theirs.understands_mark(),
        short_acks: own.acknowledges_early() && theirs.acknowledges_early(),
    }
}

impl<P: Peers> Engine<P> {
    /// Asks for a connection to an endpoint of another interface or host; ends in [`Event::Connected`]. Costs nothing if
    /// one is there already, but is asked for again.
    ///
    /// # Errors
    /// [`SendError::UnknownPeer`], [`SendError::TooMany`].
    pub fn connect(
        &mut self,
        now: Time,
        mac: MacAddr,
        endpoint: u8,
        key: u32,
        token: Token,
    ) -> Result<PartnerId, SendError> {
        let peer = self.add_peer(mac).ok_or(SendError::UnknownPeer)?;
        if self.connects.pending.is_full() {
            return Err(SendError::TooMany);
        }
        let partner = self.make_partner(mac, endpoint, peer).ok_or(SendError::TooMany)?;
        let p = &mut self.partners[partner as usize];
        let pending = Pending {
            partner,
            key,
            token,
            connect_seqnum: p.connect_seqnum,
            sends: 0,
            first_sent: now,
            posted: now,
            give_up_ns: self.give_up_ns,
            order: self.connects.order_next,
        };
        p.connect_seqnum = p.connect_seqnum.wrapping_add(1);
        self.connects.order_next += 1;
        let slot = self.connects.pending.insert(pending).ok_or(SendError::TooMany)?;
        self.queue_connect(now, slot);
        Ok(PartnerId(partner))
    }

    /// Forgets a connect that has no answer yet. False if there is none of this name.
    pub fn cancel_connect(&mut self, token: Token) -> bool {
        let found = self.connects.pending.iter().find(|(_, pending)| pending.token == token);
        let slot = found.map(|(slot, _)| slot);
        slot.is_some_and(|slot| self.connects.remove(slot).is_some())
    }

    fn queue_connect(&mut self, now: Time, slot: u32) {
        let generation = self.connects.pending.generation(slot);
        self.queue_control(Control::ConnectRequest { slot, generation });
        let end = self
            .connects
            .pending
            .get(slot)
            .map_or(Time::MAX, |pending| pending.posted.plus_nanos(pending.give_up_ns));
        let again = now.plus_nanos(self.config.timing.connect_resend_ns);
        self.connects.timers.at_latest(slot, again.min(end));
    }

    /// A connect is due to be sent again.
    pub(super) fn connect_timeout(&mut self, now: Time, slot: u32) {
        let Some(pending) = self.connects.pending.get(slot) else {
            return;
        };
        if now.nanos_since(pending.posted) >= pending.give_up_ns {
            self.give_up(pending.partner);
            return;
        }
        self.counters.count(Counter::ResentConnects);
        self.queue_connect(now, slot);
    }

    /// Puts a short packet in the queue; beyond the limit it is left out, and what it answers comes again.
    pub(super) fn queue_control(&mut self, control: Control) {
        if self.control.len() >= self.config.limits.control_packets as usize {
            self.counters.count(Counter::DropControlFull);
            return;
        }
        self.control.push_back(control);
    }

    pub(super) fn add_peer(&mut self, mac: MacAddr) -> Option<u16> {
        if let Some(index) = self.peers.index(mac) {
            return Some(index);
        }
        let index = self.peers.index_or_add(mac)?;
        self.counters.count(Counter::PeersAdded);
        Some(index)
    }

    /// A CONNECT came in (4.2, 4.3).
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
        let reply = |status, recv_next: Seq, session| Control::ConnectReply {
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
        let session = self.config.session;
        let agreement = agree(own, connect.extension);
        if let Agreement::Mismatch { own, theirs } = agreement {
            self.counters.count(Counter::DropConnectMismatch);
            self.tell_mismatch(head.src, connect.src_endpoint, own, theirs);
            self.queue_control(reply(ConnectKind::STATUS_BAD_KEY, Seq::FIRST, session));
            return;
        }
        if key != self.config.key {
            self.counters.count(Counter::DropConnectBadKey);
            self.queue_control(reply(ConnectKind::STATUS_BAD_KEY, Seq::FIRST, session));
            return;
        }
        if connect.src_session == SESSION_NONE {
            self.counters.count(Counter::DropBadSession);
            return;
        }
        let Some(slot) = self.make_partner(head.src, connect.src_endpoint, peer) else {
            return;
        };
        self.counters.count(Counter::RecvConnectRequest);
        let start = Seq(connect.recv_seqnum_start);
        let p = &self.partners[slot as usize];
        let new_instance = p.back != SESSION_NONE && p.back != connect.src_session;
        // The peer gave up and we did not: it counts a later conversation. Earlier ones are late duplicates.
        let later = start.session().wrapping_sub(p.send_next.session()) & 3;
        let new_conversation = p.forward == connect.src_session && (later == 1 || later == 2);
        if new_instance || new_conversation {
            self.end_conversation(slot);
        }
        let p = &mut self.partners[slot as usize];
        if p.back != connect.src_session {
            p.restart_receiving(p.recv_next.restarted());
        }
        if p.forward != connect.src_session || new_conversation {
            p.restart_sending(start);
        }
        p.forward = connect.src_session;
        p.back = connect.src_session;
        p.known = true;
        p.set_agreement(agreement);
        let recv_next = p.recv_next;
        self.queue_control(reply(ConnectKind::STATUS_SUCCESS, recv_next, session));
        self.pump(slot);
    }

    fn handle_reply(&mut self, now: Time, head: &Head, connect: &Connect, session: u32, status: u8) {
        let stray = Counter::DropStrayConnectReply;
        let Some(slot) = self.find_partner(head.src, connect.src_endpoint) else {
            self.counters.count(stray);
            return;
        };
        let found = self.connects.find(slot, connect.connect_seqnum);
        let agreement = agree(self.config.extension, connect.extension);
        let outcome = match (status, agreement) {
            (_, Agreement::Mismatch { .. }) => Status::BadConnection,
            (ConnectKind::STATUS_SUCCESS, _) if session != SESSION_NONE => Status::Success,
            (ConnectKind::STATUS_BAD_KEY, _) => Status::BadKey,
            _ => {
                self.counters.count(stray);
                return;
            }
        };
        let (true, Some(found)) = (connect.src_session == self.config.session, found) else {
            self.counters.count(stray);
            return;
        };
        let Some(pending) = self.connects.remove(found) else {
            return;
        };
        self.counters.count(Counter::RecvConnectReply);
        if let Agreement::Mismatch { own, theirs } = agreement {
            self.counters.count(Counter::DropConnectMismatch);
            self.tell_mismatch(head.src, connect.src_endpoint, own, theirs);
        }
        if outcome == Status::Success {
            self.connected(slot, connect, session, agreement);
            if pending.sends == 1 {
                let p = &mut self.partners[slot as usize];
                let took_ns = now.nanos_since(pending.first_sent);
                p.rtt.sample(took_ns);
                p.path.sample(took_ns);
            }
        }
        self.events.push_back(Event::Connected {
            token: pending.token,
            partner: PartnerId(slot),
            status: outcome,
        });
        if outcome == Status::Success {
            self.pump(slot);
        }
    }

    fn connected(&mut self, slot: u32, connect: &Connect, session: u32, agreement: Agreement) {
        self.settle_partner(slot);
        let p = &self.partners[slot as usize];
        if p.back != SESSION_NONE && p.back != session {
            self.end_conversation(slot);
        }
        let start = Seq(connect.recv_seqnum_start);
        let p = &mut self.partners[slot as usize];
        // Nothing was sent since the numbers were agreed: the newer word of the peer holds.
        let unused = p.unacked.is_empty() && p.send_next == p.unacked_first && p.acknum_in == 0;
        // An endpoint that connects to itself has begun to receive anew since it asked, and says so first here.
        let is_own = p.mac == self.config.mac && p.endpoint == self.config.endpoint;
        let is_newer = is_own || p.send_next.same_session(start) && start.number() == Seq::FIRST.number();
        if p.forward != session || unused && is_newer {
            p.restart_sending(start);
        }
        p.forward = session;
        p.back = session;
        p.known = true;
        p.set_agreement(agreement);
    }

    fn tell_mismatch(&mut self, mac: MacAddr, endpoint: u8, own: Extension, theirs: Extension) {
        // A peer that keeps asking is told about once.
        if self.connects.mismatches.len() < MISMATCHES_MAX && !self.connects.mismatches.contains(&mac) {
            self.connects.mismatches.push(mac);
            self.events.push_back(Event::Mismatch {
                mac,
                endpoint,
                own,
                theirs,
            });
        }
    }

    /// A NACK_LIB came in (8.3).
    pub(super) fn handle_nack_lib(&mut self, head: &Head, nack: &NackLib) {
        let Some(()) = self.check_nack_peer(head) else { return };
        if nack.dst_endpoint != self.config.endpoint {
            self.counters.count(Counter::DropBadEndpoint);
            return;
        }
        let Some(slot) = self.find_partner(head.src, nack.src_endpoint) else {
            self.counters.count(Counter::DropUnknownPartner);
            return;
        };
        self.counters.count(Counter::RecvNackLib);
        let status = Status::from(nack.code);
        if self.refuse_message(slot, Seq(nack.seqnum), status) == AckOutcome::Taken {
            return;
        }
        // A message's number: a second refusal of what was sent twice. It says nothing about a connect, which has number 0 (4.5)
        // and may be answered by an endpoint that was opened in between.
        if nack.seqnum != 0 {
            return;
        }
        if let Some(token) = self.connects.remove_oldest(slot) {
            self.events.push_back(Event::Connected {
                token,
                partner: PartnerId(slot),
                status,
            });
        }
    }

    /// The peer checks of refusals: an unknown index is found by address, any other wrong one is dropped.
    pub(super) fn check_nack_peer(&mut self, head: &Head) -> Option<()> {
        if head.peer_index == crate::wire::PEER_INDEX_UNKNOWN {
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

/// Peers whose differing settings are told about, at most: later ones are only counted.
const MISMATCHES_MAX: usize = 64;

impl super::partner::Partner {
    const fn set_agreement(&mut self, agreement: Agreement) {
        (self.marks, self.short_acks) = match agreement {
            Agreement::Extensions { marks, short_acks } => (marks, short_acks),
            Agreement::Nothing | Agreement::Mismatch { .. } => (false, false),
        };
        self.is_foreign = matches!(agreement, Agreement::Nothing);
    }
}
