//! What a thread does that reads a queue again and again and finds nothing: it spins, lets others run, or sleeps. It reads no clock.
//!
//! Not every MPI lets others run while it waits: Open MPI's blocking sends read the queue until the message is over. Where ranks share
//! a processor, the one that is waited for runs only when the waiting one lets it.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// After so many reads that find nothing, some tens of microseconds, each further one lets others run: with more ranks than processors
/// the message comes from one of them.
const SPIN_READS: u32 = 256;
/// After so many where others ran the last time: a thread that reads longer keeps the one that it waits for from running. With 256, each
/// rendezvous between ranks that share a processor took 50 µs more.
const SPIN_READS_CROWDED: u32 = 2;
/// After so long in which others ran again and again, and nothing came, the thread sleeps in each further read: processes that only yield
/// to each other keep those that they wait for, and the kernel's own, from running. Others that do not yield have it for as long in one go:
/// threads of the program that spin in Open MPI's blocking sends while this one reads the queue are such others. To sleep earlier made
/// exchanges of four ranks two to three times as long where other programs were busy, too: being woken takes longer than a turn.
const CROWDED_NS: u64 = 1_000_000;
/// A sleeping thread checks so often for what its endpoint does not know of, such as an MPI implementation's own shared memory.
pub(crate) const SLEEP: Duration = Duration::from_millis(1);

/// What a thread does next whose read found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It returns to the program.
    Return,
    /// It lets others run, and [tells](Idle::others_ran) whether they did.
    LetOthersRun,
    /// It sleeps until something comes, [`SLEEP`] at most.
    Sleep,
}

/// The reads of a queue that found nothing. Threads may miss counts of each other's: it is a rule of thumb.
#[derive(Debug)]
pub(crate) struct Idle {
    /// The reads since the last one that found something.
    empty_reads: AtomicU32,
    /// Others ran the last time that they might.
    is_crowded: AtomicBool,
    /// When others began to run again and again since the last read that found something; 0: they did not.
    since_ns: AtomicU64,
}

impl Idle {
    pub(crate) const fn new() -> Self {
        Self {
            empty_reads: AtomicU32::new(0),
            is_crowded: AtomicBool::new(false),
            since_ns: AtomicU64::new(0),
        }
    }

    /// Notes a read that found something.
    pub(crate) fn found(&self) {
        self.empty_reads.store(0, Ordering::Relaxed);
        self.since_ns.store(0, Ordering::Relaxed);
    }

    /// Notes a read that found nothing, and returns what to do. `now_ns` is asked for when that depends on it.
    pub(crate) fn found_nothing(&self, now_ns: impl FnOnce() -> u64) -> Next {
        let reads = self.empty_reads.load(Ordering::Relaxed);
        let spins = if self.is_crowded.load(Ordering::Relaxed) {
            SPIN_READS_CROWDED
        } else {
            SPIN_READS
        };
        if reads < spins {
            self.empty_reads.store(reads + 1, Ordering::Relaxed);
            return Next::Return;
        }
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        if since_ns > 0 && now_ns().saturating_sub(since_ns) > CROWDED_NS {
            return Next::Sleep;
        }
        Next::LetOthersRun
    }

    /// Notes that others might run from this time on, and whether they did.
    pub(crate) fn others_ran(&self, ran: bool, from_ns: u64) {
        self.is_crowded.store(ran, Ordering::Relaxed);
        if !ran {
            self.since_ns.store(0, Ordering::Relaxed);
        } else if self.since_ns.load(Ordering::Relaxed) == 0 {
            self.since_ns.store(from_ns.max(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads without finding anything while others run for so long whenever they may. Returns how often the thread returned before it
    /// let them run or slept, how often it let them run, and whether it sleeps then.
    fn wait(idle: &Idle, at_ns: &mut u64, others_run_ns: Option<u64>) -> (u32, u32, bool) {
        idle.found();
        let (mut returns, mut yields) = (0, 0);
        for _ in 0..2 * SPIN_READS {
            *at_ns += 200;
            match idle.found_nothing(|| *at_ns) {
                Next::Return if yields == 0 => returns += 1,
                Next::Return => {}
                Next::LetOthersRun => {
                    idle.others_ran(others_run_ns.is_some(), *at_ns);
                    *at_ns += others_run_ns.unwrap_or(0);
                    yields += 1;
                }
                Next::Sleep => return (returns, yields, true),
            }
        }
        (returns, yields, false)
    }

    #[test]
    fn who_shares_its_processor_lets_others_run_soon_and_who_has_one_spins() {
        let (idle, mut at_ns) = (Idle::new(), 1);
        let (returns, yields, sleeps) = wait(&idle, &mut at_ns, None);
        assert_eq!((returns, sleeps), (SPIN_READS, false));
        assert!(yields > 0);
        // Others have come.
        assert_eq!(wait(&idle, &mut at_ns, Some(5_000)).0, SPIN_READS);
        assert_eq!(wait(&idle, &mut at_ns, Some(5_000)).0, SPIN_READS_CROWDED);
        // And are gone.
        assert_eq!(wait(&idle, &mut at_ns, None).0, SPIN_READS_CROWDED);
        assert_eq!(wait(&idle, &mut at_ns, None).0, SPIN_READS);
    }

    #[test]
    fn who_waits_beside_others_that_do_not_give_the_processor_back_sleeps() {
        let (idle, mut at_ns) = (Idle::new(), 1);
        let (_, yields, sleeps) = wait(&idle, &mut at_ns, Some(5_000));
        assert!(sleeps && yields > 100, "{yields}");
        let (_, yields, sleeps) = wait(&idle, &mut at_ns, Some(3_000_000));
        assert!(sleeps);
        assert_eq!(yields, 1);
        assert_eq!(idle.found_nothing(|| at_ns), Next::Sleep, "until something comes");
    }
}
