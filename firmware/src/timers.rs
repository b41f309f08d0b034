//! The timers that a guest armed on its card: one-shot timers, and clocks for its soft timers (`papers.md` M-BV10).
//!
//! They are kept in a bounded table. What an expiry looks like to the guest (a doorbell frame, an interrupt) is up to the driver of the card;
//! the rule of one clock is in `clock`.

use alloc::vec::Vec;

use ether::{MacAddr, Time};

use crate::{
    Lateness,
    clock::{Clock, ClockAction, ClockCounters, ClockState, TIMER_NS_MAX},
};

/// Timers that a card keeps at once: one for the soft timers of each of a few programs. All of them together ring no
/// more often than one clock of the shortest period may, see [`TimerError::TooOften`].
pub const TIMERS_MAX: usize = 8;

/// When a timer rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "bool", into = "bool")
)]
pub enum TimerKind {
    /// Once, after the delay, whatever the host does.
    #[default]
    Once,
    /// M-BV10: at the end of each period in which the host did not poll, until it is disarmed.
    Clock,
}

impl TimerKind {
    /// True for a one-shot timer.
    pub const fn is_once(&self) -> bool {
        matches!(self, Self::Once)
    }
}

impl From<bool> for TimerKind {
    /// True is a clock.
    fn from(is_clock: bool) -> Self {
        if is_clock { Self::Clock } else { Self::Once }
    }
}

impl From<TimerKind> for bool {
    fn from(kind: TimerKind) -> Self {
        !kind.is_once()
    }
}

/// A timer rang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The guest's number for the timer.
    pub timer: u16,
    /// Who armed it.
    pub owner: MacAddr,
    /// One-shot or clock.
    pub kind: TimerKind,
    /// When it was due.
    pub due: Time,
    /// How late the driver of the card served it.
    pub late_ns: u64,
    /// The n-th time that this card's timers ring, counted from 1.
    pub sequence: u64,
}

/// What the driver of the card has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerEvent {
    /// Fetch the host's clock state and hand it over by [`Timers::clock_state`].
    FetchClockState {
        /// For this timer.
        timer: u16,
    },
    /// Tell the host.
    Expired(Expiry),
}

/// A timer that is armed, as one card's firmware hands it to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct ArmedTimer {
    /// The guest's number for it.
    pub timer: u16,
    /// Who armed it.
    pub owner: MacAddr,
    /// One-shot or clock.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "clock", default, skip_serializing_if = "TimerKind::is_once")
    )]
    pub kind: TimerKind,
    /// The period of a clock in nanoseconds; 0 for a one-shot timer.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_zero"))]
    pub period_ns: u64,
    /// When it rings, or the clock's next tick comes. Outside of a process this is counted from 1970, since clocks of processes have
    /// different starts.
    #[cfg_attr(feature = "serde", serde(rename = "due_unix_ns"))]
    pub due: Time,
}

#[cfg(feature = "serde")]
fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

weft_settings::errors! {
    /// A timer could not be armed; all timers are as before.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TimerError {
        /// [`TIMERS_MAX`] others are armed.
        Full = "the card keeps 8 timers, and all of them are armed",
        /// The delay or period is shorter than the card allows, or longer than [`TIMER_NS_MAX`].
        Range = "the time of a timer must be at least what the card allows and at most 4 s",
        /// The card's clocks together would tick more often than one of the shortest period.
        TooOften = "the card's clocks together would tick more often than it allows",
    }
}

/// What the timers counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TimerCounters {
    /// Timers armed, one armed again included.
    pub armed: u64,
    /// Timers disarmed before they rang, and clocks that were stopped.
    pub disarmed: u64,
    /// One-shot timers that rang.
    pub rung_once: u64,
    /// What all clocks counted, those that were stopped included.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub clocks: ClockCounters,
    /// Rings that the driver of the card could not bring to the guest, which had no buffer for them.
    pub lost: u64,
    /// How late one-shot timers were served.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub lateness: Lateness,
}

impl TimerCounters {
    /// With the lateness of clocks in that of all timers, as reports have it.
    pub fn with_one_lateness(mut self) -> Self {
        let of_clocks = core::mem::take(&mut self.clocks.lateness);
        self.lateness.add(&of_clocks);
        self
    }
}

#[derive(Clone, Copy, Debug)]
enum Armed {
    Once { due: Time },
    Clock(Clock),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    timer: u16,
    owner: MacAddr,
    armed: Armed,
    /// When the tick in work was due, for a clock.
    tick_due: Time,
    /// How late it was served.
    tick_late_ns: u64,
}

impl Slot {
    fn next_event(&self) -> Option<Time> {
        match &self.armed {
            Armed::Once { due } => Some(*due),
            Armed::Clock(clock) => clock.next_event(),
        }
    }
}

/// The timers of a card.
#[derive(Clone, Debug)]
pub struct Timers {
    slots: [Option<Slot>; TIMERS_MAX],
    shortest_ns: u64,
    /// The earliest event of all slots.
    next: Option<Time>,
    sequence: u64,
    counters: TimerCounters,
    /// What the clocks that were stopped had counted.
    stopped: ClockCounters,
}

impl Timers {
    /// No timers; none may be shorter than `shortest_ns` (at least 1).
    pub fn new(shortest_ns: u64) -> Self {
        Self {
            slots: [None; TIMERS_MAX],
            shortest_ns: shortest_ns.max(1),
            next: None,
            sequence: 0,
            counters: TimerCounters::default(),
            stopped: ClockCounters::default(),
        }
    }

    /// The shortest delay or period.
    pub const fn shortest_ns(&self) -> u64 {
        self.shortest_ns
    }

    /// Arms timer number `timer` for `owner`, to ring after `period_ns` or every `period_ns`. A timer that has this number already
    /// starts anew.
    ///
    /// # Errors
    /// [`TimerError`].
    pub fn arm(
        &mut self,
        now: Time,
        timer: u16,
        kind: TimerKind,
        period_ns: u64,
        owner: MacAddr,
    ) -> Result<(), TimerError> {
        if !(self.shortest_ns..=TIMER_NS_MAX).contains(&period_ns) {
            return Err(TimerError::Range);
        }
        self.put(ArmedTimer {
            timer,
            owner,
            kind,
            period_ns,
            due: now.plus_nanos(period_ns),
        })?;
        self.counters.armed += 1;
        Ok(())
    }

    /// The timers that are armed.
    pub fn armed_timers(&self) -> impl Iterator<Item = ArmedTimer> {
        self.slots.iter().flatten().map(|slot| {
            let (kind, period_ns, due) = match &slot.armed {
                Armed::Once { due } => (TimerKind::Once, 0, *due),
                Armed::Clock(clock) => (TimerKind::Clock, clock.period_ns(), clock.next_tick()),
            };
            ArmedTimer {
                timer: slot.timer,
                owner: slot.owner,
                kind,
                period_ns,
                due,
            }
        })
    }

    /// Arms a timer with what is left of it, as it was armed in another firmware. One that was due before `now` rings at once,
    /// and counts as late.
    ///
    /// # Errors
    /// [`TimerError`].
    pub fn resume(&mut self, now: Time, armed: &ArmedTimer) -> Result<(), TimerError> {
        let clock = armed.kind == TimerKind::Clock;
        if armed.due.nanos_since(now) > TIMER_NS_MAX
            || clock && !(self.shortest_ns..=TIMER_NS_MAX).contains(&armed.period_ns)
        {
            return Err(TimerError::Range);
        }
        self.put(*armed)
    }

    fn put(&mut self, new: ArmedTimer) -> Result<(), TimerError> {
        let ArmedTimer {
            timer,
            owner,
            kind,
            period_ns,
            due,
        } = new;
        let others = || self.slots.iter().flatten().filter(|slot| slot.timer != timer);
        if kind == TimerKind::Clock {
            // Ticks in the longest period, of the others and of this one, against those of the one allowed clock.
            let ticks = others().fold(TIMER_NS_MAX.div_ceil(period_ns), |sum, slot| match &slot.armed {
                Armed::Once { .. } => sum,
                Armed::Clock(clock) => sum + TIMER_NS_MAX.div_ceil(clock.period_ns()),
            });
            if ticks > TIMER_NS_MAX.div_ceil(self.shortest_ns) {
                return Err(TimerError::TooOften);
            }
        }
        if others().count() >= TIMERS_MAX {
            return Err(TimerError::Full);
        }
        self.take(timer);
        let armed = match kind {
            TimerKind::Once => Armed::Once { due },
            TimerKind::Clock => Armed::Clock(Clock::resume(due, period_ns)),
        };
        let slot = Slot {
            timer,
            owner,
            armed,
            tick_due: due,
            tick_late_ns: 0,
        };
        if let Some(free) = self.slots.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(slot);
        }
        self.note_next();
        Ok(())
    }

    /// Disarms a timer; false if it is not armed.
    pub fn disarm(&mut self, timer: u16) -> bool {
        let was_armed = self.take(timer);
        self.counters.disarmed += u64::from(was_armed);
        self.note_next();
        was_armed
    }

    /// Takes all timers away while their guest is stopped. Each is to be [resumed](Self::resume), which does not count it as armed
    /// again, or [forgotten](Self::forget).
    pub fn set_aside(&mut self) -> Vec<ArmedTimer> {
        let aside: Vec<_> = self.armed_timers().collect();
        for timer in &aside {
            self.take(timer.timer);
        }
        self.note_next();
        aside
    }

    /// Counts `count` timers that were set aside as disarmed: the guest that armed them is gone.
    pub const fn forget(&mut self, count: usize) {
        self.counters.disarmed += count as u64;
    }

    fn take(&mut self, timer: u16) -> bool {
        let slot = self
            .slots
            .iter_mut()
            .find(|slot| slot.is_some_and(|slot| slot.timer == timer));
        let taken = slot.and_then(Option::take);
        if let Some(Slot {
            armed: Armed::Clock(clock),
            ..
        }) = &taken
        {
            self.stopped.add(clock.counters());
        }
        taken.is_some()
    }

    fn note_next(&mut self) {
        self.next = self.slots.iter().flatten().filter_map(Slot::next_event).min();
    }

    /// What is to be done by `now`, the earliest first; to be called until it says `None`.
    pub fn poll(&mut self, now: Time) -> Option<TimerEvent> {
        while self.next.is_some_and(|at| at <= now) {
            let next = self.next;
            let index = self
                .slots
                .iter()
                .position(|slot| slot.is_some_and(|slot| slot.next_event() == next))?;
            let event = self.serve(index, now);
            self.note_next();
            if event.is_some() {
                return event;
            }
        }
        None
    }

    fn serve(&mut self, index: usize, now: Time) -> Option<TimerEvent> {
        let slot = self.slots[index].as_mut()?;
        let (timer, owner) = (slot.timer, slot.owner);
        let (kind, due, late_ns) = match &mut slot.armed {
            Armed::Once { due } => {
                let due = *due;
                let late_ns = now.nanos_since(due);
                self.counters.rung_once += 1;
                self.counters.lateness.record(late_ns);
                self.slots[index] = None;
                (TimerKind::Once, due, late_ns)
            }
            Armed::Clock(clock) => {
                let tick = clock.next_event();
                match clock.poll(now)? {
                    ClockAction::FetchClockState => {
                        slot.tick_due = tick.unwrap_or(now);
                        slot.tick_late_ns = now.nanos_since(slot.tick_due);
                        return Some(TimerEvent::FetchClockState { timer });
                    }
                    ClockAction::Ring(_) => (TimerKind::Clock, slot.tick_due, slot.tick_late_ns),
                }
            }
        };
        self.sequence += 1;
        Some(TimerEvent::Expired(Expiry {
            timer,
            owner,
            kind,
            due,
            late_ns,
            sequence: self.sequence,
        }))
    }

    /// What the host's clock state was when the card asked for `timer`; see [`Clock::clock_state`].
    pub fn clock_state(&mut self, now: Time, timer: u16, state: ClockState, fetch_ns: u64) {
        let slot = self.slots.iter_mut().flatten().find(|slot| slot.timer == timer);
        if let Some(Slot {
            armed: Armed::Clock(clock),
            ..
        }) = slot
        {
            clock.clock_state(now, state, fetch_ns);
        }
        self.note_next();
    }

    /// When [`Timers::poll`] next has something to say.
    #[inline]
    pub const fn next_event(&self) -> Option<Time> {
        self.next
    }

    /// Timers that are armed.
    pub fn armed(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// A ring could not be brought to the guest.
    pub fn note_lost(&mut self) {
        self.counters.lost += 1;
    }

    /// What was counted since the card was made.
    pub fn counters(&self) -> TimerCounters {
        let mut counters = self.counters;
        counters.clocks = self.stopped;
        for slot in self.slots.iter().flatten() {
            if let Armed::Clock(clock) = &slot.armed {
                counters.clocks.add(clock.counters());
            }
        }
        counters
    }
}
