//! The polling watchdog of one receive queue (`papers.md` M-BV8, M-BV9): interrupts only a host that does not poll.
//!
//! It knows times and counts. Packets, rings and the modelled DMA itself are not here: the pipeline composes it with
//! coalescing (`pipeline/polled.rs`), and the driver of the firmware reads the host's state when asked.

use ether::Time;

use crate::Lateness;

/// The longest delay: a host that answers after more than a second does not wait for interrupts.
pub const WATCHDOG_DELAY_NS_MAX: u64 = 1_000_000_000;
/// What one fetch of the host's state moves: the interrupt status flag and the count of processed packets, a word each.
pub const HOST_STATE_LEN: u32 = 8;

/// The two words of host memory that the card fetches when the watchdog's timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostState {
    /// The interrupt status flag, which the host toggles without telling the card (M-BV9).
    pub interrupts_enabled: bool,
    /// Packets that the host has processed since the queue was made or last reset. What is beyond the packets delivered
    /// is taken as all of them.
    pub processed: u64,
}

/// What the watchdog wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogAction {
    /// The timer expired: start the DMA that fetches the host's state, and hand over what was read by
    /// [`Watchdog::host_state`].
    FetchHostState,
    /// The host neither polls nor disabled interrupts: interrupt it. Decided at this time.
    Raise(Time),
}

/// What the watchdog counted. Every expiry that was followed by a decision is counted once, in `cancelled`, a
/// `restarted_…` or `fired`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WatchdogCounters {
    /// Times that an arrival started the timer.
    pub started: u64,
    /// Expiries at which the host had processed every packet: the timer stopped, no interrupt.
    pub cancelled: u64,
    /// Expiries at which the host had interrupts disabled: the timer started anew, no interrupt.
    pub restarted_disabled: u64,
    /// Expiries at which the host had processed some packets since the last check: the timer started anew, no interrupt.
    pub restarted_progress: u64,
    /// Expiries at which all that was delivered had been processed and other packets were still in flight to host
    /// memory: the timer started anew, no interrupt.
    pub restarted_pending: u64,
    /// Expiries that interrupted the host; the timer started anew.
    pub fired: u64,
    /// How late expiries were served.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub lateness: Lateness,
}

impl WatchdogCounters {
    /// Decisions that restarted the timer without an interrupt.
    pub const fn restarted(&self) -> u64 {
        self.restarted_disabled + self.restarted_progress + self.restarted_pending
    }

    /// Adds another set to this one.
    pub fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.cancelled += other.cancelled;
        self.restarted_disabled += other.restarted_disabled;
        self.restarted_progress += other.restarted_progress;
        self.restarted_pending += other.restarted_pending;
        self.fired += other.fired;
        self.lateness.add(&other.lateness);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The timer does not run.
    Idle,
    /// The timer runs.
    Running { since: Time },
    /// The timer expired and the host's state was asked for.
    Asked,
    /// The host's state is in flight to the card.
    Fetching { state: HostState, done_at: Time },
}

/// The watchdog of one receive queue.
#[derive(Clone, Copy, Debug)]
pub struct Watchdog {
    /// 0 = off.
    delay_ns: u64,
    state: State,
    /// Packets processed when the card last knew.
    processed: u64,
    counters: WatchdogCounters,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Watchdog {
    /// A watchdog without a packet, which waits for `delay_ns` (0 = off; at most [`WATCHDOG_DELAY_NS_MAX`]).
    pub fn new(delay_ns: u64) -> Self {
        Self {
            delay_ns: delay_ns.min(WATCHDOG_DELAY_NS_MAX),
            state: State::Idle,
            processed: 0,
            counters: WatchdogCounters::default(),
        }
    }

    /// True unless it is off.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.delay_ns != 0
    }

    /// The delay; 0 = off.
    #[inline]
    pub const fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// Changes the delay; 0 turns the watchdog off. A running timer goes on from when it started. One that is turned on
    /// takes the packets `delivered` so far as processed, except that its timer starts now if packets are `outstanding`
    /// (not yet announced).
    pub fn set_delay(&mut self, now: Time, delay_ns: u64, delivered: u64, outstanding: bool) {
        let was_on = self.is_on();
        self.delay_ns = delay_ns.min(WATCHDOG_DELAY_NS_MAX);
        if !self.is_on() {
            self.state = State::Idle;
        } else if was_on {
            if let State::Running { since } = &mut self.state {
                // A shorter delay may be over already: the timer is due now, and not late.
                *since = (*since).max(Time::from_nanos(now.as_nanos().saturating_sub(self.delay_ns)));
            }
        } else {
            self.processed = delivered;
            if outstanding {
                self.arrive(now);
            }
        }
    }

    /// A packet arrived. Starts the timer unless it runs on behalf of an earlier one.
    #[inline]
    pub fn arrive(&mut self, now: Time) {
        if self.state == State::Idle && self.is_on() {
            self.state = State::Running { since: now };
            self.counters.started += 1;
        }
    }

    /// What is to be done by `now`; to be called until it says `None`.
    ///
    /// `delivered` packets' DMAs have completed since the queue was made or last reset; `pending` says whether others are
    /// in flight. Both are read only when the fetched state has arrived.
    pub fn poll(&mut self, now: Time, delivered: u64, pending: bool) -> Option<WatchdogAction> {
        match self.state {
            State::Running { since } if since.plus_nanos(self.delay_ns) <= now => {
                let due = since.plus_nanos(self.delay_ns);
                self.counters.lateness.record(now.nanos_since(due));
                self.state = State::Asked;
                Some(WatchdogAction::FetchHostState)
            }
            State::Fetching { state, done_at } if done_at <= now => self.decide(state, done_at, delivered, pending),
            _ => None,
        }
    }

    /// What the host's state was when the card asked; the DMA that brings it takes `fetch_ns`, and nothing is decided
    /// before it has. Not asked for: ignored.
    pub fn host_state(&mut self, now: Time, state: HostState, fetch_ns: u64) {
        if self.state == State::Asked {
            self.state = State::Fetching {
                state,
                done_at: now.plus_nanos(fetch_ns),
            };
        }
    }

    /// Decides between the three outcomes of M-BV8.
    fn decide(&mut self, state: HostState, at: Time, delivered: u64, pending: bool) -> Option<WatchdogAction> {
        let before = core::mem::replace(&mut self.processed, state.processed.min(delivered));
        self.state = State::Running { since: at };
        if self.processed == delivered {
            if pending {
                self.counters.restarted_pending += 1;
            } else {
                self.counters.cancelled += 1;
                self.state = State::Idle;
            }
        } else if !state.interrupts_enabled {
            self.counters.restarted_disabled += 1;
        } else if self.processed > before {
            self.counters.restarted_progress += 1;
        } else {
            self.counters.fired += 1;
            return Some(WatchdogAction::Raise(at));
        }
        None
    }

    /// When [`Watchdog::poll`] next has something to say; `None` = not before an arrival.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        match self.state {
            State::Idle | State::Asked => None,
            State::Running { since } => Some(since.plus_nanos(self.delay_ns)),
            State::Fetching { done_at, .. } => Some(done_at),
        }
    }

    /// True while the host's state is asked for and was not handed over.
    #[inline]
    pub fn waits_for_host_state(&self) -> bool {
        self.state == State::Asked
    }

    /// Packets that the host had processed when the card last knew.
    #[inline]
    pub const fn processed(&self) -> u64 {
        self.processed
    }

    /// The queue was reset: nothing is outstanding, and both sides count from 0 again. The delay stays.
    pub fn reset(&mut self) {
        self.state = State::Idle;
        self.processed = 0;
    }

    /// What was counted since the queue was made.
    #[inline]
    pub const fn counters(&self) -> &WatchdogCounters {
        &self.counters
    }
}
