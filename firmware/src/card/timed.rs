//! What a card does by time of its own: the watchdogs of its queues and the guest's timers.
//!
//! This file says how they belong to the card; what they do is in `watchdog`, `clock` and `timers`.

use ether::Time;

use super::{Card, ChangeError, UnknownQueue};
use crate::{
    RxPipeline, Watchdog,
    timers::Timers,
    watchdog::{WATCHDOG_DELAY_NS_MAX, WatchdogCounters},
};

/// [`ChangeError::WatchdogDelay`] for a guest, whose card says what it allows in each report.
pub(super) const WATCHDOG_DELAY_SENTENCE: &str =
    "the watchdog's delay must be 0 (off), or at least what the card allows and at most 1 s";

impl Card {
    /// The shortest delay of a watchdog: the card's shortest timer, for each queue, since all of them may run at once.
    pub fn watchdog_ns_min(&self) -> u64 {
        self.timers.shortest_ns() * u64::from(self.queue_pairs())
    }

    /// Sets the polling watchdog of one queue, or of all (`None`): its delay, or 0 for none. See
    /// [`RxPipeline::set_watchdog`]. The queues concerned should then be polled.
    ///
    /// # Errors
    /// A missing queue or a delay out of range; nothing was changed.
    pub fn set_watchdog(&mut self, now: Time, queue: Option<u16>, delay_ns: u64) -> Result<(), ChangeError> {
        if delay_ns != 0 && !(self.watchdog_ns_min()..=WATCHDOG_DELAY_NS_MAX).contains(&delay_ns) {
            return Err(ChangeError::WatchdogDelay {
                ns_min: self.watchdog_ns_min(),
            });
        }
        self.selected(queue)?
            .iter_mut()
            .for_each(|rx| rx.set_watchdog(now, delay_ns));
        Ok(())
    }

    /// The watchdog of a queue.
    ///
    /// # Errors
    /// [`UnknownQueue`].
    pub fn watchdog(&self, queue: u16) -> Result<&Watchdog, UnknownQueue> {
        self.rx
            .get(usize::from(queue))
            .map(RxPipeline::watchdog)
            .ok_or(UnknownQueue)
    }

    /// What the watchdogs of all queues counted.
    pub fn watchdog_counters(&self) -> WatchdogCounters {
        let mut sum = WatchdogCounters::default();
        self.rx.iter().for_each(|rx| sum.add(rx.watchdog().counters()));
        sum
    }

    /// The guest's timers.
    pub fn timers(&self) -> &Timers {
        &self.timers
    }

    /// The guest's timers, to serve them: [`Timers::poll`] when [`Card::next_event`] has come. What a ring becomes is
    /// the driver's: a doorbell frame and [`RxPipeline::ring`], or an interrupt alone.
    pub fn timers_mut(&mut self) -> &mut Timers {
        &mut self.timers
    }
}
