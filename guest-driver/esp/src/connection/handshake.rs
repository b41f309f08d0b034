//! What a connection learns from its handshake, and from the answer to *moved*.

use ether::Time;

use super::{Connection, Phase};
use crate::{
    event,
    wire::{Blocks, Frame, Kind},
};

impl Connection {
    /// The peer's side of the handshake.
    pub(crate) fn learn(&mut self, instance: u64, payload_max: u16, theirs: Blocks, ours: Blocks, own_max: u16) {
        self.terms.peer_instance = instance;
        self.terms.peer_payload_max = payload_max;
        self.send.payload_max = payload_max.min(own_max);
        self.terms.blocks = ours.both(theirs);
        // Either side may ask for check sequences.
        self.terms.blocks.check = ours.check || theirs.check;
    }

    /// The handshake is complete with this frame, whose acknowledgement is of the SYN.
    pub(crate) fn open_now(&mut self, frame: &Frame<'_>, now: Time) {
        self.phase = Phase::Open;
        self.flags.control_now = false;
        self.send.unacknowledged = self.send.next;
        self.send.open(self.send.next, frame.header.window.unwrap_or(0));
        self.waiting_since = None;
        self.due.retransmit = Time::MAX;
        self.rtt.backoff = 0;
        self.heard = now;
        if !self.flags.is_control_repeated && frame.kind != Kind::Moved {
            self.rtt.measured(now.nanos_since(self.control_sent_at));
        }
    }

    /// The peer knows the port.
    pub(crate) fn settled(&mut self) {
        self.flags.control_now = false;
        self.due.retransmit = Time::MAX;
        self.waiting_since = None;
        self.rtt.backoff = 0;
        self.events |= event::SETTLED;
    }
}
