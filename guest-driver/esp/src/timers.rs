//! When something is due for a connection: a heap of slots with the place of each.

use alloc::vec::Vec;

use ether::Time;

const NOWHERE: u32 = u32::MAX;

/// One deadline for each slot. A deadline in the heap may be earlier than the connection's own, never later: moving one back, which
/// most packets do, costs nothing. The owner of the heap looks at the real one when a slot comes out.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<(Time, u32)>,
    places: Vec<u32>,
}

impl Timers {
    /// The slot that is due first, and when.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Time, u32)> {
        self.heap.first().copied()
    }

    /// Makes a slot due at `at` at the latest.
    #[inline]
    pub(crate) fn set_latest(&mut self, slot: u32, at: Time) {
        let place = self.places.get(slot as usize).copied().unwrap_or(NOWHERE);
        if place == NOWHERE {
            if at != Time::MAX {
                self.insert(slot, at);
            }
        } else if at < self.heap[place as usize].0 {
            self.heap[place as usize].0 = at;
            self.up(place as usize);
        }
    }

    fn insert(&mut self, slot: u32, at: Time) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, NOWHERE);
        }
        self.heap.push((at, slot));
        self.up(self.heap.len() - 1);
    }

    /// Puts the first slot to where `at` belongs, or takes it out at [`Time::MAX`].
    pub(crate) fn move_first(&mut self, at: Time) {
        let Some(first) = self.heap.first_mut() else {
            return;
        };
        if at == Time::MAX {
            let slot = first.1;
            self.remove(slot);
        } else {
            first.0 = at;
            self.down(0);
        }
    }

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot as usize) else {
            return;
        };
        let at = core::mem::replace(place, NOWHERE);
        if at == NOWHERE {
            return;
        }
        self.heap.swap_remove(at as usize);
        if (at as usize) < self.heap.len() {
            self.down(at as usize);
            self.up(at as usize);
        }
    }

    fn up(&mut self, mut at: usize) {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, entry);
    }

    fn down(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let mut child = 2 * at + 1;
            if child + 1 < self.heap.len() && self.heap[child + 1] < self.heap[child] {
                child += 1;
            }
            if child >= self.heap.len() || entry <= self.heap[child] {
                break;
            }
            self.put(at, self.heap[child]);
            at = child;
        }
        self.put(at, entry);
    }

    #[inline]
    fn put(&mut self, at: usize, entry: (Time, u32)) {
        self.heap[at] = entry;
        self.places[entry.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    #[test]
    fn slots_come_out_in_the_order_of_their_deadlines() {
        let mut timers = Timers::default();
        let mut model = BTreeMap::new();
        let mut random = crate::random::Random::new(3);
        for _ in 0..50_000 {
            let number = random.next();
            let (slot, at) = (number as u32 % 50, Time::from_nanos(number >> 40));
            match number >> 32 & 7 {
                0 => {
                    timers.remove(slot);
                    model.remove(&slot);
                }
                1 | 2 => {
                    let first = model.iter().map(|(slot, at)| (*at, *slot)).min();
                    assert_eq!(timers.first(), first);
                    let Some((old, slot)) = first else { continue };
                    let later = old.plus_nanos(at.as_nanos() / 2);
                    if number >> 36 & 1 == 0 {
                        timers.move_first(Time::MAX);
                        model.remove(&slot);
                    } else {
                        timers.move_first(later);
                        model.insert(slot, later);
                    }
                }
                _ => {
                    timers.set_latest(slot, at);
                    let deadline = model.entry(slot).or_insert(at);
                    *deadline = at.min(*deadline);
                }
            }
        }
        assert!(!model.is_empty());
    }
}
