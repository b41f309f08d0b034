//! What is remembered of one remote endpoint, finding it, and forgetting a conversation with it (4.2, 7.6).

use ether::{MacAddr, Time};

use super::{
    Counter, Engine, Event, PartnerId, PartnerInfo, Peers, Status,
    message::{Ending, List},
    pull_window::Path,
    rtt::Rtt,
    seq::Seq,
    slab::NIL,
};
use crate::wire::SESSION_NONE;

/// One remote endpoint.
#[derive(Debug)]
pub(super) struct Partner {
    pub mac: MacAddr,
    pub endpoint: u8,
    /// Its peer's index in our table.
    pub peer: u16,
    /// A CONNECT made it a partner.
    pub known: bool,
    /// Marks are sent to it: both ends announced that they understand them.
    pub marks: bool,
    /// Both ends acknowledge within 1 ms.
    pub short_acks: bool,
    /// It announced nothing when it connected: the original Open-MX, or MX.
    pub is_foreign: bool,
    /// Session for messages to it.
    pub forward: u32,
    /// Session for acknowledgements, pulls and notifies to it.
    pub back: u32,
    /// Counts conversations, so that what began in an old one can be told.
    pub epoch: u32,

    pub send_next: Seq,
    /// Oldest number that is not acknowledged.
    pub unacked_first: Seq,
    /// The newest acknowledgement that came in, if it is in the list of those not acted on yet, and when it came.
    pub ack_in: Seq,
    pub ack_in_at: Time,
    pub ack_in_listed: bool,
    /// Posted, without a sequence number yet.
    pub queue: List,
    /// With a sequence number, in its order.
    pub unacked: List,
    /// Bytes of eager messages in `unacked`.
    pub eager_bytes: u32,
    pub waits_for_region: bool,
    pub rtt: Rtt,
    /// When the oldest unacknowledged message may have to be sent again; never later than true.
    pub rto_at: Time,

    /// Next number to match.
    pub recv_next: Seq,
    /// Oldest number that is not completely received.
    pub expected: Seq,
    /// What the last acknowledgement said.
    pub ack_sent: Seq,
    /// When a delayed acknowledgement is due.
    pub ack_at: Time,
    /// An acknowledgement is due at once.
    pub ack_now: bool,
    /// Among what was completed since the last acknowledgement is a message whose sender may wait for it.
    pub ack_awaited: bool,
    /// There is an entry in the queue of acknowledgements.
    pub ack_queued: bool,
    pub acknum_out: u32,
    pub acknum_in: u32,
    /// Partly received messages, oldest first.
    pub partials: List,
    /// When the last fragment came that completed no message.
    pub fragment_at: Time,
    /// Packets ahead of a missing one.
    pub early: List,
    /// The next packet was refused by the host and is kept.
    pub refused: bool,

    pub connect_seqnum: u8,
    /// Frames that overtook others on this path, at most.
    pub reordering: u16,
    /// Time from a PULL to its first reply: no acknowledgement is delayed in it.
    pub path: Rtt,
}

/// Reordering that is taken for granted before any was seen, in frames: the third later one tells of a loss, as in TCP.
const REORDERING_FIRST: u16 = 2;

/// Least time that a late frame is waited for once later ones have arrived: cards hold frames back for up to 75 us.
const GAP_NS_MIN: u64 = 100_000;

impl Partner {
    pub(super) const fn new(mac: MacAddr, endpoint: u8, peer: u16) -> Self {
        Self {
            mac,
            endpoint,
            peer,
            known: false,
            marks: false,
            short_acks: false,
            is_foreign: false,
            forward: SESSION_NONE,
            back: SESSION_NONE,
            epoch: 0,
            send_next: Seq::FIRST,
            unacked_first: Seq::FIRST,
            ack_in: Seq::FIRST,
            ack_in_at: Time::ZERO,
            ack_in_listed: false,
            queue: List::EMPTY,
            unacked: List::EMPTY,
            eager_bytes: 0,
            waits_for_region: false,
            rtt: Rtt::NEW,
            rto_at: Time::MAX,
            recv_next: Seq::FIRST,
            expected: Seq::FIRST,
            ack_sent: Seq::FIRST,
            ack_at: Time::MAX,
            ack_now: false,
            ack_awaited: false,
            ack_queued: false,
            acknum_out: 0,
            acknum_in: 0,
            partials: List::EMPTY,
            fragment_at: Time::ZERO,
            early: List::EMPTY,
            refused: false,
            connect_seqnum: 0,
            reordering: REORDERING_FIRST,
            path: Rtt::NEW,
        }
    }

    /// Complete messages that were not acknowledged yet.
    #[inline]
    pub(super) const fn ack_pending(&self) -> u16 {
        self.expected.since(self.ack_sent)
    }

    /// What pulls need to know to tell late from lost.
    pub(super) const fn late_or_lost(&self, longest_ns: u64, after_silence: bool) -> Path {
        // A path that was silent is empty.
        let expected_ns = if after_silence {
            self.path.min_ns()
        } else {
            self.path.srtt_ns()
        };
        Path {
            reordering: self.reordering,
            shortest_ns: expected_ns as u64 * 3 / 4,
            longest_ns,
        }
    }

    /// A pull in which something is missing and nothing arrived for this long has lost it, in nanoseconds.
    pub(super) fn gap_ns(&self) -> u64 {
        (2 * u64::from(self.path.srtt_ns())).max(GAP_NS_MIN)
    }

    /// After this much silence of a pull its oldest missing frame is asked for, in nanoseconds; `None` before any
    /// round trip was measured.
    pub(super) fn probe_ns(&self) -> Option<u64> {
        (self.path.srtt_ns() != 0).then(|| 2 * self.gap_ns())
    }

    /// Sets both receive numbers; nothing is partly received then.
    pub(super) const fn restart_receiving(&mut self, at: Seq) {
        self.recv_next = at;
        self.expected = at;
        self.ack_sent = at;
    }

    /// Sets the send numbers; nothing is unacknowledged then.
    pub(super) const fn restart_sending(&mut self, at: Seq) {
        self.send_next = at;
        self.unacked_first = at;
    }
}

/// What names a remote endpoint in one word.
const fn address(mac: MacAddr, endpoint: u8) -> u64 {
    mac.to_u64() << 8 | endpoint as u64
}

impl<P: Peers> Engine<P> {
    /// Finds a remote endpoint.
    #[inline]
    pub(super) fn find_partner(&mut self, mac: MacAddr, endpoint: u8) -> Option<u32> {
        // Frames come in trains.
        if let Some(last) = self.partners.get(self.last_partner as usize)
            && last.mac == mac
            && last.endpoint == endpoint
        {
            return Some(self.last_partner);
        }
        let found = self.partner_of.get(&address(mac, endpoint)).copied()?;
        self.last_partner = found;
        Some(found)
    }

    /// Finds or makes a remote endpoint; `None` at the limit.
    pub(super) fn make_partner(&mut self, mac: MacAddr, endpoint: u8, peer: u16) -> Option<u32> {
        if let Some(found) = self.find_partner(mac, endpoint) {
            self.partners[found as usize].peer = peer;
            return Some(found);
        }
        if self.partners.len() >= self.config.limits.partners as usize {
            self.counters.count(Counter::DropPartnersFull);
            return None;
        }
        let slot = self.partners.len() as u32;
        self.partners.push(Partner::new(mac, endpoint, peer));
        self.partner_of.insert(address(mac, endpoint), slot);
        Some(slot)
    }

    /// What is known of a partner.
    pub fn partner(&self, partner: PartnerId) -> Option<PartnerInfo> {
        let p = self.partners.get(partner.index())?;
        Some(PartnerInfo {
            mac: p.mac,
            endpoint: p.endpoint,
            session: p.forward,
            marks: p.marks,
            short_acks: p.short_acks,
            send_next: p.send_next,
            recv_next: p.recv_next,
            unacked: p.send_next.since(p.unacked_first),
            srtt_ns: p.rtt.srtt_ns(),
        })
    }

    /// Where a partner is: its board, its endpoint, and the session that messages to it name.
    #[inline]
    pub fn partner_address(&self, partner: PartnerId) -> Option<(MacAddr, u8, u32)> {
        let p = self.partners.get(partner.index())?;
        Some((p.mac, p.endpoint, p.forward))
    }

    /// The partner whose [`PartnerId::index`] this is.
    #[inline]
    pub fn partner_at(&self, index: usize) -> Option<PartnerId> {
        (index < self.partners.len()).then_some(PartnerId(index as u32))
    }

    /// Partners remembered.
    pub fn partners(&self) -> impl Iterator<Item = PartnerId> {
        (0..self.partners.len() as u32).map(PartnerId)
    }

    /// Ends the conversation: everything pending with this partner ends as unreachable.
    pub fn disconnect(&mut self, partner: PartnerId) {
        if partner.index() < self.partners.len() {
            self.give_up(partner.0);
        }
    }

    /// A request to this partner was abandoned: so is everything else, and the conversation gets a new number (7.6).
    pub(super) fn give_up(&mut self, slot: u32) {
        self.end_conversation(slot);
        while let Some(token) = self.connects.remove_oldest(slot) {
            self.events.push_back(Event::Connected {
                token,
                partner: PartnerId(slot),
                status: Status::Unreachable,
            });
        }
        let p = &mut self.partners[slot as usize];
        p.restart_receiving(p.recv_next.next_session());
        p.known = false;
        p.forward = SESSION_NONE;
        p.back = SESSION_NONE;
        p.connect_seqnum = 0;
    }

    /// Ends everything pending with a partner but connects, which its next instance can still answer.
    pub(super) fn end_conversation(&mut self, slot: u32) {
        // What the partner has said so far counts.
        self.settle_partner(slot);
        let p = &mut self.partners[slot as usize];
        let was_known = p.known;
        p.epoch = p.epoch.wrapping_add(1);
        p.acknum_out = 0;
        p.acknum_in = 0;
        p.eager_bytes = 0;
        p.waits_for_region = false;
        p.rto_at = Time::MAX;
        p.ack_at = Time::MAX;
        p.ack_now = false;
        p.ack_awaited = false;
        p.refused = false;
        p.rtt.answered();
        let (unacked, queue) = (p.unacked.take(), p.queue.take());
        let (partials, early) = (p.partials.take(), p.early.take());
        p.restart_sending(p.send_next);
        p.restart_receiving(p.recv_next);

        for first in [unacked.head, queue.head] {
            let mut at = first;
            while let Some(message) = self.messages.get(at) {
                let next = message.next;
                self.end_message(at, Status::Unreachable, 0);
                at = next;
            }
        }
        self.end_regions_of(slot);
        let mut at = partials.head;
        while at != NIL {
            let Some(partial) = self.partials.remove(at) else { break };
            self.events.push_back(Event::Received {
                receive: partial.token,
                status: Status::Unreachable,
                transferred: 0,
            });
            at = partial.next;
        }
        self.early.free_list(early.head);
        self.forget_announced_by(slot);
        if was_known {
            self.counters.count(Counter::PartnersLost);
            self.events.push_back(Event::PartnerLost {
                partner: PartnerId(slot),
            });
        }
    }

    /// Takes a message out of the pool and tells how it ended.
    pub(super) fn end_message(&mut self, slot: u32, status: Status, transferred: u32) {
        if let Some(message) = self.messages.remove(slot) {
            self.report(message.ending(), status, transferred);
        }
    }

    pub(super) fn report(&mut self, ending: Ending, status: Status, transferred: u32) {
        if ending.done {
            return;
        }
        if ending.early {
            self.zombies -= 1;
            self.early_completed_bytes -= ending.length;
        }
        if ending.is_reported(status) {
            self.events.push_back(Event::Sent {
                token: ending.token,
                status,
                transferred,
            });
        }
    }
}
