//! A short hash with a key, for tables whose keys come from peers. It is not cryptographic: the key only keeps a peer
//! from choosing collisions blindly.

use core::hash::{BuildHasher, Hasher};

/// Makes hashers of one key.
#[derive(Clone, Copy, Debug)]
pub struct Keyed(u64);

impl Keyed {
    /// Makes hashers with this key, a random number.
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }
}

impl BuildHasher for Keyed {
    type Hasher = Folded;

    #[inline]
    fn build_hasher(&self) -> Folded {
        Folded {
            state: self.0,
            key: self.0 | 1,
        }
    }
}

/// A hasher that multiplies and folds.
#[derive(Clone, Copy, Debug)]
pub struct Folded {
    state: u64,
    key: u64,
}

impl Hasher for Folded {
    #[inline]
    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(self.state ^ value) * u128::from(self.key ^ 0xd6e8_feb8_6659_fd93);
        self.state = (wide as u64) ^ ((wide >> 64) as u64);
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The table takes its index from the low bits and its tag from the high ones.
        self.state ^ (self.state >> 29)
    }
}
