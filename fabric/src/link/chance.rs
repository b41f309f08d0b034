//! Random numbers for the faults of a link: one seeded stream for each kind of fault.
//!
//! With streams of their own, a change of one probability does not move the others' decisions. Nothing is drawn while a
//! probability is 0.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use super::config::PPM;

/// The uses of randomness in a link; the number is that of the stream.
#[derive(Clone, Copy)]
pub(super) enum Use {
    Loss = 1,
    Reorder = 2,
    Duplicate = 3,
    Corrupt = 4,
    Jitter = 5,
    LossState = 6,
}

pub(super) struct Chance {
    stream: ChaCha8Rng,
}

impl Chance {
    pub(super) fn new(seed: u64, name: Use) -> Self {
        let mut stream = ChaCha8Rng::seed_from_u64(seed);
        stream.set_stream(name as u64);
        Self { stream }
    }

    /// True in `ppm` of a million calls; always from one million on.
    #[inline]
    pub(super) fn hits(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.always_draws(ppm)
    }

    /// The same, and one number is drawn whatever the probability.
    #[inline]
    pub(super) fn always_draws(&mut self, ppm: u32) -> bool {
        let threshold = (u64::from(ppm) << 32) / u64::from(PPM);
        u64::from(self.bits()) < threshold
    }

    /// 32 random bits.
    #[inline]
    pub(super) fn bits(&mut self) -> u32 {
        self.stream.next_u32()
    }

    /// A number below `end`, which must not be 0. The bias is below `end` in 2³², as of no weight for a bit position.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.bits()) * u64::from(end)) >> 32) as u32
    }
}
