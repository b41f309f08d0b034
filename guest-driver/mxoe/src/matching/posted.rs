//! Posted receives. Receives with the same mask form a class that is looked up by hash; a message asks each class once and
//! takes the receive that was posted first. With one mask (every MPI uses two or three) nothing is linear.

use alloc::vec::Vec;

use hashbrown::HashMap;

use super::Selector;
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
    selector: Selector,
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
    count: u32,
}

/// Receives that wait for a message.
#[derive(Debug)]
pub struct Posted<R> {
    entries: Slab<Entry<R>>,
    classes: Vec<Class>,
    /// The queues by class and match information.
    queues: HashMap<(u64, u64), Queue, Keyed>,
    /// One queue is outside the table, even when it is empty: a program that posts one receive after the other for
    /// messages of one kind needs no hash.
    outside: ((u64, u64), Queue),
    /// Receives of no class, in order.
    others: Queue,
    order_next: u64,
}

const EMPTY: Queue = Queue { head: NIL, tail: NIL };

impl<R> Posted<R> {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            entries: Slab::new(u32::MAX - 1),
            classes: Vec::new(),
            queues: HashMap::with_hasher(Keyed::new(seed)),
            outside: ((0, 0), EMPTY),
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
    pub fn post(&mut self, selector: Selector, value: R) -> Option<PostedId> {
        if self.entries.is_full() {
            return None;
        }
        let hashed = self.enter_class(selector.mask());
        let queue = if hashed {
            make_queue(&mut self.queues, &mut self.outside, key(selector))
        } else {
            &mut self.others
        };
        let previous = queue.tail;
        let slot = self.entries.insert(Entry {
            selector,
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
    pub fn take(&mut self, match_info: u64) -> Option<R> {
        let slot = self.find(match_info)?;
        self.remove(slot)
    }

    /// Returns the receive that a message with this information would take.
    pub fn peek(&self, match_info: u64) -> Option<&R> {
        let slot = self.find(match_info)?;
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

    #[inline]
    fn find(&self, match_info: u64) -> Option<u32> {
        let mut best = NIL;
        let mut best_order = u64::MAX;
        for class in &self.classes {
            if class.count == 0 {
                continue;
            }
            let key = (class.mask, match_info & class.mask);
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
            if entry.selector.matches(match_info) {
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
        if let Some(class) = self
            .classes
            .iter_mut()
            .find(|class| class.mask == entry.selector.mask())
        {
            class.count -= 1;
        }
        let key = key(entry.selector);
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

    /// Counts a receive in its mask's class. False: too many masks are in use.
    fn enter_class(&mut self, mask: u64) -> bool {
        let mut unused = None;
        for (at, class) in self.classes.iter_mut().enumerate() {
            if class.mask == mask {
                class.count += 1;
                return true;
            }
            if class.count == 0 {
                unused = Some(at);
            }
        }
        let class = Class { mask, count: 1 };
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
    queues: &'a mut HashMap<(u64, u64), Queue, Keyed>,
    outside: &'a mut ((u64, u64), Queue),
    key: (u64, u64),
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

fn key(selector: Selector) -> (u64, u64) {
    (selector.mask(), selector.info())
}
