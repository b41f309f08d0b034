//! LCI, the low-level communication interface of Bhoedjang, Verstoep, Rühl and Bal (`papers.md` M-BV1), without I/O and without a
//! clock: reliable packets of up to 1,024 bytes, in order per sender, to one node, to all, or to a group.
//!
//! [`Engine`] is the protocol of one node: frames and the time go in; frames, deliveries and events come out. [`wire`] is the
//! layout of its frames (`docs/spec/lci-wire.md`). Payload stays with the owner of the engine, in buffers that the engine names
//! by number. One engine serves the three implementations of the paper, by a [`Policy`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod buffers;
mod card;
mod config;
mod counters;
mod deadlines;
mod engine;
mod event;
mod group;
mod link;
mod nodes;
mod receive;
mod stream;
mod transmit;
pub mod wire;

pub use buffers::BufferId;
pub use config::{Config, ConfigError, Limits, NODES_MAX, PACKET_LEN_MAX, Policy, SEND_BUFFERS, Timing};
pub use counters::{Counter, Counters};
pub use engine::{Delivery, Engine, HEAD_LEN_MAX, Handled, LaunchError, Transmit};
pub use event::{Event, GroupError, GroupId, RemovalReason};
pub use nodes::Nodes;
