//! Guests that come back after the process before this one was killed. They do so one after the other, and the first ones' rings
//! are full of frames for those that are not back yet: sent on at once, they would be lost. So rings that were in use before this
//! process are left alone until every port has its guest back, or for a bounded time. Nothing is kept anywhere but in the rings.

use ether::Time;

use super::{Inner, Port};

/// Whether, and until when, guests are waited for.
pub struct Returning {
    /// Nobody is waited for from then on. None once that is settled.
    until: Option<Time>,
}

impl Returning {
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

impl Inner {
    /// Notes if nobody has to be waited for any more.
    #[inline]
    pub(super) fn look_for_returned(&mut self, now: Time) {
        let Some(until) = self.returning.until else { return };
        let is_back = |port: &Port| !port.settings.returns || port.pairs.iter().any(|pair| pair.rx.is_ready());
        // Nobody is connected before all ports are there.
        let begun = self.ports.iter().any(|port| port.connected);
        if now >= until || begun && self.ports.iter().all(is_back) {
            self.returning.until = None;
        }
    }
}
