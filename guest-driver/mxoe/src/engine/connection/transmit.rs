//! The sending side of messages (3.1, 7.1, 7.2, 7.4): the records of posted messages, their numbers, the queue of
//! frames to be sent, the messages that acknowledgements and refusals end, and retransmission.

use alloc::{collections::VecDeque, vec::Vec};

use ether::Time;

use super::{
    message::{Ending, Kind, List, Message},
    rtt::Rtt,
};
use crate::engine::{
    Counter, Counters, Limits, SendId, Timing, Token,
    seq::Seq,
    slab::{NIL, Slab},
};

/// At most this many messages per partner are unacknowledged (7.1).
const WINDOW: u16 = 8191;

/// The send state of one partner.
#[derive(Debug)]
pub(in crate::engine) struct SendState {
    /// Number of the next message.
    next: Seq,
    /// Oldest number that is not acknowledged.
    unacked_first: Seq,
    /// The newest acknowledgement that came in, if it is in the list of those not acted on yet, and the time when it
    /// came.
    noted: Seq,
    noted_at: Time,
    is_listed: bool,
    /// Posted messages without a sequence number.
    queue: List,
    /// Messages with a sequence number, in its order.
    unacked: List,
    /// Bytes of eager messages in `unacked`.
    eager_bytes: u32,
    /// The first message in `queue` waits for a region.
    waits_for_region: bool,
    rtt: Rtt,
    /// The time when the oldest unacknowledged message may have to be sent again; it may be too early, but never too
    /// late.
    resend_at: Time,
    /// This is the number of the newest packet that carried only an acknowledgement.
    ack_packet: u32,
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
        rtt: Rtt::NEW,
        resend_at: Time::MAX,
        ack_packet: 0,
    };

    /// Returns the number of the next message.
    #[inline]
    pub(in crate::engine) const fn next(&self) -> Seq {
        self.next
    }

    /// Returns how many messages were sent and not acknowledged.
    #[inline]
    pub(in crate::engine) const fn unacked(&self) -> u16 {
        self.next.since(self.unacked_first)
    }

    /// Returns the round trips of messages and their acknowledgements.
    #[inline]
    pub(in crate::engine) const fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Notes a round trip that was not measured by a message.
    pub(in crate::engine) fn sample_rtt(&mut self, rtt_ns: u64) {
        self.rtt.sample(rtt_ns);
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

    /// Returns when the oldest unacknowledged message may have to be sent again.
    #[inline]
    pub(in crate::engine) const fn resend_at(&self) -> Time {
        self.resend_at
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

    /// Handles an acknowledgement of everything before `ack`: [`Transmitter::pop_acknowledged`] then takes the messages
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
        self.rtt.answered();
        true
    }

    /// Takes the sample of an acknowledgement that came at `now` for a message that was sent once, at `sent`, if there
    /// was one.
    #[inline]
    pub(in crate::engine) fn sample_acknowledged(&mut self, now: Time, sent: Option<Time>) {
        if let Some(sent) = sent {
            self.rtt.sample(now.nanos_since(sent));
        }
    }

    /// A message of this partner is in flight and is given up at `deadline`: arms the retransmission timer, if it is
    /// due sooner than the one that runs.
    #[inline]
    pub(in crate::engine) fn arm_resend(
        &mut self,
        now: Time,
        deadline: Time,
        timing: &Timing,
        short_acks: bool,
    ) -> Option<Time> {
        // The time-out is not shorter than that: the one that runs comes first.
        if self.resend_at <= now.plus_nanos(timing.rto_min_short_ns).min(deadline) {
            return None;
        }
        let resend_at = now.plus_nanos(self.rtt.rto_ns(timing, short_acks)).min(deadline);
        if resend_at >= self.resend_at {
            return None;
        }
        self.resend_at = resend_at;
        Some(resend_at)
    }

    /// Ends the conversation: the messages are to be taken out with [`Transmitter::pop_any`].
    pub(in crate::engine) fn end_conversation(&mut self) {
        self.ack_packet = 0;
        self.eager_bytes = 0;
        self.waits_for_region = false;
        self.resend_at = Time::MAX;
        self.rtt.answered();
        self.restart(self.next);
    }
}

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

/// What [`Transmitter::handle_timeout`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Resent {
    /// This many messages are to be sent again.
    Messages(u32),
    /// A message waited for its acknowledgement for too long.
    GivenUp,
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
        let tail = core::mem::replace(&mut state.unacked.tail, at);
        if tail == NIL {
            state.unacked.head = at;
        } else if let Some(before) = self.messages.get_mut(tail) {
            before.next = at;
        }
        self.queue.push_back((at, self.messages.generation(at)));
        Numbering::Done
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
        state.rtt.answered();
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
        if message.sent.times == 1 {
            *sent = Some(message.sent.last_at);
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

    /// Queues every message of a partner again that was sent long enough ago (7.4), and finds when the next one will be due.
    pub(in crate::engine) fn handle_timeout(
        &mut self,
        now: Time,
        state: &mut SendState,
        timing: &Timing,
        short_acks: bool,
    ) -> Resent {
        let rto = state.rtt.rto_ns(timing, short_acks);
        state.resend_at = Time::MAX;
        let mut next = Time::MAX;
        let mut resent = 0u32;
        let mut at = state.unacked.head;
        while let Some(message) = self.messages.get_mut(at) {
            let this = at;
            at = message.next;
            if message.sent.times == 0 || message.queued || message.done {
                continue;
            }
            let deadline = message.sent.first_at.plus_nanos(message.give_up_ns);
            if deadline <= now {
                return Resent::GivenUp;
            }
            let due = message.sent.last_at.plus_nanos(rto);
            if due <= now {
                message.queued = true;
                resent += 1;
                self.queue.push_back((this, self.messages.generation(this)));
                next = next.min(deadline);
            } else {
                next = next.min(due).min(deadline);
            }
        }
        if resent > 0 {
            state.rtt.unanswered();
        }
        state.resend_at = next;
        Resent::Messages(resent)
    }

    /// Limits one message that is not over to this time; returns what the other parts have to know.
    pub(in crate::engine) fn set_give_up(&mut self, send: SendId, give_up_ns: u64) -> Option<GiveUp> {
        if !self.messages.is_current(send.slot, send.generation) {
            return None;
        }
        let message = self.messages.get_mut(send.slot)?;
        message.give_up_ns = give_up_ns;
        if message.sent.times == 0 {
            return None;
        }
        Some(GiveUp {
            partner: message.partner,
            due: message.sent.first_at.plus_nanos(give_up_ns),
            region: match message.kind {
                Kind::Rndv { region } => region,
                _ => None,
            },
        })
    }
}

/// The changes that follow from a new limit for a message.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct GiveUp {
    pub partner: u32,
    /// When the message is given up.
    pub due: Time,
    /// Its region, if it has one.
    pub region: Option<u8>,
}
