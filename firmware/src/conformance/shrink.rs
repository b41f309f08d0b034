//! The fewest events with which a promise is broken: whatever can be left out of a case is left out, until nothing can.

use alloc::vec::Vec;

use super::Broken;

/// Cases tried at most; each takes microseconds, and a hundred events need some thousands.
const TRIES_MAX: usize = 20_000;

/// What a promise can be broken with.
pub(super) trait Case: Clone {
    /// Cases with a little less in them, those with much less first.
    fn smaller(&self) -> Vec<Self>;
}

/// Shrinks a case with which `run` fails, as long as it breaks this promise. Gives what the last failure said.
pub(super) fn shrunk<C: Case>(case: C, broken: Broken, run: impl Fn(&C) -> Result<(), Broken>) -> Broken {
    let (mut case, mut broken) = (case, broken);
    let mut tries = 0;
    'smaller: loop {
        for candidate in case.smaller() {
            tries += 1;
            if tries > TRIES_MAX {
                return broken;
            }
            match run(&candidate) {
                Err(found) if found.promise == broken.promise => {
                    (case, broken) = (candidate, found);
                    continue 'smaller;
                }
                _ => {}
            }
        }
        return broken;
    }
}

/// Lists with some neighbouring elements left out: halves, quarters, … single ones.
pub(super) fn without_some<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    let mut smaller = Vec::new();
    let mut run = list.len().div_ceil(2);
    while run > 0 {
        for first in (0..list.len()).step_by(run) {
            let end = (first + run).min(list.len());
            smaller.push([&list[..first], &list[end..]].concat());
        }
        run /= 2;
    }
    smaller
}
