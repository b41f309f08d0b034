//! What the driver has to do next: packets that got their credit, frames that cards send each other, buffers to empty.

use ether::{MacAddr, Time};

use super::Multicast;
use crate::multicast::{
    ANNOUNCE_NS, Action, CARD_FRAME_MIN, Kind, Tag,
    signal::{EntryId, Signal, push},
};

impl Multicast {
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
                    row: 0,
                };
                let signal = Signal {
                    kind: Kind::Announce,
                    of,
                    child: 0,
                    flags: 0,
                };
                push(&mut self.signals, signal);
            }
        }
        if self.host.dead_at().is_some_and(|at| at <= now) {
            self.host_is_dead(now);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.retry(now);
        }
    }

    /// Sends the oldest packet that waits for a child, if it has a credit for it.
    fn forward_waiting(&mut self, now: Time, id: EntryId, child: usize) -> Option<Action> {
        let group = self.groups[usize::from(id.slot)].as_mut()?;
        let is_own_reliable = group.is_reliable();
        let entry = &mut group.entries[usize::from(id.row)];
        let found = entry.oldest_for(&self.slots, child);
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
            entry.unlink(&mut self.slots, before, buffer);
            let is_forwarding = entry.parent.is_some();
            if is_forwarding {
                entry.occupied -= 1;
            }
            self.free_slot(buffer);
            if is_forwarding {
                self.give_back(now, id, 1);
            } else if is_own_reliable {
                self.own_packet_left(id.slot.into());
            }
        }
        Some(Action::Forward { buffer, to, last })
    }

    fn encode(&self, signal: Signal) -> Option<[u8; CARD_FRAME_MIN]> {
        let group = self.groups[usize::from(signal.of.slot)].as_deref()?;
        let own = group.members[usize::from(group.own)];
        let entry = group.entries.get(usize::from(signal.of.row))?;
        let to = |rank: u8| group.members[usize::from(rank)];
        let (mut rank, unicast) = group.sender_of(signal.of.row.into());
        let (to, sequence) = match signal.kind {
            Kind::State => {
                let child = usize::from(signal.child);
                let next = entry
                    .oldest_for(&self.slots, child)
                    .map_or(entry.next, |(_, buffer)| self.slots[buffer.index()].sequence);
                (to(entry.edges().get(child)?.to), next)
            }
            Kind::Credit => (to(entry.parent?), entry.limit),
            Kind::Gone => {
                rank = group.own;
                (to(signal.child), 0)
            }
            _ => (MacAddr::BROADCAST, 0),
        };
        let mut tag = Tag {
            to,
            from: own,
            kind: signal.kind,
            group: group.number,
            generation: group.generation,
            rank,
            sender: *group.members.get(usize::from(rank))?,
            sequence,
            hops: 0,
            flags: signal.flags | unicast,
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
}
