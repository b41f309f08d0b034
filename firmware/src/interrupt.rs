//! Interrupts and the reasons for them.
//!
//! An interrupt is a decision of the firmware here, not a signal: whether the guest's driver wants the call, and what became of it, is the
//! driver's business (`papers.md` M-GF10 distinguishes *decided*, *suppressed*, *signalled* and *taken*).

use ether::Time;

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
        /// The strategy chose this moment, for a reason of its own. Its name tells which: see [`ReasonOf`](crate::ReasonOf).
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
