//! Posted receives. Receives with the same mask, and for one source or for any, form a class that is looked up by hash; a
//! message asks each class once and takes the receive that was posted first. With one mask (every MPI uses two or three)
//! nothing is linear.

use alloc::vec::Vec;

use hashbrown::HashMap;

use super::{Envelope, Filter, SourceKey};
use crate::engine::{
    hash::Keyed,
    slab::{NIL, Slab},
};

/// At most this many masks are looked up by hash; receives with further ones are searched one by one.
const CLASSES_MAX: usize = 16;

/// Names a posted receive until it is taken or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PostedId {
    slot: u32,
    generation: u32,
}

#[derive(Debug)]
struct Entry<R> {
    filter: Filter,
    /// Counts postings: the lowest goes first.
    order: u64,
    next: u32,
    previous: u32,
    /// The receive is in the queue of its class, not among the others.
    hashed: bool,
    value: R,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    mask: u64,
    /// All bits if the receives are for one source each, none if they are for any.
    source_mask: u64,
    count: u32,
}

/// The mask, the match information, and the source or 0 that the receives of a queue share.
type QueueKey = (u64, u64, u64);

/// Receives that wait for a message.
#[derive(Debug)]
pub struct Posted<R> {
    entries: Slab<Entry<R>>,
    classes: Vec<Class>,
    /// The queues by class, match information and source.
    queues: HashMap<QueueKey, Queue, Keyed>,
    /// One queue is outside the table, even when it is empty: a program that posts one receive after the other for
    /// messages of one kind needs no hash.
    outside: (QueueKey, Queue),
    /// Receives of no class, in order.
    others: Queue,
    order_next: u64,
}

impl Class {
    /// Whether receives of this kind belong to the class.
    fn holds(&self, filter: Filter) -> bool {
        self.mask == filter.selector.mask() && self.source_mask == source_mask(filter)
    }
}

const fn source_mask(filter: Filter) -> u64 {
    if filter.source.is_some() { u64::MAX } else { 0 }
}

const EMPTY: Queue = Queue { head: NIL, tail: NIL };

impl<R> Posted<R> {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            entries: Slab::new(u32::MAX - 1),
            classes: Vec::new(),
            queues: HashMap::with_hasher(Keyed::new(seed)),
            outside: ((0, 0, 0), EMPTY),
            others: EMPTY,
            order_next: 0,
        }
    }

    /// Returns how many receives wait.
    pub const fn len(&self) -> usize {
        self.entries.len() as usize
    }

    /// Whether none waits.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a receive behind those posted before. O(1).
    pub fn post(&mut self, filter: impl Into<Filter>, value: R) -> Option<PostedId> {
        let filter = filter.into();
        if self.entries.is_full() {
            return None;
        }
        let hashed = self.enter_class(filter);
        let queue = if hashed {
            make_queue(&mut self.queues, &mut self.outside, key(filter))
        } else {
            &mut self.others
        };
        let previous = queue.tail;
        let slot = self.entries.insert(Entry {
            filter,
            order: self.order_next,
            next: NIL,
            previous,
            hashed,
            value,
        })?;
        self.order_next += 1;
        queue.tail = slot;
        if previous == NIL {
            queue.head = slot;
        } else if let Some(before) = self.entries.get_mut(previous) {
            before.next = slot;
        }
        Some(PostedId {
            slot,
            generation: self.entries.generation(slot),
        })
    }

    /// Takes out the first receive that matches a message. O(number of distinct masks).
    #[inline]
    pub fn take(&mut self, message: impl Into<Envelope>) -> Option<R> {
        let slot = self.find(message.into())?;
        self.remove(slot)
    }

    /// Returns the receive that a message would take.
    pub fn peek(&self, message: impl Into<Envelope>) -> Option<&R> {
        let slot = self.find(message.into())?;
        self.entries.get(slot).map(|entry| &entry.value)
    }

    /// Takes out a receive that has not been matched.
    pub fn cancel(&mut self, id: PostedId) -> Option<R> {
        if self.entries.is_current(id.slot, id.generation) {
            self.remove(id.slot)
        } else {
            None
        }
    }

    /// Takes out the receives that only a message of this source could match, in the order in which they were posted.
    /// O(n) for n receives.
    pub fn take_all_from(&mut self, source: SourceKey) -> Vec<R> {
        let entries = self.entries.iter();
        let mut found: Vec<_> = entries
            .filter(|(_, entry)| entry.filter.source == Some(source))
            .map(|(slot, entry)| (entry.order, slot))
            .collect();
        found.sort_unstable();
        found.into_iter().filter_map(|(_, slot)| self.remove(slot)).collect()
    }

    #[inline]
    fn find(&self, message: Envelope) -> Option<u32> {
        let mut best = NIL;
        let mut best_order = u64::MAX;
        for class in &self.classes {
            if class.count == 0 {
                continue;
            }
            let source = SourceKey::word(message.source) & class.source_mask;
            let key = (class.mask, message.match_info & class.mask, source);
            let queue = if self.outside.0 == key {
                &self.outside.1
            } else if let Some(queue) = self.queues.get(&key) {
                queue
            } else {
                continue;
            };
            if let Some(entry) = self.entries.get(queue.head)
                && entry.order < best_order
            {
                best = queue.head;
                best_order = entry.order;
            }
        }
        let mut at = self.others.head;
        while let Some(entry) = self.entries.get(at) {
            if entry.order >= best_order {
                break;
            }
            if entry.filter.takes(message) {
                best = at;
                break;
            }
            at = entry.next;
        }
        (best != NIL).then_some(best)
    }

    fn remove(&mut self, slot: u32) -> Option<R> {
        let entry = self.entries.remove(slot)?;
        if let Some(before) = self.entries.get_mut(entry.previous) {
            before.next = entry.next;
        }
        if let Some(after) = self.entries.get_mut(entry.next) {
            after.previous = entry.previous;
        }
        if !entry.hashed {
            if self.others.head == slot {
                self.others.head = entry.next;
            }
            if self.others.tail == slot {
                self.others.tail = entry.previous;
            }
            return Some(entry.value);
        }
        if let Some(class) = self.classes.iter_mut().find(|class| class.holds(entry.filter)) {
            class.count -= 1;
        }
        let key = key(entry.filter);
        let queue = if self.outside.0 == key {
            Some(&mut self.outside.1)
        } else if entry.next == NIL && entry.previous == NIL {
            self.queues.remove(&key);
            None
        } else {
            self.queues.get_mut(&key)
        };
        if let Some(queue) = queue {
            if entry.previous == NIL {
                queue.head = entry.next;
            }
            if entry.next == NIL {
                queue.tail = entry.previous;
            }
        }
        Some(entry.value)
    }

    /// Counts a receive in its class. False: too many are in use.
    fn enter_class(&mut self, filter: Filter) -> bool {
        let mut unused = None;
        for (at, class) in self.classes.iter_mut().enumerate() {
            if class.holds(filter) {
                class.count += 1;
                return true;
            }
            if class.count == 0 {
                unused = Some(at);
            }
        }
        let class = Class {
            mask: filter.selector.mask(),
            source_mask: source_mask(filter),
            count: 1,
        };
        match unused {
            Some(at) => self.classes[at] = class,
            None if self.classes.len() < CLASSES_MAX => self.classes.push(class),
            None => return false,
        }
        true
    }
}

/// Returns the queue of this class and match information, and makes it if there is none.
#[inline]
fn make_queue<'a>(
    queues: &'a mut HashMap<QueueKey, Queue, Keyed>,
    outside: &'a mut (QueueKey, Queue),
    key: QueueKey,
) -> &'a mut Queue {
    // An empty table has no other queue for these.
    if outside.0 != key && outside.1.head == NIL && queues.is_empty() {
        outside.0 = key;
    }
    if outside.0 == key {
        &mut outside.1
    } else {
        queues.entry(key).or_insert(EMPTY)
    }
}

const fn key(filter: Filter) -> QueueKey {
    let Filter { selector, source } = filter;
    (selector.mask(), selector.info(), SourceKey::word(source))
}
