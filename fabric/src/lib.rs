//! The emulated switch and its links: who gets a frame, and when.
//!
//! Its parts are state machines without I/O, clock or threads: they are told the time and the frame's first bytes and answer with a
//! decision. Frames themselves are moved, delayed and changed by the caller; guest memory and processes are unknown
//! here.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod control_frame;
mod lacp;
mod link;
mod ports;
mod snooping;
mod stp;
mod switch;
mod topology;
mod vlan_tag;

pub use control_frame::{CONTROL_FRAME_LEN_MIN, ControlFrame};
pub use link::{
    Admission, FRAME_OVERHEAD_BYTES, JITTER_NS_MAX, JitterDistribution, Link, LinkChange, LinkConfig, LinkConfigError,
    LinkCounters, LinkDrop, PPM, QUEUE_FRAMES_MAX, QueueLevel, wire_bits,
};
pub use ports::{PORTS_MAX, PortId};
pub use snooping::{GroupMember, MEMBERSHIPS_MAX, PORT_MEMBERSHIPS_MAX, SnoopedVlan, SnoopingCounters};
pub use stp::{
    BRIDGE_GROUP, BridgeId, PortRole, PortState, SpanningTree, StpConfig, StpPortConfig, StpPortCounters,
    StpPortStatus, StpStatus, path_cost,
};
pub use switch::{
    AGGREGATE_MEMBERS_MAX, AggregateError, DropReason, Egress, FloodTargets, Forward, GROUPS_MAX, GroupError, GroupId,
    PortCounters, PortVlans, Switch, SwitchConfig, SwitchFull, TableEntry, Target, TrunkId, VlanSet,
};
pub use topology::{LoopError, TrunkGraph};
pub use vlan_tag::{TagChange, TaggedHead, VLAN_TAG_LEN, VlanId};
