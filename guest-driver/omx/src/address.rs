//! The address of a remote endpoint, as one endpoint of this process knows it.

use ether::MacAddr;
use mxoe::matching::SourceKey;

/// A remote endpoint, as one endpoint of this process knows it: it means nothing to another one. Equal partners have equal
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Address {
    pub(crate) mac: [u8; 6],
    pub(crate) endpoint: u8,
    /// The endpoint of this process that knows the remote one by this address.
    pub(crate) opened_by: u8,
    pub(crate) partner: u32,
    pub(crate) session: u32,
}

/// The partner number of endpoint 0 of this host; the other endpoints' numbers follow.
pub(crate) const LOCAL_BASE: u32 = u32::MAX - 1 - weft_authority::ENDPOINTS as u32;
/// The partner number of the endpoint itself.
pub(crate) const PARTNER_SELF: u32 = u32::MAX;

impl Address {
    /// Returns the address of the interface.
    pub const fn mac(&self) -> MacAddr {
        MacAddr(self.mac)
    }

    /// Returns the endpoint number.
    pub const fn endpoint(&self) -> u8 {
        self.endpoint
    }

    /// Returns the number of an endpoint of this host.
    pub(crate) const fn local_endpoint(&self) -> Option<u8> {
        if self.partner >= LOCAL_BASE && self.partner < PARTNER_SELF {
            Some((self.partner - LOCAL_BASE) as u8)
        } else {
            None
        }
    }

    /// Returns the number of the endpoint of this process that knows the remote one by this address. No two open
    /// endpoints share a number.
    pub const fn opened_by(&self) -> u8 {
        self.opened_by
    }

    /// Returns the address as two words, which mean nothing but themselves.
    pub const fn to_words(&self) -> [u64; 2] {
        let [a, b, c, d, e, f] = self.mac;
        let first = u64::from_be_bytes([a, b, c, d, e, f, self.endpoint, self.opened_by]);
        [first, (self.partner as u64) << 32 | self.session as u64]
    }

    /// Returns the address that [`Address::to_words`] gave; of other words an address that no endpoint knows, or
    /// another one's.
    pub const fn from_words([first, second]: [u64; 2]) -> Self {
        let [a, b, c, d, e, f, endpoint, opened_by] = first.to_be_bytes();
        Self {
            mac: [a, b, c, d, e, f],
            endpoint,
            opened_by,
            partner: (second >> 32) as u32,
            session: second as u32,
        }
    }

    /// Returns the endpoint as matching tells it from others.
    pub const fn source_key(&self) -> SourceKey {
        SourceKey::new(MacAddr(self.mac), self.endpoint)
    }

    /// Returns the session of the remote endpoint.
    pub const fn session(&self) -> u32 {
        self.session
    }
}
