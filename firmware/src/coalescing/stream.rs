//! Stream coalescing (`papers.md` M-GF5, Algorithm 2 of the paper).
//!
//! It differs from Open-MX coalescing in that the interrupt for a marked packet waits for the packets that arrived during its
//! DMA. The interrupt is told to be *deferred* if the flag was set when it was raised, whether or not the last packet is
//! marked itself.

use super::{Action, Attention, Completion, Strategy, Together};
use crate::Reason;

/// Raises when a marked packet has completed and no other DMA is pending.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream {
    deferred: bool,
}

impl Strategy for Stream {
    #[inline]
    fn completed(&mut self, completion: Completion) -> Action {
        if !completion.others_pending {
            if self.deferred {
                Action::Raise(Reason::Deferred)
            } else if completion.packet.marked {
                Action::Raise(Reason::Mark)
            } else {
                Action::Wait
            }
        } else if completion.packet.marked {
            self.deferred = true;
            Action::Defer
        } else {
            Action::Wait
        }
    }

    #[inline]
    fn attention(&self) -> Attention {
        if self.deferred {
            Attention::EveryPacket
        } else {
            Attention::MarkedTogether
        }
    }

    /// All marked packets but the last one of all put their interrupt off, and the last one raises.
    #[inline]
    fn completed_together(&mut self, together: Together) -> (u32, Action) {
        let put_off = together.marked - u32::from(together.last.marked);
        let reason = if put_off > 0 { Reason::Deferred } else { Reason::Mark };
        (put_off, Action::Raise(reason))
    }

    /// Any interrupt announces the marked packet that asked for one: a flag that outlived it would announce unmarked
    /// packets early, against M-GF11.
    #[inline]
    fn announced(&mut self) {
        self.deferred = false;
    }

    #[inline]
    fn is_deferring(&self) -> bool {
        self.deferred
    }
}
