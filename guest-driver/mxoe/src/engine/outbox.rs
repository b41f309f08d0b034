//! The outbox: short packets and acknowledgements that wait to be sent, and events that wait for the program.

use alloc::collections::VecDeque;

use ether::MacAddr;

use super::{Counter, Counters, Event, connection::handshake::ConnectId};
use crate::wire::{Connect, NackCode};

/// A short packet that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    /// A connect request.
    ConnectRequest(ConnectId),
    /// The reply to a connect request.
    ConnectReply { mac: MacAddr, peer: u16, connect: Connect },
    /// The refusal of a message.
    NackLib {
        mac: MacAddr,
        peer: u16,
        dst_endpoint: u8,
        code: NackCode,
        seqnum: u16,
    },
    /// The refusal of a pull.
    NackMcp {
        mac: MacAddr,
        peer: u16,
        /// The puller's endpoint, as Open-MX writes it.
        src_endpoint: u8,
        code: NackCode,
        handle: u32,
        magic: u32,
    },
}

/// The packets and events that wait for [`Engine::poll_transmit`](super::Engine::poll_transmit) and
/// [`Engine::poll_event`](super::Engine::poll_event), except for messages, pulls and replies to pulls.
#[derive(Debug)]
pub(super) struct Outbox {
    control: VecDeque<Control>,
    control_max: usize,
    /// The partners to which an acknowledgement is due.
    acks: VecDeque<u32>,
    events: VecDeque<Event>,
    /// A reply was sent last, not a message: they take turns.
    reply_was_last: bool,
}

impl Outbox {
    /// Makes an outbox for at most `control_max` short packets.
    pub(super) const fn new(control_max: u32) -> Self {
        Self {
            control: VecDeque::new(),
            control_max: control_max as usize,
            acks: VecDeque::new(),
            events: VecDeque::new(),
            reply_was_last: false,
        }
    }

    /// Whether nothing waits.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.events.is_empty() && self.acks.is_empty() && self.control.is_empty()
    }

    /// Whether no short packet waits.
    pub(super) fn has_no_control(&self) -> bool {
        self.control.is_empty()
    }

    /// Whether no event waits.
    #[inline]
    pub(super) fn has_no_event(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.control.capacity() * size_of::<Control>()
            + self.acks.capacity() * size_of::<u32>()
            + self.events.capacity() * size_of::<Event>()
    }

    /// Puts a short packet in the queue; beyond the limit it is left out, and what it answers comes again.
    pub(super) fn send(&mut self, control: Control, counters: &mut Counters) {
        if self.control.len() >= self.control_max {
            counters.count(Counter::DropControlFull);
            return;
        }
        self.control.push_back(control);
    }

    /// Takes the next short packet.
    #[inline]
    pub(super) fn poll_control(&mut self) -> Option<Control> {
        self.control.pop_front()
    }

    /// Queues an acknowledgement to this partner.
    pub(super) fn acknowledge(&mut self, slot: u32) {
        self.acks.push_back(slot);
    }

    /// Takes the next partner to which an acknowledgement is due.
    #[inline]
    pub(super) fn poll_ack(&mut self) -> Option<u32> {
        self.acks.pop_front()
    }

    /// Whether it is a reply's turn, where messages wait too; the next time it is a message's.
    #[inline]
    pub(super) const fn take_turn(&mut self) -> bool {
        self.reply_was_last = !self.reply_was_last;
        self.reply_was_last
    }

    /// Queues an event.
    #[inline]
    pub(super) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Takes the next event.
    #[inline]
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
