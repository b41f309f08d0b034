//! A moment of grace for guests that reconnect after the process that served them ended.
//!
//! Guests come back one after the other, and the first ones have frames for those that are not back yet. Such a frame waits in the pool at
//! its card until the guest is back, or for a bounded time, and nothing else waits for it.

use ether::Time;

use super::DataPlane;

impl DataPlane {
    /// Waits for no guest any longer when the grace is over.
    #[inline]
    pub(super) fn update_reconnect_grace(&mut self, now: Time) {
        if self.reconnect_grace_ends.is_some_and(|until| now >= until) {
            self.end_reconnect_grace();
        }
    }

    #[cold]
    fn end_reconnect_grace(&mut self) {
        self.reconnect_grace_ends = None;
        for card in &mut self.forwarding.wiring.cards {
            card.set_returning(false);
        }
    }

    /// Whether the guest of a card that is made now may come back, by its settings.
    pub(super) fn may_return(&self, settings: &vnicd_protocol::PortSettings) -> bool {
        self.reconnect_grace_ends.is_some() && settings.returns
    }
}
