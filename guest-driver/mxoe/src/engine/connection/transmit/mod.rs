//! The sending side of messages (3.1, 7.1, 7.2): the records of posted messages, their numbers, the queue of frames to be
//! sent, and the messages that acknowledgements and refusals end. What partners have not acknowledged is sent again by
//! `retransmission`.

mod retransmission;
mod state;

use alloc::{collections::VecDeque, vec::Vec};

use ether::Time;

pub(in crate::engine) use self::{
    retransmission::Resent,
    state::{AckPacket, SendState},
};
use super::{
    message::{Ending, Kind, List, Message},
    patience::Patience,
};
use crate::engine::{
    Counter, Counters, Limits, SendId, Token,
    seq::Seq,
    slab::{NIL, Slab},
};

/// The obstacle between the first queued message of a partner and its number.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Numbering {
    /// There is none: the message has its number.
    Done,
    /// There is no message.
    Empty,
    /// The window is full, or the eager bytes are used up.
    Full,
    /// It is a large message and needs a region first.
    NeedsRegion {
        message: u32,
        token: Token,
        length: u32,
        give_up_ns: u64,
    },
}

/// A message that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Acknowledged {
    /// The message is over.
    Over(Option<Ending>),
    /// The message announces a large one, whose end is still to come.
    Announced { region: u8 },
}

/// The fate of a message that the partner refused.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Refusal {
    /// The number names no message that was sent.
    NotOurs,
    /// It was refused before.
    Again,
    /// The message is over, and so is its region if it had one.
    Over { ending: Ending, region: Option<u8> },
}

/// Counts messages that completed for the program before they were acknowledged.
#[derive(Debug, Default)]
struct EarlyCompletions {
    count: u32,
    bytes: u32,
}

/// The messages of an endpoint, from posting to their end.
#[derive(Debug)]
pub(in crate::engine) struct Transmitter {
    messages: Slab<Message>,
    /// Messages that are to be sent, or sent again.
    queue: VecDeque<(u32, u32)>,
    early: EarlyCompletions,
    /// Partners whose newest acknowledgement was read and is not acted on yet.
    unsettled: Vec<u32>,
    patience: Patience,
}

impl Transmitter {
    pub(in crate::engine) const fn new(limits: &Limits) -> Self {
        // Ends of large messages must always find room: there are at most as many as announcements.
        let messages = limits
            .sends
            .saturating_add(limits.announced)
            .saturating_add(limits.pulls);
        Self {
            messages: Slab::new(messages),
            queue: VecDeque::new(),
            early: EarlyCompletions { count: 0, bytes: 0 },
            unsettled: Vec::new(),
            patience: Patience::NEW,
        }
    }

    /// Returns how many messages are not over.
    #[inline]
    pub(in crate::engine) const fn len(&self) -> u32 {
        self.messages.len()
    }

    /// Whether every message is over.
    pub(in crate::engine) const fn is_idle(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether no message is to be sent now.
    #[inline]
    pub(in crate::engine) fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether every acknowledgement that came in was acted on.
    #[inline]
    pub(in crate::engine) const fn is_settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// Returns the memory in use, in bytes.
    pub(in crate::engine) fn memory(&self) -> usize {
        self.messages.memory()
            + self.queue.capacity() * size_of::<(u32, u32)>()
            + self.unsettled.capacity() * size_of::<u32>()
    }

    /// Whether a message of `length` bytes may complete before it is acknowledged.
    #[inline]
    pub(in crate::engine) const fn has_room_for_early(&self, length: u32, limits: &Limits) -> bool {
        self.early.count < limits.zombies && self.early.bytes.saturating_add(length) <= limits.early_completed_bytes
    }

    /// Puts a message behind the others of its partner; `None` at the limit.
    #[inline]
    pub(in crate::engine) fn append(&mut self, state: &mut SendState, message: Message) -> Option<u32> {
        let slot = self.messages.insert(message)?;
        let tail = core::mem::replace(&mut state.queue.tail, slot);
        if tail == NIL {
            state.queue.head = slot;
        } else if let Some(before) = self.messages.get_mut(tail) {
            before.next = slot;
        }
        Some(slot)
    }

    /// Puts a message in front of the others of its partner that have no number; `None` at the limit.
    pub(in crate::engine) fn prepend(&mut self, state: &mut SendState, message: Message) -> Option<u32> {
        let slot = self.messages.insert(message)?;
        let next = core::mem::replace(&mut state.queue.head, slot);
        if next == NIL {
            state.queue.tail = slot;
        }
        if let Some(message) = self.messages.get_mut(slot) {
            message.next = next;
        }
        Some(slot)
    }

    /// Sets the bytes of a message that is posted with them.
    #[inline]
    pub(in crate::engine) fn set_data(&mut self, slot: u32, data: &[u8]) {
        if let Some(message) = self.messages.get_mut(slot) {
            message.data[..data.len()].copy_from_slice(data);
        }
    }

    /// Returns the name of a message.
    #[inline]
    pub(in crate::engine) fn id(&self, slot: u32) -> SendId {
        SendId {
            slot,
            generation: self.messages.generation(slot),
        }
    }

    /// Completes a message for the program.
    #[inline]
    pub(in crate::engine) fn complete_early(&mut self, slot: u32) {
        if let Some(message) = self.messages.get_mut(slot) {
            message.early = true;
            self.early.count += 1;
            self.early.bytes += message.length;
        }
    }

    /// Gives the first queued message of a partner its number, if it may have one.
    #[inline]
    pub(in crate::engine) fn number_next(&mut self, state: &mut SendState, limits: &Limits) -> Numbering {
        let at = state.queue.head;
        let Some(message) = self.messages.get_mut(at) else {
            return Numbering::Empty;
        };
        let bytes = message.eager_bytes();
        if !state.has_room_for(bytes, limits) {
            return Numbering::Full;
        }
        if let Kind::Rndv { region: None } = message.kind {
            return Numbering::NeedsRegion {
                message: at,
                token: message.token,
                length: message.length,
                give_up_ns: message.give_up_ns,
            };
        }
        message.seq = state.next;
        message.queued = true;
        state.next = state.next.plus(1);
        state.eager_bytes += bytes;
        state.queue.head = message.next;
        message.next = NIL;
        if state.queue.head == NIL {
            state.queue.tail = NIL;
        }
        self.send_numbered(state, at);
        Numbering::Done
    }

    /// Puts a message with a number behind those of its partner that are not acknowledged, and in the queue of frames.
    #[inline]
    fn send_numbered(&mut self, state: &mut SendState, at: u32) {
        let tail = core::mem::replace(&mut state.unacked.tail, at);
        if tail == NIL {
            state.unacked.head = at;
        } else if let Some(before) = self.messages.get_mut(tail) {
            before.next = at;
        }
        self.queue.push_back((at, self.messages.generation(at)));
    }

    /// Takes a message over that has its number and may have been sent; one that is acknowledged waits for its end alone. `None` at the
    /// limit.
    pub(in crate::engine) fn take_over(
        &mut self,
        state: &mut SendState,
        mut message: Message,
        is_acknowledged: bool,
    ) -> Option<u32> {
        let bytes = message.eager_bytes();
        message.queued = !is_acknowledged;
        let at = self.messages.insert(message)?;
        if !is_acknowledged {
            state.eager_bytes = state.eager_bytes.saturating_add(bytes);
            self.send_numbered(state, at);
        }
        Some(at)
    }

    /// Puts a message in the queue of frames again, unless it is there.
    pub(in crate::engine) fn send_again(&mut self, at: u32) {
        let generation = self.messages.generation(at);
        if let Some(message) = self.messages.get_mut(at).filter(|message| !message.queued) {
            message.queued = true;
            self.queue.push_back((at, generation));
        }
    }

    /// Ends a message as if it had never been: nothing waits for it.
    pub(in crate::engine) fn forget(&mut self, at: u32) {
        if let Some(message) = self.messages.get_mut(at) {
            message.done = true;
        }
    }

    /// Returns the messages of a partner that have their numbers and are not acknowledged, in order.
    pub(in crate::engine) fn unacked(&self, state: &SendState) -> impl Iterator<Item = &Message> {
        core::iter::successors(self.messages.get(state.unacked.head), |message| {
            self.messages.get(message.next)
        })
    }

    /// Gives a large message its region.
    pub(in crate::engine) fn set_region(&mut self, slot: u32, region: u8) {
        if let Some(message) = self.messages.get_mut(slot) {
            message.kind = Kind::Rndv { region: Some(region) };
        }
    }

    /// Notes that everything before `ack` is completely received by the partner. It is acted on when there is nothing
    /// to send, or before it matters ([`Transmitter::poll_noted`]), so that a program does not wait for this when it
    /// waits for a message.
    #[inline]
    pub(in crate::engine) fn note_ack(
        &mut self,
        now: Time,
        slot: u32,
        state: &mut SendState,
        ack: Seq,
        counters: &mut Counters,
    ) {
        let before = if state.is_listed {
            state.noted
        } else {
            state.unacked_first
        };
        let count = ack.since(before);
        if count == 0 {
            return;
        }
        if count > state.next.since(before) {
            counters.count(Counter::DropOldAck);
            return;
        }
        state.retransmission.rtt.answered();
        state.noted = ack;
        state.noted_at = now;
        if !state.is_listed {
            state.is_listed = true;
            self.unsettled.push(slot);
        }
    }

    /// Returns a partner with an acknowledgement that was noted; it stays in the list until
    /// [`Transmitter::take_noted`].
    #[inline]
    pub(in crate::engine) fn poll_noted(&self) -> Option<u32> {
        self.unsettled.last().copied()
    }

    /// Takes the noted acknowledgement of a partner, and the time when it came.
    #[inline]
    pub(in crate::engine) fn take_noted(&mut self, slot: u32, state: &mut SendState) -> Option<(Time, Seq)> {
        if !core::mem::take(&mut state.is_listed) {
            return None;
        }
        self.unsettled.retain(|listed| *listed != slot);
        Some((state.noted_at, state.noted))
    }

    /// Takes out the next message before `ack`, and notes in `sent` when it was sent if it was sent once.
    #[inline]
    pub(in crate::engine) fn pop_acknowledged(
        &mut self,
        state: &mut SendState,
        ack: Seq,
        sent: &mut Option<Time>,
        counters: &mut Counters,
    ) -> Option<Acknowledged> {
        let at = state.unacked.head;
        let message = self.messages.get(at)?;
        // From `ack` up to the next number: not acknowledged.
        if message.seq.since(ack) < state.next.since(ack) {
            return None;
        }
        state.unacked.head = message.next;
        if state.unacked.head == NIL {
            state.unacked.tail = NIL;
        }
        state.eager_bytes -= message.eager_bytes();
        match message.sent.times {
            1 => *sent = Some(message.sent.last_at),
            _ => state.repeated = Some(message.sent),
        }
        if message.sent.times == 0 {
            // Acknowledged without having been sent: a peer that lies gets what it asked for.
            counters.count(Counter::DropOldAck);
        }
        match message.kind {
            Kind::Rndv { region: Some(region) } if !message.done => Some(Acknowledged::Announced { region }),
            _ => Some(Acknowledged::Over(self.remove(at))),
        }
    }

    /// Takes out a message that is over; `None` if its end was reported already.
    #[inline]
    pub(in crate::engine) fn remove(&mut self, slot: u32) -> Option<Ending> {
        let message = self.messages.remove(slot)?;
        self.ended(message.ending())
    }

    /// Counts the end of a message once.
    #[inline]
    const fn ended(&mut self, ending: Ending) -> Option<Ending> {
        if ending.done {
            return None;
        }
        if ending.early {
            self.early.count -= 1;
            self.early.bytes -= ending.length;
        }
        Some(ending)
    }

    /// Handles the partner's refusal of the message with this number. [`Transmitter::drop_done`] follows.
    pub(in crate::engine) fn refuse(&mut self, state: &SendState, seq: Seq) -> Refusal {
        let reach = state.next.since(state.unacked_first);
        if !seq.same_session(state.next) || seq.since(state.unacked_first) >= reach {
            return Refusal::NotOurs;
        }
        let mut at = state.unacked.head;
        while let Some(message) = self.messages.get(at) {
            if message.seq == seq {
                break;
            }
            at = message.next;
        }
        let Some(message) = self.messages.get_mut(at) else {
            return Refusal::NotOurs;
        };
        let ending = message.ending();
        message.done = true;
        let region = match message.kind {
            Kind::Rndv { region } => region,
            _ => None,
        };
        match self.ended(ending) {
            Some(ending) => Refusal::Over { ending, region },
            None => Refusal::Again,
        }
    }

    /// Drops the refused messages at the head of the list: they are over, since nothing acknowledges them.
    pub(in crate::engine) fn drop_done(&mut self, state: &mut SendState) {
        loop {
            let at = state.unacked.head;
            let Some(message) = self.messages.get(at).filter(|message| message.done) else {
                return;
            };
            state.unacked.head = message.next;
            if state.unacked.head == NIL {
                state.unacked.tail = NIL;
            }
            state.unacked_first = message.seq.plus(1);
            state.eager_bytes -= message.eager_bytes();
            self.messages.remove(at);
        }
    }

    /// Takes out any message of a partner whose conversation is over; `Some(None)`: its end was reported already.
    pub(in crate::engine) fn pop_any(&mut self, state: &mut SendState) -> Option<Option<Ending>> {
        for list in [&mut state.unacked, &mut state.queue] {
            if let Some(message) = self.messages.get(list.head) {
                let at = core::mem::replace(&mut list.head, message.next);
                return Some(self.remove(at));
            }
            *list = List::EMPTY;
        }
        None
    }

    /// Returns the message whose frame is to be sent next; it stays in the queue until [`Transmitter::sent`] or
    /// [`Transmitter::skip`].
    #[inline]
    pub(in crate::engine) fn poll_queue(&mut self) -> Option<u32> {
        loop {
            let (at, generation) = *self.queue.front()?;
            if self.messages.is_current(at, generation) && self.messages.get(at).is_some_and(|message| !message.done) {
                return Some(at);
            }
            self.queue.pop_front();
        }
    }

    /// Returns the record of a message.
    #[inline]
    pub(in crate::engine) fn get(&self, slot: u32) -> Option<&Message> {
        self.messages.get(slot)
    }

    /// Skips the message that [`Transmitter::poll_queue`] named, which cannot be sent now.
    pub(in crate::engine) fn skip(&mut self) {
        self.queue.pop_front();
    }

    /// Notes that a frame of the message at the head of the queue went out. For the last one, returns its partner and
    /// when it is given up.
    #[inline]
    pub(in crate::engine) fn sent(&mut self, now: Time, at: u32, last_fragment: bool) -> Option<(u32, Time)> {
        let message = self.messages.get_mut(at)?;
        if !last_fragment {
            message.cursor += 1;
            return None;
        }
        self.queue.pop_front();
        message.cursor = 0;
        message.queued = false;
        if message.sent.times == 0 {
            message.sent.first_at = now;
        }
        message.sent.times = message.sent.times.saturating_add(1);
        message.sent.last_at = now;
        Some((message.partner, now.plus_nanos(message.give_up_ns)))
    }
}
