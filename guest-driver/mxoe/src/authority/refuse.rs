//! Refusals for endpoints that are not open, in the order of checks of section 11.

use super::{
    Ack, Answer, Authority, Connect, ConnectKind, Counter, Head, NackCode, NackLib, NackMcp, PEER_INDEX_UNKNOWN,
    Packet, Peers, Pull, Time, endpoint_of_pull_magic, sequenced,
};

impl Authority {
    pub(super) fn refuse<P: Peers>(
        &mut self,
        now: Time,
        head: &Head,
        packet: &Packet<'_>,
        peers: &mut P,
        is_open: impl Fn(u8) -> bool,
    ) {
        if let Some(message) = sequenced(packet) {
            if self.known_index(head, peers) && !is_open(message.dst_endpoint) {
                let ends = (message.dst_endpoint, message.src_endpoint, message.seqnum);
                self.nack(head, Some(head.peer_index), ends);
            }
            return;
        }
        match packet {
            Packet::Connect(p) => self.refuse_connect(now, head, p, peers, is_open),
            Packet::Pull(p) => self.refuse_pull(head, p, peers, is_open),
            Packet::Ack(Ack { dst_endpoint, .. }) => {
                if self.known_index(head, peers) && !is_open(*dst_endpoint) {
                    self.counters.count(Counter::DropBadEndpoint);
                }
            }
            Packet::PullReply(p) => {
                if !endpoint_of_pull_magic(p.magic).is_some_and(is_open) {
                    self.counters.count(Counter::DropPullReplyBadMagicEndpoint);
                }
            }
            Packet::NackLib(p) => {
                if self.nack_peer_is_known(head, peers) && !is_open(p.dst_endpoint) {
                    self.counters.count(Counter::DropBadEndpoint);
                }
            }
            Packet::NackMcp(p) => {
                if self.nack_peer_is_known(head, peers) && !endpoint_of_pull_magic(p.magic).is_some_and(is_open) {
                    self.counters.count(Counter::DropNackMcpBadMagicEndpoint);
                }
            }
            // Handled before.
            Packet::Raw(_) | Packet::HostQuery(_) | Packet::HostReply(_) => {}
            Packet::Tiny(_) | Packet::Small(_) | Packet::Medium(_) | Packet::Rndv(_) | Packet::Notify(_) => {}
        }
    }

    fn known_index<P: Peers>(&mut self, head: &Head, peers: &P) -> bool {
        let known = peers.mac(head.peer_index) == Some(head.src);
        if !known {
            self.counters.count(Counter::DropBadPeerIndex);
        }
        known
    }

    fn nack_peer_is_known<P: Peers>(&mut self, head: &Head, peers: &P) -> bool {
        let (known, counter) = if head.peer_index == PEER_INDEX_UNKNOWN {
            (peers.index(head.src).is_some(), Counter::DropBadPeerAddr)
        } else {
            (
                peers.mac(head.peer_index) == Some(head.src),
                Counter::DropNackBadPeerIndex,
            )
        };
        if !known {
            self.counters.count(counter);
        }
        known
    }

    /// Returns the code for an endpoint that cannot be reached.
    fn code_for(&self, endpoint: u8) -> NackCode {
        if u16::from(endpoint) >= self.config.endpoints {
            NackCode::BadEndpoint
        } else {
            NackCode::EndpointClosed
        }
    }

    fn refuse_connect<P: Peers>(
        &mut self,
        now: Time,
        head: &Head,
        p: &Connect,
        peers: &mut P,
        is_open: impl Fn(u8) -> bool,
    ) {
        let peer = match p.kind {
            ConnectKind::Request { .. } => self.add_peer(now, head.src, peers),
            ConnectKind::Reply { .. } => peers.index(head.src),
        };
        let Some(peer) = peer else {
            self.counters.count(Counter::DropBadPeerAddr);
            return;
        };
        peers.set_reverse(peer, p.peer_index);
        if !is_open(p.dst_endpoint) {
            self.nack(head, Some(peer), (p.dst_endpoint, p.src_endpoint, p.seqnum));
        }
    }

    fn refuse_pull<P: Peers>(&mut self, head: &Head, p: &Pull, peers: &P, is_open: impl Fn(u8) -> bool) {
        self.counters.count(Counter::RecvPullReq);
        if !self.known_index(head, peers) || is_open(p.dst_endpoint) {
            return;
        }
        self.counters.count(Counter::DropBadEndpoint);
        let nack = NackMcp {
            src_endpoint: p.src_endpoint,
            code: self.code_for(p.dst_endpoint),
            handle: p.handle,
            magic: p.magic,
        };
        self.answer(Answer::NackMcp {
            mac: head.src,
            peer: Some(head.peer_index),
            nack,
        });
    }

    fn nack(&mut self, head: &Head, peer: Option<u16>, (dst_endpoint, src_endpoint, seqnum): (u8, u8, u16)) {
        self.counters.count(Counter::DropBadEndpoint);
        let nack = NackLib {
            src_endpoint: dst_endpoint,
            dst_endpoint: src_endpoint,
            code: self.code_for(dst_endpoint),
            // Written when it is sent.
            peer_index: PEER_INDEX_UNKNOWN,
            seqnum,
        };
        self.answer(Answer::NackLib {
            mac: head.src,
            peer,
            nack,
        });
    }
}
