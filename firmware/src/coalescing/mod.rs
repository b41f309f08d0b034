//! Interrupt coalescing: the settings, the strategies and the one list that registers them.
//!
//! Each strategy has a file beside this one and a line in the list at the end of this one. Time-out and count limit (`papers.md`
//! M-GF1, M-GF2) are not a strategy's business: the pipeline enforces them around every strategy.

use ether::Time;

use crate::{PacketInfo, Reason};

mod adaptive;
mod disabled;
mod open_mx;
mod reason_of;
mod registry;
mod stream;
mod timeout;

pub use adaptive::AdaptiveState;
pub use reason_of::ReasonOf;
pub use registry::{STRATEGY_NAME_MAX, UnknownStrategy};

use adaptive::Adaptive;
pub(crate) use disabled::Disabled;

/// The card's default coalescing delay, that of the Myri-10G (M-GF1).
pub const DELAY_NS_DEFAULT: u64 = 75_000;
/// The longest coalescing delay: a packet that waits a second for its announcement looks lost to every protocol above.
pub const DELAY_NS_MAX: u64 = 1_000_000_000;
/// The greatest count limit: as many packets as may be in flight to host memory.
pub const FRAMES_MAX_MAX: u32 = crate::PENDING_MAX as u32;

weft_settings::settings! {
    /// How a receive queue coalesces its interrupts. `S` names the strategy: [`StrategyKind`], or in what a card says of itself to a guest
    /// [`StrategyCode`](crate::control::StrategyCode), since the guest's programs may know fewer strategies than the card.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Coalescing<S = StrategyKind>, changed by struct CoalescingChange {
        /// What decides when a packet's DMA has completed.
        pub strategy: S,
        /// Longest time from the arrival of the first packet not yet announced to its interrupt, in nanoseconds (M-GF1); at
        /// most [`DELAY_NS_MAX`]. 0 turns coalescing off whatever the strategy: an interrupt for each packet.
        pub delay_ns: u64,
        /// An interrupt when so many packets wait (M-GF2); 0 = no count limit, at most [`FRAMES_MAX_MAX`]. Without meaning
        /// while coalescing is off.
        pub frames_max as "frames": u32,
        /// Whether the card reads the latency-sensitive mark of arriving packets (M-GF3).
        pub marks: bool,
    }
}

impl<S> Coalescing<S> {
    /// These settings with the strategy in another representation.
    pub fn with_strategy<T>(&self, strategy: T) -> Coalescing<T> {
        Coalescing {
            strategy,
            delay_ns: self.delay_ns,
            frames_max: self.frames_max,
            marks: self.marks,
        }
    }
}

impl<S> CoalescingChange<S> {
    /// This change with the strategy in another representation.
    pub fn with_strategy<T>(&self, strategy: Option<T>) -> CoalescingChange<T> {
        CoalescingChange {
            strategy,
            delay_ns: self.delay_ns,
            frames_max: self.frames_max,
            marks: self.marks,
        }
    }
}

impl Coalescing {
    /// What a card starts with: time-out coalescing with 75 µs, no count limit, marks read.
    pub const DEFAULT: Self = Self {
        strategy: StrategyKind::Timeout,
        delay_ns: DELAY_NS_DEFAULT,
        frames_max: 0,
        marks: true,
    };

    /// The settings unchanged, if they are within the limits stated at their fields.
    pub const fn validated(self) -> Result<Self, CoalescingError> {
        if self.delay_ns > DELAY_NS_MAX {
            return Err(CoalescingError::DelayTooLong);
        }
        if self.frames_max > FRAMES_MAX_MAX {
            return Err(CoalescingError::TooManyFrames);
        }
        Ok(self)
    }

    /// The nearest settings within the limits.
    pub(crate) fn clamped(self) -> Self {
        Self {
            delay_ns: self.delay_ns.min(DELAY_NS_MAX),
            frames_max: self.frames_max.min(FRAMES_MAX_MAX),
            ..self
        }
    }

    /// The strategy that really decides: a delay of 0 turns coalescing off (M-GF1).
    pub(crate) fn effective_strategy(self) -> StrategyKind {
        if self.delay_ns == 0 {
            StrategyKind::Disabled
        } else {
            self.strategy
        }
    }
}

impl Default for Coalescing {
    fn default() -> Self {
        Self::DEFAULT
    }
}

weft_settings::errors! {
    /// [`Coalescing`] with a value out of range; the settings in use stay.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CoalescingError {
        /// `delay_ns` is above its limit.
        DelayTooLong = "the coalescing delay must be at most 1000000000 ns",
        /// `frames_max` is above its limit.
        TooManyFrames = "the count limit must be at most 1024 frames",
    }
}

/// What a strategy is told: the DMA of a packet has completed.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// When the DMA completed.
    pub at: Time,
    /// The packet's descriptor, mark included.
    pub packet: PacketInfo,
    /// Another packet has arrived by now and its DMA has not completed.
    pub others_pending: bool,
}

/// What a strategy is told: the DMAs of several packets have completed at one moment, and all of them had arrived by then.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// When the DMAs completed.
    pub at: Time,
    /// How many of the packets are marked; at least 1.
    pub marked: u32,
    /// The descriptor of the last packet.
    pub last: PacketInfo,
}

/// What a strategy may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the packet waits for the time-out, the count limit or a later completion.
    Wait,
    /// The packet waits as for [`Action::Wait`], and an interrupt that was asked for has been put off: counted.
    Defer,
    /// An interrupt now, for everything that has completed. [`Reason::Strategy`] is for whatever a strategy decides by itself:
    /// reports name the strategy with it. [`Reason::Mark`], [`Reason::Deferred`] and [`Reason::EveryPacket`] are for what they say; all
    /// others are the pipeline's to give.
    Raise(Reason),
}

/// Which completions a strategy has to hear of, so that the pipeline can take the others in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// All.
    EveryPacket,
    /// Those of marked packets: as things stand, it would answer [`Action::Wait`] to any unmarked one.
    MarkedPackets,
    /// Those of marked packets, as for [`Attention::MarkedPackets`]; and packets that complete at one moment, all of which had arrived by then, it would
    /// rather hear of as a whole, by [`Strategy::completed_together`].
    MarkedTogether,
    /// None: it would answer [`Action::Wait`] to any packet.
    NoPacket,
}

/// A coalescing strategy.
///
/// Promises made to it: `completed` is called once for each packet that it pays attention to, in order of arrival, after
/// the packet's DMA; `announced` is called after every interrupt, whatever raised it (this strategy, the time-out, the count limit, a
/// restart), and when the queue is reset.
///
/// What it cannot do: raise before a DMA has completed, hold a packet longer than the time-out, or loop.
pub trait Strategy: Copy + Default {
    /// A packet reached host memory.
    fn completed(&mut self, completion: Completion) -> Action;

    /// Packets reached host memory at one moment, marked ones among them: what the last of them comes to, and how often before it
    /// an interrupt was put off. Asked only if [`Strategy::attention`] wants that.
    #[inline]
    fn completed_together(&mut self, _together: Together) -> (u32, Action) {
        (0, Action::Wait)
    }

    /// Which completions matter as things stand. A shortcut and no more: answers must not depend on it being taken.
    #[inline]
    fn attention(&self) -> Attention {
        Attention::EveryPacket
    }

    /// Everything that had completed was announced.
    #[inline]
    fn announced(&mut self) {}

    /// An interrupt that was asked for is being put off. If the strategy is taken away now, the pipeline raises it.
    #[inline]
    fn is_deferring(&self) -> bool {
        false
    }

    /// How long packets may wait, in nanoseconds, counted from the arrival of the oldest one not announced; an interrupt then
    /// is told to be `adaptive`. Asked whenever another packet becomes the oldest, and when settings change. More than
    /// [`Oldest::longest_ns`] is not granted: a strategy that answers that leaves the time to M-GF1.
    #[inline]
    fn delay_ns(&mut self, oldest: Oldest) -> u64 {
        oldest.longest_ns
    }

    /// What a strategy that chooses its delay measured and chose, for people. One that never has anything to say here is not
    /// asked for a delay.
    fn adaptive(&self, _longest_ns: u64) -> Option<AdaptiveState> {
        None
    }
}

/// What a strategy that chooses its delay is told: another packet is the oldest not announced.
#[derive(Clone, Copy, Debug)]
pub struct Oldest {
    /// When it arrived.
    pub arrived: Time,
    /// How many packets were announced while the strategy was configured; only differences mean something.
    pub announced: u64,
    /// The delay of the settings, in nanoseconds.
    pub longest_ns: u64,
}

/// What a pipeline holds: the strategy that its settings name. The registered ones, or one alone for the conformance suite.
pub trait Selection: Strategy {
    /// The strategy for these settings, fresh.
    fn new(settings: Coalescing) -> Self;

    /// Whether this is the strategy for these settings already.
    fn serves(&self, settings: Coalescing) -> bool;
}

/// What is shown each registered strategy by its type, see [`visit_strategies`].
pub(crate) trait StrategyVisitor {
    /// Why the visit ends early.
    type Error;

    /// Visits the strategy that is registered as `kind`.
    fn visit<S: Strategy>(&mut self, kind: StrategyKind) -> Result<(), Self::Error>;
}

// One line for each strategy: its name in Rust, its code on the wire (the next free one; never change one that is in use), its name
// for people, and its type. `mod every_second::EverySecond` is the type `EverySecond` in the file `every_second.rs` beside this one.
registry::strategies! {
    /// M-GF1 with a delay of 0: an interrupt for each packet.
    Disabled = 0, "disabled", Disabled;
    /// M-GF1: an interrupt when the delay of the first unannounced packet is over.
    Timeout = 1, "timeout", timeout::Timeout;
    /// M-GF4, Algorithm 1: a marked packet is announced as soon as it is in host memory.
    OpenMx = 2, "open-mx", open_mx::OpenMx;
    /// M-GF5, Algorithm 2: as Open-MX, but put off while other packets are in flight.
    Stream = 3, "stream", stream::Stream;
    /// M-GF7: the delay follows the traffic, from none up to that of the settings.
    Adaptive = 4, "adaptive", Adaptive<timeout::Timeout>;
    /// M-GF8: adaptive, and Open-MX for marked packets.
    AdaptiveOpenMx = 5, "adaptive-open-mx", Adaptive<open_mx::OpenMx>;
    /// M-GF8: adaptive, and Stream for marked packets.
    AdaptiveStream = 6, "adaptive-stream", Adaptive<stream::Stream>;
}
