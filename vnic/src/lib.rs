//! The vhost-user network card: sessions, rings, guest memory, and the data plane that carries frames between ports.
//!
//! `vnicd` is this crate's binary. Decisions are made by `firmware` (interrupts) and `fabric` (destinations and
//! faults); this crate drives both in real time and moves the bytes. Nothing above Ethernet is known here.

pub mod control;
pub mod dataplane;
pub mod device;
pub mod events;
pub mod memory;
pub mod metrics;
mod offload;
pub mod ring;
pub mod session;
