//! How a node waits: it polls as long as that costs no one, and sleeps between polls otherwise.
//!
//! A node that polls is the first to see a frame. Where there are more nodes than processors, it is also what keeps the node that it
//! waits for from running: each step of a chain of messages then takes a time slice of the scheduler, some milliseconds, and not the
//! microseconds of its packets. A guest cannot know how many processors its host has. But it sees when its own was taken away in the
//! middle of waiting.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use ether::Time;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Two polls in a row take some microseconds. So long between them, the processor was another's: interrupts take less, time slices more.
pub(crate) const TAKEN_NS: u64 = 300_000;
/// Time that others had is forgotten at this rate: the share of it that polling may cost.
const FORGET_PART: u64 = 32;
/// So much of it is remembered at most, and from so much on others are taken to want the processor.
const OTHERS_MAX_NS: u64 = 16_000_000;
const OTHERS_MIN_NS: u64 = 2_000_000;
/// Polling goes on for so long before the first pause: alone on the processor, and beside others that want it.
const SPIN_ALONE_NS: u64 = 300_000;
const SPIN_SHARED_NS: u64 = 20_000;
/// Pauses double from the first to the second: a frame is found late by as long again as nothing had come before, at most.
const PAUSE_MIN_NS: u64 = 50_000;
const PAUSE_MAX_NS: u64 = 1_000_000;

/// What a node knows of its own waiting. Several threads may wait; they share it, and a race between them costs a pause or saves one.
pub(crate) struct Idle {
    /// When polls began to find nothing; 0 while they find something.
    since_ns: AtomicU64,
    /// The last poll that found nothing; 0 if there was a pause or something came since.
    last_ns: AtomicU64,
    /// Time that others had on this processor while the node waited, and when some of it was forgotten last.
    others_ns: AtomicU64,
    forgot_at_ns: AtomicU64,
    /// The next pause.
    pause_ns: AtomicU64,
    /// Readable when a frame comes; none if the port has no interrupts.
    port: Option<OwnedFd>,
}

impl Idle {
    /// For a port that becomes readable when a frame comes, or for one at which a node has to look.
    pub(crate) fn new(port: Option<OwnedFd>) -> Self {
        Self {
            since_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            others_ns: AtomicU64::new(0),
            forgot_at_ns: AtomicU64::new(0),
            pause_ns: AtomicU64::new(PAUSE_MIN_NS),
            port,
        }
    }

    /// A poll has found something.
    #[inline]
    pub(crate) fn found(&self) {
        self.since_ns.store(0, Ordering::Relaxed);
        self.last_ns.store(0, Ordering::Relaxed);
    }

    /// A poll at `now` has found nothing; at `due` there is something to do, whatever comes.
    pub(crate) fn rest(&self, now: Time, due: Time) {
        match self.next_pause(now.as_nanos()) {
            None => std::hint::spin_loop(),
            Some(pause_ns) => self.pause(Duration::from_nanos(pause_ns.min(due.nanos_since(now)))),
        }
    }

    /// How long to sleep after a poll at `now_ns` that found nothing, if at all.
    fn next_pause(&self, now_ns: u64) -> Option<u64> {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let last_ns = load(&self.last_ns);
        self.last_ns.store(now_ns, Ordering::Relaxed);
        let since_last_ns = now_ns.saturating_sub(last_ns);
        if last_ns != 0 && since_last_ns >= TAKEN_NS {
            let others_ns = self.others_ns(now_ns) + since_last_ns;
            self.others_ns.store(others_ns.min(OTHERS_MAX_NS), Ordering::Relaxed);
        }
        let since_ns = load(&self.since_ns);
        if since_ns == 0 {
            self.since_ns.store(now_ns.max(1), Ordering::Relaxed);
            self.pause_ns.store(PAUSE_MIN_NS, Ordering::Relaxed);
            return None;
        }
        let waited_ns = now_ns.saturating_sub(since_ns);
        if waited_ns < SPIN_SHARED_NS || waited_ns < SPIN_ALONE_NS && self.others_ns(now_ns) < OTHERS_MIN_NS {
            return None;
        }
        // Another's time is not to be counted.
        self.last_ns.store(0, Ordering::Relaxed);
        let pause_ns = load(&self.pause_ns);
        self.pause_ns.store((2 * pause_ns).min(PAUSE_MAX_NS), Ordering::Relaxed);
        // Where a frame ends the pause, it may as well be long.
        Some(if self.port.is_some() { PAUSE_MAX_NS } else { pause_ns })
    }

    /// Time that others had lately.
    fn others_ns(&self, now_ns: u64) -> u64 {
        let forgotten_ns = now_ns.saturating_sub(self.forgot_at_ns.load(Ordering::Relaxed)) / FORGET_PART;
        let mut others_ns = self.others_ns.load(Ordering::Relaxed);
        if forgotten_ns > 0 {
            self.forgot_at_ns.store(now_ns, Ordering::Relaxed);
            others_ns = others_ns.saturating_sub(forgotten_ns);
            self.others_ns.store(others_ns, Ordering::Relaxed);
        }
        others_ns
    }

    fn pause(&self, pause: Duration) {
        match &self.port {
            None => thread::sleep(pause),
            Some(port) => {
                let timeout = Timespec::try_from(pause).ok();
                // An error, or a signal, ends the pause early, which does no harm.
                let _ = rustix::event::poll(&mut [PollFd::new(port, PollFlags::IN)], timeout.as_ref());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls that find nothing every 2 µs from `from_ns` on, until the first pause or for `for_ns`; returns the time and the pause.
    fn poll(idle: &Idle, from_ns: u64, for_ns: u64) -> (u64, Option<u64>) {
        let mut now_ns = from_ns;
        loop {
            let pause = idle.next_pause(now_ns);
            if pause.is_some() || now_ns >= from_ns + for_ns {
                return (now_ns, pause);
            }
            now_ns += 2_000;
        }
    }

    #[test]
    fn a_node_polls_as_long_as_the_processor_is_its_own() {
        let idle = Idle::new(None);
        assert_eq!(poll(&idle, 1, SPIN_ALONE_NS - 2_000).1, None);
        idle.found();
        let (paused_at, pause) = poll(&idle, 10_000_000, u64::MAX / 2);
        assert_eq!((paused_at, pause), (10_000_000 + SPIN_ALONE_NS, Some(PAUSE_MIN_NS)));
        // Pauses double, however long they really were, and do not count as another's time.
        let pauses: Vec<_> = (1..8).map(|n| idle.next_pause(paused_at + n * 2_000_000)).collect();
        let us = [100, 200, 400, 800, 1_000, 1_000, 1_000].map(|us| Some(us * 1_000));
        assert_eq!(pauses, us);
        idle.found();
        assert_eq!(poll(&idle, 100_000_000, SPIN_ALONE_NS - 2_000).1, None);
    }

    #[test]
    fn a_node_whose_processor_was_taken_away_leaves_it_to_others_for_a_while() {
        let idle = Idle::new(None);
        let (now_ns, _) = poll(&idle, 1, 100_000);
        // One time slice.
        let taken_ns = now_ns + 3_000_000;
        assert_eq!(poll(&idle, taken_ns, u64::MAX / 2), (taken_ns, Some(PAUSE_MIN_NS)));
        idle.found();
        let again_ns = taken_ns + 1_000_000;
        let (paused_at, pause) = poll(&idle, again_ns, u64::MAX / 2);
        assert_eq!((paused_at, pause), (again_ns + SPIN_SHARED_NS, Some(PAUSE_MIN_NS)));
        idle.found();
        let later_ns = taken_ns + FORGET_PART * 1_100_000;
        assert_eq!(poll(&idle, later_ns, SPIN_ALONE_NS - 2_000).1, None, "it tries anew");
        // A program that computes between two packets was not waiting.
        idle.found();
        assert_eq!(poll(&idle, later_ns + 10_000_000, SPIN_ALONE_NS - 2_000).1, None);
    }

    #[test]
    fn others_that_seldom_want_the_processor_change_nothing() {
        let idle = Idle::new(None);
        for round in 1..100 {
            // A millisecond of a hundred.
            let from_ns = round * 100_000_000;
            idle.found();
            assert_eq!(poll(&idle, from_ns, 100_000).1, None);
            assert_eq!(
                idle.next_pause(from_ns + 1_100_000),
                Some(PAUSE_MIN_NS),
                "it has waited for long"
            );
            idle.found();
            assert_eq!(poll(&idle, from_ns + 2_000_000, SPIN_ALONE_NS - 2_000).1, None);
        }
    }
}
