//! What a network card says of itself.

use ether::{ETHERNET_HEADER_LEN, MacAddr};

use super::CardAddress;

/// A card as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardFacts {
    /// Its place on the PCI bus.
    pub address: CardAddress,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Longest payload of a frame in bytes.
    pub mtu: usize,
    /// Whether its link is up.
    pub up: bool,
}

impl CardFacts {
    /// Returns the length of the longest frame in bytes.
    pub(super) const fn frame_len_max(&self) -> usize {
        self.mtu.saturating_add(ETHERNET_HEADER_LEN)
    }
}
