//! The reason of an interrupt as reports name it: a strategy may have reasons of its own, which only its name tells.

use alloc::{format, string::String};
use core::fmt;

use super::StrategyKind;
use crate::Reason;

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
    /// Names the reason of an interrupt that was decided while `strategy` was configured, as reports, metrics and captures do.
    pub const fn new(reason: Reason, strategy: StrategyKind) -> Self {
        Self { reason, strategy }
    }

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
