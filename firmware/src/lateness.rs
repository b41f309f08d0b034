//! How late timers were served.
//!
//! A card's timer is due at a time and served when its driver polls: at once in virtual time, later in a process that
//! shares a machine. The lateness is counted in fixed buckets; nothing is measured here.

/// Lateness of served timers, in buckets that double: up to 1 µs, 2 µs, 4 µs … 1024 µs, and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    counts: [u64; Self::BUCKETS],
    max_ns: u64,
}

impl Lateness {
    /// Number of buckets.
    pub const BUCKETS: usize = 12;

    /// Greatest lateness of a bucket in nanoseconds; the last one has no bound and says `u64::MAX`. `None` past the last
    /// bucket.
    pub const fn bound_ns(bucket: usize) -> Option<u64> {
        if bucket + 1 < Self::BUCKETS {
            Some(1_000 << bucket)
        } else if bucket + 1 == Self::BUCKETS {
            Some(u64::MAX)
        } else {
            None
        }
    }

    /// The bucket for a timer that was served so late.
    pub const fn bucket(late_ns: u64) -> usize {
        let mut bucket = 0;
        while bucket + 1 < Self::BUCKETS && late_ns > 1_000 << bucket {
            bucket += 1;
        }
        bucket
    }

    pub(crate) fn record(&mut self, late_ns: u64) {
        self.counts[Self::bucket(late_ns)] += 1;
        self.max_ns = self.max_ns.max(late_ns);
    }

    /// Timers in each bucket.
    pub const fn counts(&self) -> &[u64; Self::BUCKETS] {
        &self.counts
    }

    /// The latest of all, in nanoseconds.
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Timers served.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// From the parts of another one, as a control frame brings them.
    pub const fn from_parts(counts: [u64; Self::BUCKETS], max_ns: u64) -> Self {
        Self { counts, max_ns }
    }

    /// Adds another one to this.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// Lateness in reports: `late_max_ns`, and in `lateness` the buckets that have any timers, each with its bound.
#[cfg(feature = "serde")]
mod report {
    use alloc::vec::Vec;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Lateness;

    #[derive(Serialize, Deserialize)]
    struct Report {
        late_max_ns: u64,
        lateness: Vec<Class>,
    }

    #[derive(Serialize, Deserialize)]
    struct Class {
        /// Absent in the last bucket, which has no bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_ns: Option<u64>,
        count: u64,
    }

    impl Serialize for Lateness {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let all = self.counts.iter().enumerate();
            let lateness = all.filter(|(_, count)| **count > 0).map(|(bucket, &count)| Class {
                to_ns: Self::bound_ns(bucket).filter(|bound| *bound != u64::MAX),
                count,
            });
            let report = Report {
                late_max_ns: self.max_ns,
                lateness: lateness.collect(),
            };
            report.serialize(serializer)
        }
    }

    impl<'de> Deserialize<'de> for Lateness {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let report = Report::deserialize(deserializer)?;
            let mut counts = [0; Self::BUCKETS];
            for class in report.lateness {
                counts[Self::bucket(class.to_ns.unwrap_or(u64::MAX))] += class.count;
            }
            Ok(Self::from_parts(counts, report.late_max_ns))
        }
    }
}
