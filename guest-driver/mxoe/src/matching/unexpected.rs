//! Unexpected messages in the order of arrival, bounded in bytes. A receive that compares every bit finds its message by
//! hash; others search from the oldest.

use hashbrown::HashMap;

use super::Selector;
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
    match_info: u64,
    bytes: u64,
    all: Links,
    same: Links,
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
    pub fn add(&mut self, match_info: u64, data_bytes: u64, value: U) -> Result<UnexpectedId, U> {
        if !self.has_room(data_bytes) {
            return Err(value);
        }
        Ok(self.insert(match_info, data_bytes, value))
    }

    /// Adds a message whose data stay with its sender, also where there is no room for others: the caller bounds how
    /// many there are. They count like others, so that those wait.
    ///
    /// # Errors
    /// The value back if as many messages wait as can be named.
    pub fn add_beyond(&mut self, match_info: u64, value: U) -> Result<UnexpectedId, U> {
        if self.entries.is_full() {
            return Err(value);
        }
        Ok(self.insert(match_info, 0, value))
    }

    fn insert(&mut self, match_info: u64, data_bytes: u64, value: U) -> UnexpectedId {
        let bytes = data_bytes.saturating_add(ENTRY_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        let same = self.same.entry(match_info).or_insert(EMPTY);
        let entry = Entry {
            match_info,
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
    pub fn take(&mut self, selector: Selector) -> Option<U> {
        let slot = self.find(selector)?;
        self.passed |= slot == self.undecided;
        if self.passed {
            return None;
        }
        self.take_slot(slot)
    }

    /// Returns the oldest message that a receive would match, with its match information. `None` also as long as that
    /// message is [undecided](Self::begin_to_decide).
    pub fn peek(&self, selector: Selector) -> Option<(u64, &U)> {
        let slot = self.find(selector).filter(|slot| *slot != self.undecided)?;
        let entry = self.entries.get(slot)?;
        Some((entry.match_info, &entry.value))
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

    fn find(&self, selector: Selector) -> Option<u32> {
        if selector.mask() == u64::MAX {
            return self.same.get(&selector.info()).map(|queue| queue.head);
        }
        let mut at = self.all.head;
        while let Some(entry) = self.entries.get(at) {
            if selector.matches(entry.match_info) {
                return Some(at);
            }
            at = entry.all.next;
        }
        None
    }

    fn take_slot(&mut self, slot: u32) -> Option<U> {
        let entry = self.entries.remove(slot)?;
        if slot == self.undecided {
            self.undecided = NIL;
        }
        self.bytes -= entry.bytes;
        match self.entries.get_mut(entry.all.previous) {
            Some(before) => before.all.next = entry.all.next,
            None => self.all.head = entry.all.next,
        }
        match self.entries.get_mut(entry.all.next) {
            Some(after) => after.all.previous = entry.all.previous,
            None => self.all.tail = entry.all.previous,
        }
        if entry.same.next == NIL && entry.same.previous == NIL {
            self.same.remove(&entry.match_info);
            return Some(entry.value);
        }
        if let Some(before) = self.entries.get_mut(entry.same.previous) {
            before.same.next = entry.same.next;
        }
        if let Some(after) = self.entries.get_mut(entry.same.next) {
            after.same.previous = entry.same.previous;
        }
        if let Some(queue) = self.same.get_mut(&entry.match_info) {
            if entry.same.previous == NIL {
                queue.head = entry.same.next;
            }
            if entry.same.next == NIL {
                queue.tail = entry.same.previous;
            }
        }
        Some(entry.value)
    }
}
