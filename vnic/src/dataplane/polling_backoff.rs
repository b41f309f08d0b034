//! How long the data plane polls for more work: as long as that has been paying off.
//!
//! Polling serves a peer that polls too. It is worth nothing when work comes later than the polling time, and harmful
//! when another process, an emulated guest for one, wants the processor meanwhile. A time is decided here; nothing waits here.

use ether::Time;

/// Work that came soon after the data plane had gone to sleep, so many consecutive times, makes it poll.
const SOON_MIN: u32 = 16;
/// A round without work takes less than a microsecond; one that took so long gave the processor to another process.
const PREEMPTED_NS: u64 = 50_000;
/// The shortest polling time is this part of the longest.
const SHORTEST_PART: u64 = 8;

/// How soon the data plane begins to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eagerness {
    /// Work that came soon after it had gone to sleep, so many consecutive times, makes it poll.
    soon_min: u32,
    /// The shortest polling time is this part of the longest.
    shortest_part: u64,
}

impl Eagerness {
    /// For frames: a host has more to do than to wait for them.
    pub const FRAMES: Self = Self {
        soon_min: SOON_MIN,
        shortest_part: SHORTEST_PART,
    };
    /// For copies: a guest's processor pays for each that has to wake the data plane, more than for the copy.
    pub const COPIES: Self = Self {
        soon_min: 1,
        shortest_part: 1,
    };
}

/// The polling time, which follows what happened.
#[derive(Debug)]
pub struct PollingBackoff {
    longest_ns: u64,
    eagerness: Eagerness,
    window_ns: u64,
    /// How often work came soon, without a break.
    soon: u32,
    last_work: Time,
}

impl PollingBackoff {
    /// Never polls longer than `longest_ns`; 0 turns polling off.
    pub fn new(longest_ns: u64, eagerness: Eagerness) -> Self {
        Self {
            longest_ns,
            eagerness,
            window_ns: 0,
            soon: 0,
            last_work: Time::ZERO,
        }
    }

    /// How long to go on without work, in nanoseconds.
    pub fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// Whether to go on at `now`, without work since the last one.
    pub fn goes_on(&self, now: Time) -> bool {
        now.nanos_since(self.last_work) < self.window_ns
    }

    /// There was work at `now`; `slept` if the data plane had to be woken for it.
    pub fn worked(&mut self, now: Time, slept: bool) {
        let since_ns = now.nanos_since(self.last_work);
        self.last_work = now;
        if !slept {
            return;
        }
        if since_ns > self.longest_ns {
            // It would have come too late for any polling.
            self.soon = 0;
            self.window_ns /= 2;
            if self.window_ns < self.shortest_ns() {
                self.window_ns = 0;
            }
            return;
        }
        self.soon = self.soon.saturating_add(1);
        if self.soon >= self.eagerness.soon_min {
            self.window_ns = (2 * self.window_ns).clamp(self.shortest_ns(), self.longest_ns);
        }
    }

    fn shortest_ns(&self) -> u64 {
        self.longest_ns / self.eagerness.shortest_part
    }

    /// A round without work took `took_ns`: ends the polling if another process had the processor.
    pub fn idled(&mut self, took_ns: u64) {
        if took_ns > PREEMPTED_NS {
            self.window_ns = 0;
            self.soon = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_NS: u64 = 40_000;

    /// Wakes the data plane `count` times, each `gap_ns` after its last work.
    fn wake(polling: &mut PollingBackoff, count: u32, gap_ns: u64) {
        for _ in 0..count {
            let now = polling.last_work.plus_nanos(gap_ns);
            polling.worked(now, true);
        }
    }

    #[test]
    fn work_that_comes_soon_makes_the_shard_poll_and_late_work_ends_it() {
        let mut polling = PollingBackoff::new(LONGEST_NS, Eagerness::FRAMES);
        wake(&mut polling, SOON_MIN - 1, LONGEST_NS);
        assert_eq!(polling.window_ns(), 0);
        wake(&mut polling, 1, LONGEST_NS);
        assert_eq!(polling.window_ns(), LONGEST_NS / SHORTEST_PART);
        wake(&mut polling, 10, 1);
        assert_eq!(polling.window_ns(), LONGEST_NS);
        wake(&mut polling, 3, LONGEST_NS + 1);
        assert_eq!(polling.window_ns(), LONGEST_NS / SHORTEST_PART);
        wake(&mut polling, 1, LONGEST_NS + 1);
        assert_eq!(polling.window_ns(), 0);
    }

    #[test]
    fn work_found_by_polling_changes_nothing() {
        let mut polling = PollingBackoff::new(LONGEST_NS, Eagerness::FRAMES);
        wake(&mut polling, SOON_MIN, 1);
        let window_ns = polling.window_ns();
        for n in 0..100 {
            polling.worked(polling.last_work.plus_nanos(n * 1000), false);
        }
        assert_eq!(polling.window_ns(), window_ns);
    }

    #[test]
    fn who_wants_the_processor_gets_it_and_polling_has_to_pay_off_anew() {
        let mut polling = PollingBackoff::new(LONGEST_NS, Eagerness::FRAMES);
        wake(&mut polling, 2 * SOON_MIN, 1);
        polling.idled(PREEMPTED_NS);
        assert_eq!(polling.window_ns(), LONGEST_NS);
        polling.idled(PREEMPTED_NS + 1);
        assert_eq!(polling.window_ns(), 0);
        wake(&mut polling, SOON_MIN - 1, 1);
        assert_eq!(polling.window_ns(), 0);
    }

    #[test]
    fn copies_are_waited_for_at_once_after_one_that_came_soon_and_as_long_as_after_the_last() {
        let mut polling = PollingBackoff::new(LONGEST_NS, Eagerness::COPIES);
        wake(&mut polling, 1, LONGEST_NS + 1);
        assert!(!polling.goes_on(polling.last_work));
        wake(&mut polling, 1, LONGEST_NS);
        let last = polling.last_work;
        assert!(polling.goes_on(last.plus_nanos(LONGEST_NS - 1)));
        assert!(!polling.goes_on(last.plus_nanos(LONGEST_NS)));
        polling.worked(last.plus_nanos(1000), false);
        assert!(
            polling.goes_on(last.plus_nanos(LONGEST_NS)),
            "it counts from the last one"
        );
        polling.idled(PREEMPTED_NS + 1);
        assert!(
            !polling.goes_on(polling.last_work),
            "another process wants the processor"
        );
        wake(&mut polling, 1, LONGEST_NS);
        assert!(polling.goes_on(polling.last_work));
        wake(&mut polling, 1, LONGEST_NS + 1);
        assert!(!polling.goes_on(polling.last_work), "it came late");
    }

    #[test]
    fn a_longest_time_of_0_never_polls() {
        let mut polling = PollingBackoff::new(0, Eagerness::FRAMES);
        wake(&mut polling, 100, 0);
        assert_eq!(polling.window_ns(), 0);
    }
}
