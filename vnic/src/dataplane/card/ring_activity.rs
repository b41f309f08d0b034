//! What the threads that take kicks need to know and to count without the lock of the data plane.

use std::sync::atomic::{AtomicU64, Ordering};

/// The activity of a card's rings.
#[derive(Debug, Default)]
pub struct RingActivity {
    kicks: AtomicU64,
    /// A bit for each ring that is started, or must be stopped before it may start again.
    settled: AtomicU64,
}

impl RingActivity {
    /// A ring was kicked.
    pub fn count_kick(&self) {
        self.kicks.fetch_add(1, Ordering::Relaxed);
    }

    /// Kicks of all rings.
    pub fn kicks(&self) -> u64 {
        self.kicks.load(Ordering::Relaxed)
    }

    /// Whether ring `index` needs no start.
    pub fn is_settled(&self, index: usize) -> bool {
        self.settled.load(Ordering::Acquire) & 1 << index != 0
    }

    /// Notes whether ring `index` needs no start.
    pub fn set_settled(&self, index: usize, settled: bool) {
        if settled {
            self.settled.fetch_or(1 << index, Ordering::AcqRel);
        } else {
            self.settled.fetch_and(!(1 << index), Ordering::AcqRel);
        }
    }
}
