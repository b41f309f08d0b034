//! A frame comes in: decoding, the checks of section 11 in their order, and the way to the part that knows the packet.

use ether::Time;

use super::{Counter, Engine, Host, Peers, connect::Control, count_undecodable, receive::Outcome, seq::Seq};
use crate::wire::{Eager, Head, Medium, NackCode, Packet, Rndv, SESSION_NONE};

/// What every sequenced packet carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequenced {
    pub dst_endpoint: u8,
    pub src_endpoint: u8,
    pub session: u32,
    pub seqnum: u16,
    pub piggyack: u16,
    /// Its session is the one that the sender knows *back* (4.4).
    pub is_back: bool,
}

impl From<&Eager<'_>> for Sequenced {
    #[inline]
    fn from(p: &Eager<'_>) -> Self {
        Self {
            dst_endpoint: p.dst_endpoint,
            src_endpoint: p.src_endpoint,
            session: p.session,
            seqnum: p.seqnum,
            piggyack: p.piggyack,
            is_back: false,
        }
    }
}

impl From<&Medium<'_>> for Sequenced {
    fn from(p: &Medium<'_>) -> Self {
        Self {
            dst_endpoint: p.dst_endpoint,
            src_endpoint: p.src_endpoint,
            session: p.session,
            seqnum: p.seqnum,
            piggyack: p.piggyack,
            is_back: false,
        }
    }
}

impl From<&Rndv> for Sequenced {
    fn from(p: &Rndv) -> Self {
        Self {
            dst_endpoint: p.dst_endpoint,
            src_endpoint: p.src_endpoint,
            session: p.session,
            seqnum: p.seqnum,
            piggyack: p.piggyack,
            is_back: false,
        }
    }
}

/// The sequence header of a packet that has one.
#[inline]
pub(super) fn sequenced(packet: &Packet<'_>) -> Option<Sequenced> {
    Some(match packet {
        Packet::Tiny(p) | Packet::Small(p) => p.into(),
        Packet::Medium(p) => p.into(),
        Packet::Rndv(p) => p.into(),
        Packet::Notify(p) => Sequenced {
            dst_endpoint: p.dst_endpoint,
            src_endpoint: p.src_endpoint,
            session: p.session,
            seqnum: p.seqnum,
            piggyack: p.piggyack,
            is_back: true,
        },
        _ => return None,
    })
}

impl<P: Peers> Engine<P> {
    /// Takes a frame as it was received, whole and without frame check sequence. Whatever is wrong with it is counted.
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
            // Flooded by a switch, or broadcast: for the authority if for anybody.
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
            // For the authority of the interface.
            _ => self.counters.count(Counter::DropBadEndpoint),
        }
    }

    /// A short message that is what latency is about: the next one of a running conversation, with nothing before it that waits.
    /// False: it is something else, and nothing was done.
    #[inline]
    fn handle_next<H: Host>(
        &mut self,
        now: Time,
        (head, eager, is_tiny): (&Head, &Eager<'_>, bool),
        frame: &[u8],
        host: &mut H,
    ) -> bool {
        let slot = self.last_partner;
        let Some(p) = self.partners.get(slot as usize) else {
            return false;
        };
        let (seq, ack) = (Seq(eager.seqnum), Seq(eager.piggyack));
        let is_next = seq == p.recv_next
            && p.mac == head.src
            && p.endpoint == eager.src_endpoint
            && p.known
            && !p.refused
            && p.early.is_empty()
            && ack.same_session(p.send_next)
            && eager.session == self.config.session
            && eager.dst_endpoint == self.config.endpoint
            && head.dst == self.config.mac
            && self.peers.mac(head.peer_index) == Some(head.src);
        if !is_next {
            return false;
        }
        self.note_ack(now, slot, ack);
        if self.accept_eager(slot, eager, is_tiny, host) == Outcome::Refused {
            self.counters.count(Counter::UnexpEventqFull);
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

    /// Peer index, endpoint, session, partner: in that order, with the refusals that belong to them.
    #[inline]
    fn admit(&mut self, head: &Head, header: &Sequenced) -> Option<u32> {
        if self.peers.mac(head.peer_index) != Some(head.src) {
            self.counters.count(Counter::DropBadPeerIndex);
            return None;
        }
        if header.dst_endpoint != self.config.endpoint {
            self.counters.count(Counter::DropBadEndpoint);
            return None;
        }
        let slot = self.find_partner(head.src, header.src_endpoint);
        let is_ours =
            header.session == self.config.session || header.is_back && self.may_leave_out(header.session, slot);
        if !is_ours {
            self.counters.count(Counter::DropBadSession);
            self.queue_control(Control::NackLib {
                mac: head.src,
                peer: head.peer_index,
                dst_endpoint: header.src_endpoint,
                code: NackCode::BadSession,
                seqnum: header.seqnum,
            });
            return None;
        }
        let slot = slot.filter(|slot| self.partners[*slot as usize].known);
        if slot.is_none() {
            self.counters.count(Counter::DropUnknownPartner);
        }
        slot
    }

    /// Whether a packet that names no session, where the sender's *back* session belongs, is all the same for this endpoint: what an
    /// Open-MX sends to which nobody sent a CONNECT (4.3).
    pub(super) fn may_leave_out(&self, session: u32, partner: Option<u32>) -> bool {
        let partner = partner.and_then(|slot| self.partners.get(slot as usize));
        session == SESSION_NONE && partner.is_some_and(|p| p.known && p.is_foreign)
    }

    /// The conversation, the acknowledgement, then the message.
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
        let p = &self.partners[slot as usize];
        if !seq.same_session(p.recv_next) || !ack.same_session(p.send_next) {
            self.counters.count(Counter::DropOldConversation);
            return;
        }
        self.note_ack(now, slot, ack);
        if matches!(packet, Packet::Notify(_)) {
            // The end of a large message comes after the acknowledgement of its announcement.
            self.settle_partner(slot);
        }
        self.receive(now, slot, seq, packet, frame, host);
    }
}
