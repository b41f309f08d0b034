//! The values that replies carry: abilities, reports and refusals.
//!
//! The layouts of most are in `reply`, the meanings of all in `docs/spec/card-control.md`.

use alloc::borrow::Cow;
use core::fmt;

use crate::{
    AdaptiveState, Coalescing, CoalescingChange, RxCounts, SteeringCounters, SteeringMode, SteeringTable, StrategyKind,
    TableEntries, multicast::GroupCounters,
};

/// Bits of [`Abilities::bits`].
pub mod ability {
    /// The card coalesces interrupts, and requests about it are understood.
    pub const COALESCING: u32 = 1 << 0;
    /// The card reads the latency-sensitive mark of frames of MXoE and ESP.
    pub const MARKS: u32 = 1 << 1;
    /// The card counts, and tells its counters.
    pub const COUNTERS: u32 = 1 << 2;
    /// The card chooses receive queues by endpoint or flow, and requests about that are understood.
    pub const STEERING: u32 = 1 << 3;
    /// The queues have a polling watchdog.
    pub const WATCHDOG: u32 = 1 << 4;
    /// The card has timers for the guest.
    pub const TIMERS: u32 = 1 << 5;
    /// The card tells what its adaptive moderation measured and chose.
    pub const ADAPTIVE: u32 = 1 << 8;
    /// The card multicasts to groups, and requests about them are understood.
    pub const GROUPS: u32 = 1 << 6;
    /// The card is connected to itself, and tells what its copy engine did.
    pub const COPY_ENGINE: u32 = 1 << 7;
    /// The card tells the names of its strategies.
    pub const STRATEGY_NAMES: u32 = 1 << 9;
    /// The card reads the host's state from a record in its memory, where the host says so.
    pub const HOST_RECORD: u32 = 1 << 10;
}

/// What a card can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The version that both will speak.
    pub version: u8,
    /// Number of receive queues.
    pub queue_pairs: u16,
    /// What the card can do, see [`ability`]; a bit that is not known is to be ignored.
    pub bits: u32,
    /// Coalescing strategies.
    pub strategies: StrategySet,
    /// Longest coalescing delay, in nanoseconds.
    pub delay_ns_max: u32,
    /// Greatest count limit.
    pub frames_max_max: u32,
}

/// A strategy by its code in control frames; a card may have strategies that this crate does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StrategyCode(pub u8);

impl StrategyCode {
    /// The strategy, if this crate has it.
    pub fn kind(self) -> Option<StrategyKind> {
        StrategyKind::from_code(self.0)
    }
}

impl From<StrategyKind> for StrategyCode {
    fn from(kind: StrategyKind) -> Self {
        Self(kind.code())
    }
}

impl From<Coalescing> for Coalescing<StrategyCode> {
    fn from(settings: Coalescing) -> Self {
        settings.with_strategy(settings.strategy.into())
    }
}

impl From<CoalescingChange> for CoalescingChange<StrategyCode> {
    fn from(change: CoalescingChange) -> Self {
        change.with_strategy(change.strategy.map(StrategyCode::from))
    }
}

/// A set of strategies by their codes, which may contain some that this crate does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrategySet(pub u32);

impl StrategySet {
    /// All strategies that this crate knows.
    pub fn all() -> Self {
        Self(StrategyKind::ALL.iter().fold(0, |bits, kind| bits | 1 << kind.code()))
    }

    /// True if the set contains `strategy`.
    pub fn contains(self, strategy: impl Into<StrategyCode>) -> bool {
        1u32.checked_shl(strategy.into().0.into())
            .is_some_and(|bit| self.0 & bit != 0)
    }

    /// The strategies in the set.
    pub fn iter(self) -> impl Iterator<Item = StrategyCode> {
        (0..u32::BITS as u8)
            .map(StrategyCode)
            .filter(move |&code| self.contains(code))
    }
}

/// Coalescing settings of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalescingReport {
    /// The queue they are of.
    pub queue: u16,
    /// The settings.
    pub coalescing: Coalescing<StrategyCode>,
}

/// Counters of a queue or of all, under one strategy or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterReport {
    /// The queue they are of; `None` = sum of all.
    pub queue: Option<u16>,
    /// Counted while this strategy was configured; `None` = sum of all.
    pub strategy: Option<StrategyCode>,
    /// The counters.
    pub counts: RxCounts,
}

/// How receive queues are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringReport {
    /// By what frames are distinguished.
    pub mode: SteeringMode,
    /// Endpoints are spread evenly over the queues that are ready; otherwise by a table.
    pub endpoints_even: bool,
    /// Flows are spread evenly over the queues that are ready; otherwise by a table.
    pub indirection_even: bool,
    /// Number of receive queues.
    pub queue_pairs: u16,
    /// How many of them are ready.
    pub ready: u16,
    /// What was counted.
    pub counters: SteeringCounters,
    /// The table that `entries` are of.
    pub table: SteeringTable,
    /// Entries as they are in force with the queues that are ready.
    pub entries: TableEntries,
}

/// The state of a queue's adaptive moderation (`papers.md` M-GF7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveReport {
    /// The queue it is of.
    pub queue: u16,
    /// The strategy that the queue is set to.
    pub strategy: StrategyCode,
    /// The delay of the settings, in nanoseconds: the longest that adaptive moderation may choose.
    pub longest_ns: u64,
    /// What it measured and chose since it was selected; `None` while another strategy decides.
    pub state: Option<AdaptiveState>,
}

/// A multicast group of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupReport {
    /// Its number; 0 = there is no such group.
    pub group: u16,
    /// Members of it, the card itself included; 0 = the card is none.
    pub members: u16,
    /// What the card counted there.
    pub counters: GroupCounters,
}

/// A request was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs; a code that this crate does not know stays a number.
    pub code: u16,
    /// For people: a short ASCII sentence.
    pub reason: Cow<'static, str>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the card refused: {} (code {})", self.reason, self.code)
    }
}

impl core::error::Error for Refusal {}

weft_settings::named! {
    /// Why a card refuses a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u16)]
    pub enum RefusalCode {
        /// The frame is too short, too long, or does not carry the protocol's magic number, or its lengths disagree.
        Malformed(1) = "malformed",
        /// The card does not speak this version.
        Version = "version",
        /// The card does not know this operation.
        Operation = "operation",
        /// The card has no such queue.
        Queue = "queue",
        /// The card has no such strategy.
        Strategy = "strategy",
        /// A value is out of range.
        Range = "range",
        /// Bits or bytes that must be zero are not.
        Reserved = "reserved",
        /// The group or the card is full, groups are changed too often, or the guest is not who the card knows.
        Group = "group",
    }
}

impl RefusalCode {
    /// How many codes there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The number in a reply; never 0.
    pub const fn code(self) -> u16 {
        self as u16
    }
}
