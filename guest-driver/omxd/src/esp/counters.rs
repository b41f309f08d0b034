//! The counts of this authority for ESP.

use weft_authority::esp::EspCounter;

/// How often each event happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counts([u64; EspCounter::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; EspCounter::ALL.len()])
    }
}

impl Counts {
    /// Counts an event.
    pub(super) const fn count(&mut self, counter: EspCounter) {
        self.0[counter as usize] += 1;
    }

    /// Returns all counts, in the order of [`EspCounter::ALL`].
    pub(super) fn all(&self) -> Vec<u64> {
        self.0.to_vec()
    }

    /// Sets them back to 0.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
