//! The receive pipeline of a host that polls: its watchdog (`papers.md` M-BV8) and the ring of a clock (M-BV10).
//!
//! Here alone the two work together with coalescing. While the watchdog is on, it takes the place of the time-out
//! (M-GF1): of a fixed one, of one that adapts, and of a time-out of 0, which is an interrupt per packet. Marks and the count limit
//! are still the strategy's, and the timer runs on after their interrupts, because it asks what the host *processed* and not what
//! was announced to it.

use ether::Time;

use super::{Event, Pipeline};
use crate::{
    Coalescing, Interrupt, Reason, StrategyKind,
    coalescing::Selection,
    pending::AT_POLL,
    watchdog::{HOST_STATE_LEN, HostState, Watchdog, WatchdogAction},
};

impl<S: Selection> Pipeline<S> {
    /// Turns the polling watchdog on (a delay up to [`WATCHDOG_DELAY_NS_MAX`](crate::watchdog::WATCHDOG_DELAY_NS_MAX)) or
    /// off (0), while packets may be pending or waiting. See [`Watchdog::set_delay`]. Turned off, what waits has its
    /// time-out again, counted from its arrival. Otherwise as [`set_coalescing`](Self::set_coalescing).
    pub fn set_watchdog(&mut self, now: Time, delay_ns: u64) {
        self.latest = self.latest.max(now);
        let delivered = self.delivered();
        self.watchdog
            .set_delay(self.latest, delay_ns, delivered, self.unannounced_since.is_some());
        if !self.watchdog.is_on() {
            self.decision = Time::MAX;
        }
        self.set_coalescing(self.latest, self.coalescing);
    }

    /// The settings by which the strategy decides: under a watchdog without what chooses a time-out, 0 or any other.
    pub(super) fn deciding(&self) -> Coalescing {
        if !self.watchdog.is_on() {
            return self.coalescing;
        }
        let strategy = match self.coalescing.strategy {
            StrategyKind::Disabled | StrategyKind::Adaptive => StrategyKind::Timeout,
            StrategyKind::AdaptiveOpenMx => StrategyKind::OpenMx,
            StrategyKind::AdaptiveStream => StrategyKind::Stream,
            kind => kind,
        };
        Coalescing {
            strategy,
            delay_ns: self.coalescing.delay_ns.max(1),
            ..self.coalescing
        }
    }

    /// The polling watchdog.
    pub fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// Packets in host memory, counted from when the queue was made or last reset: what
    /// [`HostState::processed`] is counted against.
    pub fn delivered(&self) -> u64 {
        self.counters.total().packets - self.before_reset - self.pending.len() as u64
    }

    /// Answers [`Event::FetchHostState`] with what the host's memory says now. The card knows it after the DMA of
    /// [`HOST_STATE_LEN`] bytes by the DMA model, and decides then: poll again.
    pub fn host_state(&mut self, now: Time, state: HostState) {
        self.latest = self.latest.max(now);
        if self.watchdog.waits_for_host_state() {
            let fetch_ns = self.dma.model().transfer_ns(HOST_STATE_LEN);
            self.watchdog.host_state(self.latest, state, fetch_ns);
            self.decision = self.watchdog.next_event().unwrap_or(Time::MAX);
        }
    }

    /// A clock or timer rings: an interrupt (reason `clock`) as soon as the packets that are pending now, its own doorbell
    /// among them, are in host memory; without any, at the next `poll`.
    pub fn ring(&mut self, now: Time) {
        self.latest = self.latest.max(now);
        match self.pending.back() {
            None => {
                self.decided_until = self.latest;
                self.due = Some(Reason::Clock);
            }
            Some(newest) if newest.completes_at == AT_POLL => self.rung = self.rung.min(self.latest),
            Some(newest) => self.rung = self.rung.min(newest.completes_at),
        }
    }

    /// The host's state has arrived: the watchdog decides.
    pub(super) fn decide_watchdog(&mut self, at: Time) -> Option<Interrupt> {
        self.decision = Time::MAX;
        self.decided_until = at;
        // Packets that arrive after this moment may be in the ring already if the driver polls late.
        let next = self.pending.front().map(|slot| slot.arrived);
        let delivered = self.delivered();
        let action = self
            .watchdog
            .poll(at, delivered, next.is_some_and(|arrived| arrived <= at));
        self.note_processed(delivered - self.watchdog.processed());
        if let Some(next) = next {
            self.watchdog.arrive(next);
        }
        matches!(action, Some(WatchdogAction::Raise(_))).then(|| self.raise(at, Reason::Watchdog))
    }

    /// The watchdog's timer expired, unless it did not.
    #[inline(always)]
    pub(super) fn expire_watchdog(&mut self, now: Time) -> Option<Event> {
        let may_ask = self.watchdog.is_on() && self.decision == Time::MAX;
        (may_ask && self.asks_for_host_state(now)).then_some(Event::FetchHostState)
    }

    #[inline(never)]
    fn asks_for_host_state(&mut self, now: Time) -> bool {
        let action = self.watchdog.poll(now, 0, false);
        debug_assert!(matches!(action, None | Some(WatchdogAction::FetchHostState)));
        action.is_some()
    }

    /// All but `unprocessed` of the delivered packets need no announcement any more.
    fn note_processed(&mut self, unprocessed: u64) {
        let Some(polled) = u64::from(self.waiting).checked_sub(unprocessed) else {
            return;
        };
        self.counters.strategy_mut(self.coalescing.strategy).polled += polled;
        self.waiting -= polled as u32;
        if self.waiting == 0 {
            self.strategy.announced();
            self.restart_timer();
        }
    }
}
