//! The card's clock for a host's soft timers (`papers.md` M-BV10): a clock interrupt every T, but only while a timer
//! runs and the host does not poll the clock itself.
//!
//! One clock is a rule over times here. Which timers a guest armed and what a ring of the clock looks like is in `timers`.

use ether::Time;

use crate::Lateness;

/// The longest period and delay of a timer: what needs no better is a job for the guest's own kernel.
pub const TIMER_NS_MAX: u64 = 4_000_000_000;
/// What one fetch of the host's clock state moves: the number of running timers and the time of the last poll.
pub const CLOCK_STATE_LEN: u32 = 12;

/// The two words of host memory that the card fetches before it may ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// Soft timers that run on the host.
    pub running_timers: u32,
    /// When the host last polled the clock; `None` = never.
    pub last_poll: Option<Time>,
}

/// What the clock wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockAction {
    /// A period is over: start the DMA that fetches the host's clock state, and hand over what was read by
    /// [`Clock::clock_state`].
    FetchClockState,
    /// Interrupt the host: a timer runs, and it did not poll for a period. Decided at this time.
    Ring(Time),
}

/// What the clock counted. Every tick that was followed by a decision is counted once, in `idle`, `polled` or `rung`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClockCounters {
    /// Ticks at which no timer ran.
    #[cfg_attr(feature = "serde", serde(rename = "clock_idle"))]
    pub idle: u64,
    /// Ticks at which a timer ran and the host had polled within a period.
    #[cfg_attr(feature = "serde", serde(rename = "clock_polled"))]
    pub polled: u64,
    /// Ticks that interrupted the host.
    #[cfg_attr(feature = "serde", serde(rename = "clock_rung"))]
    pub rung: u64,
    /// Ticks left out because the driver of the card came more than a period late.
    #[cfg_attr(feature = "serde", serde(rename = "clock_missed"))]
    pub missed: u64,
    /// How late ticks were served. Reports have it in the lateness of all timers of the card.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub lateness: Lateness,
}

impl ClockCounters {
    /// Adds another set to this one.
    pub fn add(&mut self, other: &Self) {
        self.idle += other.idle;
        self.polled += other.polled;
        self.rung += other.rung;
        self.missed += other.missed;
        self.lateness.add(&other.lateness);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Until the next tick.
    Ticking,
    /// A tick came and the host's state was asked for.
    Asked { at: Time },
    /// The host's state, of when it was asked for, is in flight to the card.
    Fetching {
        state: ClockState,
        asked_at: Time,
        done_at: Time,
    },
}

/// A clock that ticks every period, counted from its start without drift.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// At least 1.
    period_ns: u64,
    next_tick: Time,
    state: State,
    counters: ClockCounters,
}

impl Clock {
    /// A clock with its first tick `period_ns` (1 … [`TIMER_NS_MAX`]) after `now`.
    pub fn start(now: Time, period_ns: u64) -> Self {
        let period_ns = period_ns.clamp(1, TIMER_NS_MAX);
        Self {
            period_ns,
            next_tick: now.plus_nanos(period_ns),
            state: State::Ticking,
            counters: ClockCounters::default(),
        }
    }

    /// A clock of another card's firmware that goes on here: its next tick was to come at `next_tick`.
    pub(crate) fn resume(next_tick: Time, period_ns: u64) -> Self {
        Self {
            next_tick,
            ..Self::start(next_tick, period_ns)
        }
    }

    /// When the next tick comes that was not served yet.
    pub(crate) const fn next_tick(&self) -> Time {
        self.next_tick
    }

    /// The period T.
    #[inline]
    pub const fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// What is to be done by `now`; to be called until it says `None`.
    pub fn poll(&mut self, now: Time) -> Option<ClockAction> {
        match self.state {
            State::Ticking if self.next_tick <= now => {
                let late_ns = now.nanos_since(self.next_tick);
                self.counters.lateness.record(late_ns);
                let missed = late_ns / self.period_ns;
                self.counters.missed += missed;
                self.next_tick = self.next_tick.plus_nanos((missed + 1).saturating_mul(self.period_ns));
                self.state = State::Asked { at: now };
                Some(ClockAction::FetchClockState)
            }
            State::Fetching {
                state,
                asked_at,
                done_at,
            } if done_at <= now => {
                self.state = State::Ticking;
                self.rings(state, asked_at).then_some(ClockAction::Ring(done_at))
            }
            _ => None,
        }
    }

    /// What the host's clock state was when the card asked; the DMA that brings it takes `fetch_ns`, and nothing is
    /// decided before it has. Not asked for: ignored.
    pub fn clock_state(&mut self, now: Time, state: ClockState, fetch_ns: u64) {
        if let State::Asked { at } = self.state {
            self.state = State::Fetching {
                state,
                asked_at: at,
                done_at: now.plus_nanos(fetch_ns),
            };
        }
    }

    fn rings(&mut self, state: ClockState, asked_at: Time) -> bool {
        let polled = state
            .last_poll
            .is_some_and(|at| asked_at.nanos_since(at) < self.period_ns);
        if state.running_timers == 0 {
            self.counters.idle += 1;
        } else if polled {
            self.counters.polled += 1;
        } else {
            self.counters.rung += 1;
            return true;
        }
        false
    }

    /// When [`Clock::poll`] next has something to say; `None` = not before the host's state is handed over.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        match self.state {
            State::Ticking => Some(self.next_tick),
            State::Asked { .. } => None,
            State::Fetching { done_at, .. } => Some(done_at),
        }
    }

    /// What was counted since the start.
    #[inline]
    pub const fn counters(&self) -> &ClockCounters {
        &self.counters
    }
}
