//! IPv4 addresses with a prefix length, and their assignment. Those of IPv6 are in `address6`.

use std::{collections::BTreeSet, fmt, net::Ipv4Addr, str::FromStr};

use serde::{Deserialize, Serialize};

use super::network::{self, Network};

/// An IPv4 address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ipv4Net {
    /// Address of a host, or of the network itself.
    pub address: Ipv4Addr,
    /// Number of bits that name the network, 8 to 30.
    pub prefix_len: u8,
}

impl Ipv4Net {
    /// Network that QEMU's user-mode network uses for `uplink`.
    pub const UPLINK: Self = Self {
        address: Ipv4Addr::new(10, 0, 2, 0),
        prefix_len: 24,
    };

    /// Returns the network `10.77.N.0/24`.
    #[must_use]
    pub const fn default_for(number: u8) -> Self {
        Self {
            address: Ipv4Addr::new(10, 77, number, 0),
            prefix_len: 24,
        }
    }

    fn mask(self) -> u32 {
        u32::MAX << (32 - u32::from(self.prefix_len))
    }

    /// Returns whether `address` is in this network.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask() == u32::from(self.address) & self.mask()
    }

    /// Returns whether a host can have this address: it is neither the network's nor the broadcast address.
    #[must_use]
    pub fn is_host(self) -> bool {
        let host_bits = u32::from(self.address) & !self.mask();
        host_bits != 0 && host_bits != !self.mask()
    }

    /// Returns the lowest host address that is not in `taken`, or `None` when the network is full.
    #[must_use]
    pub fn first_free(self, taken: &BTreeSet<Ipv4Addr>) -> Option<Self> {
        let network = u32::from(self.network().address);
        (network + 1..network | !self.mask())
            .map(Ipv4Addr::from)
            .find(|address| !taken.contains(address))
            .map(|address| Self { address, ..self })
    }
}

impl Network for Ipv4Net {
    fn network(self) -> Self {
        Self {
            address: Ipv4Addr::from(u32::from(self.address) & self.mask()),
            ..self
        }
    }

    fn overlaps(self, other: Self) -> bool {
        self.contains(other.network().address) || other.contains(self.network().address)
    }
}

impl fmt::Display for Ipv4Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl FromStr for Ipv4Net {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix_len) = network::parse(text, ("IPv4", "10.0.0.7/24"), 8..=30)?;
        Ok(Self { address, prefix_len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().expect(text)
    }

    #[test]
    fn networks_know_their_members() {
        assert!(net("10.0.0.7/24").contains(Ipv4Addr::new(10, 0, 0, 200)));
        assert!(!net("10.0.0.7/24").contains(Ipv4Addr::new(10, 0, 1, 7)));
        assert!(net("10.0.0.0/8").overlaps(net("10.77.1.0/24")));
        assert!(!net("10.77.2.0/24").overlaps(net("10.77.1.0/24")));
        assert!(!net("10.0.0.0/24").is_host() && !net("10.0.0.255/24").is_host() && net("10.0.0.1/24").is_host());
    }

    #[test]
    fn addresses_are_given_out_until_the_network_is_full() {
        let mut taken = BTreeSet::from([Ipv4Addr::new(10, 0, 0, 1)]);
        let small = net("10.0.0.0/30");
        let second = small.first_free(&taken).expect("one is left");
        assert_eq!(second.to_string(), "10.0.0.2/30");
        taken.insert(second.address);
        assert_eq!(small.first_free(&taken), None);
    }

    #[test]
    fn text_that_is_no_network_is_refused() {
        for text in ["10.0.0.7", "10.0.0/24", "10.0.0.7/31", "10.0.0.7/x", "fe80::1/64"] {
            assert!(text.parse::<Ipv4Net>().is_err(), "{text}");
        }
    }
}
