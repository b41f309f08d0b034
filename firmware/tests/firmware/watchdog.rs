//! M-BV8 and M-BV9: the polling watchdog against its specification, and against mutants of it.

use std::panic::catch_unwind;

use ether::Time;
use firmware::{
    HostState, Watchdog,
    watchdog::{WATCHDOG_DELAY_NS_MAX, WatchdogAction},
};

use crate::{
    support::{Numbers, t},
    watchdog_reference::{Dog, Mutant, Reference},
};

const DELAY: u64 = 100;
const FETCH: u64 = 7;
const SEQUENCES: u64 = 1_000_000;
const FETCH_HOST_STATE: Option<WatchdogAction> = Some(WatchdogAction::FetchHostState);

fn host(interrupts_enabled: bool, processed: u64) -> HostState {
    HostState {
        interrupts_enabled,
        processed,
    }
}

/// Lets the timer that is running expire at `at` and hands over `state`; the outcome is what is decided when the DMA is done.
fn look(dog: &mut impl Dog, at: u64, state: HostState, delivered: u64, pending: bool) -> Option<WatchdogAction> {
    assert_eq!(dog.next_event(), Some(at), "the timer");
    assert_eq!(dog.poll(at - 1, delivered, pending), None, "before the timer expired");
    assert_eq!(dog.poll(at, delivered, pending), FETCH_HOST_STATE, "at the expiry");
    assert_eq!(dog.poll(at, delivered, pending), None, "asked twice");
    dog.host_state(at, state, FETCH);
    assert_eq!(dog.next_event(), Some(at + FETCH), "the DMA");
    assert_eq!(
        dog.poll(at + FETCH - 1, delivered, pending),
        None,
        "before the DMA was complete"
    );
    dog.poll(at + FETCH, delivered, pending)
}

fn raised(at: u64) -> Option<WatchdogAction> {
    Some(WatchdogAction::Raise(t(at)))
}

fn the_host_state_is_fetched_at_the_expiry_and_never_before(dog: &mut impl Dog) {
    assert_eq!(dog.next_event(), None);
    assert_eq!(dog.poll(5, 0, false), None);
    dog.arrive(10);
    dog.arrive(50);
    assert_eq!(dog.poll(50, 2, false), None, "no fetch at an arrival");
    look(dog, 10 + DELAY, host(true, 0), 2, false);
}

fn the_timer_counts_from_the_first_arrival(dog: &mut impl Dog) {
    dog.arrive(0);
    dog.arrive(99);
    assert_eq!(look(dog, DELAY, host(true, 0), 2, false), raised(DELAY + FETCH));
}

fn a_host_that_processed_all_ends_the_timer(dog: &mut impl Dog) {
    dog.arrive(0);
    assert_eq!(look(dog, DELAY, host(true, 1), 1, false), None);
    assert_eq!(dog.next_event(), None, "cancelled");
    dog.arrive(1_000);
    assert_eq!(
        look(dog, 1_000 + DELAY, host(true, 1), 2, false),
        raised(1_000 + DELAY + FETCH),
        "the next packet starts it anew"
    );
}

fn a_packet_on_its_way_keeps_the_timer(dog: &mut impl Dog) {
    dog.arrive(0);
    dog.arrive(60);
    assert_eq!(look(dog, DELAY, host(true, 1), 1, true), None);
    let again = DELAY + FETCH + DELAY;
    assert_eq!(look(dog, again, host(true, 1), 2, false), raised(again + FETCH));
}

fn disabled_interrupts_restart_the_timer_without_an_interrupt(dog: &mut impl Dog) {
    dog.arrive(0);
    assert_eq!(look(dog, DELAY, host(false, 0), 3, false), None);
    let again = DELAY + FETCH + DELAY;
    assert_eq!(look(dog, again, host(false, 0), 3, false), None);
    let enabled = again + FETCH + DELAY;
    assert_eq!(
        look(dog, enabled, host(true, 0), 3, false),
        raised(enabled + FETCH),
        "M-BV9: a stale flag delays the interrupt, and does not lose it"
    );
}

fn progress_restarts_the_timer_without_an_interrupt(dog: &mut impl Dog) {
    dog.arrive(0);
    assert_eq!(look(dog, DELAY, host(true, 1), 3, false), None);
    let again = DELAY + FETCH + DELAY;
    assert_eq!(look(dog, again, host(true, 2), 3, false), None);
}

fn progress_is_what_was_processed_since_the_last_look(dog: &mut impl Dog) {
    dog.arrive(0);
    assert_eq!(look(dog, DELAY, host(true, 1), 3, false), None);
    let again = DELAY + FETCH + DELAY;
    assert_eq!(look(dog, again, host(true, 1), 3, false), raised(again + FETCH));
}

fn a_host_that_does_not_poll_is_interrupted_again_and_again(dog: &mut impl Dog) {
    dog.arrive(0);
    let mut at = DELAY;
    for _ in 0..5 {
        assert_eq!(look(dog, at, host(true, 0), 1, false), raised(at + FETCH));
        at += FETCH + DELAY;
    }
    assert_eq!(look(dog, at, host(true, 1), 1, false), None);
    assert_eq!(dog.next_event(), None, "cancelled at last");
}

macro_rules! promises {
    ($($id:ident $promise:ident;)*) => {$(
        #[test]
        fn $id() {
            $promise(&mut Watchdog::new(DELAY));
            $promise(&mut Reference::new(DELAY, None));
        }
    )*};
}

promises! {
    m_bv8_the_host_state_is_fetched_at_the_expiry_and_never_before the_host_state_is_fetched_at_the_expiry_and_never_before;
    m_bv8_the_timer_counts_from_the_first_arrival the_timer_counts_from_the_first_arrival;
    m_bv8_a_host_that_processed_all_ends_the_timer a_host_that_processed_all_ends_the_timer;
    m_bv8_a_packet_on_its_way_keeps_the_timer a_packet_on_its_way_keeps_the_timer;
    m_bv9_disabled_interrupts_restart_the_timer_without_an_interrupt disabled_interrupts_restart_the_timer_without_an_interrupt;
    m_bv8_progress_restarts_the_timer_without_an_interrupt progress_restarts_the_timer_without_an_interrupt;
    m_bv8_progress_is_what_was_processed_since_the_last_look progress_is_what_was_processed_since_the_last_look;
    m_bv8_a_host_that_does_not_poll_is_interrupted_again_and_again a_host_that_does_not_poll_is_interrupted_again_and_again;
}

type Promise = fn(&mut Reference);

/// Each mutant breaks the promise that names it.
#[test]
fn m_bv8_m_bv9_every_mutant_breaks_a_named_promise() {
    let mutants: [(Mutant, Promise); 11] = [
        (Mutant::CancelNever, a_host_that_processed_all_ends_the_timer),
        (
            Mutant::FetchBeforeExpiry,
            the_host_state_is_fetched_at_the_expiry_and_never_before,
        ),
        (
            Mutant::FetchAtEveryArrival,
            the_host_state_is_fetched_at_the_expiry_and_never_before,
        ),
        (Mutant::TimerFromLastArrival, the_timer_counts_from_the_first_arrival),
        (
            Mutant::InterruptWhileDisabled,
            disabled_interrupts_restart_the_timer_without_an_interrupt,
        ),
        (
            Mutant::InterruptInSpiteOfProgress,
            progress_restarts_the_timer_without_an_interrupt,
        ),
        (
            Mutant::NoRestartAfterInterrupt,
            a_host_that_does_not_poll_is_interrupted_again_and_again,
        ),
        (
            Mutant::NoRestartAfterDisabled,
            disabled_interrupts_restart_the_timer_without_an_interrupt,
        ),
        (
            Mutant::DecideBeforeTheDma,
            the_host_state_is_fetched_at_the_expiry_and_never_before,
        ),
        (Mutant::CancelWithDmaPending, a_packet_on_its_way_keeps_the_timer),
        (
            Mutant::ProgressSinceEver,
            progress_is_what_was_processed_since_the_last_look,
        ),
    ];
    for (mutant, promise) in mutants {
        let broken = catch_unwind(|| promise(&mut Reference::new(DELAY, Some(mutant)))).is_err();
        assert!(broken, "{mutant:?} was not found by its promise");
        assert!(
            (0..SEQUENCES).any(|seed| compare(seed, Some(mutant)).is_err()),
            "{mutant:?} was not found by random sequences"
        );
    }
}

/// One random sequence of arrivals, completed DMAs, processed packets and toggles of the flag, given to the real watchdog and to
/// the specification.
fn compare(seed: u64, mutant: Option<Mutant>) -> Result<(), String> {
    let mut numbers = Numbers::new(seed);
    let delay = numbers.one_of(&[1, 2, 3, 5, 8, 20]);
    let fetch_ns = numbers.one_of(&[0, 0, 1, 2, 6]);
    let mut real = Watchdog::new(delay);
    let mut model = Reference::new(delay, mutant);
    let (mut now, mut arrived, mut delivered, mut processed, mut enabled) = (0, 0u64, 0u64, 0u64, true);
    for step in 0..10 + numbers.below(12) {
        match numbers.below(16) {
            0..4 => {
                arrived += 1;
                Dog::arrive(&mut real, now);
                model.arrive(now);
            }
            4..7 => delivered = arrived.min(delivered + 1 + numbers.below(2)),
            7..9 => processed = delivered.min(processed + 1 + numbers.below(3)),
            9 => enabled = !enabled,
            10 => now += numbers.one_of(&[1, 2, 4, 30]),
            _ => {
                let Some(at) = Dog::next_event(&real) else { continue };
                now = now.max(at);
            }
        }
        loop {
            let did = Dog::poll(&mut real, now, delivered, delivered < arrived);
            let should = model.poll(now, delivered, delivered < arrived);
            if did != should {
                return Err(format!("seed {seed}, step {step}, {now} ns: {did:?}, not {should:?}"));
            }
            match did {
                None => break,
                Some(WatchdogAction::FetchHostState) => {
                    let state = host(enabled, processed);
                    Dog::host_state(&mut real, now, state, fetch_ns);
                    model.host_state(now, state, fetch_ns);
                }
                Some(WatchdogAction::Raise(_)) if processed >= delivered && fetch_ns == 0 => {
                    return Err(format!(
                        "seed {seed}, step {step}: a host with nothing to do was interrupted"
                    ));
                }
                Some(WatchdogAction::Raise(_)) => {}
            }
        }
        if Dog::next_event(&real) != model.next_event() || Dog::counters(&real) != model.counters() {
            return Err(format!("seed {seed}, step {step}, {now} ns: {real:?}, not {model:?}"));
        }
    }
    Ok(())
}

#[test]
fn m_bv8_m_bv9_random_sequences_go_as_specified() {
    for seed in 0..SEQUENCES {
        compare(seed, None).unwrap_or_else(|difference| panic!("{difference}"));
    }
}

#[test]
fn m_bv8_delays_are_bounded_and_changed_under_a_running_timer() {
    let mut dog = Watchdog::new(u64::MAX);
    assert_eq!(dog.delay_ns(), WATCHDOG_DELAY_NS_MAX);
    dog.arrive(t(0));
    dog.set_delay(t(500), 300, 0, true);
    assert_eq!(dog.next_event(), Some(t(500)), "over already: now");
    dog.set_delay(t(500), 0, 0, true);
    assert_eq!((dog.is_on(), dog.next_event()), (false, None));
    dog.arrive(t(600));
    assert_eq!(dog.next_event(), None, "off");
    dog.set_delay(t(700), 40, 9, true);
    assert_eq!((dog.next_event(), dog.processed()), (Some(t(740)), 9));
    dog.reset();
    assert_eq!((dog.next_event(), dog.processed(), dog.delay_ns()), (None, 0, 40));
}

#[test]
fn m_bv8_lateness_is_what_the_driver_was_late() {
    let mut dog = Watchdog::new(1_000);
    let mut delivered = 0;
    for late in [0, 1_000, 1_001, 3_000, 2_000_000] {
        let start = Time::from_nanos(delivered * 10_000_000);
        delivered += 1;
        dog.arrive(start);
        assert_eq!(
            dog.poll(start.plus_nanos(1_000 + late), delivered, false),
            FETCH_HOST_STATE
        );
        dog.host_state(start.plus_nanos(1_000 + late), host(true, delivered), 0);
        assert_eq!(dog.poll(start.plus_nanos(1_000 + late), delivered, false), None);
    }
    let lateness = Watchdog::counters(&dog).lateness;
    assert_eq!(lateness.counts(), &[2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!((lateness.total(), lateness.max_ns()), (5, 2_000_000));
}
