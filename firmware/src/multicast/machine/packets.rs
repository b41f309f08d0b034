//! Packets of the own guest and of the network: what is taken, which children get it now, and what is kept for the others.
//!
//! Bytes are the driver's: a packet is known by its first bytes here, and by its buffer once it waits.

use ether::{MacAddr, Time};

use super::{Accepted, Multicast, Received};
use crate::multicast::{
    Class, Kind, MEMBERS_MAX, RELIABLE_FRAME_MAX, RETRY_NS, TAG_END, Tag, TagRefusal,
    entry::{HOST, Slot},
    signal::EntryId,
    wire::{FLAG_REPORT, FLAG_UNICAST},
};

impl Multicast {
    /// Takes a frame of the own guest with the EtherType of cards, of `len` bytes beginning with `head`.
    ///
    /// # Errors
    /// Why it is refused; it is counted and to be dropped. Only [`TagRefusal::Busy`] passes by itself.
    pub fn send(&mut self, now: Time, head: &[u8], len: u32) -> Result<Accepted, TagRefusal> {
        let tag = Tag::parse(head, len).ok_or_else(|| self.refuse(None, TagRefusal::Malformed))?;
        if tag.kind != Kind::Send {
            return Err(self.refuse(self.slot(tag.group), TagRefusal::Forged));
        }
        let is_unicast = tag.flags & FLAG_UNICAST != 0;
        let plain = Tag {
            flags: tag.flags,
            rank: if is_unicast { tag.rank } else { 0 },
            ..Tag::send(tag.from, tag.group, tag.payload_len)
        };
        if tag != plain {
            return Err(self.refuse(None, TagRefusal::Malformed));
        }
        let Some((slot, group)) = self
            .slot(tag.group)
            .and_then(|slot| Some((slot, self.groups[slot].as_mut()?)))
        else {
            return Err(self.refuse(None, TagRefusal::NotMember));
        };
        let (own, members) = (usize::from(group.own), group.members.len());
        if group.members[own] != tag.from {
            return Err(self.refuse(Some(slot), TagRefusal::WrongSender));
        }
        let is_reliable = group.is_reliable();
        if is_reliable && len > RELIABLE_FRAME_MAX {
            return Err(self.refuse(Some(slot), TagRefusal::Malformed));
        }
        if !is_reliable && tag.flags != 0 || is_unicast && (usize::from(tag.rank) >= members || tag.rank == group.own) {
            return Err(self.refuse(Some(slot), TagRefusal::Malformed));
        }
        if group.is_gone(group.own) {
            return Err(self.refuse(Some(slot), TagRefusal::Gone));
        }
        let row = if is_unicast {
            2 * members + usize::from(tag.rank)
        } else {
            own
        };
        let free_own = if is_reliable {
            &group.own_packets.free
        } else {
            &self.free_own
        };
        let entry = &mut group.entries[row];
        let sequence = entry.next;
        if free_own.is_empty() && entry.edges().iter().any(|edge| !edge.dead && !edge.takes(sequence)) {
            return Err(self.refuse(Some(slot), TagRefusal::Busy));
        }
        entry.next = sequence.wrapping_add(1);
        group.counters.sent += 1;
        let id = EntryId {
            slot: slot as u8,
            row: row as u16,
        };
        if is_reliable {
            group.own_packets.take(tag.flags & FLAG_REPORT != 0);
        }
        let accepted = self.pass_on(now, id, sequence);
        if is_reliable && accepted.keep.is_none() {
            self.own_packet_left(slot);
        }
        Ok(accepted)
    }

    /// Takes a frame from the network with the EtherType of cards, of `len` bytes beginning with `head`.
    pub fn receive(&mut self, now: Time, head: &[u8], len: u32) -> Received {
        let (slot, outcome) = match Tag::parse(head, len) {
            None => (None, Err(TagRefusal::Malformed)),
            Some(tag) if tag.kind == Kind::Announce => return Received::Consumed,
            Some(tag) => match self.slot(tag.group) {
                None => (None, Err(TagRefusal::NotMember)),
                Some(slot) if Class::of_group(tag.group) == Class::Reliable && len > RELIABLE_FRAME_MAX => {
                    (Some(slot), Err(TagRefusal::Malformed))
                }
                Some(slot) => (Some(slot), self.receive_for(now, slot, &tag)),
            },
        };
        outcome.unwrap_or_else(|reason| {
            self.refuse(slot, reason);
            Received::Refused
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
            // A switch that does not know yet where another member is floods what is for it.
            let is_flooded = group.members.contains(&tag.to);
            return if is_flooded {
                Ok(Received::Consumed)
            } else {
                Err(TagRefusal::WrongWay)
            };
        }
        let Some(row) = group.place_of(tag) else {
            return Err(TagRefusal::WrongWay);
        };
        let id = EntryId {
            slot: slot as u8,
            row: row as u16,
        };
        match tag.kind {
            Kind::Data => self.data(now, id, tag),
            Kind::State => self.state(now, id, tag).map(|()| Received::Consumed),
            Kind::Credit => self.credit(now, id, tag).map(|()| Received::Consumed),
            Kind::Gone => self.told_gone(slot, tag).map(|()| Received::Consumed),
            Kind::Send | Kind::Announce | Kind::Sent => Err(TagRefusal::Forged),
        }
    }

    fn data(&mut self, now: Time, id: EntryId, tag: &Tag) -> Result<Received, TagRefusal> {
        let Some(group) = self.groups[usize::from(id.slot)].as_mut() else {
            return Err(TagRefusal::NotMember);
        };
        let free = &self.free[group.class as usize];
        let entry = &mut group.entries[usize::from(id.row)];
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
        if needs_buffer && (ahead >= entry.outstanding() || free.is_empty()) {
            return Err(TagRefusal::NoCredit);
        }
        entry.next = tag.sequence.wrapping_add(1);
        group.counters.missed += u64::from(ahead);
        if needs_buffer {
            // Of the credits that were used, one has become a buffer; those of lost packets come back.
            entry.occupied += 1;
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
            row: id.row,
            now: 0,
            own: false,
            reliable: false,
            to_guest: false,
            for_host: false,
            sequence,
            keep: None,
        };
        let Some(group) = self.groups[usize::from(id.slot)].as_mut() else {
            return accepted;
        };
        let (class, has_host) = (group.class, !group.is_gone(group.own));
        let entry = &mut group.entries[usize::from(id.row)];
        accepted.own = entry.parent.is_none();
        accepted.reliable = class == Class::Reliable;
        accepted.to_guest = !accepted.own && !entry.holds;
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
        group.counters.waited += u64::from(pending != 0);
        if entry.holds {
            accepted.for_host = has_host;
            if has_host {
                pending |= 1 << HOST;
            } else {
                group.counters.given_up += 1;
            }
        }
        if pending == 0 {
            if !accepted.own && entry.gives_credits() {
                entry.occupied -= 1;
                self.give_back(now, id, 1);
            }
            return accepted;
        }
        self.keep(now, id, accepted, pending)
    }

    /// Keeps a packet in a buffer for the children, and the own host, that are `pending`.
    #[inline(never)]
    fn keep(&mut self, now: Time, id: EntryId, mut accepted: Accepted, pending: u8) -> Accepted {
        let Some(group) = self.groups[usize::from(id.slot)].as_mut() else {
            return accepted;
        };
        let class = group.class;
        let entry = &mut group.entries[usize::from(id.row)];
        let free = match (accepted.own, class) {
            (false, class) => &mut self.free[class as usize],
            (true, Class::Plain) => &mut self.free_own,
            (true, Class::Reliable) => &mut group.own_packets.free,
        };
        accepted.keep = free.pop();
        if let Some(buffer) = accepted.keep {
            self.slots[buffer.index()] = Slot {
                sequence: accepted.sequence,
                pending,
                next: None,
                of: id,
            };
            if accepted.for_host {
                self.host.push(now, buffer);
            }
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
            .and_then(|group| Some((group, group.entries.get(usize::from(accepted.row))?)))
            .into_iter()
            .flat_map(move |(group, entry)| {
                let edges = entry.edges().iter().enumerate();
                edges
                    .filter(move |(child, _)| now & 1 << child != 0)
                    .map(|(_, edge)| group.members[usize::from(edge.to)])
            })
    }

    /// True if the packet goes to the own guest, behind all targets, and no buffer is kept for it until it is there.
    pub const fn is_delivered(accepted: &Accepted) -> bool {
        accepted.to_guest
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
            flags: group.sender_of(accepted.row.into()).1,
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

    /// A packet of this group found no receive buffer of the own guest, or no guest, and was dropped.
    pub fn note_no_buffer(&mut self, group: u16) {
        if let Some(group) = self.slot(group).and_then(|slot| self.groups[slot].as_mut()) {
            group.counters.no_buffer += 1;
        }
    }
}
