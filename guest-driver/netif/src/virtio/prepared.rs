//! A queue pair of a card that one process set up, for a port here or in another process.

use std::os::fd::OwnedFd;

use super::{CardFacts, PairLayout, Route};

/// Where a queue pair is in its card's memory and registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairPlace {
    /// How its memory is divided.
    pub layout: PairLayout,
    /// Where its memory begins in the card's, in bytes.
    pub memory_offset: u64,
    /// The number of its receive queue; the transmit queue is the next one.
    pub queue: u16,
    /// Where the doorbells of its receive and its transmit queue are in what [`PreparedPair::doorbells`] maps, in bytes.
    pub doorbells: [u64; 2],
}

/// A queue pair of a card, ready to be used as a port ([`crate::VirtioPort`]) by one process at a time.
///
/// A process that has it reaches what the card reaches: with uio all memory of the machine, otherwise the memory of all queue
/// pairs of the card.
pub struct PreparedPair {
    /// The card, as it was when the pair was prepared.
    pub facts: CardFacts,
    /// How the card is reached.
    pub route: Route,
    /// Where the pair is.
    pub place: PairPlace,
    /// The card's memory.
    pub memory: OwnedFd,
    /// What the doorbells are mapped with.
    pub doorbells: OwnedFd,
    /// What must be open while the card uses its memory.
    pub keep: Vec<OwnedFd>,
}
