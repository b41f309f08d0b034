//! The strategy of `every_second.rs` with the mistake that is made most often: the counter is never reset. `scripts/strategy` finds it.

use firmware::{
    Reason,
    coalescing::{Action, Completion, Strategy},
};

/// Raises with every second packet, whatever was announced meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct NeverReset {
    packets: u32,
}

impl Strategy for NeverReset {
    fn completed(&mut self, _completion: Completion) -> Action {
        self.packets = self.packets.wrapping_add(1);
        if self.packets.is_multiple_of(2) {
            Action::Raise(Reason::Strategy)
        } else {
            Action::Wait
        }
    }
}
