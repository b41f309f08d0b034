//! What a program tells its card of itself, in memory that the card reads and never writes: a few words behind the indices of its receive
//! ring. What they mean is between the two.

use std::sync::atomic::Ordering;

use super::{layout::TOLD_LEN, memory::SharedMemory};

/// Words that a program writes for its card.
#[derive(Clone)]
pub struct Told {
    memory: SharedMemory,
    offset: usize,
}

impl Told {
    /// Bytes of the words together.
    pub const LEN: usize = TOLD_LEN;

    pub(super) fn new(memory: SharedMemory, offset: usize) -> Self {
        Self { memory, offset }
    }

    /// Writes a word of 4 bytes, little-endian, behind all that was written before.
    ///
    /// # Panics
    /// Outside of the [`LEN`](Self::LEN) bytes, or not aligned.
    #[inline]
    pub fn set_word(&self, at: usize, value: u32) {
        assert!(at + 4 <= Self::LEN);
        self.memory
            .word(self.offset + at)
            .store(value.to_le(), Ordering::Release);
    }

    /// Writes a word of 8 bytes, likewise.
    ///
    /// # Panics
    /// As [`set_word`](Self::set_word).
    #[inline]
    pub fn set_long(&self, at: usize, value: u64) {
        assert!(at + 8 <= Self::LEN);
        self.memory
            .long(self.offset + at)
            .store(value.to_le(), Ordering::Release);
    }
}
