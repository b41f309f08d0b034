//! A queue of bytes in a block that grows and is given back when it is empty.

use core::mem;

use crate::memory::{Block, Memory, Purpose};

#[derive(Debug, Default)]
pub(crate) struct Ring {
    block: Block,
    start: u32,
    len: u32,
    /// Bytes of the last block, so that a busy connection does not grow again and again.
    last_len: u32,
}

impl Ring {
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes; false, and nothing is appended, if there is no memory for them.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8], purpose: Purpose, memory: &mut Memory) -> bool {
        if self.len() + bytes.len() > self.block.len() && !self.grow(bytes.len(), purpose, memory) {
            return false;
        }
        let at = self.place(self.len());
        let first = (self.block.len() - at).min(bytes.len());
        self.block[at..at + first].copy_from_slice(&bytes[..first]);
        self.block[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        self.len += bytes.len() as u32;
        true
    }

    #[cold]
    fn grow(&mut self, more: usize, purpose: Purpose, memory: &mut Memory) -> bool {
        let needed = self.len() + more;
        let wanted = needed.max(2 * self.block.len()).max(self.last_len as usize);
        let Some(block) = memory.take(wanted, purpose).or_else(|| memory.take(needed, purpose)) else {
            return false;
        };
        let mut grown = Self {
            block,
            start: 0,
            len: self.len,
            last_len: 0,
        };
        grown.last_len = grown.block.len() as u32;
        self.copy_to(0, &mut grown.block[..self.len as usize]);
        memory.give(mem::replace(self, grown).block);
        true
    }

    #[inline]
    fn place(&self, offset: usize) -> usize {
        (self.start as usize + offset) & (self.block.len().wrapping_sub(1))
    }

    /// The bytes from `offset` on, at most `len`, in two parts.
    #[inline]
    pub(crate) fn slices(&self, offset: usize, len: usize) -> (&[u8], &[u8]) {
        let len = len.min(self.len().saturating_sub(offset));
        if len == 0 {
            return (&[], &[]);
        }
        let at = self.place(offset);
        let first = (self.block.len() - at).min(len);
        (&self.block[at..at + first], &self.block[..len - first])
    }

    /// Copies the bytes from `offset` on; as many as are there and have room. Returns how many.
    #[inline]
    pub(crate) fn copy_to(&self, offset: usize, room: &mut [u8]) -> usize {
        let (first, second) = self.slices(offset, room.len());
        room[..first.len()].copy_from_slice(first);
        room[first.len()..first.len() + second.len()].copy_from_slice(second);
        first.len() + second.len()
    }

    /// Forgets the first `len` bytes, and gives the block back when none is left.
    #[inline]
    pub(crate) fn consume(&mut self, len: usize, memory: &mut Memory) {
        debug_assert!(len <= self.len());
        self.start = self.place(len) as u32;
        self.len -= len as u32;
        if self.len == 0 {
            self.start = 0;
            memory.give(mem::take(&mut self.block));
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self, memory: &mut Memory) {
        self.len = 0;
        memory.give(mem::take(&mut self.block));
    }
}

#[cfg(test)]
mod tests {
    use alloc::{collections::VecDeque, vec, vec::Vec};

    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_the_block() {
        let mut memory = Memory::new(1 << 20, 1 << 20);
        let mut ring = Ring::default();
        let mut model = VecDeque::new();
        let mut random = crate::random::Random::new(5);
        for round in 0..20_000 {
            let number = random.next();
            let len = (number >> 8) as usize % if round % 1_000 < 30 { 9_000 } else { 700 };
            if number.is_multiple_of(2) && ring.len() + len <= 64 << 10 {
                let bytes: Vec<u8> = (0..len).map(|at| (number as usize + at) as u8).collect();
                assert!(ring.push(&bytes, Purpose::Read, &mut memory));
                model.extend(bytes);
            } else {
                let len = len.min(ring.len());
                let mut out = vec![0; len];
                assert_eq!(ring.copy_to(0, &mut out), len);
                ring.consume(len, &mut memory);
                assert!(out.into_iter().eq(model.drain(..len)));
            }
            assert_eq!(ring.len(), model.len());
        }
        ring.clear(&mut memory);
        assert_eq!(memory.used(), 0);
        assert_eq!(ring.copy_to(0, &mut [0; 4]), 0);
    }

    #[test]
    fn without_memory_nothing_is_appended() {
        let mut memory = Memory::new(4 << 10, 0);
        let mut ring = Ring::default();
        assert!(ring.push(&[1; 2_000], Purpose::Read, &mut memory));
        assert!(
            !ring.push(&[2; 2_000], Purpose::Read, &mut memory),
            "both blocks at a time would be too much"
        );
        assert_eq!(ring.len(), 2_000);
    }
}
