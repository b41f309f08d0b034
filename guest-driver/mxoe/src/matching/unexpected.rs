//! Unexpected messages in the order of arrival, bounded in bytes. A receive that compares every bit finds its message by
//! hash; others search from the oldest.

use hashbrown::HashMap;

use super::{Envelope, Filter};
use crate::engine::{
    hash::Keyed,
    slab::{NIL, Slab},
};

/// A message counts for so many bytes beyond its data, the cost of remembering it. This bounds the number of empty
/// messages.
const ENTRY_BYTES: u64 = 128;

/// Names an unexpected message until it is taken or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnexpectedId {
    slot: u32,
    generation: u32,
}

#[derive(Debug)]
struct Entry<U> {
    envelope: Envelope,
    bytes: u64,
    all: Links,
    same: Links,
    /// No receive finds the message: a program has it by its name.
    claimed: bool,
    value: U,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    next: u32,
    previous: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

const EMPTY: Queue = Queue { head: NIL, tail: NIL };

/// Messages that wait for a receive.
#[derive(Debug)]
pub struct Unexpected<U> {
    entries: Slab<Entry<U>>,
    all: Queue,
    /// The messages by their match information.
    same: HashMap<u64, Queue, Keyed>,
    bytes: u64,
    bytes_max: u64,
    refused: u64,
    /// The slot of a message that is undecided.
    undecided: u32,
    /// A receive came for the undecided message.
    passed: bool,
}

impl<U> Unexpected<U> {
    pub(super) fn new(bytes_max: u64, seed: u64) -> Self {
        Self {
            entries: Slab::new(u32::MAX - 1),
            all: EMPTY,
            same: HashMap::with_hasher(Keyed::new(seed)),
            bytes: 0,
            bytes_max,
            refused: 0,
            undecided: NIL,
            passed: false,
        }
    }

    /// Returns how many messages wait.
    pub const fn len(&self) -> usize {
        self.entries.len() as usize
    }

    /// Whether none waits.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the bytes that the messages count for.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many messages found no room.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether a message with so many bytes of data could be kept now. If not, that is counted as a refusal.
    pub fn has_room(&mut self, data_bytes: u64) -> bool {
        let bytes = data_bytes.saturating_add(ENTRY_BYTES);
        let room = self.bytes.saturating_add(bytes) <= self.bytes_max && !self.entries.is_full();
        self.refused += u64::from(!room);
        room
    }

    /// Adds a message of which `data_bytes` are kept in memory (0 for an announced one).
    ///
    /// # Errors
    /// The value back if there is no room: the message is to be refused, so that it is not acknowledged.
    pub fn add(&mut self, message: impl Into<Envelope>, data_bytes: u64, value: U) -> Result<UnexpectedId, U> {
        if !self.has_room(data_bytes) {
            return Err(value);
        }
        Ok(self.insert(message.into(), data_bytes, value))
    }

    /// Adds a message whose data stay with its sender, also where there is no room for others: the caller bounds how
    /// many there are. They count like others, so that those wait.
    ///
    /// # Errors
    /// The value back if as many messages wait as can be named.
    pub fn add_beyond(&mut self, message: impl Into<Envelope>, value: U) -> Result<UnexpectedId, U> {
        if self.entries.is_full() {
            return Err(value);
        }
        Ok(self.insert(message.into(), 0, value))
    }

    fn insert(&mut self, envelope: Envelope, data_bytes: u64, value: U) -> UnexpectedId {
        let bytes = data_bytes.saturating_add(ENTRY_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        let same = self.same.entry(envelope.match_info).or_insert(EMPTY);
        let entry = Entry {
            envelope,
            claimed: false,
            bytes,
            all: Links {
                next: NIL,
                previous: self.all.tail,
            },
            same: Links {
                next: NIL,
                previous: same.tail,
            },
            value,
        };
        let (all_tail, same_tail) = (self.all.tail, same.tail);
        // Not full: the callers have checked.
        let slot = self.entries.insert(entry).unwrap_or(NIL);
        self.all.tail = slot;
        same.tail = slot;
        match self.entries.get_mut(all_tail) {
            Some(before) => before.all.next = slot,
            None => self.all.head = slot,
        }
        match self.entries.get_mut(same_tail) {
            Some(before) => before.same.next = slot,
            None => same.head = slot,
        }
        UnexpectedId {
            slot,
            generation: self.entries.generation(slot),
        }
    }

    /// Takes out the oldest message that a receive matches, unless that one is [undecided](Self::begin_to_decide), or another receive
    /// waits for that already: it came first.
    pub fn take(&mut self, filter: impl Into<Filter>) -> Option<U> {
        let slot = self.find(filter.into())?;
        self.passed |= slot == self.undecided;
        if self.passed {
            return None;
        }
        self.take_slot(slot)
    }

    /// Claims the oldest message that a receive would match: from now on no receive finds it, but it is there under its
    /// name until it is [removed](Self::remove). `None` also as long as that message is [undecided](Self::begin_to_decide).
    pub fn claim(&mut self, filter: impl Into<Filter>) -> Option<UnexpectedId> {
        let slot = self.find(filter.into()).filter(|slot| *slot != self.undecided)?;
        self.unlink(slot);
        let generation = self.entries.generation(slot);
        self.entries.get_mut(slot)?.claimed = true;
        Some(UnexpectedId { slot, generation })
    }

    /// Returns the oldest message that a receive would match, with its match information. `None` also as long as that
    /// message is [undecided](Self::begin_to_decide).
    pub fn peek(&self, filter: impl Into<Filter>) -> Option<(u64, &U)> {
        let slot = self.find(filter.into()).filter(|slot| *slot != self.undecided)?;
        let entry = self.entries.get(slot)?;
        Some((entry.envelope.match_info, &entry.value))
    }

    /// Marks a message whose receiver is being decided elsewhere: until [`Self::decided`] no receive finds it, nor a
    /// later one in its stead. One message at a time can be undecided.
    pub fn begin_to_decide(&mut self, id: UnexpectedId) {
        if self.entries.is_current(id.slot, id.generation) {
            self.undecided = id.slot;
        }
    }

    /// Whether a receive came for the undecided message: what comes now waits, too.
    pub const fn is_awaited(&self) -> bool {
        self.passed
    }

    /// The message is found again, if it is still there. Whether a receive came for it meanwhile, and found nothing.
    pub fn decided(&mut self) -> bool {
        self.undecided = NIL;
        core::mem::take(&mut self.passed)
    }

    /// Returns a message by its name.
    pub fn get_mut(&mut self, id: UnexpectedId) -> Option<&mut U> {
        if !self.entries.is_current(id.slot, id.generation) {
            return None;
        }
        self.entries.get_mut(id.slot).map(|entry| &mut entry.value)
    }

    /// Takes out a message by name.
    pub fn remove(&mut self, id: UnexpectedId) -> Option<U> {
        if !self.entries.is_current(id.slot, id.generation) {
            return None;
        }
        self.take_slot(id.slot)
    }

    /// Takes out every message that `of_interest` accepts, oldest first: those of a lost partner.
    pub fn remove_if(&mut self, mut of_interest: impl FnMut(&U) -> bool, mut removed: impl FnMut(U)) {
        let mut at = self.all.head;
        while let Some(entry) = self.entries.get(at) {
            let slot = at;
            at = entry.all.next;
            if of_interest(&entry.value)
                && let Some(value) = self.take_slot(slot)
            {
                removed(value);
            }
        }
    }

    fn find(&self, filter: Filter) -> Option<u32> {
        let exact = filter.selector.mask() == u64::MAX;
        let mut at = if exact {
            self.same.get(&filter.selector.info())?.head
        } else {
            self.all.head
        };
        while let Some(entry) = self.entries.get(at) {
            if filter.takes(entry.envelope) {
                return Some(at);
            }
            at = if exact { entry.same.next } else { entry.all.next };
        }
        None
    }

    fn take_slot(&mut self, slot: u32) -> Option<U> {
        if !self.entries.get(slot)?.claimed {
            self.unlink(slot);
        }
        let entry = self.entries.remove(slot)?;
        if slot == self.undecided {
            self.undecided = NIL;
        }
        self.bytes -= entry.bytes;
        Some(entry.value)
    }

    /// Takes a message out of both queues. It stays under its name.
    fn unlink(&mut self, slot: u32) {
        let Some(entry) = self.entries.get(slot) else { return };
        let (all, same, match_info) = (entry.all, entry.same, entry.envelope.match_info);
        match self.entries.get_mut(all.previous) {
            Some(before) => before.all.next = all.next,
            None => self.all.head = all.next,
        }
        match self.entries.get_mut(all.next) {
            Some(after) => after.all.previous = all.previous,
            None => self.all.tail = all.previous,
        }
        if same.next == NIL && same.previous == NIL {
            self.same.remove(&match_info);
            return;
        }
        if let Some(before) = self.entries.get_mut(same.previous) {
            before.same.next = same.next;
        }
        if let Some(after) = self.entries.get_mut(same.next) {
            after.same.previous = same.previous;
        }
        if let Some(queue) = self.same.get_mut(&match_info) {
            if same.previous == NIL {
                queue.head = same.next;
            }
            if same.next == NIL {
                queue.tail = same.previous;
            }
        }
    }
}
