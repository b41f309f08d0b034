//! Interrupts and the reasons for them.
//!
//! An interrupt is a decision of the firmware here, not a signal: whether the guest's driver wants the call, and what became of it, is the
//! driver's business (`papers.md` M-GF10 distinguishes *decided*, *suppressed*, *signalled* and *taken*).

use alloc::{format, string::String};
use core::fmt;

use ether::Time;

use crate::StrategyKind;

weft_settings::named! {
    /// Why an interrupt was decided (`papers.md` M-GF10).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    // As wide as the field behind it in `Interrupt`: bytes of padding would be copied one by one with every interrupt.
    #[repr(u32)]
    pub enum Reason, or UnknownReason listing "not a reason for an interrupt; known are" {
        /// Coalescing is off: one interrupt for each packet.
        EveryPacket = "every-packet",
        /// The packet that completed carried the latency-sensitive mark.
        Mark = "mark",
        /// The coalescing delay of the first packet not yet announced ran out.
        Timeout = "timeout",
        /// As many packets as the count limit allows were waiting.
        Count = "count",
        /// A marked packet's interrupt had been put off while other packets were in flight, and the last of them came.
        Deferred = "deferred",
        /// The polling watchdog found a host that does not poll.
        Watchdog = "watchdog",
        /// Adaptive moderation chose this moment.
        Adaptive = "adaptive",
        /// The driver of the firmware started anew and tells every ring once.
        Restart = "restart",
        /// A timer that the guest armed on its card rang.
        Clock = "clock",
        /// The strategy chose this moment, for a reason of its own. Its name tells which: see [`Reason::of`].
        Strategy = "strategy",
    }
}

impl Reason {
    /// How many reasons there are; counters are indexed by [`Reason::index`].
    pub const COUNT: usize = Self::ALL.len();

    /// Position in [`Reason::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The reason of an interrupt that was decided while `strategy` was configured, as reports, metrics and captures name it.
    pub const fn of(self, strategy: StrategyKind) -> ReasonOf {
        ReasonOf { reason: self, strategy }
    }
}

/// A reason together with the strategy that was configured: `mark`, `timeout`, … as [`Reason`] has them, and
/// `strategy:NAME` for what the strategy decided for a reason of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonOf {
    reason: Reason,
    strategy: StrategyKind,
}

/// In [`ReasonOf::code`]: a strategy's own reason; the other bits are its code.
const OWN_REASON: u8 = 0x80;

impl ReasonOf {
    /// In the records of a flight recorder: the number of the [`Reason`], or bit 7 and the strategy's code.
    #[inline]
    pub const fn code(self) -> u8 {
        match self.reason {
            Reason::Strategy => OWN_REASON | self.strategy.code(),
            reason => reason as u8,
        }
    }

    /// The name that belongs to a [`ReasonOf::code`], for strategies with these names in the order of their codes: those of the
    /// card that recorded it, which may have others than this crate.
    pub fn name_of_code(code: u8, strategies: &[impl AsRef<str>]) -> String {
        let index = usize::from(code & !OWN_REASON);
        if code & OWN_REASON != 0 {
            return match strategies.get(index) {
                Some(name) => format!("strategy:{}", name.as_ref()),
                None => format!("strategy:{index}"),
            };
        }
        match Reason::ALL.get(index) {
            Some(reason) => reason.name().into(),
            None => "unknown".into(),
        }
    }
}

impl fmt::Display for ReasonOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::Strategy => write!(f, "strategy:{}", self.strategy),
            reason => reason.fmt(f),
        }
    }
}

/// One interrupt decided by the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Why the interrupt was decided.
    pub reason: Reason,
    /// How many packets it announces for the first time. 0 only for [`Reason::Restart`], [`Reason::Clock`], and
    /// [`Reason::Watchdog`] if the host does not react to what was announced before.
    pub packets: u32,
    /// This is the n-th interrupt decided on this queue, counted from 1.
    pub sequence: u64,
    /// When the interrupt was due, which is earlier than the time handed to `poll` if the driver polled late.
    pub decided_at: Time,
}
