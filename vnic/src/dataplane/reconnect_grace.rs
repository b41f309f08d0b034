//! A moment of grace for guests that reconnect after the process that served them ended.
//!
//! Guests come back one after the other, and the first ones have frames for those that are not back yet. Such a frame waits in the pool at
//! its card until the guest is back, or for a bounded time, and nothing else waits for it. That there was an earlier process is known by
//! the first ring that has run before: without one, no guest is on its return.

use ether::Time;

use super::{Card, DataPlane};

impl DataPlane {
    /// Begins the grace when the first guest is back, and ends it when its time is over.
    #[inline]
    pub(super) fn update_reconnect_grace(&mut self, now: Time) {
        if let Some(until) = self.reconnect_grace_ends {
            self.update_returning(now >= until);
        }
    }

    #[cold]
    fn update_returning(&mut self, is_over: bool) {
        if is_over {
            self.reconnect_grace_ends = None;
        }
        if is_over || !self.has_returned && self.cards().iter().any(Card::is_resumed) {
            self.has_returned = true;
            for card in &mut self.forwarding.wiring.cards {
                card.set_returning(!is_over);
            }
        }
    }
}
