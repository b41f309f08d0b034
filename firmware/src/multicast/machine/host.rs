//! What reliable groups ask of the own host: packets that keep their buffers until it took them, what it is told, and what happens
//! when it takes nothing for too long.

use alloc::collections::VecDeque;

use ether::{MacAddr, Time};

use super::Multicast;
use crate::multicast::{
    BufferId, CARD_FRAME_MIN, Kind, Tag, TagRefusal,
    entry::{Entry, HOST, Slot},
    group::Group,
    signal::{EntryId, Signal, push},
};

/// What the own host is to get next of its reliable groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForHost {
    /// The frame that is kept in `buffer`: its destination address is to be `to` and its source `from`, nothing else changes.
    Packet {
        /// Where the frame is.
        buffer: BufferId,
        /// The card that sent it here.
        from: MacAddr,
        /// The address of the host.
        to: MacAddr,
        /// No child waits for it: the buffer is free when the host took it.
        last: bool,
    },
    /// This frame.
    Note([u8; CARD_FRAME_MIN]),
}

/// Buffers with packets that wait for the host, oldest first.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct HostQueue {
    buffers: VecDeque<BufferId>,
    /// When the host took something last, or began to be waited for.
    since: Time,
    /// There may be something to tell the host.
    notes: bool,
    /// After which time a host that takes nothing, or a card that answers nothing, is gone.
    pub(super) dead_ns: u64,
}

impl HostQueue {
    pub(super) fn new(dead_ns: u64) -> Self {
        Self {
            dead_ns,
            ..Self::default()
        }
    }

    pub(super) fn reserve(&mut self, buffers: usize) {
        self.buffers.reserve(buffers);
    }

    pub(super) fn push(&mut self, now: Time, buffer: BufferId) {
        if self.buffers.is_empty() {
            self.since = now;
        }
        self.buffers.push_back(buffer);
    }

    /// There may be something to tell the host.
    pub(super) fn note(&mut self) {
        self.notes = true;
    }

    /// Forgets packets of groups that are gone.
    pub(super) fn forget(&mut self, slots: &[Slot], stays: impl Fn(&EntryId) -> bool) {
        self.buffers.retain(|buffer| stays(&slots[buffer.index()].of));
    }

    /// When the host is dead if it takes nothing until then.
    #[inline]
    pub(super) fn dead_at(&self) -> Option<Time> {
        (!self.buffers.is_empty()).then(|| self.since.plus_nanos(self.dead_ns))
    }
}

impl Multicast {
    /// What the own host is to get next: take it whenever the host may have room, and say by [`host_took`](Self::host_took) that it
    /// took it. Nothing overtakes it.
    pub fn for_host(&self) -> Option<ForHost> {
        if self.host.notes
            && let Some(frame) = self.groups.iter().flatten().find_map(|group| note(group))
        {
            return Some(ForHost::Note(frame));
        }
        let buffer = *self.host.buffers.front()?;
        let slot = &self.slots[buffer.index()];
        let group = self.groups[usize::from(slot.of.slot)].as_deref()?;
        let parent = group.entries[usize::from(slot.of.row)].parent?;
        Some(ForHost::Packet {
            buffer,
            from: group.members[usize::from(parent)],
            to: group.members[usize::from(group.own)],
            last: slot.pending == 1 << HOST,
        })
    }

    /// Packets that wait for the own host.
    pub fn waiting_for_host(&self) -> usize {
        self.host.buffers.len()
    }

    /// True if [`for_host`](Self::for_host) has something.
    #[inline]
    pub fn has_for_host(&self) -> bool {
        !self.host.buffers.is_empty()
            || self.host.notes && self.groups.iter().flatten().any(|group| note(group).is_some())
    }

    /// True if this packet, for the own host, is the next one that it gets: it need not be put into its buffer first.
    #[inline]
    pub fn is_next_for_host(&self, buffer: BufferId) -> bool {
        matches!(self.for_host(), Some(ForHost::Packet { buffer: next, .. }) if next == buffer)
    }

    /// The own host took what [`for_host`](Self::for_host) named.
    pub fn host_took(&mut self, now: Time) {
        self.host.since = now;
        if let Some(group) = self.groups.iter_mut().flatten().find(|group| note(group).is_some()) {
            if group.untold == 0 {
                group.own_packets.reported();
            } else {
                group.untold &= group.untold - 1;
            }
            return;
        }
        self.host.notes = false;
        let Some(buffer) = self.host.buffers.pop_front() else {
            return;
        };
        let id = self.slots[buffer.index()].of;
        let Some(group) = self.groups[usize::from(id.slot)].as_mut() else {
            return;
        };
        group.counters.delivered += 1;
        let entry = &mut group.entries[usize::from(id.row)];
        let found = entry.oldest_for(&self.slots, HOST);
        let Some((before, oldest)) = found else { return };
        debug_assert_eq!(oldest, buffer, "the host takes the packets of a row in order");
        let slot = &mut self.slots[buffer.index()];
        slot.pending &= !(1 << HOST);
        if slot.pending == 0 {
            entry.unlink(&mut self.slots, before, buffer);
            entry.occupied -= 1;
            self.free_slot(buffer);
            self.give_back(now, id, 1);
        }
    }

    /// The packets that the own guest has given to each of its reliable groups.
    pub fn packets_given(&self) -> impl Iterator<Item = (u16, u32)> {
        let groups = self.groups.iter().flatten().filter(|group| group.is_reliable());
        groups.map(|group| (group.number, group.own_packets.taken()))
    }

    /// The card was a member of the reliable `group` in a process before this one. If that ended in order, its guest has given it `count` packets,
    /// none of which was in a card any more: what the guest is told goes on from there. If not (`None`), packets are lost: the
    /// guest is gone from the group, and is told so.
    pub fn go_on_from(&mut self, group: u16, count: Option<u32>) {
        let Some(group) = self.slot(group).and_then(|slot| self.groups[slot].as_mut()) else {
            return;
        };
        if !group.is_reliable() {
            return;
        }
        match count {
            Some(count) => group.own_packets.go_on_from(count),
            None => {
                group.lose(group.own);
            }
        }
        self.host.notes = true;
    }

    /// One of the own guest's packets to the reliable group in `slot` has left the card, or was given up.
    pub(super) fn own_packet_left(&mut self, slot: usize) {
        if let Some(group) = &mut self.groups[slot] {
            group.own_packets.leave();
            self.host.notes = true;
        }
    }

    /// The card of another member says that the member is gone.
    pub(super) fn told_gone(&mut self, slot: usize, tag: &Tag) -> Result<(), TagRefusal> {
        let Some(group) = self.groups[slot].as_mut() else {
            return Err(TagRefusal::NotMember);
        };
        // Each card speaks for its own guest alone.
        if !group.is_reliable() || tag.from != tag.sender || tag.rank == group.own || tag.flags != 0 {
            return Err(TagRefusal::WrongWay);
        }
        self.host.notes |= group.lose(tag.rank);
        Ok(())
    }

    /// The own host took nothing for too long: its packets are given up, and the others are told. The card goes on forwarding.
    pub(super) fn host_is_dead(&mut self, now: Time) {
        self.host.buffers.clear();
        self.host.notes = true;
        for slot in 0..self.groups.len() {
            let Some(mut group) = self.groups[slot].take() else {
                continue;
            };
            let own = group.own;
            if group.is_reliable() && group.lose(own) {
                for entry in &mut group.entries {
                    let waits = |slots: &[Slot], entry: &Entry| {
                        core::iter::successors(entry.oldest, |buffer| slots[buffer.index()].next)
                            .filter(|buffer| slots[buffer.index()].pending & 1 << HOST != 0)
                            .count()
                    };
                    group.counters.given_up += waits(&self.slots, entry) as u64;
                    self.give_up(entry, HOST);
                }
                for (rank, other) in (0u8..).zip(&group.members) {
                    let of = EntryId {
                        slot: slot as u8,
                        row: own.into(),
                    };
                    let signal = Signal {
                        kind: Kind::Gone,
                        of,
                        child: rank,
                        flags: 0,
                    };
                    if *other != group.members[usize::from(own)] {
                        push(&mut self.signals, signal);
                    }
                }
            }
            self.groups[slot] = Some(group);
        }
        self.share_out();
        self.serve(now);
        // Parents of rows that had used up their credits have asked; those that have not get theirs when they do.
    }
}

/// What the host is told of a group next: a member that is gone, or how many packets have left.
fn note(group: &Group) -> Option<[u8; CARD_FRAME_MIN]> {
    let own = group.members[usize::from(group.own)];
    let tag = Tag {
        to: own,
        from: MacAddr::CARD,
        generation: group.generation,
        sender: own,
        rank: group.own,
        ..Tag::send(own, group.number, 0)
    };
    let tag = if group.untold != 0 {
        let rank = group.untold.trailing_zeros() as u8;
        Tag {
            kind: Kind::Gone,
            rank,
            sender: *group.members.get(usize::from(rank))?,
            ..tag
        }
    } else {
        Tag {
            kind: Kind::Sent,
            sequence: group.own_packets.report()?,
            ..tag
        }
    };
    let mut frame = [0; CARD_FRAME_MIN];
    tag.write(frame.first_chunk_mut()?);
    Some(frame)
}
