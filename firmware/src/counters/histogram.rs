//! How many packets each interrupt announced, in fixed buckets.

/// Packets per interrupt, in fixed buckets: 0, 1, 2, 3–4, 5–8, 9–16, 17–32, 33–64, 65 and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; Self::BUCKETS],
}

impl Histogram {
    /// Number of buckets.
    pub const BUCKETS: usize = 9;

    /// Inclusive bounds of a bucket; the last one has no upper bound and says `u32::MAX`. `None` past the last bucket.
    pub const fn bounds(bucket: usize) -> Option<(u32, u32)> {
        match bucket {
            0 => Some((0, 0)),
            1 => Some((1, 1)),
            2..=7 => Some(((1 << (bucket - 2)) + 1, 1 << (bucket - 1))),
            8 => Some((65, u32::MAX)),
            _ => None,
        }
    }

    /// The bucket that an interrupt for so many packets falls in.
    #[inline]
    pub const fn bucket(packets: u32) -> usize {
        let bucket = match packets {
            0 => 0,
            _ => 33 - (packets - 1).leading_zeros() as usize,
        };
        if bucket < Self::BUCKETS {
            bucket
        } else {
            Self::BUCKETS - 1
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, packets: u32) {
        self.counts[Self::bucket(packets)] += 1;
    }

    /// Adds another histogram to this one.
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
    }

    /// Interrupts in each bucket.
    pub const fn counts(&self) -> &[u64; Self::BUCKETS] {
        &self.counts
    }

    /// From the counts of another histogram, as a control frame brings them.
    pub const fn from_counts(counts: [u64; Self::BUCKETS]) -> Self {
        Self { counts }
    }

    /// Lower bound, upper bound and count of every bucket.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter_map(|(bucket, &count)| Self::bounds(bucket).map(|(from, to)| (from, to, count)))
    }
}
