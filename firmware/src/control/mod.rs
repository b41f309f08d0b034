//! The in-band control protocol between a guest and its own card, both ends of it; `docs/spec/card-control.md` is its definition.
//!
//! It holds requests and replies as values, and their encoding. What a card does when it is asked is in the card; how frames get
//! there and back is the driver's business.

mod copy_engine;
mod counters;
mod groups;
mod host_record;
mod rate_limit;
mod reply;
mod reports;
mod request;
mod steering;
mod strategies;
mod timed;
mod wire;

pub use copy_engine::CopyEngineReport;
pub use counters::ControlCounters;
pub use groups::{GROUP_CHANGES_BURST, GROUP_CHANGES_PER_S, GroupRefusal, GroupRequest};
pub use host_record::{HostRecordRefusal, HostRecordReport, HostRecordRequest};
pub use reply::{Reply, ReplyError};
pub use reports::{
    Abilities, AdaptiveReport, CoalescingReport, CounterReport, GroupReport, Refusal, RefusalCode, SteeringReport,
    StrategyCode, StrategySet, ability,
};
pub use request::Request;
pub use strategies::StrategyNames;
pub use timed::{Doorbell, TimerReport, WatchdogReport, doorbell_frame};

pub(crate) use groups::GroupWishes;
pub(crate) use rate_limit::RateLimit;
pub(crate) use request::{Decoded, Reject};
pub(crate) use wire::operation;

/// The longest control frame in bytes, in both directions; the shortest is Ethernet's minimum, [`CONTROL_FRAME_MIN`].
pub const CONTROL_FRAME_MAX: usize = 256;
/// The shortest frame sent: Ethernet's minimum without frame check sequence. Padding is zero.
pub const CONTROL_FRAME_MIN: usize = 60;
/// The one version of the protocol so far.
pub const CONTROL_VERSION: u8 = 1;
/// Requests that a card serves per second in the long run. A person or a monitoring program needs a few; a guest that
/// sends more must not spend the data plane's time, which belongs to its neighbours too.
pub const CONTROL_REPLIES_PER_S: u64 = 1_000;
/// Requests that a card serves at once after a pause: reading every counter of a card with many queues.
pub const CONTROL_REPLIES_BURST: u64 = 256;
