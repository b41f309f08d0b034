//! Panics are contained: one that a guest's frame or ring causes costs that guest its card, and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work` on `state`. If it panics (`None`), `recover` puts `state` in order.
#[inline]
pub fn contain<S, T>(state: &mut S, work: impl FnOnce(&mut S) -> T, recover: impl FnOnce(&mut S)) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(|| work(state))) {
        Ok(result) => Some(result),
        Err(_) => {
            recover(state);
            None
        }
    }
}
