//! Time-out coalescing (`papers.md` M-GF1, with a count limit M-GF2): marks mean nothing to it.

use super::{Action, Attention, Completion, Strategy};

/// Leaves everything to the time-out and the count limit, which the pipeline keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeout;

impl Strategy for Timeout {
    #[inline]
    fn completed(&mut self, _: Completion) -> Action {
        Action::Wait
    }

    #[inline]
    fn attention(&self) -> Attention {
        Attention::NoPacket
    }
}
