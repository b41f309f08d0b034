//! A bounded pool of slots with generations: values live at small numbers, freed slots are used again, a stale name finds
//! nothing. Memory grows to the high-water mark, and is given back when the pool is empty.

use alloc::vec::Vec;

/// "No slot": the end of a list.
pub const NIL: u32 = u32::MAX;

/// Slots kept when the pool empties, so that light traffic never allocates.
const KEPT: usize = 256;

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// The pool.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    used: u32,
    limit: u32,
    /// First generation of a new slot: above every generation that was ever given back.
    generation_first: u32,
}

impl<T> Slab<T> {
    /// Makes an empty pool of at most `limit` slots.
    pub const fn new(limit: u32) -> Self {
        Self {
            entries: Vec::new(),
            free: NIL,
            used: 0,
            limit,
            generation_first: 0,
        }
    }

    /// Returns how many slots are in use.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.used
    }

    /// Whether no slot is in use.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether an insertion would fail.
    #[inline]
    pub const fn is_full(&self) -> bool {
        self.used >= self.limit
    }

    /// Puts a value in; `None` at the limit.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        self.used += 1;
        if let Some(entry) = self.entries.get_mut(self.free as usize) {
            let slot = self.free;
            self.free = entry.next_free;
            entry.value = Some(value);
            return Some(slot);
        }
        self.entries.push(Entry {
            generation: self.generation_first,
            next_free: NIL,
            value: Some(value),
        });
        Some(self.entries.len() as u32 - 1)
    }

    /// Takes a value out.
    #[inline]
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        let entry = self.entries.get_mut(slot as usize)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next_free = self.free;
        self.free = slot;
        self.used -= 1;
        if self.used == 0 && self.entries.capacity() > KEPT {
            self.give_back();
        }
        Some(value)
    }

    #[cold]
    fn give_back(&mut self) {
        let highest = self.entries.iter().map(|entry| entry.generation).max();
        self.generation_first = highest.unwrap_or(0).wrapping_add(1);
        self.entries = Vec::with_capacity(KEPT);
        self.free = NIL;
    }

    /// Returns the value at `slot`.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<&T> {
        self.entries.get(slot as usize)?.value.as_ref()
    }

    /// Returns the value at `slot`, to change it.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.entries.get_mut(slot as usize)?.value.as_mut()
    }

    /// Returns the generation of `slot`: together they name one value for ever.
    #[inline]
    pub fn generation(&self, slot: u32) -> u32 {
        self.entries.get(slot as usize).map_or(0, |entry| entry.generation)
    }

    /// Whether the value named by `slot` and `generation` is still there.
    #[inline]
    pub fn is_current(&self, slot: u32, generation: u32) -> bool {
        self.entries
            .get(slot as usize)
            .is_some_and(|entry| entry.generation == generation && entry.value.is_some())
    }

    /// Finds the first used slot at or after `from`. A walk that frees slots on its path can go on with it.
    pub fn next_used(&self, from: u32) -> Option<u32> {
        let rest = self.entries.get(from as usize..)?;
        rest.iter()
            .position(|entry| entry.value.is_some())
            .map(|at| from + at as u32)
    }

    /// Returns every used slot.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(slot, entry)| entry.value.as_ref().map(|value| (slot as u32, value)))
    }

    /// Returns the memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<T>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_name_finds_nothing_even_after_memory_was_given_back() {
        let mut slab = Slab::new(2_000);
        let slots: Vec<(u32, u32)> = (0..1_000)
            .map(|value| slab.insert(value).unwrap())
            .map(|slot| (slot, 0))
            .collect();
        let before = slab.memory();
        for (slot, generation) in &slots {
            assert!(slab.is_current(*slot, *generation));
            slab.remove(*slot);
        }
        assert!(slab.memory() < before / 2, "memory is given back");
        for _ in 0..1_000 {
            slab.insert(7).unwrap();
        }
        assert!(
            slots
                .iter()
                .all(|(slot, generation)| !slab.is_current(*slot, *generation))
        );
    }

    #[test]
    fn the_limit_holds() {
        let mut slab = Slab::new(2);
        assert_eq!(
            (slab.insert('a'), slab.insert('b'), slab.insert('c')),
            (Some(0), Some(1), None)
        );
        assert_eq!(slab.remove(0), Some('a'));
        assert_eq!(slab.remove(0), None);
        assert_eq!(slab.insert('d'), Some(0));
        assert_eq!(slab.next_used(1), Some(1));
    }
}
