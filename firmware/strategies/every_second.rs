//! A strategy as a student would write it: it interrupts with every second packet.

use firmware::{
    Reason,
    coalescing::{Action, Completion, Strategy},
};

/// Raises when two packets wait. One that stays alone has the time-out.
#[derive(Clone, Copy, Debug, Default)]
pub struct EverySecond {
    /// Packets since the last interrupt, whatever raised it.
    waiting: u32,
}

impl Strategy for EverySecond {
    fn completed(&mut self, _completion: Completion) -> Action {
        self.waiting += 1;
        if self.waiting == 2 {
            Action::Raise(Reason::Strategy)
        } else {
            Action::Wait
        }
    }

    fn announced(&mut self) {
        self.waiting = 0;
    }
}
