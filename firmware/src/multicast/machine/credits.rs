//! Credits for forwarding buffers: who gets which, how they come back, and what is said again when a link loses it.
//!
//! In plain groups no credit waits for a guest; in reliable ones each does until the guest took its packet. The argument is in `docs/spec/card-multicast.md`.

use ether::Time;

use super::Multicast;
use crate::multicast::{
    BUFFERS_MAX, Class, GIVE_UP_NS, Kind, RETRY_NS, Tag, TagRefusal,
    entry::{Edge, Entry},
    signal::{EntryId, Signal, push},
    wire::{FLAG_PROBE, FLAG_WAITING},
};

impl Multicast {
    pub(super) fn entry_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.groups[usize::from(id.slot)]
            .as_mut()?
            .entries
            .get_mut(usize::from(id.row))
    }

    /// Counts anew who has which buffers, after tables were written.
    pub(super) fn share_out(&mut self) {
        let (mut givers, mut used, mut rows, mut edges) = ([0u16; 2], [0u16; 2], 0, 0);
        let mut reserve_used = [[false; 2]; 2];
        let one_reserve = self.budgets[0].buffers() < 2;
        for group in self.groups.iter().flatten() {
            let class = group.class as usize;
            for entry in &group.entries {
                rows += 1;
                edges += entry.edges().len();
                if !entry.gives_credits() {
                    continue;
                }
                givers[class] += 1;
                used[class] += entry.common();
                if entry.reserve {
                    reserve_used[class][usize::from(entry.wrapped && !one_reserve)] = true;
                }
            }
        }
        for (class, budget) in self.budgets.iter_mut().enumerate() {
            budget.common_used = used[class];
            budget.reserve_used = reserve_used[class];
            // All trees get equally many; where there are more trees than buffers, the first to ask gets one.
            let common = budget.common();
            budget.window = common.checked_div(givers[class]).unwrap_or(0).max(common.min(1));
        }
        self.ready.reserve(edges);
        self.askers.iter_mut().for_each(|askers| askers.reserve(rows));
    }

    /// `count` buffers of a tree, or promises of them, are free again.
    pub(super) fn give_back(&mut self, now: Time, id: EntryId, count: u16) {
        let Some(group) = self.groups[usize::from(id.slot)].as_mut() else {
            return;
        };
        let class = group.class as usize;
        let budget = &mut self.budgets[class];
        let entry = &mut group.entries[usize::from(id.row)];
        let mut common = count;
        if count > 0
            && entry.reserve
            && let Some(used) = budget.reserve(entry.wrapped)
        {
            entry.reserve = false;
            *used = false;
            common -= 1;
        }
        budget.common_used -= common;
        if !self.askers[2 * class].is_empty() || !self.askers[2 * class + 1].is_empty() {
            self.serve(now);
            return;
        }
        // No row waits: the parent gets its credits back, several at once.
        let room = budget.room(entry);
        if room > 0 && 2 * room >= budget.window {
            entry.limit = entry.limit.wrapping_add(u32::from(room));
            budget.common_used += room;
            push(&mut self.signals, Signal::credit(id));
        }
    }

    /// Gives credits to those that wait for them, wrapped trees first: their packets have the shorter path to go.
    pub(super) fn serve(&mut self, now: Time) {
        for waiting in [1, 0, 3, 2] {
            for _ in 0..self.askers[waiting].len() {
                let Some(id) = self.askers[waiting].pop_front() else {
                    break;
                };
                if !self.grant(id) {
                    self.askers[waiting].push_back(id);
                }
            }
        }
        if self.askers.iter().any(|askers| !askers.is_empty()) {
            self.retry_at = self.retry_at.or(Some(now.plus_nanos(RETRY_NS)));
        }
    }

    /// Gives the parent of a row what it may have now: its window, or else the reserved buffer. False if there is nothing.
    fn grant(&mut self, id: EntryId) -> bool {
        let Some(group) = self.groups[usize::from(id.slot)].as_mut() else {
            return true;
        };
        let budget = &mut self.budgets[group.class as usize];
        let entry = &mut group.entries[usize::from(id.row)];
        let room = budget.room(entry);
        if room > 0 {
            budget.common_used += room;
            entry.limit = entry.limit.wrapping_add(u32::from(room));
        } else if let Some(used) = budget.reserve(entry.wrapped)
            && !*used
        {
            *used = true;
            entry.reserve = true;
            entry.limit = entry.limit.wrapping_add(1);
        } else {
            return false;
        }
        entry.asked = false;
        push(&mut self.signals, Signal::credit(id));
        true
    }

    /// The parent of a row says which number it sends next. Packets below it that did not come are lost.
    pub(super) fn state(&mut self, now: Time, id: EntryId, tag: &Tag) -> Result<(), TagRefusal> {
        let Some(group) = self.groups[usize::from(id.slot)].as_mut() else {
            return Err(TagRefusal::NotMember);
        };
        let is_reliable = group.is_reliable();
        let entry = &mut group.entries[usize::from(id.row)];
        let comes_from = |parent: u8| group.members[usize::from(parent)] == tag.from;
        if !entry.parent.is_some_and(comes_from) || !entry.gives_credits() {
            return Err(TagRefusal::WrongWay);
        }
        let ahead = tag.sequence.wrapping_sub(entry.next);
        if (ahead as i32) < 0 {
            // Of before the last packet: what it asked for has come.
            return Ok(());
        }
        if ahead > 0 {
            let promised = ahead.min(entry.outstanding());
            group.counters.missed += u64::from(ahead);
            if ahead > promised {
                entry.limit = tag.sequence;
            }
            entry.next = tag.sequence;
            self.give_back(now, id, promised as u16);
        }
        if tag.flags & FLAG_WAITING == 0 {
            return Ok(());
        }
        let Some(entry) = self.entry_mut(id) else {
            return Ok(());
        };
        if entry.outstanding() > 0 {
            // It was told already, and the link lost that; or the credit is in flight.
            push(&mut self.signals, Signal::credit(id));
        } else if !entry.asked {
            entry.asked = true;
            let waiting = 2 * usize::from(is_reliable) + usize::from(entry.wrapped);
            self.askers[waiting].push_back(id);
            self.serve(now);
            self.say_still_here(id);
        } else if is_reliable {
            self.say_still_here(id);
        }
        Ok(())
    }

    /// A reliable row has no credit to give: its parent hears of it all the same, and knows that this card is there.
    fn say_still_here(&mut self, id: EntryId) {
        let group = self.groups[usize::from(id.slot)].as_deref();
        if group.is_some_and(|group| group.is_reliable() && group.entries[usize::from(id.row)].asked) {
            push(&mut self.signals, Signal::credit(id));
        }
    }

    /// A child says below which number it has buffers.
    pub(super) fn credit(&mut self, now: Time, id: EntryId, tag: &Tag) -> Result<(), TagRefusal> {
        let Some(group) = self.groups[usize::from(id.slot)].as_mut() else {
            return Err(TagRefusal::NotMember);
        };
        let (is_reliable, gone) = (group.is_reliable(), group.gone);
        let entry = &mut group.entries[usize::from(id.row)];
        let comes_from = |edge: &Edge| edge.forwards && group.members[usize::from(edge.to)] == tag.from;
        let Some(child) = entry.edges().iter().position(comes_from) else {
            return Err(TagRefusal::WrongWay);
        };
        if tag.sequence.wrapping_sub(entry.next) as i32 > i32::from(BUFFERS_MAX) {
            return Err(TagRefusal::NoCredit);
        }
        let edge = &mut entry.edges_mut()[child];
        if is_reliable && edge.dead && gone & 1 << edge.to != 0 {
            // Others were told that it is gone, and lack nothing of what it lacks.
            return Ok(());
        }
        edge.since = now;
        if tag.sequence.wrapping_sub(edge.limit) as i32 > 0 {
            edge.limit = tag.sequence;
            edge.asked = false;
            edge.dead = false;
            if edge.waiting > 0 && !edge.queued {
                edge.queued = true;
                self.ready.push_back((id, child as u8));
            }
        }
        if tag.flags & FLAG_PROBE != 0 {
            let flags = if edge.waiting > 0 { FLAG_WAITING } else { 0 };
            let signal = Signal {
                kind: Kind::State,
                of: id,
                child: child as u8,
                flags,
            };
            push(&mut self.signals, signal);
        }
        Ok(())
    }

    /// Says again what was not answered, and gives up children that have not answered for too long.
    pub(super) fn retry(&mut self, now: Time) {
        let mut again = false;
        for slot in 0..self.groups.len() {
            let Some(mut group) = self.groups[slot].take() else {
                continue;
            };
            let patience_ns = if group.is_reliable() {
                self.host.dead_ns
            } else {
                GIVE_UP_NS
            };
            let mut silent = 0u128;
            for (entry, row) in group.entries.iter_mut().zip(0u16..) {
                let id = EntryId { slot: slot as u8, row };
                for child in 0..entry.edges().len() {
                    let edge = &mut entry.edges_mut()[child];
                    if edge.waiting == 0 || !edge.asked {
                        continue;
                    }
                    if now.nanos_since(edge.since) < patience_ns {
                        edge.ask(now, id, child, &mut self.signals, &mut self.retry_at);
                        again = true;
                        continue;
                    }
                    group.counters.given_up += u64::from(edge.waiting);
                    edge.waiting = 0;
                    edge.asked = false;
                    edge.dead = true;
                    silent |= 1 << edge.to;
                    let freed = self.give_up(entry, child);
                    if entry.parent.is_none() && group.class == Class::Reliable {
                        (0..freed).for_each(|_| group.own_packets.leave());
                    }
                }
                if entry.reserve && entry.outstanding() > 0 {
                    // Others may wait for this buffer: did the packet it was promised to get lost?
                    let signal = Signal {
                        kind: Kind::Credit,
                        of: id,
                        child: 0,
                        flags: FLAG_PROBE,
                    };
                    push(&mut self.signals, signal);
                    again = true;
                }
            }
            if group.is_reliable() {
                (0..group.members.len() as u8)
                    .filter(|rank| silent & 1 << rank != 0)
                    .for_each(|rank| {
                        group.lose(rank);
                    });
                self.host.note();
            }
            self.groups[slot] = Some(group);
        }
        // Buffers that were given up may be what others wait for.
        self.share_out();
        self.serve(now);
        if again {
            self.retry_at = self.retry_at.or(Some(now.plus_nanos(RETRY_NS)));
        }
    }

    /// No packet of a row waits for child `child` any more, or for the own host, which is number [`HOST`](crate::multicast::entry::HOST).
    /// Returns how many buffers are free by that.
    pub(super) fn give_up(&mut self, entry: &mut Entry, child: usize) -> usize {
        let mut freed = 0;
        while let Some((before, buffer)) = entry.oldest_for(&self.slots, child) {
            let slot = &mut self.slots[buffer.index()];
            slot.pending &= !(1 << child);
            if slot.pending != 0 {
                continue;
            }
            entry.unlink(&mut self.slots, before, buffer);
            if entry.parent.is_some() {
                // Kept in step here, counted anew by `share_out`.
                if entry.reserve && entry.outstanding() == 0 && entry.occupied == 1 {
                    entry.reserve = false;
                }
                entry.occupied -= 1;
            }
            self.discard(buffer);
            freed += 1;
        }
        freed
    }
}
