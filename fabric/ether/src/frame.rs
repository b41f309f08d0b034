//! EtherTypes and a checked view of an Ethernet frame.

use core::fmt;

use crate::MacAddr;

/// Bytes before the payload: two addresses and the EtherType.
pub const ETHERNET_HEADER_LEN: usize = 14;

/// The 16-bit protocol number at offset 12 of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// RARP, by which a station that was moved is announced.
    pub const RARP: Self = Self(0x8035);
    /// 802.1Q VLAN tag.
    pub const VLAN: Self = Self(0x8100);
    /// 802.1ad service tag, in front of another VLAN tag.
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// MXoE, the protocol of MX and Open-MX (`mxoe-wire.md` 1.1).
    pub const MXOE: Self = Self(0x86df);
    /// ESP and EDP, stream sockets and datagrams directly over Ethernet (`esp-wire.md`).
    pub const ESP: Self = Self(0x4553);
    /// Control frames between a guest and its own card; never forwarded (local experimental 1).
    pub const CARD_CONTROL: Self = Self(0x88b5);
    /// Frames that cards send each other; they cross the switch (local experimental 2).
    pub const CARD_TO_CARD: Self = Self(0x88b6);
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

/// A view of a frame that is known to hold a whole Ethernet header.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Checks that `bytes` hold a header; `None` if they are shorter than [`ETHERNET_HEADER_LEN`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() >= ETHERNET_HEADER_LEN).then_some(Self { bytes })
    }

    /// Where the frame goes.
    #[inline]
    pub fn dst(self) -> MacAddr {
        MacAddr(core::array::from_fn(|i| self.bytes[i]))
    }

    /// Where the frame says it comes from.
    #[inline]
    pub fn src(self) -> MacAddr {
        MacAddr(core::array::from_fn(|i| self.bytes[6 + i]))
    }

    /// What the payload is.
    #[inline]
    pub fn ether_type(self) -> EtherType {
        EtherType(u16::from_be_bytes([self.bytes[12], self.bytes[13]]))
    }

    /// Everything after the header.
    #[inline]
    pub fn payload(self) -> &'a [u8] {
        &self.bytes[ETHERNET_HEADER_LEN..]
    }

    /// The whole frame.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }
}
