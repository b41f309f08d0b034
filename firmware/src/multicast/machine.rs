//! The multicast of one card as a machine: packets and signals come in, actions come out.
//!
//! The machine's state and groups are here, what comes in is in `packets`, what goes out in `actions`, credits are in `credits`; the
//! rows that they read and write are in `entry`. What reliable groups ask of the own host is in `host`. The driver keeps the bytes.

mod actions;
mod credits;
mod host;
mod packets;

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};

use ether::{MacAddr, Time};

pub use self::host::ForHost;
use self::host::HostQueue;
use super::{
    BUFFERS_DEFAULT, BufferId, CARD_FRAME_MIN, Class, DEAD_NS, GROUPS_MAX, GroupCounters, GroupTable, SEND_BUFFERS,
    TableError, TagRefusal, TagRefusals,
    budget::Budget,
    entry::Slot,
    group::Group,
    signal::{EntryId, SIGNALS_MAX, Signal},
};

/// What became of a frame from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It ends here: a signal or a duplicate, and counted, or a frame for the card of another member, which a switch flooded.
    Consumed,
    /// It ends here, was refused, and counted under its reason.
    Refused,
    /// A packet: forward it, then keep it if that is asked for, then hand it to the own guest.
    Data(Accepted),
}

/// A packet that the card takes. The driver sends it to each of [`Multicast::targets`] before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    slot: u8,
    row: u16,
    /// Bit *n*: child *n* gets it now.
    now: u8,
    own: bool,
    reliable: bool,
    to_guest: bool,
    /// The buffer is kept for the own host, too.
    for_host: bool,
    sequence: u32,
    /// Children wait for credits: keep the frame, as [`Multicast::prepare`] left it, in this buffer.
    pub keep: Option<BufferId>,
}

impl Accepted {
    /// True if it is to be sent on, now or later.
    #[inline]
    pub const fn is_for_others(&self) -> bool {
        self.now != 0 || self.keep.is_some()
    }

    /// True if it is of a reliable group: it is not to be lost.
    #[inline]
    pub const fn is_reliable(&self) -> bool {
        self.reliable
    }

    /// True if the own host gets it by [`Multicast::for_host`], and keeps its buffer until then.
    #[inline]
    pub const fn is_for_host(&self) -> bool {
        self.for_host
    }
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
        /// No other child waits for it: the buffer is free afterwards.
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
    groups: [Option<Box<Group>>; GROUPS_MAX],
    /// By class.
    budgets: [Budget; 2],
    slots: Vec<Slot>,
    free: [Vec<BufferId>; 2],
    free_own: Vec<BufferId>,
    discards: Vec<BufferId>,
    signals: VecDeque<Signal>,
    /// Children that got credits while packets wait for them.
    ready: VecDeque<(EntryId, u8)>,
    /// Rows whose parents wait for a credit: of plain groups that have not wrapped, that have, and the same of reliable ones.
    askers: [VecDeque<EntryId>; 4],
    host: HostQueue,
    retry_at: Option<Time>,
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
        // Those of reliable groups are made with the first such group.
        let ids = |range: core::ops::Range<u16>| range.rev().map(BufferId).collect();
        Self {
            numbers: [0; GROUPS_MAX],
            groups: [const { None }; GROUPS_MAX],
            budgets: [budget; 2],
            slots: (0..total).map(|_| Slot::default()).collect(),
            free: [ids(0..buffers), Vec::new()],
            free_own: ids(buffers..total),
            discards: Vec::with_capacity(usize::from(total)),
            signals: VecDeque::with_capacity(SIGNALS_MAX),
            ready: VecDeque::new(),
            askers: [const { VecDeque::new() }; 4],
            host: HostQueue::new(DEAD_NS),
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
        let of_groups = self.groups.iter().flatten();
        let own: usize = of_groups.clone().map(|group| group.own_packets.free.len()).sum();
        let unused = GROUPS_MAX - of_groups.filter(|group| group.is_reliable()).count();
        let reliable = usize::from(self.slots.len() > self.plain_buffers()) * unused * usize::from(SEND_BUFFERS);
        self.slots.len() - self.free.iter().map(Vec::len).sum::<usize>() - self.free_own.len() - own - reliable
    }

    fn plain_buffers(&self) -> usize {
        usize::from(self.budgets[0].buffers() + SEND_BUFFERS)
    }

    /// The first buffer for own packets of the reliable group in `slot`.
    fn first_own(&self, slot: usize) -> u16 {
        2 * self.budgets[0].buffers() + SEND_BUFFERS * (1 + slot as u16)
    }

    /// Makes the buffers of reliable groups, and returns those for own packets of the one in `slot`.
    fn reliable_buffers(&mut self, slot: usize) -> Vec<BufferId> {
        let begin = self.plain_buffers() as u16;
        let buffers = self.budgets[1].buffers();
        if self.slots.len() == usize::from(begin) {
            let total = usize::from(self.first_own(GROUPS_MAX));
            self.slots.resize(total, Slot::default());
            self.free[1] = (begin..begin + buffers).rev().map(BufferId).collect();
            self.discards.reserve(total);
            self.host.reserve(buffers.into());
        }
        let first = self.first_own(slot);
        let own = (first..first + SEND_BUFFERS).rev().map(BufferId);
        // What a former group kept there is thrown away, and free then.
        own.filter(|buffer| !self.discards.contains(buffer)).collect()
    }

    /// Sets after which time a host or a card that takes nothing is gone; [`DEAD_NS`] at first.
    pub fn set_dead_ns(&mut self, dead_ns: u64) {
        self.host.dead_ns = dead_ns;
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
        let old = self.forget(slot);
        let own_buffers = match table.class {
            Class::Plain => Vec::new(),
            Class::Reliable => self.reliable_buffers(slot),
        };
        let mut group = Group::new(table, own_buffers);
        if let Some(old) = old {
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
        self.host.forget(&self.slots, stays);
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
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        let next = self.next_at();
        (next != Time::MAX).then_some(next)
    }

    /// When there is something to do next, as [`next_event`](Self::next_event) says; [`Time::MAX`] for never.
    #[inline(always)]
    pub(crate) fn next_at(&self) -> Time {
        let times = self.times().map(|at| at.unwrap_or(Time::MAX));
        times.into_iter().fold(Time::MAX, Time::min)
    }

    /// Whether [`next_event`](Self::next_event) has come.
    #[inline]
    pub fn is_due(&self, now: Time) -> bool {
        self.times().into_iter().flatten().any(|at| at <= now)
    }

    #[inline(always)]
    fn times(&self) -> [Option<Time>; 3] {
        [self.retry_at, self.announce_at, self.host.dead_at()]
    }

    /// True if [`poll`](Self::poll) has nothing to say.
    #[inline]
    pub fn is_idle(&self, now: Time) -> bool {
        self.discards.is_empty() && self.signals.is_empty() && self.ready.is_empty() && !self.is_due(now)
    }

    fn discard(&mut self, buffer: BufferId) {
        self.discards.push(buffer);
    }

    fn free_slot(&mut self, buffer: BufferId) {
        let (buffers, plain) = (self.budgets[0].buffers(), self.plain_buffers() as u16);
        if buffer.0 < buffers {
            self.free[0].push(buffer);
        } else if buffer.0 < plain {
            self.free_own.push(buffer);
        } else if buffer.0 < plain + buffers {
            self.free[1].push(buffer);
        } else {
            let slot = usize::from((buffer.0 - plain - buffers) / SEND_BUFFERS);
            if let Some(group) = &mut self.groups[slot]
                && group.is_reliable()
            {
                group.own_packets.free.push(buffer);
            }
        }
    }

    fn refuse(&mut self, slot: Option<usize>, reason: TagRefusal) -> TagRefusal {
        self.refusals.count(reason);
        if let Some(group) = slot.and_then(|slot| self.groups[slot].as_mut()) {
            group.counters.refused += 1;
        }
        reason
    }
}
