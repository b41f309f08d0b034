//! Open-MX coalescing (`papers.md` M-GF4, Algorithm 1 of the paper).
//!
//! Creating the descriptor, copying the mark and submitting the DMA are the pipeline's part of the algorithm.

use super::{Action, Attention, Completion, Strategy};
use crate::Reason;

/// Raises when the DMA of a marked packet completes.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenMx;

impl Strategy for OpenMx {
    #[inline]
    fn completed(&mut self, completion: Completion) -> Action {
        if completion.packet.marked {
            Action::Raise(Reason::Mark)
        } else {
            Action::Wait
        }
    }

    #[inline]
    fn attention(&self) -> Attention {
        Attention::MarkedPackets
    }
}
