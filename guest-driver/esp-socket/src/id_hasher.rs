//! Hashes names of connections.

use std::hash::Hasher;

/// 2⁶⁴ divided by the golden ratio: its multiples are spread evenly.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hasher for the engine's names of connections: two small numbers that count up and that no peer chooses, so that nothing has to
/// be defended, and finding one, which every call does several times, costs a few instructions.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(32) ^ u64::from(number)).wrapping_mul(SPREAD);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The table takes the lowest bits and the highest.
        self.0 ^ self.0 >> 32
    }
}
