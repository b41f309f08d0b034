//! ESP and EDP, stream sockets and datagrams directly over Ethernet (`papers.md` M-HR1 to M-HR4), without I/O and without a clock.
//!
//! [`Engine`] is the protocol of the connections of one Ethernet port: frames and the time go in; frames, bytes and events come out.
//! [`wire`] is the layout of its frames (`docs/spec/esp-wire.md`).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod address;
mod config;
mod connection;
mod counters;
mod engine;
mod error;
mod event;
mod handover;
mod id;
mod memory;
mod number;
mod random;
mod ring;
mod table;
mod timers;
pub mod wire;

pub use address::Address;
pub use config::{BUFFER_MAX, Config, ConfigError, Limits, MTU_MIN, PACKETS_MAX, Timing};
pub use connection::{Info, State};
pub use counters::{Counter, Counters};
pub use engine::{Engine, Handled, ListenOptions, Options};
pub use error::{Error, Reason};
pub use event::Event;
pub use handover::{BadHandover, Handover};
pub use id::ConnectionId;
