//! The send state of one partner: the numbers of its messages and what is acknowledged of them (7.1, 7.2).

use ether::Time;

use super::{
    super::message::{List, Sent},
    retransmission::Retransmission,
};
use crate::engine::{Counter, Counters, Limits, seq::Seq, slab::NIL};

/// At most this many messages per partner are unacknowledged (7.1).
const WINDOW: u16 = 8191;

/// The send state of one partner.
#[derive(Debug)]
pub(in crate::engine) struct SendState {
    /// Number of the next message.
    pub(super) next: Seq,
    /// Oldest number that is not acknowledged.
    pub(super) unacked_first: Seq,
    /// The newest acknowledgement that came in, if it is in the list of those not acted on yet, and the time when it
    /// came.
    pub(super) noted: Seq,
    pub(super) noted_at: Time,
    pub(super) is_listed: bool,
    /// Posted messages without a sequence number.
    pub(super) queue: List,
    /// Messages with a sequence number, in its order.
    pub(super) unacked: List,
    /// Bytes of eager messages in `unacked`.
    pub(super) eager_bytes: u32,
    /// The first message in `queue` waits for a region.
    waits_for_region: bool,
    pub(in crate::engine) retransmission: Retransmission,
    /// This is the number of the newest packet that carried only an acknowledgement.
    ack_packet: u32,
    /// How a message was sent that the last acknowledgement was for, if it was sent more than once.
    pub(super) repeated: Option<Sent>,
}

/// The meaning of the number of a packet that carries only an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum AckPacket {
    New,
    Old,
    OtherConversation,
}

impl SendState {
    /// The state before anything was sent.
    pub(in crate::engine) const NEW: Self = Self {
        next: Seq::FIRST,
        unacked_first: Seq::FIRST,
        noted: Seq::FIRST,
        noted_at: Time::ZERO,
        is_listed: false,
        queue: List::EMPTY,
        unacked: List::EMPTY,
        eager_bytes: 0,
        waits_for_region: false,
        retransmission: Retransmission::NEW,
        ack_packet: 0,
        repeated: None,
    };

    /// Returns the number of the next message.
    #[inline]
    pub(in crate::engine) const fn next(&self) -> Seq {
        self.next
    }

    /// Returns the oldest number that is not acknowledged.
    pub(in crate::engine) const fn unacked_first(&self) -> Seq {
        self.unacked_first
    }

    /// Returns the number of the newest packet that carried only an acknowledgement.
    pub(in crate::engine) const fn ack_packet(&self) -> u32 {
        self.ack_packet
    }

    /// Goes on with these numbers; messages in between are to be added with [`super::Transmitter::take_over`].
    pub(in crate::engine) const fn take_over(&mut self, next: Seq, unacked_first: Seq, ack_packet: u32) {
        self.next = next;
        self.unacked_first = unacked_first;
        self.ack_packet = ack_packet;
    }

    /// Returns how many messages were sent and not acknowledged.
    #[inline]
    pub(in crate::engine) const fn unacked(&self) -> u16 {
        self.next.since(self.unacked_first)
    }

    /// Whether messages wait for their numbers.
    #[inline]
    pub(in crate::engine) const fn has_queue(&self) -> bool {
        self.queue.head != NIL
    }

    /// Whether this message has its number.
    #[inline]
    pub(in crate::engine) const fn has_numbered_last(&self, slot: u32) -> bool {
        self.queue.tail != slot
    }

    /// Returns the message that has the last number, if it is not over.
    #[inline]
    pub(in crate::engine) const fn numbered_last(&self) -> u32 {
        self.unacked.tail
    }

    /// Whether an eager message of so many bytes may be numbered next.
    #[inline]
    pub(in crate::engine) const fn has_room_for(&self, bytes: u32, limits: &Limits) -> bool {
        self.next.since(self.unacked_first) < WINDOW
            && (self.eager_bytes == 0 || self.eager_bytes.saturating_add(bytes) <= limits.eager_bytes_per_partner)
    }

    /// Whether an acknowledgement came in that was not acted on yet.
    #[inline]
    pub(in crate::engine) const fn has_noted_ack(&self) -> bool {
        self.is_listed
    }

    /// Whether nothing was sent since the numbers were agreed.
    pub(in crate::engine) const fn is_unused(&self) -> bool {
        self.unacked.is_empty() && self.next.0 == self.unacked_first.0 && self.ack_packet == 0
    }

    /// Sets the numbers; nothing is unacknowledged then.
    pub(in crate::engine) const fn restart(&mut self, at: Seq) {
        self.next = at;
        self.unacked_first = at;
    }

    /// Notes that the partner waits for a region. False: it did already.
    pub(in crate::engine) const fn wait_for_region(&mut self) -> bool {
        !core::mem::replace(&mut self.waits_for_region, true)
    }

    /// Notes that the partner does not wait for a region any more.
    pub(in crate::engine) const fn stop_waiting(&mut self) {
        self.waits_for_region = false;
    }

    /// Handles a packet that carries only an acknowledgement, with this number.
    pub(in crate::engine) const fn handle_ack_packet(&mut self, value: Seq, number: u32) -> AckPacket {
        if !value.same_session(self.next) {
            return AckPacket::OtherConversation;
        }
        if number.wrapping_sub(self.ack_packet) as i32 <= 0 {
            return AckPacket::Old;
        }
        self.ack_packet = number;
        AckPacket::New
    }

    /// Handles an acknowledgement of everything before `ack`: [`super::Transmitter::pop_acknowledged`] then takes the messages
    /// one by one. False: nothing is acknowledged by it.
    pub(in crate::engine) fn handle_ack(&mut self, ack: Seq, counters: &mut Counters) -> bool {
        let count = ack.since(self.unacked_first);
        if count == 0 {
            return false;
        }
        if count > self.next.since(self.unacked_first) {
            counters.count(Counter::DropOldAck);
            return false;
        }
        self.unacked_first = ack;
        self.repeated = None;
        self.retransmission.rtt.answered();
        true
    }

    /// Ends the conversation: the messages are to be taken out with [`super::Transmitter::pop_any`].
    pub(in crate::engine) fn end_conversation(&mut self) {
        self.ack_packet = 0;
        self.eager_bytes = 0;
        self.waits_for_region = false;
        self.retransmission.stop();
        self.restart(self.next);
    }
}
