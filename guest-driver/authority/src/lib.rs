//! The authority of an interface (`mxoe-wire.md` 18), as programs and the daemon `omxd` share it: what both say to each other
//! ([`protocol`]), the tables and pages of memory that both map ([`PeerTable`], [`CounterPage`]), the files by which the authority of an
//! interface is found ([`Place`]), and the client ([`Session`]), which starts an `omxd` where there is none.
//!
//! The daemon itself is the crate `omxd`. No message passes through it or through this crate.

mod boards;
mod client;
mod counters;
mod direct;
mod error;
pub mod esp;
mod fd_quarantine;
mod handover_memory;
mod lock;
mod paths;
pub mod protocol;
mod reach;
pub mod set_up;
mod settings;
mod signals;
mod start;
mod table;

use std::path::PathBuf;

pub use boards::{LeftOut, NumberedInterface, interfaces, mtu_needed};
pub use client::{News, OpenedEndpoint, Pair, Resumed, Session, next_visit};
pub use counters::CounterPage;
pub use direct::{DirectLimit, next_word};
pub use error::OmxdError;
pub use fd_quarantine::{First, QuarantinedSocket, first};
pub use handover_memory::{HandoverMemory, read_handover};
pub use lock::own_file;
pub use paths::{Place, run_dir};
pub use protocol::{BoardStatus, OpenEndpoint, RAW_ENDPOINT, Refusal};
pub use reach::{START_LIMIT, group_in_force, replace_on_demand};
pub use set_up::forget_killed;
pub use settings::{OMXD_VARIABLES, Settings};
pub use signals::{take_all_signals, without_signals};
pub use start::{Started, start_in_background};
pub use table::{PeerTable, PeerTableWriter};

/// Returns the log of an `omxd` in the background that `omx_init` or `omxoed` started: where the reference's discovery
/// daemon has its log, unless `OMX_LOG` says otherwise.
pub fn log_file() -> PathBuf {
    settings::path_variable("OMX_LOG").unwrap_or_else(|| PathBuf::from("/var/log/omxoed.log"))
}

/// Endpoint numbers of an interface: 0 … 31, as the reference has by default. The filter of the authority's socket keeps
/// them in one 32-bit word.
pub const ENDPOINTS: u8 = 32;

/// Peers of an interface, as the reference has by default.
pub const PEERS: u32 = mxoe::engine::PEERS_DEFAULT;

/// The length of the memory that two endpoints of an interface share, in bytes. The library alone decides what is
/// written there. Libraries that write it differently use different lengths, so that they do not pair: the last
/// pages, one more for each version, are only for that.
pub const PAIR_MEMORY_LEN: usize = 4096 + 4 * (128 << 10) + 2 * 4096;
