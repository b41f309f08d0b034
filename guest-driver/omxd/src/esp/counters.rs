//! The counts of this authority for ESP.

use weft_authority::esp::EspCounter;

/// How often each event happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    own: [u64; EspCounter::ALL.len()],
    /// The engine's counts when they were cleared, which are subtracted.
    engine_cleared: Vec<u64>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            own: [0; EspCounter::ALL.len()],
            engine_cleared: Vec::new(),
        }
    }
}

impl Counts {
    /// Counts an event.
    pub(super) const fn count(&mut self, counter: EspCounter) {
        self.own[counter as usize] += 1;
    }

    /// Returns all counts, in the order of [`EspCounter::ALL`].
    pub(super) fn all(&self) -> Vec<u64> {
        self.own.to_vec()
    }

    /// Returns the engine's counts since they were cleared; `now`: as the engine has them.
    pub(super) fn of_engine(&self, now: impl Iterator<Item = u64>) -> Vec<u64> {
        let cleared = self.engine_cleared.iter().copied().chain(std::iter::repeat(0));
        now.zip(cleared).map(|(count, cleared)| count - cleared).collect()
    }

    /// Sets them back to 0, with the engine's, which are `engine` now.
    pub(super) fn clear(&mut self, engine: Vec<u64>) {
        *self = Self {
            engine_cleared: engine,
            ..Self::default()
        };
    }
}
