//! What bridges compare: identifiers, priority vectors and the times that travel with them (IEEE 802.1D-2004, 17.5 to 17.8).

use core::fmt;

use ether::MacAddr;

/// Nanoseconds of a unit of time in a BPDU, 1/256 s.
const UNIT_NS: u64 = 1_000_000_000 / 256;

/// Units of a second.
pub(super) const SECOND: u16 = 256;

/// Who a bridge is: its priority, and its address where priorities are equal. The lower one is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BridgeId(u64);

impl BridgeId {
    /// The identifier of a bridge.
    pub const fn new(priority: u16, address: MacAddr) -> Self {
        Self((priority as u64) << 48 | address.to_u64())
    }

    /// The identifier as it is on the wire.
    pub(super) const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    pub(super) const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    /// Its priority, 0 to 65535.
    pub const fn priority(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The address of the bridge.
    pub const fn address(self) -> MacAddr {
        let [_, _, a, b, c, d, e, f] = self.0.to_be_bytes();
        MacAddr([a, b, c, d, e, f])
    }
}

impl fmt::Display for BridgeId {
    /// Shows it as bridges do: `8000.02:57:45:46:55:01`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}.{}", self.priority(), self.address())
    }
}

/// How good a path to the root is: the lower vector is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vector {
    pub root: BridgeId,
    pub cost: u32,
    /// The bridge that says so.
    pub bridge: BridgeId,
    /// The port of that bridge.
    pub port: u16,
}

impl Vector {
    /// Whether `self`, received where `current` is in force, takes its place: it is better, or from that port of that
    /// bridge (17.6).
    pub fn supersedes(&self, current: &Self) -> bool {
        self < current
            || (self.bridge.address() == current.bridge.address()
                && self.port & 0xfff == current.port & 0xfff
                && self != current)
    }
}

/// Times that the root gives out, in units of 1/256 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    pub message_age: u16,
    pub max_age: u16,
    pub hello: u16,
    pub forward_delay: u16,
}

impl Times {
    pub fn max_age_ns(&self) -> u64 {
        u64::from(self.max_age) * UNIT_NS
    }

    pub fn hello_ns(&self) -> u64 {
        u64::from(self.hello) * UNIT_NS
    }

    pub fn forward_delay_ns(&self) -> u64 {
        u64::from(self.forward_delay) * UNIT_NS
    }

    /// One bridge further from the root.
    pub fn one_hop_older(&self) -> Self {
        Self {
            message_age: self.message_age.saturating_add(SECOND),
            ..*self
        }
    }
}
