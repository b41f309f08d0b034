//! The one authority of an interface (`mxoe-wire.md` 18): it owns the peer table, hands out endpoint numbers with sockets
//! bound and filtered for them, and answers for endpoints that are not open. No message passes through it.
//!
//! [`Daemon`] is the authority; [`Session`] is how a program reaches it, starting one where there is none.

mod card;
mod cli;
mod client;
mod counters;
mod daemon;
mod endpoints;
mod error;
mod filter;
mod marks;
mod meetings;
mod paths;
mod protocol;
mod setup;
mod start;
mod table;

pub use card::{CONTROL_RING_LEN, Card, CardError};
pub use cli::Arguments;
pub use client::{Meeting, OpenedEndpoint, Pair, Resumed, Session, next_visit};
pub use counters::CounterPage;
pub use daemon::{Daemon, DaemonOptions};
pub use error::OmxdError;
pub use paths::Place;
pub use protocol::{BoardStatus, OpenEndpoint, Refusal};
pub use table::{PeerTable, PeerTableWriter};

/// Endpoint numbers of an interface: 0 … 31, as the reference has by default. The filter of the authority's socket keeps
/// them in one 32-bit word.
pub const ENDPOINTS: u8 = 32;

/// Peers of an interface, as the reference has by default.
pub const PEERS: u32 = mxoe::engine::PEERS_DEFAULT;

/// Bytes of the memory that two endpoints of an interface share: what they write there is the library's business.
pub const PAIR_MEMORY_LEN: usize = 2 * (4096 + (128 << 10));
