//! The multicast of one card as a machine: packets and signals come in, actions come out.
//!
//! Packets are here, credits in `credits`; what they read and write is in `table`. The driver keeps the bytes.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};

use ether::{MacAddr, Time};

use super::{
    ANNOUNCE_NS, BUFFERS_DEFAULT, BufferId, CARD_FRAME_MIN, GROUPS_MAX, GroupCounters, GroupTable, Kind, MEMBERS_MAX,
    RETRY_NS, SEND_BUFFERS, TAG_END, TableError, Tag, TagRefusal, TagRefusals,
    table::{Budget, Edge, Entry, Group, Slot},
};

/// Signals that wait to be taken by the driver, which takes all after each event. Beyond it they are left out, and said
/// again after [`RETRY_NS`].
pub(super) const SIGNALS_MAX: usize = 1024;

/// Names a row: group slot and rank of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct EntryId {
    pub(super) slot: u8,
    pub(super) rank: u8,
}

/// A frame without payload that is to be sent to another card.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Signal {
    pub(super) kind: Kind,
    pub(super) of: EntryId,
    /// Which child, for a STATE.
    pub(super) child: u8,
    pub(super) flags: u8,
}

/// What became of a frame from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It ends here: a signal, a duplicate, or refused, and counted.
    Consumed,
    /// A packet: forward it, then keep it if that is asked for, then hand it to the own guest.
    Data(Accepted),
}

/// A packet that the card takes. The driver sends it to each of [`Multicast::targets`] before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub(super) slot: u8,
    rank: u8,
    /// Bit *n*: child *n* gets it now.
    now: u8,
    own: bool,
    sequence: u32,
    /// Children wait for credits: keep the frame, as [`Multicast::prepare`] left it, in this buffer.
    pub keep: Option<BufferId>,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the frame that is kept in `buffer` to another card: its destination address is to be `to`, nothing else changes.
    Forward {
        /// Where the frame is.
        buffer: BufferId,
        /// Address of the child.
        to: MacAddr,
        /// Nobody else waits for it: the buffer is free afterwards.
        last: bool,
    },
    /// Send this frame.
    Emit([u8; CARD_FRAME_MIN]),
    /// Throw away what is kept in this buffer.
    Discard(BufferId),
}

/// The multicast of a card. After each call that takes `now`, [`poll`](Self::poll) until there is nothing more to do.
#[derive(Clone, Debug, Hash)]
pub struct Multicast {
    /// Numbers of the groups by slot; 0 = free.
    numbers: [u16; GROUPS_MAX],
    pub(super) groups: [Option<Box<Group>>; GROUPS_MAX],
    pub(super) budget: Budget,
    pub(super) slots: Box<[Slot]>,
    pub(super) free: Vec<BufferId>,
    free_own: Vec<BufferId>,
    discards: Vec<BufferId>,
    pub(super) signals: VecDeque<Signal>,
    /// Children that got credits while packets wait for them.
    pub(super) ready: VecDeque<(EntryId, u8)>,
    /// Rows whose parents wait for a credit, by class.
    pub(super) askers: [VecDeque<EntryId>; 2],
    pub(super) retry_at: Option<Time>,
    announce_at: Option<Time>,
    refusals: TagRefusals,
    /// What was counted in groups that the card left.
    gone: GroupCounters,
}

impl Default for Multicast {
    fn default() -> Self {
        Self::new(BUFFERS_DEFAULT)
    }
}

impl Multicast {
    /// The multicast of a card with so many forwarding buffers, at most [`BUFFERS_MAX`](super::BUFFERS_MAX), in no group.
    pub fn new(buffers: u16) -> Self {
        let budget = Budget::new(buffers);
        let buffers = budget.buffers();
        let total = buffers + SEND_BUFFERS;
        Self {
            numbers: [0; GROUPS_MAX],
            groups: [const { None }; GROUPS_MAX],
            budget,
            slots: (0..total).map(|_| Slot::default()).collect(),
            free: (0..buffers).rev().map(BufferId).collect(),
            free_own: (buffers..total).rev().map(BufferId).collect(),
            discards: Vec::with_capacity(usize::from(total)),
            signals: VecDeque::with_capacity(SIGNALS_MAX),
            ready: VecDeque::new(),
            askers: [VecDeque::new(), VecDeque::new()],
            retry_at: None,
            announce_at: None,
            refusals: TagRefusals::default(),
            gone: GroupCounters::default(),
        }
    }

    /// Buffers of the card, the own guest's included; every [`BufferId`] is below.
    pub fn buffers_total(&self) -> usize {
        self.slots.len()
    }

    /// Buffers that hold a packet, the own guest's included.
    pub fn buffers_in_use(&self) -> usize {
        self.slots.len() - self.free.len() - self.free_own.len()
    }

    /// Writes the table of a group, which starts the group anew: numbers count from 0, what waits is thrown away. This
    /// allocates, as nothing else here does.
    ///
    /// # Errors
    /// [`TableError`]; nothing was changed.
    pub fn set_group(&mut self, now: Time, table: &GroupTable<'_>) -> Result<(), TableError> {
        table.check()?;
        let free = || self.numbers.iter().position(|number| *number == 0);
        let slot = self.slot(table.group).or_else(free).ok_or(TableError::TooManyGroups)?;
        let mut group = Group::new(table);
        if let Some(old) = self.forget(slot) {
            group.counters = old.counters;
        }
        self.groups[slot] = Some(Box::new(group));
        self.numbers[slot] = table.group;
        self.share_out();
        self.announce_at = self.announce_at.or(Some(now));
        Ok(())
    }

    /// Leaves a group; false if the card is not in it.
    pub fn remove_group(&mut self, group: u16) -> bool {
        let Some(slot) = self.slot(group) else {
            return false;
        };
        if let Some(old) = self.forget(slot) {
            self.gone.add(&old.counters);
        }
        self.numbers[slot] = 0;
        self.share_out();
        if self.numbers == [0; GROUPS_MAX] {
            self.announce_at = None;
        }
        true
    }

    fn forget(&mut self, slot: usize) -> Option<Box<Group>> {
        let group = self.groups[slot].take()?;
        for entry in &group.entries {
            let mut at = entry.oldest;
            while let Some(buffer) = at {
                at = self.slots[buffer.index()].next;
                self.discards.push(buffer);
            }
        }
        let stays = |id: &EntryId| usize::from(id.slot) != slot;
        self.signals.retain(|signal| stays(&signal.of));
        self.ready.retain(|(id, _)| stays(id));
        self.askers.iter_mut().for_each(|askers| askers.retain(stays));
        Some(group)
    }

    #[inline]
    fn slot(&self, group: u16) -> Option<usize> {
        if group == 0 {
            return None;
        }
        self.numbers.iter().position(|number| *number == group)
    }

    /// The groups that the card is in, by number: counters, addresses of the members by rank.
    pub fn groups(&self) -> impl Iterator<Item = (u16, &GroupCounters, &[MacAddr])> {
        let groups = self.groups.iter().flatten();
        groups.map(|group| (group.number, &group.counters, &*group.members))
    }

    /// The sum over all groups, those included that the card has left.
    pub fn totals(&self) -> GroupCounters {
        let mut sum = self.gone;
        self.groups().for_each(|(_, counters, _)| sum.add(counters));
        sum
    }

    /// Frames that were refused.
    pub fn refusals(&self) -> &TagRefusals {
        &self.refusals
    }

    /// When the next retry or announcement is due.
    pub fn next_event(&self) -> Option<Time> {
        self.retry_at.into_iter().chain(self.announce_at).min()
    }

    /// Takes a frame of the own guest with the EtherType of cards, of `len` bytes beginning with `head`.
    ///
    /// # Errors
    /// Why it is refused; it is counted and to be dropped. Only [`TagRefusal::Busy`] passes by itself.
    pub fn send(&mut self, now: Time, head: &[u8], len: u32) -> Result<Accepted, TagRefusal> {
        let tag = Tag::parse(head, len).ok_or_else(|| self.refuse(None, TagRefusal::Malformed))?;
        if tag.kind != Kind::Send {
            return Err(self.refuse(self.slot(tag.group), TagRefusal::Forged));
        }
        if tag != Tag::send(tag.from, tag.group, tag.payload_len) {
            return Err(self.refuse(None, TagRefusal::Malformed));
        }
        let Some((slot, group)) = self
            .slot(tag.group)
            .and_then(|slot| Some((slot, self.groups[slot].as_mut()?)))
        else {
            return Err(self.refuse(None, TagRefusal::NotMember));
        };
        let rank = group.own;
        if group.members[usize::from(rank)] != tag.from {
            return Err(self.refuse(Some(slot), TagRefusal::WrongSender));
        }
        let entry = &mut group.entries[usize::from(rank)];
        let sequence = entry.next;
        if self.free_own.is_empty() && entry.edges().iter().any(|edge| !edge.dead && !edge.takes(sequence)) {
            return Err(self.refuse(Some(slot), TagRefusal::Busy));
        }
        entry.next = sequence.wrapping_add(1);
        group.counters.sent += 1;
        let slot = slot as u8;
        Ok(self.pass_on(now, EntryId { slot, rank }, sequence))
    }

    /// Takes a frame from the network with the EtherType of cards, of `len` bytes beginning with `head`.
    pub fn receive(&mut self, now: Time, head: &[u8], len: u32) -> Received {
        let (slot, outcome) = match Tag::parse(head, len) {
            None => (None, Err(TagRefusal::Malformed)),
            Some(tag) if tag.kind == Kind::Announce => return Received::Consumed,
            Some(tag) => match self.slot(tag.group) {
                None => (None, Err(TagRefusal::NotMember)),
                Some(slot) => (Some(slot), self.receive_for(now, slot, &tag)),
            },
        };
        outcome.unwrap_or_else(|reason| {
            self.refuse(slot, reason);
            Received::Consumed
        })
    }

    fn receive_for(&mut self, now: Time, slot: usize, tag: &Tag) -> Result<Received, TagRefusal> {
        let Some(group) = self.groups[slot].as_mut() else {
            return Err(TagRefusal::NotMember);
        };
        if group.generation != tag.generation {
            return Err(TagRefusal::Stale);
        }
        if group.members.get(usize::from(tag.rank)) != Some(&tag.sender) {
            return Err(TagRefusal::WrongSender);
        }
        if group.members[usize::from(group.own)] != tag.to {
            return Err(TagRefusal::WrongWay);
        }
        let id = EntryId {
            slot: slot as u8,
            rank: tag.rank,
        };
        match tag.kind {
            Kind::Data => self.data(now, id, tag),
            Kind::State => self.state(now, id, tag).map(|()| Received::Consumed),
            Kind::Credit => self.credit(id, tag).map(|()| Received::Consumed),
            Kind::Send | Kind::Announce => Err(TagRefusal::Forged),
        }
    }

    fn data(&mut self, now: Time, id: EntryId, tag: &Tag) -> Result<Received, TagRefusal> {
        let Some(group) = self.groups[usize::from(id.slot)].as_mut() else {
            return Err(TagRefusal::NotMember);
        };
        let entry = &mut group.entries[usize::from(id.rank)];
        let comes_from = |parent: u8| group.members[usize::from(parent)] == tag.from;
        if !entry.parent.is_some_and(comes_from) || !(1..MEMBERS_MAX as u8).contains(&tag.hops) {
            return Err(TagRefusal::WrongWay);
        }
        let ahead = tag.sequence.wrapping_sub(entry.next);
        if (ahead as i32) < 0 {
            group.counters.duplicates += 1;
            return Ok(Received::Consumed);
        }
        let needs_buffer = entry.gives_credits();
        if needs_buffer && (ahead >= entry.outstanding() || self.free.is_empty()) {
            return Err(TagRefusal::NoCredit);
        }
        entry.next = tag.sequence.wrapping_add(1);
        group.counters.missed += u64::from(ahead);
        if needs_buffer {
            // Of the credits that were used, one has become a buffer; those of lost packets come back.
            entry.held += 1;
            if ahead > 0 {
                self.give_back(now, id, ahead as u16);
            }
        }
        Ok(Received::Data(self.pass_on(now, id, tag.sequence)))
    }

    /// Sends a packet to the children that can take it and keeps it for the others.
    #[inline]
    fn pass_on(&mut self, now: Time, id: EntryId, sequence: u32) -> Accepted {
        let mut accepted = Accepted {
            slot: id.slot,
            rank: id.rank,
            now: 0,
            own: false,
            sequence,
            keep: None,
        };
        let Some(group) = self.groups[usize::from(id.slot)].as_mut() else {
            return accepted;
        };
        let entry = &mut group.entries[usize::from(id.rank)];
        accepted.own = entry.parent.is_none();
        let mut pending = 0u8;
        for (child, edge) in entry.edges_mut().iter_mut().enumerate() {
            if edge.takes(sequence) {
                accepted.now |= 1 << child;
                group.counters.forwarded += 1;
                continue;
            }
            if edge.dead {
                group.counters.given_up += 1;
            } else {
                pending |= 1 << child;
                edge.waiting += 1;
            }
            let silent = edge.dead && now.nanos_since(edge.said_at) >= RETRY_NS;
            if silent || !edge.asked && !edge.dead {
                edge.ask(now, id, child, &mut self.signals, &mut self.retry_at);
            }
        }
        if pending == 0 {
            if !accepted.own && entry.gives_credits() {
                entry.held -= 1;
                self.give_back(now, id, 1);
            }
            return accepted;
        }
        group.counters.waited += 1;
        let free = if accepted.own {
            &mut self.free_own
        } else {
            &mut self.free
        };
        accepted.keep = free.pop();
        if let Some(buffer) = accepted.keep {
            self.slots[buffer.index()] = Slot {
                sequence,
                pending,
                next: None,
            };
            match entry.newest.replace(buffer) {
                Some(before) => self.slots[before.index()].next = Some(buffer),
                None => entry.oldest = Some(buffer),
            }
        }
        accepted
    }

    /// The addresses of the children that get the packet now.
    #[inline]
    pub fn targets(&self, accepted: &Accepted) -> impl Iterator<Item = MacAddr> {
        let group = self.groups[usize::from(accepted.slot)].as_deref();
        let now = accepted.now;
        group
            .and_then(|group| Some((group, group.entries.get(usize::from(accepted.rank))?)))
            .into_iter()
            .flat_map(move |(group, entry)| {
                let edges = entry.edges().iter().enumerate();
                edges
                    .filter(move |(child, _)| now & 1 << child != 0)
                    .map(|(_, edge)| group.members[usize::from(edge.to)])
            })
    }

    /// True if the packet goes to the own guest, behind all targets.
    pub const fn is_delivered(accepted: &Accepted) -> bool {
        !accepted.own
    }

    /// Makes the first bytes of a packet those that children get. The destination address is left to the driver, which writes
    /// that of each of [`Multicast::targets`]; what the own guest gets is the frame as it came.
    #[inline]
    pub fn prepare(&self, accepted: &Accepted, head: &mut [u8; TAG_END]) {
        let Some(group) = self.groups[usize::from(accepted.slot)].as_deref() else {
            return;
        };
        let own = group.members[usize::from(group.own)];
        if !accepted.own {
            head[6..12].copy_from_slice(&own.0);
            head[34] = head[34].saturating_add(1);
            return;
        }
        let payload_len = u16::from_be_bytes([head[36], head[37]]);
        let tag = Tag {
            to: own,
            kind: Kind::Data,
            generation: group.generation,
            rank: group.own,
            sender: own,
            sequence: accepted.sequence,
            hops: 1,
            ..Tag::send(own, group.number, payload_len)
        };
        tag.write(head);
    }

    /// A packet of this group reached the own guest.
    #[inline]
    pub fn note_delivered(&mut self, group: u16) {
        if let Some(group) = self.slot(group).and_then(|slot| self.groups[slot].as_mut()) {
            group.counters.delivered += 1;
        }
    }

    /// A packet of this group found no receive buffer of the own guest and was dropped.
    pub fn note_no_buffer(&mut self, group: u16) {
        if let Some(group) = self.slot(group).and_then(|slot| self.groups[slot].as_mut()) {
            group.counters.no_buffer += 1;
        }
    }

    /// The next thing to do; `None` if there is nothing more.
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        if let Some(buffer) = self.discards.pop() {
            self.free_slot(buffer);
            return Some(Action::Discard(buffer));
        }
        if self.next_event().is_some_and(|at| at <= now) {
            self.on_time(now);
            if let Some(buffer) = self.discards.pop() {
                self.free_slot(buffer);
                return Some(Action::Discard(buffer));
            }
        }
        loop {
            while let Some(signal) = self.signals.pop_front() {
                if let Some(frame) = self.encode(signal) {
                    return Some(Action::Emit(frame));
                }
            }
            let &(id, child) = self.ready.front()?;
            if let Some(action) = self.forward_waiting(now, id, usize::from(child)) {
                return Some(action);
            }
            self.ready.pop_front();
        }
    }

    fn on_time(&mut self, now: Time) {
        if self.announce_at.is_some_and(|at| at <= now) {
            self.announce_at = Some(now.plus_nanos(ANNOUNCE_NS));
            if let Some(slot) = self.numbers.iter().position(|number| *number != 0) {
                let of = EntryId {
                    slot: slot as u8,
                    rank: 0,
                };
                self.signals.push_back(Signal {
                    kind: Kind::Announce,
                    of,
                    child: 0,
                    flags: 0,
                });
            }
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.retry(now);
        }
    }

    /// Sends the oldest packet that waits for a child, if it has a credit for it.
    fn forward_waiting(&mut self, now: Time, id: EntryId, child: usize) -> Option<Action> {
        let group = self.groups[usize::from(id.slot)].as_mut()?;
        let entry = &mut group.entries[usize::from(id.rank)];
        let found = oldest_for(entry, &self.slots, child);
        let edge = &mut entry.edges_mut()[child];
        let Some((before, buffer)) = found else {
            edge.queued = false;
            return None;
        };
        let slot = &mut self.slots[buffer.index()];
        if !edge.has_credit(slot.sequence) {
            edge.queued = false;
            edge.ask(now, id, child, &mut self.signals, &mut self.retry_at);
            return None;
        }
        slot.pending &= !(1 << child);
        edge.waiting -= 1;
        group.counters.forwarded += 1;
        let to = group.members[usize::from(edge.to)];
        let last = slot.pending == 0;
        if last {
            let next = slot.next;
            match before {
                Some(before) => self.slots[before.index()].next = next,
                None => entry.oldest = next,
            }
            if next.is_none() {
                entry.newest = before;
            }
            let is_forwarding = entry.parent.is_some();
            if is_forwarding {
                entry.held -= 1;
            }
            self.free_slot(buffer);
            if is_forwarding {
                self.give_back(now, id, 1);
            }
        }
        Some(Action::Forward { buffer, to, last })
    }

    pub(super) fn discard(&mut self, buffer: BufferId) {
        self.discards.push(buffer);
    }

    fn free_slot(&mut self, buffer: BufferId) {
        if buffer.0 < self.budget.buffers() {
            self.free.push(buffer);
        } else {
            self.free_own.push(buffer);
        }
    }

    fn encode(&self, signal: Signal) -> Option<[u8; CARD_FRAME_MIN]> {
        let group = self.groups[usize::from(signal.of.slot)].as_deref()?;
        let own = group.members[usize::from(group.own)];
        let entry = group.entries.get(usize::from(signal.of.rank))?;
        let to = |rank: u8| group.members[usize::from(rank)];
        let (to, sequence) = match signal.kind {
            Kind::State => {
                let child = usize::from(signal.child);
                let next = oldest_for(entry, &self.slots, child)
                    .map_or(entry.next, |(_, buffer)| self.slots[buffer.index()].sequence);
                (to(entry.edges().get(child)?.to), next)
            }
            Kind::Credit => (to(entry.parent?), entry.limit),
            _ => (MacAddr::BROADCAST, 0),
        };
        let mut tag = Tag {
            to,
            from: own,
            kind: signal.kind,
            group: group.number,
            generation: group.generation,
            rank: signal.of.rank,
            sender: *group.members.get(usize::from(signal.of.rank))?,
            sequence,
            hops: 0,
            flags: signal.flags,
            payload_len: 0,
        };
        if signal.kind == Kind::Announce {
            tag = Tag {
                to,
                kind: Kind::Announce,
                sender: own,
                ..Tag::send(own, 0, 0)
            };
        }
        let mut frame = [0; CARD_FRAME_MIN];
        if let Some(head) = frame.first_chunk_mut() {
            tag.write(head);
        }
        Some(frame)
    }

    fn refuse(&mut self, slot: Option<usize>, reason: TagRefusal) -> TagRefusal {
        self.refusals.count(reason);
        if let Some(group) = slot.and_then(|slot| self.groups[slot].as_mut()) {
            group.counters.refused += 1;
        }
        reason
    }
}

/// The oldest buffer that waits for child `child`, and the one before it in the row's list.
pub(super) fn oldest_for(entry: &Entry, slots: &[Slot], child: usize) -> Option<(Option<BufferId>, BufferId)> {
    let (mut before, mut at) = (None, entry.oldest);
    while let Some(buffer) = at {
        let slot = &slots[buffer.index()];
        if slot.pending & 1 << child != 0 {
            return Some((before, buffer));
        }
        (before, at) = (at, slot.next);
    }
    None
}

impl Edge {
    /// The packet may be sent at once: no earlier one waits, and there is a buffer, or none is needed.
    #[inline]
    fn takes(&self, sequence: u32) -> bool {
        !self.forwards || self.waiting == 0 && self.has_credit(sequence)
    }

    #[inline]
    fn has_credit(&self, sequence: u32) -> bool {
        self.limit.wrapping_sub(sequence) as i32 > 0
    }
}
