//! The programmable network card's firmware: receive pipeline, interrupt coalescing, in-band control.
//!
//! Everything here is a state machine without I/O: it is handed events and the time, and hands back what to do. It reads
//! no clock, starts no thread, sees no guest memory and allocates nothing per packet; drivers of it are `vnicd` and the
//! simulator. How frames are switched between cards is not here (crate `fabric`).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
// A strategy that is written outside of this crate names it, and can be put into it as it is.
extern crate self as firmware;

mod card;
pub mod clock;
pub mod coalescing;
pub mod conformance;
pub mod control;
pub mod copy_engine;
mod counters;
mod dma;
pub mod host_record;
mod interrupt;
mod lateness;
mod misorder;
pub mod multicast;
mod mxoe_header;
mod packet;
mod pending;
mod pipeline;
pub mod reception;
pub mod recorder;
mod steering;
pub mod timers;
pub mod watchdog;

pub use card::{Card, CardConfig, ChangeError, QUEUE_PAIRS_MAX, UnknownQueue};
pub use coalescing::{
    AdaptiveState, Coalescing, CoalescingChange, CoalescingError, ReasonOf, StrategyKind, UnknownStrategy,
};
pub use control::CONTROL_FRAME_MAX;
pub use counters::{Histogram, RxCounters, RxCounts};
pub use dma::{DMA_PARALLELISM_MAX, DMA_RATE_BPS_MIN, DMA_SETUP_NS_MAX, DmaChange, DmaError, DmaModel};
pub use host_record::{HOST_RECORD_LEN, HostRecord, HostRecordCounters, HostRecordPlace};
pub use interrupt::{Interrupt, Reason, UnknownReason};
pub use lateness::Lateness;
pub use misorder::{
    MISORDER_DEGREE_MAX, MISORDER_PARTNERS, Misorder, MisorderChange, MisorderCounters, MisorderDegreeError,
    MisorderSettings,
};
pub use packet::{INLINE_HEADER_LEN, Mark, PacketInfo};
pub use pending::PENDING_MAX;
pub use pipeline::{Event, Pipeline, PipelineConfig, PipelineFull, RxPipeline};
pub use steering::{
    ENDPOINTS, INDIRECTION_LEN, QueueTable, Steering, SteeringChange, SteeringCounters, SteeringError, SteeringMode,
    SteeringSettings, SteeringSettingsChange, SteeringTable, TABLE_ENTRIES_MAX, TableChange, TableEntries,
    UnknownSteeringMode, flow_hash,
};
pub use timers::{TimerEvent, TimerKind, Timers};
pub use watchdog::{HostState, Watchdog};

/// The example of the README, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
