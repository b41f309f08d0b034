//! The source of test values, which depend on a seed alone, so that a failing case can be run again on any machine.

/// A seeded source of test values (splitmix64): a seed gives equal cases on every machine.
#[derive(Debug, Clone)]
pub struct Seed(u64);

impl Seed {
    /// A stream of values named by `seed`.
    pub fn new(seed: u64) -> Self {
        Seed(seed)
    }

    /// Any 64-bit value.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A value from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        match (high - low).checked_add(1) {
            Some(span) => low + self.any() % span,
            None => self.any(),
        }
    }

    /// True with a chance of `numerator` in `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.any() % denominator < numerator
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.range(0, choices.len() as u64 - 1) as usize]
    }

    /// A length or index as tests like them: often near a border.
    pub fn odd_number(&mut self) -> u64 {
        let border = self.pick(&[
            0,
            1,
            12,
            16,
            64,
            256,
            4096,
            65_535,
            1 << 31,
            1 << 32,
            1 << 47,
            1 << 63,
            u64::MAX,
        ]);
        match self.range(0, 3) {
            0 => border,
            1 => border.wrapping_add(self.range(0, 17)),
            2 => border.wrapping_sub(self.range(0, 17)),
            _ => self.any() >> self.range(0, 63),
        }
    }
}
