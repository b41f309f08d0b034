//! The strategy that does not coalesce: it interrupts for each packet (`papers.md` M-GF1 with a delay of 0).

use super::{Action, Completion, Strategy};
use crate::Reason;

/// Raises at every completion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disabled;

impl Strategy for Disabled {
    #[inline]
    fn completed(&mut self, _: Completion) -> Action {
        Action::Raise(Reason::EveryPacket)
    }
}
