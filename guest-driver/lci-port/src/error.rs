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
    /// A node was started otherwise than this one.
    #[error("node {node} was started with another list of nodes, or with another implementation of LCI")]
    Mismatch {
        /// That node.
        node: usize,
    },
    /// The policy needs a card that the program drives itself.
    #[error(
        "LCI-{policy} needs a card that this program drives itself, as in virtio:0000:00:11.0: a kernel drops packets that a program \
         leaves waiting"
    )]
    NeedsOwnCard {
        /// The policy.
        policy: &'static str,
    },
    /// The card could not be asked, or refused.
    #[error("the card: {0}")]
    Card(Box<weft_card_control::CardError>),
    /// Others are in the group of cards.
    #[error(
        "{joined} cards are in the group of {members}: another program has the same group, so choose another job number"
    )]
    CardGroup {
        /// Cards in the group.
        joined: usize,
        /// Nodes of the program.
        members: usize,
    },
    /// The card cannot look after the node.
    #[error(
        "this interface has no watchdog and clock that know the program's state: they are in cards that the program drives itself"
    )]
    NoWatchdog,
    /// Cards that are to lose nothing have lost packets.
    #[error("packets of node {node} are lost in the cards, so nothing more of it is delivered")]
    Lost {
        /// Their sender.
        node: usize,
    },
    /// The card has removed the node from the group.
    #[error(
        "the card has removed this node: it took nothing for too long, or vnicd ended and packets in its cards are lost"
    )]
    RemovedByCard,
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
