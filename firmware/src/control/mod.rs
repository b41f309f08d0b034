//! The in-band control protocol between a guest and its own card, both ends of it; `docs/spec/card-control.md` is its definition.
//!
//! Requests and replies as values, their encoding, and the card's service with its limits. How frames get to the card and
//! back is the driver's business.

mod copy_engine;
mod groups;
mod message;
mod reply;
mod request;
mod service;
mod steering;
mod strategies;
mod timed;
mod wire;

pub use copy_engine::CopyEngineReport;
pub use groups::{GROUP_CHANGES_BURST, GROUP_CHANGES_PER_S, GroupRefusal, GroupRequest};
pub use message::{
    Abilities, AdaptiveReport, CoalescingReport, CounterReport, GroupReport, Refusal, RefusalCode, Reply, Request,
    SteeringReport, StrategyCode, StrategySet, ability,
};
pub use reply::ReplyError;
pub use service::{CONTROL_REPLIES_BURST, CONTROL_REPLIES_PER_S, ControlCounters};
pub use strategies::StrategyNames;
pub use timed::{Doorbell, TimerReport, WatchdogReport, doorbell_frame};

pub(crate) use groups::GroupWishes;
pub(crate) use service::{RateLimit, serve};

/// The longest control frame in bytes, in both directions; the shortest is Ethernet's minimum, [`CONTROL_FRAME_MIN`].
pub const CONTROL_FRAME_MAX: usize = 256;
/// The shortest frame sent: Ethernet's minimum without frame check sequence. Padding is zero.
pub const CONTROL_FRAME_MIN: usize = 60;
/// The one version of the protocol so far.
pub const CONTROL_VERSION: u8 = 1;
