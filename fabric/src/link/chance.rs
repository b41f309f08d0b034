//! Random numbers for the faults of a link: one seeded stream for each use, and how probable something is.
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

/// How many of 2³² random numbers mean that something happens.
#[derive(Clone, Copy, Default)]
pub(super) struct Odds(u64);

impl Odds {
    /// So many of a million; always from one million on.
    pub(super) fn of_ppm(ppm: u32) -> Self {
        Self((u64::from(ppm) << 32) / u64::from(PPM))
    }
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

    /// Whether it happens this time. Nothing is drawn for what never does.
    #[inline]
    pub(super) fn hits(&mut self, odds: Odds) -> bool {
        odds.0 != 0 && self.always_draws(odds)
    }

    /// Whether it happens this time; one number is drawn whatever the odds.
    #[inline]
    pub(super) fn always_draws(&mut self, odds: Odds) -> bool {
        u64::from(self.bits()) < odds.0
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
