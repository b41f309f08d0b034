//! Does one strategy keep the promises that every strategy gives? The suite calls it directly, and runs it in the real pipeline.

use alloc::{format, vec::Vec};

use ether::Time;

use super::{
    Broken, Promise,
    calls::{honest, marks_end, same_answers, some_calls},
    load::{Load, Twice},
    path::{Decisions, after_a_pause, decisions, run},
    shrink::{Case, shrunk},
    timeline::Timeline,
};
use crate::{
    Coalescing, Pipeline, PipelineConfig, Reason, StrategyKind,
    coalescing::{Action, AdaptiveState, Attention, Completion, Disabled, Oldest, Selection, Strategy, Together},
};

/// Sequences of calls, and loads of each kind.
const SEQUENCES: u64 = 2_000;

/// How long nothing arrives before a strategy decides as if it were new.
const QUIET_NS: u64 = 60_000_000_000;

/// Runs the whole suite on one strategy.
///
/// # Errors
/// The first promise that is broken, and how.
pub fn strategy<S: Strategy>() -> Result<(), Broken> {
    let mut found = Findings::new(true);
    found.of::<S>();
    found.broken.pop().map_or(Ok(()), Err)
}

/// Runs the whole suite on one strategy, and gives each promise that it breaks, with the fewest events that show it. One that keeps
/// something outside itself is not asked for more: nothing that it does means anything.
pub fn broken_promises<S: Strategy>() -> Vec<Broken> {
    let mut found = Findings::new(false);
    found.of::<S>();
    found.broken
}

/// What was found so far.
struct Findings {
    only_first: bool,
    broken: Vec<Broken>,
}

impl Findings {
    fn new(only_first: bool) -> Self {
        Self {
            only_first,
            broken: Vec::new(),
        }
    }

    fn is_done(&self) -> bool {
        let outside = |broken: &Broken| broken.promise == Promise::SameAnswers;
        !self.broken.is_empty() && (self.only_first || self.broken.iter().any(outside))
    }

    /// Runs the cases of all seeds, and shrinks the first of each promise.
    fn check<C: Case>(&mut self, make: impl Fn(u64) -> C, run: impl Fn(&C) -> Result<(), Broken>) {
        for seed in 0..SEQUENCES {
            if self.is_done() {
                return;
            }
            let case = make(seed);
            if let Err(broken) = run(&case)
                && !self.broken.iter().any(|known| known.promise == broken.promise)
            {
                self.broken.push(shrunk(case, broken, &run));
            }
        }
    }

    fn of<S: Strategy>(&mut self) {
        // The settings may name any strategy: there is this one only.
        let load = |seed| Load::new(seed, &[StrategyKind::Timeout]);
        let twice = |seed| Twice {
            first: load(seed),
            then: load(seed + SEQUENCES),
        };
        self.check(some_calls, same_answers::<S>);
        self.check(some_calls, honest::<S>);
        self.check(some_calls, marks_end::<S>);
        self.check(load, attention::<S>);
        self.check(load, |load| run(pipeline::<S>(), load));
        self.check(twice, starts_anew::<S>);
    }
}

/// The real pipeline with one strategy.
pub(super) fn pipeline<S: Strategy>() -> Pipeline<Only<S>> {
    Pipeline::new(&PipelineConfig::default())
}

/// A strategy that is told of every completion decides as one that is spared some.
fn attention<S: Strategy>(load: &Load) -> Result<(), Broken> {
    // What breaks other promises is told of as that.
    let Ok((told, _)) = decisions(pipeline::<Hearing<S>>(), load) else {
        return Ok(());
    };
    let Ok((spared, mut timeline)) = decisions(pipeline::<S>(), load) else {
        return Ok(());
    };
    if let Some((told, spared)) = difference(&told, &spared) {
        timeline.note(None, format!("told of every packet: an interrupt {}", words(told)));
        let details = format!(
            "told of every packet, it decides on an interrupt {}; told of those that it pays attention to, {}",
            words(told),
            words(spared)
        );
        return Err(Broken::new(Promise::HonestAttention, details).shown(timeline));
    }
    if told.deferred != spared.deferred {
        let details = format!(
            "{} put off one by one, and {} of packets together",
            told.deferred, spared.deferred
        );
        return Err(Broken::new(Promise::Counted, details).shown(timeline));
    }
    Ok(())
}

/// A minute after anything, it decides as a new one.
fn starts_anew<S: Strategy>(twice: &Twice) -> Result<(), Broken> {
    let paths = [pipeline::<S>(), pipeline::<S>()];
    // What breaks other promises is told of as that.
    let Ok(([old, new], mut timeline)) = after_a_pause(paths, (&twice.first, &twice.then), QUIET_NS) else {
        return Ok(());
    };
    let Some((old, new)) = difference(&old, &new) else {
        return Ok(());
    };
    timeline.note(None, format!("one that was just selected: an interrupt {}", words(new)));
    let details = format!(
        "an interrupt {}, where one that was just selected decides on one {}",
        words(old),
        words(new)
    );
    Err(Broken::new(Promise::StartsAnew, details).shown(timeline))
}

/// The first interrupts that differ.
fn difference(one: &Decisions, other: &Decisions) -> Option<(Decision, Decision)> {
    let (one, other) = (&one.interrupts, &other.interrupts);
    let at = (0..one.len().max(other.len())).find(|&at| one.get(at) != other.get(at))?;
    Some((one.get(at).copied(), other.get(at).copied()))
}

/// When, why, for how many packets; `None` = no more.
type Decision = Option<(Time, Reason, u32)>;

fn words(decision: Decision) -> alloc::string::String {
    match decision {
        None => "never".into(),
        Some((at, reason, packets)) => Timeline::words(at, Some(reason), Some(packets)),
    }
}

/// One strategy for all settings, but for a delay of 0, which turns coalescing off.
#[derive(Clone, Copy, Debug)]
pub(super) enum Only<S> {
    Off(Disabled),
    On(S),
}

impl<S: Strategy> Default for Only<S> {
    fn default() -> Self {
        Self::On(S::default())
    }
}

impl<S: Strategy> Selection for Only<S> {
    fn new(settings: Coalescing) -> Self {
        match settings.delay_ns {
            0 => Self::Off(Disabled),
            _ => Self::On(S::default()),
        }
    }

    fn serves(&self, settings: Coalescing) -> bool {
        matches!(self, Self::Off(_)) == (settings.delay_ns == 0)
    }
}

impl<S: Strategy> Strategy for Only<S> {
    fn completed(&mut self, completion: Completion) -> Action {
        match self {
            Self::Off(off) => off.completed(completion),
            Self::On(strategy) => strategy.completed(completion),
        }
    }

    fn completed_together(&mut self, together: Together) -> (u32, Action) {
        match self {
            Self::Off(off) => off.completed_together(together),
            Self::On(strategy) => strategy.completed_together(together),
        }
    }

    fn attention(&self) -> Attention {
        match self {
            Self::Off(off) => off.attention(),
            Self::On(strategy) => strategy.attention(),
        }
    }

    fn announced(&mut self) {
        match self {
            Self::Off(off) => off.announced(),
            Self::On(strategy) => strategy.announced(),
        }
    }

    fn is_deferring(&self) -> bool {
        match self {
            Self::Off(off) => off.is_deferring(),
            Self::On(strategy) => strategy.is_deferring(),
        }
    }

    fn delay_ns(&mut self, oldest: Oldest) -> u64 {
        match self {
            Self::Off(off) => off.delay_ns(oldest),
            Self::On(strategy) => strategy.delay_ns(oldest),
        }
    }

    fn adaptive(&self, longest_ns: u64) -> Option<AdaptiveState> {
        match self {
            Self::Off(off) => off.adaptive(longest_ns),
            Self::On(strategy) => strategy.adaptive(longest_ns),
        }
    }
}

/// A strategy that is told of every completion.
#[derive(Clone, Copy, Debug, Default)]
struct Hearing<S>(S);

impl<S: Strategy> Strategy for Hearing<S> {
    fn completed(&mut self, completion: Completion) -> Action {
        self.0.completed(completion)
    }

    fn announced(&mut self) {
        self.0.announced();
    }

    fn is_deferring(&self) -> bool {
        self.0.is_deferring()
    }

    fn delay_ns(&mut self, oldest: Oldest) -> u64 {
        self.0.delay_ns(oldest)
    }

    fn adaptive(&self, longest_ns: u64) -> Option<AdaptiveState> {
        self.0.adaptive(longest_ns)
    }
}
