//! `nicctl`: asks the guest's own card about itself, its interrupt coalescing and its counters, and changes settings.
//!
//! Speaks the in-band protocol of `firmware::control` over one network interface; the conversation is `weft_card_control::Card`.

mod bind;
mod cli;
mod copy_engine;
mod group;
mod port;
mod report;
mod steering;
mod strategies;
mod timed;

pub use bind::BindOutput;
pub use cli::{Arguments, main};
pub use copy_engine::CopyEngineOutput;
pub use report::{AdaptiveOutput, CoalescingOutput, InfoOutput, StatsOutput};
pub use steering::SteeringOutput;
pub use strategies::Strategies;
