//! What can go wrong, each in one sentence.

use lci::{ConfigError, GroupError, LaunchError};
use netif::NetifError;

/// Why a node could not be made, or something could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum LciError {
    /// The port does not work.
    #[error(transparent)]
    Port(#[from] NetifError),
    /// The settings make no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The interface is no node's.
    #[error("the address of the interface, {mac}, is not in the list of nodes")]
    NotListed {
        /// The interface's address.
        mac: ether::MacAddr,
    },
    /// The interface takes no whole packets.
    #[error("the interface takes {mtu} bytes, and packets need {needed}: raise its MTU")]
    ShortMtu {
        /// What it takes.
        mtu: usize,
        /// What it needs.
        needed: usize,
    },
    /// Some nodes were not heard of in time.
    #[error("nodes {missing:?} were not heard of within {seconds} s")]
    Missing {
        /// These.
        missing: Vec<usize>,
        /// The time.
        seconds: u64,
    },
    /// The packet was not sent.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The group was not created.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// An operating system's refusal.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}
