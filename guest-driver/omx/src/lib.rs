//! MX endpoints over any Ethernet interface: connect, send and receive with match bits, wait, probe, cancel (`mx-api.md`).
//!
//! The protocol is `mxoe::engine`, the port `netif`, the authority of the interface `omxd`. This crate has the
//! endpoints that join them, matching, completion, blocking and the thread that helps a program that computes. It has
//! no C interface.
//!
//! ```no_run
//! # fn main() -> Result<(), omx::Error> {
//! let endpoint = omx::Endpoint::open(&omx::EndpointOptions::default())?;
//! let peer = endpoint.connect("02:00:00:00:00:02".parse().unwrap(), 0, 0, None)?;
//! endpoint.send(b"hello", peer, 7)?;
//! let mut answer = [0; 64];
//! let status = endpoint.receive(&mut answer, 7, u64::MAX)?;
//! println!("{} bytes", status.transferred);
//! # Ok(()) }
//! ```

mod address;
mod api;
mod authority;
mod backoff;
mod binding;
mod blocking;
mod board;
mod clock;
mod completion;
mod copies;
mod copy_card;
mod copy_thread;
mod core;
mod egress;
mod endpoint;
mod endpoint_builder;
mod environment;
mod error;
mod filter;
mod handler;
mod helper;
mod local;
mod memory;
mod number;
mod options;
mod peers;
mod registrations;
mod request;
mod shared;
mod short_slice;
mod slab;
mod sleepers;
mod store;
mod warnings;

pub use address::Address;
pub use binding::BINDINGS_FILE;
pub use board::{Board, BoardPeer};
pub use copies::CopyEngine;
pub use endpoint::Endpoint;
pub use environment::{flag, say, verbose};
pub use error::{Error, StatusCode};
pub use filter::{Claim, FoundMessage, MessageFilter};
pub use handler::{Action, FailureHandler, Handler, HelpHandler, Unexpected};
pub use memory::{SEGMENTS_MAX, Segment};
pub use mxoe::{
    engine::{Counter, Counters},
    matching::SourceKey,
};
pub use options::{CopyEngineKind, EndpointOptions, Waiting};
pub use request::{Request, RequestKind, SendUntil, Status};
pub use warnings::show_warnings;
