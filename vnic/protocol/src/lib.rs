//! What `vnicd` and its clients say to each other: settings and changes of them, requests and replies, statistics, and the client.
//!
//! Settings and counters of cards are the types of `firmware`, those of links and switches the types of `fabric`, read and written as
//! `docs/spec/control-socket.md` says. What is added here belongs to a port as a whole, or to the conversation. Values are judged by the
//! crates that own them; nothing is carried out here, and nothing is known of guests or of rings.
#![forbid(unsafe_code)]

pub mod client;
pub mod config;
pub mod drops;
pub mod request;
mod settings;
mod stats;
mod switch;

pub use fabric::{
    JitterDistribution, LinkChange, LinkConfig as LinkSettings, QUEUE_FRAMES_MAX, QueueLevel, TrunkGraph,
};
pub use firmware::{
    AdaptiveState, Coalescing, DmaChange, DmaModel as DmaSettings, MisorderChange, MisorderSettings, QueueTable,
    SteeringMode, SteeringSettings, SteeringSettingsChange as SteeringChange, timers::ArmedTimer,
    watchdog::WatchdogCounters as WatchdogStats,
};

pub use config::{PacketsGiven, PortSettings, SocketMode};
pub use request::Request;
pub use settings::{
    CardChange, CoalescingChange, CoalescingSettings, Direction, PortLinks, QueueCoalescing, SettingsEvent,
    TrunkDirection, TrunkLinks,
};
pub use stats::{
    AdaptiveStats, Counts, Drained, Empty, GroupInfo, GroupMember, GroupStats, Groups, ITSELF, Info, InterruptStats,
    LinkStats, PacketsPerInterrupt, PortInfo, PortPacketsGiven, PortStats, PortTimer, QueueStats, Stats, TimerStats,
    TraceInfo, TrafficStats, TxInterruptStats, counts,
};
pub use switch::{
    MembershipInfo, Memberships, Reserved, SnoopedVlanInfo, SnoopingInfo, StationInfo, Stations, StpInfo, StpPortInfo,
    StpSettings, SwitchInfo, SwitchPortInfo, SwitchSettings, Switches, VLAN_MAX, VlanChange, VlanList, VlanSettings,
    Vlans,
};

/// Most queue pairs of a port: more than a guest of a lab has processors, and its rings still fit a 64-bit set.
pub const QUEUE_PAIRS_MAX: u16 = 16;

/// MTU of ports by default, in bytes: the largest of real cards.
pub const MTU_DEFAULT: u32 = 9000;
/// Largest MTU of ports and links, in bytes: that of a virtio card. What is done for each frame, and not for each byte, shows with frames
/// longer than those of real cards.
pub const MTU_MAX: u32 = 65_535;
/// Limits of [`PortSettings::member_timeout_ns`]: a guest that has its processor taken away for a moment is not gone, and what is kept for one
/// that is gone keeps others waiting.
pub const MEMBER_TIMEOUT_NS_MIN: u64 = 100_000_000;
/// See [`MEMBER_TIMEOUT_NS_MIN`].
pub const MEMBER_TIMEOUT_NS_MAX: u64 = 600_000_000_000;

/// Smallest MTU that IPv4 allows.
pub const MTU_MIN: u32 = 68;

/// Longest delay of a link, by propagation or reordering: more than any real line has, one to the moon included, and
/// little enough that frames in flight do not fill the pool for ever.
pub const LINK_DELAY_NS_MAX: u64 = 10_000_000_000;

/// The shortest timer of a card. A guest may have one that never ends (packets that it leaves in its ring under a watchdog), and
/// each expiry wakes the data plane for some microseconds: at 50 µs a tenth of a processor, which a guest could spend by sending
/// frames as well.
pub const TIMER_NS_MIN: u64 = 50_000;
