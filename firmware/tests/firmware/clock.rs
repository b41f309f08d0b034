//! M-BV10: the card's clock against its specification and mutants of it, and the table of timers.

use std::panic::catch_unwind;

use ether::{MacAddr, Time};
use firmware::{
    TimerEvent, TimerKind, Timers,
    clock::{Clock, ClockAction, ClockCounters, ClockState, TIMER_NS_MAX},
    timers::{ArmedTimer, TIMERS_MAX, TimerError},
};

use crate::support::{Numbers, t};

const PERIOD: u64 = 100;
const FETCH: u64 = 7;
const SEQUENCES: u64 = 1_000_000;

trait Ticks {
    fn poll(&mut self, now: u64) -> Option<ClockAction>;
    fn clock_state(&mut self, now: u64, state: ClockState, fetch_ns: u64);
    fn next_event(&self) -> Option<u64>;
    /// Without the lateness.
    fn counters(&self) -> ClockCounters;
}

impl Ticks for Clock {
    fn poll(&mut self, now: u64) -> Option<ClockAction> {
        Self::poll(self, t(now))
    }

    fn clock_state(&mut self, now: u64, state: ClockState, fetch_ns: u64) {
        Self::clock_state(self, t(now), state, fetch_ns);
    }

    fn next_event(&self) -> Option<u64> {
        Self::next_event(self).map(Time::as_nanos)
    }

    fn counters(&self) -> ClockCounters {
        ClockCounters {
            lateness: Default::default(),
            ..*Self::counters(self)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    RingWithoutATimer,
    RingThoughPolled,
    FetchBeforeTheTick,
    RingBeforeTheDma,
    PeriodFromTheService,
    RingForEveryMissedTick,
    PollsCountForEver,
    NeverRing,
}

/// The rule as the paper's section 5.2 and `papers.md` M-BV10 have it: ticks are the multiples of T, found by trying them.
#[derive(Clone, Debug)]
struct Reference {
    period: u64,
    mutant: Option<Mutant>,
    last_tick: u64,
    asked_at: Option<u64>,
    copy: Option<(ClockState, u64, u64)>,
    counters: ClockCounters,
}

impl Reference {
    fn new(start: u64, period: u64, mutant: Option<Mutant>) -> Self {
        Self {
            period,
            mutant,
            last_tick: start,
            asked_at: None,
            copy: None,
            counters: ClockCounters::default(),
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Ticks for Reference {
    fn poll(&mut self, now: u64) -> Option<ClockAction> {
        if let Some((state, asked_at, complete)) = self.copy {
            if complete > now && !self.is(Mutant::RingBeforeTheDma) {
                return None;
            }
            self.copy = None;
            // "Only when a timer is actually running" …
            if state.running_timers == 0 && !self.is(Mutant::RingWithoutATimer) {
                self.counters.idle += 1;
                return None;
            }
            // … and "the host has not recently polled the clock": not within T.
            let polled = match state.last_poll.map(Time::as_nanos) {
                None => false,
                Some(_) if self.is(Mutant::PollsCountForEver) => true,
                Some(at) => at > asked_at || asked_at - at < self.period,
            };
            if polled && !self.is(Mutant::RingThoughPolled) {
                self.counters.polled += 1;
                return None;
            }
            if self.is(Mutant::NeverRing) {
                return None;
            }
            self.counters.rung += 1;
            return Some(ClockAction::Ring(t(complete)));
        }
        let early = u64::from(self.is(Mutant::FetchBeforeTheTick));
        if self.asked_at.is_some() || self.last_tick + self.period > now + early {
            return None;
        }
        self.last_tick += self.period;
        // "Every T microseconds": ticks that were not served in time are over.
        while self.last_tick + self.period <= now && !self.is(Mutant::RingForEveryMissedTick) {
            self.last_tick += self.period;
            self.counters.missed += 1;
        }
        if self.is(Mutant::PeriodFromTheService) {
            self.last_tick = now;
        }
        self.asked_at = Some(now);
        Some(ClockAction::FetchClockState)
    }

    fn clock_state(&mut self, now: u64, state: ClockState, fetch_ns: u64) {
        if let Some(asked_at) = self.asked_at.take() {
            self.copy = Some((state, asked_at, now + fetch_ns));
        }
    }

    fn next_event(&self) -> Option<u64> {
        match (self.copy, self.asked_at) {
            (Some((_, _, complete)), _) => Some(complete),
            (None, Some(_)) => None,
            (None, None) => Some(self.last_tick + self.period),
        }
    }

    fn counters(&self) -> ClockCounters {
        self.counters
    }
}

fn host(running_timers: u32, last_poll: Option<u64>) -> ClockState {
    ClockState {
        running_timers,
        last_poll: last_poll.map(t),
    }
}

/// A tick that is due at `due` and served at `now`; true if it rings.
fn tick(clock: &mut impl Ticks, due: u64, now: u64, state: ClockState) -> bool {
    assert_eq!(clock.next_event(), Some(due), "the tick");
    assert_eq!(clock.poll(due - 1), None, "before the tick");
    assert_eq!(clock.poll(now), Some(ClockAction::FetchClockState), "at the tick");
    assert_eq!(clock.poll(now), None, "asked twice");
    clock.clock_state(now, state, FETCH);
    assert_eq!(clock.poll(now + FETCH - 1), None, "before the DMA was complete");
    match clock.poll(now + FETCH) {
        None => false,
        Some(ClockAction::Ring(at)) => at == t(now + FETCH),
        Some(ClockAction::FetchClockState) => panic!("asked again without a tick"),
    }
}

fn a_running_timer_of_a_host_that_does_not_poll_makes_the_clock_ring_every_period(clock: &mut impl Ticks) {
    for n in 1..5 {
        assert!(tick(clock, n * PERIOD, n * PERIOD, host(1, None)));
    }
}

fn without_a_timer_the_clock_is_silent(clock: &mut impl Ticks) {
    assert!(!tick(clock, PERIOD, PERIOD, host(0, None)));
    assert!(tick(clock, 2 * PERIOD, 2 * PERIOD, host(2, None)));
}

fn a_host_that_polled_within_a_period_is_left_alone(clock: &mut impl Ticks) {
    assert!(!tick(clock, PERIOD, PERIOD, host(1, Some(1))));
    assert!(!tick(clock, 2 * PERIOD, 2 * PERIOD, host(1, Some(2 * PERIOD))));
    assert!(tick(clock, 3 * PERIOD, 3 * PERIOD, host(1, Some(2 * PERIOD))));
}

fn a_late_service_moves_no_later_tick_and_rings_once(clock: &mut impl Ticks) {
    assert!(tick(clock, PERIOD, 3 * PERIOD + 20, host(1, None)));
    assert!(tick(clock, 4 * PERIOD, 4 * PERIOD, host(1, None)));
}

macro_rules! promises {
    ($($id:ident $promise:ident;)*) => {$(
        #[test]
        fn $id() {
            $promise(&mut Clock::start(Time::ZERO, PERIOD));
            $promise(&mut Reference::new(0, PERIOD, None));
        }
    )*};
}

promises! {
    m_bv10_a_running_timer_of_a_host_that_does_not_poll_makes_the_clock_ring_every_period
        a_running_timer_of_a_host_that_does_not_poll_makes_the_clock_ring_every_period;
    m_bv10_without_a_timer_the_clock_is_silent without_a_timer_the_clock_is_silent;
    m_bv10_a_host_that_polled_within_a_period_is_left_alone a_host_that_polled_within_a_period_is_left_alone;
    m_bv10_a_late_service_moves_no_later_tick_and_rings_once a_late_service_moves_no_later_tick_and_rings_once;
}

#[test]
fn m_bv10_every_mutant_breaks_a_named_promise() {
    let every: fn(&mut Reference) = a_running_timer_of_a_host_that_does_not_poll_makes_the_clock_ring_every_period;
    let late: fn(&mut Reference) = a_late_service_moves_no_later_tick_and_rings_once;
    let polled: fn(&mut Reference) = a_host_that_polled_within_a_period_is_left_alone;
    let mutants = [
        (
            Mutant::RingWithoutATimer,
            without_a_timer_the_clock_is_silent as fn(&mut _),
        ),
        (Mutant::RingThoughPolled, polled),
        (Mutant::FetchBeforeTheTick, every),
        (Mutant::RingBeforeTheDma, every),
        (Mutant::PeriodFromTheService, late),
        (Mutant::RingForEveryMissedTick, late),
        (Mutant::PollsCountForEver, polled),
        (Mutant::NeverRing, every),
    ];
    for (mutant, promise) in mutants {
        let broken = catch_unwind(|| promise(&mut Reference::new(0, PERIOD, Some(mutant)))).is_err();
        assert!(broken, "{mutant:?} was not found by its promise");
        assert!(
            (0..SEQUENCES).any(|seed| compare(seed, Some(mutant)).is_err()),
            "{mutant:?} was not found by random sequences"
        );
    }
}

fn compare(seed: u64, mutant: Option<Mutant>) -> Result<(), String> {
    let mut numbers = Numbers::new(seed);
    let period = numbers.one_of(&[1, 2, 3, 7, 20]);
    let fetch_ns = numbers.one_of(&[0, 0, 1, 2, 9]);
    let mut now = numbers.below(5);
    let mut real = Clock::start(t(now), period);
    let mut model = Reference::new(now, period, mutant);
    let mut state = host(0, None);
    for step in 0..8 + numbers.below(10) {
        match numbers.below(8) {
            0 => state.running_timers = numbers.below(3) as u32,
            1 | 2 => state.last_poll = Some(t(now)),
            3 => now += numbers.one_of(&[1, 2, 5, 50]),
            _ => now = now.max(Ticks::next_event(&real).unwrap_or(now)),
        }
        loop {
            let (did, should) = (Ticks::poll(&mut real, now), model.poll(now));
            if did != should {
                return Err(format!("seed {seed}, step {step}, {now} ns: {did:?}, not {should:?}"));
            }
            match did {
                None => break,
                Some(ClockAction::FetchClockState) => {
                    Ticks::clock_state(&mut real, now, state, fetch_ns);
                    model.clock_state(now, state, fetch_ns);
                }
                Some(ClockAction::Ring(_)) => {}
            }
        }
        if Ticks::next_event(&real) != model.next_event() || Ticks::counters(&real) != model.counters() {
            return Err(format!("seed {seed}, step {step}, {now} ns: {real:?}, not {model:?}"));
        }
    }
    Ok(())
}

#[test]
fn m_bv10_random_sequences_go_as_specified() {
    for seed in 0..SEQUENCES {
        compare(seed, None).unwrap_or_else(|difference| panic!("{difference}"));
    }
}

const OWNER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// (time, timer) of everything that rings until `end`, for a host whose clock state is `state`.
fn rings(timers: &mut Timers, end: u64, state: impl Fn(u64) -> ClockState) -> Vec<(u64, u16)> {
    let mut rung = Vec::new();
    while let Some(at) = timers.next_event().filter(|&at| at <= t(end)) {
        while let Some(event) = timers.poll(at) {
            match event {
                TimerEvent::FetchClockState { timer } => timers.clock_state(at, timer, state(at.as_nanos()), 0),
                TimerEvent::Expired(expiry) => {
                    assert_eq!((expiry.owner, expiry.late_ns), (OWNER, 0));
                    rung.push((at.as_nanos(), expiry.timer));
                }
            }
        }
    }
    rung
}

#[test]
fn m_bv10_one_shot_timers_ring_once_in_order_of_time_and_clocks_until_disarmed() {
    let mut timers = Timers::new(10);
    timers.arm(t(0), 7, TimerKind::Once, 250, OWNER).expect("room");
    timers.arm(t(0), 1, TimerKind::Clock, 100, OWNER).expect("room");
    timers.arm(t(0), 2, TimerKind::Once, 40, OWNER).expect("room");
    let silent = |_| host(1, None);
    assert_eq!(
        rings(&mut timers, 310, silent),
        [(40, 2), (100, 1), (200, 1), (250, 7), (300, 1)]
    );
    assert_eq!(timers.armed(), 1);
    assert!(timers.disarm(1) && !timers.disarm(1) && !timers.disarm(7));
    assert_eq!(timers.next_event(), None);
    let counters = timers.counters();
    assert_eq!((counters.armed, counters.disarmed, counters.rung_once), (3, 1, 2));
    assert_eq!((counters.clocks.rung, counters.lateness.total()), (3, 2));
}

#[test]
fn m_bv10_a_host_that_polls_hears_of_no_clock_and_of_every_one_shot_timer() {
    let mut timers = Timers::new(10);
    timers.arm(t(0), 1, TimerKind::Clock, 100, OWNER).expect("room");
    timers.arm(t(0), 2, TimerKind::Once, 150, OWNER).expect("room");
    let polls_until_500 = |at: u64| host(1, Some((at - 1).min(500)));
    assert_eq!(
        rings(&mut timers, 800, polls_until_500),
        [(150, 2), (600, 1), (700, 1), (800, 1)]
    );
    assert_eq!(timers.counters().clocks.polled, 5);
}

#[test]
fn m_bv10_armed_timers_are_bounded_in_number_and_rate() {
    let mut timers = Timers::new(1_000_000);
    for bad in [0, 999_999, TIMER_NS_MAX + 1] {
        assert_eq!(timers.arm(t(0), 0, TimerKind::Once, bad, OWNER), Err(TimerError::Range));
    }
    for timer in 0..TIMERS_MAX as u16 {
        timers
            .arm(t(0), timer, TimerKind::Once, 1_000_000, OWNER)
            .expect("room");
    }
    let full = timers.arm(t(0), 99, TimerKind::Once, 1_000_000, OWNER);
    assert_eq!(full, Err(TimerError::Full));
    assert!(TimerError::Full.sentence().contains(&TIMERS_MAX.to_string()));
    timers
        .arm(t(5), 3, TimerKind::Once, 2_000_000, OWNER)
        .expect("this timer again");
    assert_eq!(timers.set_aside().len(), TIMERS_MAX);
    assert_eq!((timers.armed(), timers.next_event()), (0, None));
    timers
        .arm(t(0), 1, TimerKind::Clock, 2_000_000, OWNER)
        .expect("half of what there is");
    timers
        .arm(t(0), 2, TimerKind::Clock, 2_000_000, OWNER)
        .expect("the other half");
    let more = timers.arm(t(0), 3, TimerKind::Clock, TIMER_NS_MAX, OWNER);
    assert_eq!(more, Err(TimerError::TooOften));
    timers
        .arm(t(0), 2, TimerKind::Clock, 2_000_000, OWNER)
        .expect("in its own place");
}

#[test]
fn m_bv10_timers_that_another_firmware_takes_over_ring_when_they_were_due_there() {
    let owner = MacAddr([2, 0, 0, 0, 0, 1]);
    let mut old = Timers::new(50_000);
    old.arm(t(1_000), 1, TimerKind::Once, 100_000, owner).expect("in range");
    old.arm(t(2_000), 2, TimerKind::Once, 900_000, owner).expect("in range");
    old.arm(t(3_000), 3, TimerKind::Clock, 300_000, owner)
        .expect("in range");
    // A tick at 303 µs is being served: the next one is due at 603 µs.
    let asked = core::iter::from_fn(|| old.poll(t(310_000))).last();
    assert_eq!(asked, Some(TimerEvent::FetchClockState { timer: 3 }));
    let handed: Vec<_> = old.armed_timers().collect();
    let due = |timer: &ArmedTimer| (timer.timer, timer.kind, timer.period_ns, timer.due);
    assert_eq!(
        handed.iter().map(due).collect::<Vec<_>>(),
        [
            (2, TimerKind::Once, 0, t(902_000)),
            (3, TimerKind::Clock, 300_000, t(603_000))
        ]
    );

    let mut new = Timers::new(50_000);
    // Later than the clock's tick.
    for timer in &handed {
        new.resume(t(700_000), timer).expect("as it was armed");
    }
    assert_eq!(new.armed_timers().collect::<Vec<_>>(), handed);
    assert_eq!(new.poll(t(700_000)), Some(TimerEvent::FetchClockState { timer: 3 }));
    let state = ClockState {
        running_timers: 1,
        last_poll: None,
    };
    new.clock_state(t(700_000), 3, state, 0);
    let Some(TimerEvent::Expired(ring)) = new.poll(t(700_000)) else {
        panic!("it was not polled")
    };
    assert_eq!((ring.timer, ring.due, ring.late_ns), (3, t(603_000), 97_000));
    assert_eq!(new.next_event(), Some(t(902_000)));
    let Some(TimerEvent::Expired(ring)) = new.poll(t(902_500)) else {
        panic!("it is due")
    };
    assert_eq!((ring.timer, ring.owner, ring.late_ns), (2, owner, 500));

    // What no guest can have armed is refused.
    let wrong = [
        ArmedTimer {
            due: t(700_000).plus_nanos(TIMER_NS_MAX + 1),
            ..handed[0]
        },
        ArmedTimer {
            period_ns: 0,
            ..handed[1]
        },
        ArmedTimer {
            period_ns: TIMER_NS_MAX + 1,
            ..handed[1]
        },
    ];
    for timer in wrong {
        assert_eq!(new.resume(t(700_000), &timer), Err(TimerError::Range));
    }
}
