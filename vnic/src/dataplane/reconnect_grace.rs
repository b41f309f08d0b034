//! A moment of grace for guests that reconnect after the process that served them was killed.
//!
//! Guests come back one after the other, and the rings of the first are full of frames for those that are not back yet: sent
//! on at once, they would be lost. So rings that were in use before this process are left alone until every card has its guest
//! back, or for a bounded time. Nothing is kept anywhere but in the rings.

use ether::Time;

use super::{Card, DataPlane};

impl DataPlane {
    /// Ends the grace if all guests are back, or its time is over.
    #[inline]
    pub(super) fn update_reconnect_grace(&mut self, now: Time) {
        let Some(until) = self.reconnect_grace_ends else {
            return;
        };
        let is_back =
            |card: &Card| !card.settings().returns || (0..card.queue_pairs()).any(|queue| card.is_receiving(queue));
        // No guest is connected before all cards are there.
        let begun = self.cards().iter().any(Card::is_connected);
        if now >= until || begun && self.cards().iter().all(is_back) {
            self.reconnect_grace_ends = None;
        }
    }
}
