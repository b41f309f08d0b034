//! Ranges of packet numbers: the selective acknowledgement.

/// Most ranges of one acknowledgement.
pub const RANGES_MAX: usize = 8;

/// Up to [`RANGES_MAX`] ranges of packet numbers that have arrived out of order. Each has a first number and the number behind its
/// last one; numbers wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    count: u8,
    ranges: [(u32, u32); RANGES_MAX],
}

impl Ranges {
    /// No range.
    pub const NONE: Self = Self {
        count: 0,
        ranges: [(0, 0); RANGES_MAX],
    };

    /// Adds a range; false if there are as many as may be.
    pub fn push(&mut self, first: u32, end: u32) -> bool {
        let Some(range) = self.ranges.get_mut(usize::from(self.count)) else {
            return false;
        };
        *range = (first, end);
        self.count += 1;
        true
    }

    /// The ranges: first number, and the number behind the last.
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}
