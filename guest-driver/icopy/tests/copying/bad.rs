//! Copies that are refused before anything moves, and cards that fail.

use std::time::Duration;

use firmware::copy_engine::CopyError as Refused;
use icopy::{COPY_LEN_MAX, CopyError, Engine, Options, PAGE, Use};

use crate::model::{Model, engine, engine_with};

#[test]
fn m_ci1_overlaps_and_addresses_that_are_not_registered_are_refused_before_anything_moves() {
    let (mut engine, card) = engine(8950, 256);
    let lens = [3 * PAGE, 3 * PAGE, 64];
    let [one, other, flag] = lens.map(|len| engine.allocate(len, Use::Program).unwrap());
    // One may follow the other in memory: what goes past the end of the higher one is never part of the lower one.
    let (a, b) = if one.as_ptr() < other.as_ptr() {
        (one, other)
    } else {
        (other, one)
    };
    let (len, wild) = (a.len(), 0x1000 as *mut u8);
    let variable = flag.variable(0);
    let outside = engine.allocate(PAGE, Use::Program).unwrap();
    engine.unregister(outside.as_ptr(), PAGE).unwrap();
    type Copy<'a> = &'a dyn Fn(&mut Engine<Model>) -> Result<(), CopyError>;
    let copies: [(&str, Copy<'_>); 13] = [
        ("overlap", &|engine| engine.icopy(a.at(0), a.at(100), 200)),
        ("overlap", &|engine| engine.icopy(a.at(100), a.at(0), 101)),
        ("overlap", &|engine| engine.icopy(a.at(0), a.at(0), 1)),
        ("overlap", &|engine| {
            engine.icopy_notif(a.at(0), b.at(0), 100, a.variable(96), 1)
        }),
        ("overlap", &|engine| {
            engine.icopy_notif(a.at(0), b.at(0), 100, b.variable(0), 1)
        }),
        ("multiple of 8", &|engine| {
            engine.icopy_notif(a.at(0), b.at(0), 100, flag.at(4).cast(), 1)
        }),
        ("needs a notification", &|engine| engine.icopy(a.at(0), b.at(0), 0)),
        ("the source (1 bytes", &|engine| engine.icopy(a.at(0), wild, 1)),
        ("the destination (1 bytes", &|engine| {
            engine.icopy(outside.at(0), b.at(0), 1)
        }),
        ("the source", &|engine| engine.icopy(a.at(0), b.at(1), len)),
        ("the notification variable", &|engine| {
            engine.icopy_notif(a.at(0), b.at(0), 8, wild.cast(), 1)
        }),
        ("within the addresses", &|engine| {
            engine.icopy(a.at(0), (usize::MAX - 10) as *const u8, 100)
        }),
        ("at most 1073741824 bytes", &|engine| {
            engine.icopy(a.at(0), b.at(0), COPY_LEN_MAX + 1)
        }),
    ];
    for (expected, copy) in copies {
        let error = copy(&mut engine).expect_err(expected);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert_eq!(card.borrow().frames(), 0, "{expected}");
    }
    assert_eq!(engine.counters(), icopy::Counters::default());
    for wild in [wild.cast(), flag.at(60).cast()] {
        assert!(matches!(engine.test(wild, 1), Err(CopyError::NotRegistered { .. })));
    }
    assert!(matches!(
        engine.test(flag.at(4).cast(), 0),
        Err(CopyError::Refused(Refused::Misaligned))
    ));
    // Nothing runs that could store it.
    assert!(engine.wait(variable, 5).is_err());
}

/// Asks for a copy, lets the card fail, and returns what the engine says then.
fn after(fail: impl FnOnce(&mut crate::model::State)) -> CopyError {
    let mut options = Options::default();
    options.timeout = Duration::from_millis(20);
    let (mut engine, card) = engine_with(8950, 256, &options);
    let [from, to, flag] = [PAGE, PAGE, 8].map(|len| engine.allocate(len, Use::Program).unwrap());
    engine
        .icopy_notif(to.at(0), from.at(0), PAGE, flag.variable(0), 1)
        .unwrap();
    fail(&mut card.borrow_mut());
    let error = engine.wait(flag.variable(0), 1).expect_err("it failed");
    assert!(card.borrow().stopped, "{error}: its memory is left alone");
    let later = [
        engine.icopy(to.at(0), from.at(0), 1),
        engine.progress(),
        engine.finish(),
        engine.allocate(8, Use::Program).map(drop),
    ];
    for later in later {
        let later = later.expect_err("it was given up");
        assert!(later.to_string().contains(&error.to_string()), "{later}");
    }
    error
}

#[test]
fn m_ci2_a_card_that_was_started_again_is_told_that_there_is_work() {
    let (mut engine, card) = engine(8950, 256);
    let [from, to, flag] = [PAGE, PAGE, 8].map(|len| engine.allocate(len, Use::Program).unwrap());
    engine
        .icopy_notif(to.at(0), from.at(0), PAGE, flag.variable(0), 1)
        .unwrap();
    card.borrow_mut().wakes_up = true;
    engine.wait(flag.variable(0), 1).unwrap();
    assert_eq!(card.borrow().reminders, 1);
}

#[test]
fn m_ci2_a_card_that_loses_a_copy_breaks_a_rule_or_is_silent_is_given_up_with_a_sentence() {
    let error = after(|card| (card.loses, card.done) = (true, 0));
    assert!(matches!(error, CopyError::Lost), "{error}");
    let error = after(|card| card.breaks = true);
    assert!(matches!(error, CopyError::Card(_)), "{error}");
    let error = after(|_| ());
    assert!(matches!(error, CopyError::Stalled { .. }), "{error}");
}
