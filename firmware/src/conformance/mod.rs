//! The conformance suite: does a strategy, or a whole receive path, keep its promises? If not, it says in words which one
//! it breaks, and shows the fewest events with which it does as a time line.
//!
//! Calls and loads are random and seeded, so the answer does not depend on the machine. Nothing else in the crate uses the
//! suite, so a program that does not call it does not contain it. What a strategy *should* decide is not here but in the specification of its
//! mechanism (`tests/firmware/reference.rs`), or in expectation traces ([`Expectation`]).

use alloc::{format, string::String};
use core::fmt;

use crate::{
    StrategyKind,
    coalescing::{Strategy, StrategyVisitor, visit_strategies},
};

mod calls;
mod expectation;
mod load;
mod path;
mod shrink;
mod strategy;
mod timeline;

pub use expectation::{Arrival, Expectation, Expected, Unexpected};
pub use path::{ReceivePath, receive_path, receive_path_under};
pub use strategy::{broken_promises, strategy};

/// Runs the suite on every registered strategy.
///
/// # Errors
/// The first strategy that breaks a promise, and which one.
pub fn registered() -> Result<(), (StrategyKind, Broken)> {
    visit_strategies(&mut Suite)
}

/// The suite as what is shown the registered strategies.
struct Suite;

impl StrategyVisitor for Suite {
    type Error = (StrategyKind, Broken);

    fn visit<S: Strategy>(&mut self, kind: StrategyKind) -> Result<(), Self::Error> {
        strategy::<S>().map_err(|broken| (kind, broken))
    }
}

/// What a receive path or a strategy promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// No packet is published or announced before its DMA has completed (M-GF4).
    AfterTheDma,
    /// No packet is unannounced for longer than the time-out, or its own DMA if that takes longer (M-GF1).
    WithinTheTimeout,
    /// An interrupt announces packets; an idle host gets none.
    NoIdleInterrupt,
    /// An interrupt announces all that has completed, once.
    AnnouncesAllOnce,
    /// No more packets wait than the count limit allows (M-GF2).
    WithinTheCount,
    /// Reasons are true (M-GF10).
    TrueReason,
    /// Interrupts are numbered 1, 2, 3, …
    Numbered,
    /// Counters say what was decided; reasons add up (M-GF10).
    Counted,
    /// `next_event` names every moment at which there is something to do, and no other.
    NextEvent,
    /// Changes of settings lose no packet.
    SurvivesChanges,
    /// `attention` leaves out only completions that mean nothing to the strategy.
    HonestAttention,
    /// Equal calls have equal answers: nothing is kept outside the strategy.
    SameAnswers,
    /// What is put off is remembered, and raised when no other packet is in flight (M-GF5).
    RemembersWhatItPutOff,
    /// Nothing of a mark outlives its announcement (M-GF11).
    ForgetsWhatIsAnnounced,
    /// A strategy gives reasons of its own, not those of the pipeline.
    OwnReason,
    /// A chosen delay is at most that of the settings, and told as it is (M-GF7).
    HonestDelay,
    /// Behind a minute without packets, it decides as a strategy that was just selected: what it counts or measures is brought
    /// back by an announcement, or by time.
    StartsAnew,
}

impl Promise {
    /// What who breaks it did.
    pub const fn broken(self) -> &'static str {
        match self {
            Self::AfterTheDma => "announced a packet before its DMA completed",
            Self::WithinTheTimeout => "let a packet wait longer than the time-out and its own DMA",
            Self::NoIdleInterrupt => "interrupted an idle host",
            Self::AnnouncesAllOnce => "announced a packet twice, or left one out that had completed",
            Self::WithinTheCount => "let more packets wait than the count limit allows",
            Self::TrueReason => "gave a reason that is not true",
            Self::Numbered => "gave an interrupt a number that is not the next",
            Self::Counted => "counted something else than what happened",
            Self::NextEvent => "asked to be polled for nothing, or had something to do without asking",
            Self::SurvivesChanges => "lost a packet when the settings changed",
            Self::HonestAttention => "claims it need not hear of a packet that matters to it",
            Self::SameAnswers => "answers equal calls differently: it keeps something outside itself",
            Self::RemembersWhatItPutOff => "put an interrupt off and forgot it",
            Self::ForgetsWhatIsAnnounced => "keeps a mark or a flag that should not survive announced()",
            Self::OwnReason => "gives a reason that is the pipeline's to give",
            Self::HonestDelay => "chooses a delay that it may not choose, or tells another one",
            Self::StartsAnew => "decides otherwise after a minute without packets than one that was just selected",
        }
    }
}

/// A promise was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which one.
    pub promise: Promise,
    /// In which circumstances.
    pub details: String,
    /// The fewest events that were found with which it is broken, a line for each, with times in nanoseconds.
    pub timeline: String,
}

impl Broken {
    fn new(promise: Promise, details: impl fmt::Display) -> Self {
        Self {
            promise,
            details: format!("{details}"),
            timeline: String::new(),
        }
    }

    fn during(mut self, what: impl fmt::Display) -> Self {
        self.details = format!("{}; {what}", self.details);
        self
    }

    fn shown(mut self, timeline: impl fmt::Display) -> Self {
        self.timeline = format!("{timeline}");
        self
    }

    /// The sentence and the time line.
    pub fn report(&self) -> String {
        format!("{self}\n{}", self.timeline)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise.broken(), self.details)
    }
}

impl core::error::Error for Broken {}
