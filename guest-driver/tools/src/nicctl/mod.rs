//! `nicctl`: asks the guest's own card about itself, its interrupt coalescing and its counters, and changes settings.
//!
//! Speaks the in-band protocol of `firmware::control` over one network interface.

mod card;
mod cli;
mod report;

pub use card::{Card, CardError};
pub use cli::{Arguments, main};
pub use report::{CoalescingOutput, InfoOutput, StatsOutput};
