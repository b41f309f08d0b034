//! The daemon `omxd`, the only authority of an interface (`mxoe-wire.md` 18): it owns the peer table, hands out
//! endpoint numbers with sockets bound and filtered for them, and answers for endpoints that are not open. No message
//! passes through it.
//!
//! [`Daemon`] is the authority, [`Arguments`] its command line, [`program`] both together. Programs reach it through the crate `weft-authority`.

mod card;
mod cli;
mod counters;
mod cpu_latency;
mod daemon;
mod direct;
mod endpoints;
mod esp;
mod ether_type;
mod filter;
mod marks;
mod own_port;
mod owners;
mod pairing;
pub mod program;
mod setup;
mod stale_files;

pub use cli::Arguments;
pub use daemon::{Daemon, DaemonOptions};
pub use esp::why_no_esp;
pub use ether_type::OfEsp;
