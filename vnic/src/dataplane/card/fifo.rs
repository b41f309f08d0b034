//! A queue with a fixed bound, for the data path. Knows nothing of what it holds.

/// A queue of at most `N` entries (a power of two) in place: what a growing queue checks at every step is left out.
pub struct Fifo<T, const N: usize> {
    entries: Box<[T; N]>,
    /// Free-running; their difference is the length.
    first: u32,
    end: u32,
}

impl<T: Copy, const N: usize> Fifo<T, N> {
    const MASK: u32 = {
        assert!(N.is_power_of_two());
        N as u32 - 1
    };

    /// An empty queue; `entry` fills the places that are not used yet.
    pub fn filled_with(entry: T) -> Self {
        Self {
            entries: Box::new([entry; N]),
            first: 0,
            end: 0,
        }
    }

    /// Entries in the queue.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.end.wrapping_sub(self.first) as usize
    }

    /// True if there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Entry `index` from the front, which must be there.
    #[inline(always)]
    pub fn get(&self, index: usize) -> T {
        debug_assert!(index < self.len());
        self.entries[(self.first.wrapping_add(index as u32) & Self::MASK) as usize]
    }

    /// Appends an entry; the caller knows that there is room.
    #[inline(always)]
    pub fn push(&mut self, entry: T) {
        debug_assert!(self.len() < N);
        self.entries[(self.end & Self::MASK) as usize] = entry;
        self.end = self.end.wrapping_add(1);
    }

    /// Drops `count` entries from the front, which must be there.
    #[inline(always)]
    pub fn skip(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        self.first = self.first.wrapping_add(count as u32);
    }

    /// Puts `change` of each entry in its place.
    #[cold]
    pub fn replace_each(&mut self, change: impl Fn(T) -> T) {
        for index in 0..self.len() as u32 {
            let entry = &mut self.entries[(self.first.wrapping_add(index) & Self::MASK) as usize];
            *entry = change(*entry);
        }
    }

    /// Drops all entries.
    pub fn clear(&mut self) {
        self.first = self.end;
    }

    /// The entries from the front.
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = T> {
        (0..self.len() as u32).map(|index| self.entries[(self.first.wrapping_add(index) & Self::MASK) as usize])
    }
}

impl<const N: usize> Fifo<u16, N> {
    /// Appends the `count` numbers behind `before`, in order and modulo 2¹⁶; the caller knows that there is room.
    #[inline]
    pub fn extend_counting(&mut self, before: u16, count: usize) {
        debug_assert!(self.len() + count <= N);
        for step in 0..count as u32 {
            self.push(before.wrapping_add(1).wrapping_add(step as u16));
        }
    }
}
