//! There are two paths on which the data of long messages reaches an endpoint; this module learns which one is quicker.
//!
//! Data may come through another queue than messages: a socket of its own, which the receiver's core reads, in place of
//! the ring, into which the sender's core copies. Which of them is quicker depends on caches, cores and the kernel:
//! over veth at MTU 9000 the socket took 0.8 of the ring's time on one machine and 1.08 on another. The puller chooses
//! the path by the handle, which the replier echoes: data for slots with an odd number comes on the bulk path. A puller
//! that learns tries both paths and compares each trial with the transfers before and after it, since machines that
//! share processors with others vary in speed.

use crate::engine::{DataPath, DataPathChoice, Token};

/// Shorter transfers are not compared, because half of their time is the request's.
const LEN_MIN: u32 = 512 << 10;
/// This many comparisons are remembered. Their median counts, since the processor may have been away during one of them.
const REMEMBERED: usize = 9;
/// This many comparisons are needed before the usual path changes.
const ENOUGH: usize = 4;
/// After this many comparisons, trials become rare.
const SOON: usize = 9;
/// This many transfers on the usual path lie between two trials, at first and later.
const BETWEEN_SOON: u32 = 2;
const BETWEEN_LATER: u32 = 24;
/// Ratios are in these units.
const ONE: u64 = 1024;
/// The other path becomes the usual one only if it is quicker by this much: 3 %.
const BETTER: u64 = ONE / 32;

/// What is known about both paths.
#[derive(Debug)]
pub(super) struct DataPaths {
    /// The path that transfers take unless they are trials.
    usual: DataPath,
    learns: bool,
    /// The newest comparisons: the time that data took on the bulk path, in units of [`ONE`] of the time with messages.
    ratios: [u64; REMEMBERED],
    comparisons: usize,
    /// Transfers on the usual path since the last trial.
    since: u32,
    /// The time per byte of the last transfer on the usual path, and of the trial after it.
    before_ps: Option<u64>,
    trial_ps: Option<u64>,
    /// The transfer that is the current trial.
    trial: Option<Token>,
}

impl DataPaths {
    pub(super) const fn new(choice: DataPathChoice) -> Self {
        let (usual, learns) = match choice {
            DataPathChoice::Fixed(path) => (path, false),
            DataPathChoice::Learned(path) => (path, true),
        };
        Self {
            usual,
            learns,
            ratios: [ONE; REMEMBERED],
            comparisons: 0,
            since: 0,
            before_ps: None,
            trial_ps: None,
            trial: None,
        }
    }

    /// The path for a transfer that begins. `alone`: no other is running.
    pub(super) fn choose(&mut self, token: Token, length: u32, alone: bool) -> DataPath {
        let between = if self.comparisons < SOON {
            BETWEEN_SOON
        } else {
            BETWEEN_LATER
        };
        let may = self.learns && alone && length >= LEN_MIN && self.trial.is_none() && self.trial_ps.is_none();
        if may && self.before_ps.is_some() && self.since >= between {
            self.trial = Some(token);
            return self.usual.other();
        }
        self.usual
    }

    /// Records a transfer that is over: its path and its duration. `alone`: no other one ran beside it.
    pub(super) fn over(&mut self, token: Token, path: DataPath, (length, ns): (u32, u64), alone: bool) {
        if !self.learns {
            return;
        }
        let is_trial = self.trial == Some(token);
        if is_trial {
            self.trial = None;
        }
        if !alone || length < LEN_MIN || is_trial == (path == self.usual) {
            // It says nothing, nor do those around it.
            self.before_ps = None;
            self.trial_ps = None;
            return;
        }
        let ps = ns.saturating_mul(1000) / u64::from(length);
        if is_trial {
            self.trial_ps = Some(ps);
            return;
        }
        let before = self.before_ps.replace(ps);
        self.since += 1;
        if let (Some(before), Some(trial)) = (before, self.trial_ps.take()) {
            self.since = 0;
            self.compare(trial, before.midpoint(ps));
        }
    }

    fn compare(&mut self, trial_ps: u64, usual_ps: u64) {
        let (bulk, with_messages) = match self.usual {
            DataPath::WithMessages => (trial_ps, usual_ps),
            DataPath::Bulk => (usual_ps, trial_ps),
        };
        self.ratios[self.comparisons % REMEMBERED] = bulk.saturating_mul(ONE) / with_messages.max(1);
        self.comparisons = self.comparisons.wrapping_add(1);
        let mut known = self.ratios;
        let known = &mut known[..self.comparisons.min(REMEMBERED)];
        known.sort_unstable();
        let ratio = known[known.len() / 2];
        let better = match self.usual {
            DataPath::WithMessages => ratio < ONE - BETTER,
            DataPath::Bulk => ratio > ONE + BETTER,
        };
        if better && known.len() >= ENOUGH {
            self.usual = self.usual.other();
            self.before_ps = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u32 = 4 << 20;

    /// Runs transfers, each alone, whose durations on the bulk path and with messages are given for a machine at full
    /// speed; `slowness` gives the actual ones in percent. Returns how many of 1000 took the bulk path.
    fn run(
        paths: &mut DataPaths,
        transfers: u64,
        bulk_ns: u64,
        with_messages_ns: u64,
        slowness: impl Fn(u64) -> u64,
    ) -> u64 {
        (0..transfers)
            .filter(|token| {
                let path = paths.choose(*token, LEN, true);
                let ns = match path {
                    DataPath::WithMessages => with_messages_ns,
                    DataPath::Bulk => bulk_ns,
                };
                paths.over(*token, path, (LEN, ns * slowness(*token) / 100), true);
                path == DataPath::Bulk
            })
            .count() as u64
    }

    #[test]
    fn the_quicker_way_is_found_from_either_and_tried_rarely_afterwards() {
        for first in [DataPath::WithMessages, DataPath::Bulk] {
            let learned = || DataPaths::new(DataPathChoice::Learned(first));
            // Some slow their machines down by half for a while, some now and then a lot.
            for slowness in [
                |_| 100,
                |at| 100 + 50 * (at / 40 % 2),
                |at| 100 + 300 * u64::from(at % 13 == 5),
            ] {
                let mut paths = learned();
                run(&mut paths, 100, 2_000_000, 2_500_000, slowness);
                let bulk = run(&mut paths, 1000, 2_000_000, 2_500_000, slowness);
                assert!((950..1000).contains(&bulk), "{first:?}: {bulk}");
                // It changes.
                run(&mut paths, 600, 2_000_000, 1_700_000, slowness);
                let bulk = run(&mut paths, 1000, 2_000_000, 1_700_000, slowness);
                assert!((1..=50).contains(&bulk), "{first:?}: {bulk}");
            }
            // Where it does not matter, nothing changes.
            let mut paths = learned();
            let bulk = run(&mut paths, 1000, 2_000_000, 2_020_000, |_| 100);
            assert_eq!(bulk > 500, first == DataPath::Bulk);
        }
    }

    #[test]
    fn nothing_is_tried_where_it_would_say_nothing_or_was_fixed() {
        for path in [DataPath::WithMessages, DataPath::Bulk] {
            let mut fixed = DataPaths::new(DataPathChoice::Fixed(path));
            let mut learned = DataPaths::new(DataPathChoice::Learned(path));
            for token in 0..1000 {
                assert_eq!(fixed.choose(token, LEN, true), path);
                fixed.over(token, path, (LEN, 1000), true);
                for (length, alone) in [(LEN, false), (LEN_MIN - 1, true)] {
                    assert_eq!(learned.choose(token, length, alone), path);
                    learned.over(token, path, (length, 1000), alone);
                }
            }
        }
    }

    #[test]
    fn a_trial_that_was_given_another_slot_or_was_disturbed_is_forgotten() {
        let mut paths = DataPaths::new(DataPathChoice::Learned(DataPath::WithMessages));
        let mut trials = 0;
        for token in 0..200 {
            let path = paths.choose(token, LEN, true);
            trials += u32::from(path == DataPath::Bulk);
            // All slots for it are taken, or others began meanwhile.
            let came = if token % 2 == 0 { DataPath::WithMessages } else { path };
            paths.over(
                token,
                came,
                (LEN, 1000),
                token % 2 == 0 || path == DataPath::WithMessages,
            );
        }
        assert!(trials > 10);
        assert_eq!(paths.comparisons, 0);
    }
}
