//! `mxoe-gen`: makes MXoE traffic between two ends and times it where it is received.
//!
//! Provisional: frames are real MXoE, but there is no engine behind them: nothing is retransmitted, so a lost frame is a
//! lost message, limited in time and counted. Both ends sleep while they wait, so that interrupts matter.

mod cli;
mod client;
mod error;
mod protocol;
mod report;
mod server;

pub use cli::{Arguments, main};
pub use client::{Client, ClientOptions, PingKind};
pub use error::ClientError;
pub use report::{PingReport, ServerReport, StreamReport};
pub use server::Server;
