//! The source of a message: matching tells endpoints by it, and the engine names it for each message.

use core::num::NonZero;

use ether::MacAddr;

/// An endpoint of the network, as matching tells it from others: its hardware address and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(NonZero<u64>);

impl SourceKey {
    /// Makes the key of an endpoint.
    pub const fn new(mac: MacAddr, endpoint: u8) -> Self {
        // One more bit, so that no endpoint has the key 0.
        Self(NonZero::<u64>::MIN.saturating_add(mac.to_u64() << 8 | endpoint as u64))
    }

    /// Returns a number that is another one for each source, and 0 for none.
    pub(crate) const fn word(source: Option<Self>) -> u64 {
        match source {
            Some(Self(word)) => word.get(),
            None => 0,
        }
    }
}
