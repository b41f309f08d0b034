//! The verbs that switch nodes off and on.

mod phase;
pub(super) mod restart;
pub(super) mod start;
pub(super) mod stop;
