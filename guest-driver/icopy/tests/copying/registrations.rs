//! Memory that is registered, and the cache of what was.

use icopy::{CopyError, Engine, Options, PAGE, Use};

use crate::model::{Model, engine, engine_with};

/// Memory of the test's own, aligned to a page.
struct Pages(icopy::Memory);

impl Pages {
    fn new(count: usize) -> Self {
        let (mut engine, _) = engine(4096, 4);
        Self(engine.allocate(count * PAGE, Use::Program).unwrap())
    }

    fn at(&self, page: usize) -> *mut u8 {
        self.0.at(page * PAGE)
    }
}

fn register(engine: &mut Engine<Model>, first: *mut u8, len: usize) -> Result<(), CopyError> {
    // SAFETY: memory of the test's own, which stays mapped, and to which there is no reference.
    unsafe { engine.register(first, len, Use::Program) }
}

#[test]
fn memory_that_is_registered_again_is_found_if_it_is_still_the_same() {
    let (mut engine, card) = engine(4096, 4);
    let pages = Pages::new(4);
    for round in 0..3 {
        register(&mut engine, pages.at(0), 4 * PAGE).unwrap();
        assert_eq!(card.borrow().pinned.pins, 1, "round {round}");
        engine.unregister(pages.at(0), 4 * PAGE).unwrap();
    }
    // A part of it.
    register(&mut engine, pages.0.at(PAGE + 5), 100).unwrap();
    assert_eq!((engine.cache().hits, engine.cache().misses), (3, 1));
    engine.unregister(pages.0.at(PAGE + 5), 100).unwrap();
    // Other memory was mapped there.
    card.borrow_mut().generation = 1 << 40;
    register(&mut engine, pages.at(0), 4 * PAGE).unwrap();
    assert_eq!(engine.cache().stale, 1);
    assert_eq!((card.borrow().pinned.pins, card.borrow().pinned.unpins), (2, 1));
    // And once more, while it is registered: the program broke its promise.
    card.borrow_mut().generation = 2 << 40;
    let again = register(&mut engine, pages.at(0), PAGE);
    assert!(matches!(again, Err(CopyError::Replaced { .. })), "{again:?}");
}

#[test]
fn without_the_privilege_to_look_pages_up_none_stay_known() {
    let (mut engine, card) = engine(4096, 4);
    card.borrow_mut().is_blind = true;
    let pages = Pages::new(1);
    register(&mut engine, pages.at(0), PAGE).unwrap();
    register(&mut engine, pages.at(0), 8).unwrap();
    assert_eq!(engine.cache().hits, 1, "as long as it is registered");
    engine.unregister(pages.at(0), PAGE).unwrap();
    assert_eq!(card.borrow().pinned.unpins, 0);
    engine.unregister(pages.at(0), 8).unwrap();
    assert_eq!(card.borrow().pinned.unpins, 1);
}

#[test]
fn the_cache_has_a_limit_and_lets_the_oldest_go() {
    let mut options = Options::default();
    options.cache_len_max = 4 * PAGE;
    let (mut engine, card) = engine_with(4096, 4, &options);
    let pages = Pages::new(12);
    for page in 0..6 {
        register(&mut engine, pages.at(2 * page), PAGE).unwrap();
        engine.unregister(pages.at(2 * page), PAGE).unwrap();
    }
    assert_eq!((card.borrow().pinned.pins, card.borrow().pinned.unpins), (6, 2));
    assert_eq!(engine.cache().evicted_len, 2 * PAGE as u64);
    register(&mut engine, pages.at(4), PAGE).unwrap();
    assert_eq!(engine.cache().hits, 1);
    register(&mut engine, pages.at(0), PAGE).unwrap();
    assert_eq!(engine.cache().hits, 1, "the oldest was let go");
}

#[test]
fn memory_is_let_go_after_the_copies_that_touch_it() {
    let mut options = Options::default();
    options.cache_len_max = 0;
    options.timeout = std::time::Duration::from_millis(20);
    let (mut engine, card) = engine_with(4096, 4, &options);
    let pages = Pages::new(2);
    register(&mut engine, pages.at(0), 2 * PAGE).unwrap();
    engine.icopy(pages.at(0), pages.at(1), 100).unwrap();
    // The card copies nothing: it is given up, stopped, and only then is the memory let go.
    let stalled = engine.unregister(pages.at(0), 2 * PAGE);
    assert!(matches!(stalled, Err(CopyError::Stalled { .. })), "{stalled:?}");
    assert!(card.borrow().stopped && card.borrow().pinned.unpins == 0);
    engine.unregister(pages.at(0), 2 * PAGE).unwrap();
    assert_eq!(card.borrow().pinned.unpins, 1);
}

#[test]
fn registrations_have_a_limit_and_unknown_ones_are_refused() {
    let (mut engine, _card) = engine(4096, 4);
    let pages = Pages::new(1);
    for byte in 0..icopy::REGISTRATIONS_MAX {
        register(&mut engine, pages.0.at(byte), 8).unwrap();
    }
    let more = register(&mut engine, pages.at(0), 9);
    assert!(matches!(more, Err(CopyError::TooManyRegistrations)), "{more:?}");
    engine.unregister(pages.at(0), 8).unwrap();
    let gone = engine.unregister(pages.at(0), 8);
    assert!(matches!(gone, Err(CopyError::NotRegistered { .. })), "{gone:?}");
    assert!(register(&mut engine, pages.at(0), 0).is_err());
    assert!(register(&mut engine, usize::MAX as *mut u8, 8).is_err());
}
