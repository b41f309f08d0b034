//! Before an orderly end: nothing more is taken from guests, and what is under way arrives. Frames that guests queue meanwhile stay
//! in their rings, for whoever serves these next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::report::ArmedTimer;

use super::timed::PortTimer;
use super::{Fabric, Inner, Shard};

/// How long frames under way are waited for. A link that delays by more than this keeps the rest, which is counted.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// How often it is looked whether all have arrived: they are moved by the shard's own timers, and a frame's way should not bear the
/// cost of telling somebody who is there once in a process's life.
const DRAIN_LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Frames under way. Those that switches send by themselves are not among them: there are always some, and none is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// On modelled links, in a card that waits for credits of the next one, or before a card that has no buffer for them.
    pub on_links: u64,
    /// On their way into host memory.
    pub in_dma: u64,
}

/// Nothing is taken from guests as long as this lives.
#[must_use = "dropping it lets guests send again"]
pub struct Drain {
    shard: Arc<Shard>,
    /// Timers that were taken from the cards.
    timers: Vec<PortTimer>,
}

impl Drain {
    /// Waits until nothing is under way, but not for ever; says what still is, and how long that took.
    pub fn wait(&self) -> (UnderWay, Duration) {
        let began = Instant::now();
        loop {
            let left = self.shard.with(|inner, _| inner.under_way());
            let waited = began.elapsed();
            if left.on_links + left.in_dma == 0 || waited >= DRAIN_TIMEOUT {
                return (left, waited);
            }
            std::thread::sleep(DRAIN_LOOK_INTERVAL);
        }
    }

    /// Takes the timers from all cards, so that none rings here and in the next process; they are armed again when this is
    /// dropped.
    pub fn take_timers(&mut self) -> Vec<(String, ArmedTimer)> {
        let (told, taken) = self.shard.with(|inner, _| inner.take_timers());
        self.timers.extend(taken);
        told
    }

    /// Leaves it so: the process ends.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        let timers = std::mem::take(&mut self.timers);
        self.shard.with(|inner, now| {
            inner.drains -= 1;
            inner.put_timers_back(&timers, now);
        });
    }
}

impl Fabric {
    /// Takes nothing more from any guest.
    pub fn drain(&self) -> Drain {
        self.shard.with(|inner, _| inner.drains += 1);
        Drain {
            shard: Arc::clone(&self.shard),
            timers: Vec::new(),
        }
    }
}

impl Inner {
    pub(super) fn under_way(&self) -> UnderWay {
        let waiting: usize = (self.ports.iter())
            .map(|port| port.waiting.under_way() + port.nic.multicast().buffers_in_use())
            .sum();
        let queues = self.ports.iter().flat_map(|port| port.nic.queues());
        UnderWay {
            on_links: (self.pool.under_way() + waiting) as u64,
            in_dma: queues.map(|queue| queue.pending() as u64).sum(),
        }
    }
}
