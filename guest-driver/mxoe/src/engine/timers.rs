//! Deadlines by number: a heap that knows the place of each key, so that a key has one deadline, moved in O(log n). It
//! has no clock.

use alloc::vec::Vec;

use ether::Time;

use super::slab::NIL;

/// The deadlines of many keys.
#[derive(Debug, Default)]
pub struct Timers {
    heap: Vec<(Time, u32)>,
    position: Vec<u32>,
}

impl Timers {
    /// Returns when the first key is due; [`Time::MAX`] if none is.
    #[inline]
    pub fn next(&self) -> Time {
        self.heap.first().map_or(Time::MAX, |(at, _)| *at)
    }

    /// Takes out a key that is due at `now`.
    pub fn pop_due(&mut self, now: Time) -> Option<u32> {
        let (at, key) = *self.heap.first()?;
        if at > now {
            return None;
        }
        self.cancel(key);
        Some(key)
    }

    /// Makes sure that `key` is due at `at` or before.
    #[inline]
    pub fn at_latest(&mut self, key: u32, at: Time) {
        if at == Time::MAX {
            return;
        }
        match self.position.get(key as usize).copied().unwrap_or(NIL) {
            NIL => self.insert(key, at),
            place => {
                let place = place as usize;
                if at < self.heap[place].0 {
                    self.heap[place].0 = at;
                    self.up(place);
                }
            }
        }
    }

    /// Forgets a key.
    pub fn cancel(&mut self, key: u32) {
        let place = self.position.get(key as usize).copied().unwrap_or(NIL);
        if place == NIL {
            return;
        }
        self.position[key as usize] = NIL;
        let place = place as usize;
        let Some(last) = self.heap.pop() else { return };
        if place < self.heap.len() {
            self.heap[place] = last;
            self.position[last.1 as usize] = place as u32;
            self.down(place);
            self.up(place);
        }
    }

    /// Returns the memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.heap.capacity() * size_of::<(Time, u32)>() + self.position.capacity() * size_of::<u32>()
    }

    fn insert(&mut self, key: u32, at: Time) {
        if self.position.len() <= key as usize {
            self.position.resize(key as usize + 1, NIL);
        }
        let place = self.heap.len();
        self.heap.push((at, key));
        self.position[key as usize] = place as u32;
        self.up(place);
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.position[self.heap[a].1 as usize] = a as u32;
        self.position[self.heap[b].1 as usize] = b as u32;
    }

    fn up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].0 <= self.heap[place].0 {
                break;
            }
            self.swap(parent, place);
            place = parent;
        }
    }

    fn down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.heap[right].0 < self.heap[left].0 {
                right
            } else {
                left
            };
            if self.heap[place].0 <= self.heap[child].0 {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_out_in_the_order_of_their_earliest_deadline() {
        let at = Time::from_nanos;
        let mut timers = Timers::default();
        for key in 0..100u32 {
            timers.at_latest(key, at(u64::from(key * 37 % 100) + 100));
        }
        timers.at_latest(50, at(5));
        timers.at_latest(50, at(900));
        timers.cancel(0);
        timers.cancel(0);
        assert_eq!(timers.next(), at(5));
        assert_eq!(timers.pop_due(at(4)), None);
        let mut out = Vec::new();
        while let Some(key) = timers.pop_due(Time::MAX) {
            out.push(if key == 50 { 5 } else { key * 37 % 100 + 100 });
        }
        assert_eq!(out.len(), 99);
        assert!(out.is_sorted());
        assert_eq!(timers.next(), Time::MAX);
    }
}
