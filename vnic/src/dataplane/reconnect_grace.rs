//! A moment of grace for guests that reconnect after the process that served them was killed.
//!
//! Guests come back one after the other, and the rings of the first are full of frames for those that are not back yet: sent
//! on at once, they would be lost. So rings that were in use before this process are left alone until every card has its guest
//! back, or for a bounded time. Nothing is kept anywhere but in the rings.

use ether::Time;

use super::{Card, DataPlane};

/// Whether, and until when, guests are waited for.
pub struct ReconnectGrace {
    /// When the wait ends at the latest; none once it has ended.
    until: Option<Time>,
}

impl ReconnectGrace {
    /// Waits until `return_ns` after the start at the longest.
    pub fn new(return_ns: u64) -> Self {
        Self {
            until: (return_ns > 0).then(|| Time::from_nanos(return_ns)),
        }
    }

    /// Guests are waited for.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// When that ends by itself.
    pub fn ends(&self) -> Option<Time> {
        self.until
    }
}

impl DataPlane {
    /// Ends the grace if all guests are back, or its time is over.
    #[inline]
    pub(super) fn update_reconnect_grace(&mut self, now: Time) {
        let Some(until) = self.reconnect_grace.until else {
            return;
        };
        let is_back =
            |card: &Card| !card.settings.returns || (0..card.queue_pairs()).any(|queue| card.is_receiving(queue));
        // No guest is connected before all cards are there.
        let begun = self.cards().iter().any(|card| card.lifecycle.connected);
        if now >= until || begun && self.cards().iter().all(is_back) {
            self.reconnect_grace.until = None;
        }
    }
}
