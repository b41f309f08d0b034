//! How long a thread looks for frames before it sleeps. That pays where the answer is quick, and costs most where the peer that is to
//! answer waits for the same core: so a thread that looked in vain sleeps at once the next times.

use std::sync::atomic::{AtomicU32, Ordering};

/// A thread that looks lets others have its core so often, in nanoseconds: the peer may be the one that waits for it, and goes on on
/// another core as soon as the kernel sees that both want to run.
const YIELD_NS: u64 = 500;
/// At most so many waits sleep at once after one that looked in vain.
const SKIP_MAX: u32 = 255;

/// What is known of the last waits.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    /// Waits to come that sleep at once.
    skip: AtomicU32,
    /// How many did after the last one that looked in vain.
    skipped: AtomicU32,
}

impl Spin {
    /// Returns how long the next wait looks, of `spin_ns` at most.
    pub(crate) fn next(&self, spin_ns: u64) -> u64 {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip == 0 {
            return spin_ns;
        }
        self.skip.store(skip - 1, Ordering::Relaxed);
        0
    }

    /// A wait ended while it looked.
    pub(crate) fn succeeded(&self) {
        self.skipped.store(0, Ordering::Relaxed);
    }

    /// A wait looked in vain.
    pub(crate) fn failed(&self) {
        let skip = (self.skipped.load(Ordering::Relaxed) * 2 + 1).min(SKIP_MAX);
        self.skipped.store(skip, Ordering::Relaxed);
        self.skip.store(skip, Ordering::Relaxed);
    }
}

/// Lets others have the core from time to time. `looked_ns`: since when the thread looks; `yielded_ns`: when it did so last.
pub(crate) fn give_way(looked_ns: u64, yielded_ns: &mut u64) {
    std::hint::spin_loop();
    if looked_ns.saturating_sub(*yielded_ns) >= YIELD_NS {
        *yielded_ns = looked_ns;
        // SAFETY: a plain call.
        unsafe { libc::syscall(libc::SYS_sched_yield) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_look_in_vain_become_rare_and_one_that_does_not_ends_that() {
        let spin = Spin::default();
        let mut looked = 0;
        for _ in 0..1000 {
            if spin.next(7) > 0 {
                looked += 1;
                spin.failed();
            }
        }
        assert_eq!(looked, 10);
        while spin.next(7) == 0 {}
        spin.succeeded();
        assert!((0..1000).all(|_| spin.next(7) == 7));
    }
}
