//! The IPv6 networks of a lab and the addresses in them. Guests choose link-local addresses themselves.

use std::{fmt, net::Ipv6Addr, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::network::{self, Network};

/// An IPv6 address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ipv6Net {
    /// Address of a host, or of the network itself.
    pub address: Ipv6Addr,
    /// Number of bits that name the network, 8 to 126.
    pub prefix_len: u8,
}

impl Ipv6Net {
    /// Returns the network `number` of the lab called `lab`: a unique local one, whose 40 free bits are the first of
    /// the SHA-256 hash of the name.
    #[must_use]
    pub fn default_for(lab: &str, number: u16) -> Self {
        let hash = Sha256::digest(lab.as_bytes());
        let mut bytes = [0; 16];
        bytes[0] = 0xfd;
        bytes[1..6].copy_from_slice(&hash[..5]);
        bytes[6..8].copy_from_slice(&number.to_be_bytes());
        Self {
            address: bytes.into(),
            prefix_len: 64,
        }
    }

    fn mask(self) -> u128 {
        u128::MAX << (128 - u32::from(self.prefix_len))
    }

    /// Returns the host with this number, or `None` when the network is too small.
    #[must_use]
    pub fn host(self, number: u32) -> Option<Self> {
        let number = u128::from(number);
        (number & self.mask() == 0).then(|| Self {
            address: Ipv6Addr::from(u128::from(self.network().address) | number),
            ..self
        })
    }

    /// Returns whether a host in a lab can have this address: it is not the network's, no multicast address, and not
    /// link-local.
    #[must_use]
    pub fn is_host(self) -> bool {
        self != self.network()
            && !self.address.is_multicast()
            && !self.address.is_loopback()
            && !self.address.is_unicast_link_local()
    }
}

impl Network for Ipv6Net {
    fn network(self) -> Self {
        Self {
            address: Ipv6Addr::from(u128::from(self.address) & self.mask()),
            ..self
        }
    }

    fn overlaps(self, other: Self) -> bool {
        let mask = self.mask() & other.mask();
        u128::from(self.address) & mask == u128::from(other.address) & mask
    }
}

impl fmt::Display for Ipv6Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl FromStr for Ipv6Net {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix_len) = network::parse(text, ("IPv6", "fd00::7/64"), 8..=126)?;
        Ok(Self { address, prefix_len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_has_the_same_networks_everywhere_and_always() {
        let net = Ipv6Net::default_for("pair", 1);
        // The expected value is from: printf pair | sha256sum
        assert_eq!(net.to_string(), "fd47:d8bd:4687:1::/64");
        assert_eq!(net.network(), net);
        assert!(!net.overlaps(Ipv6Net::default_for("pair", 2)));
        assert_ne!(net, Ipv6Net::default_for("other", 1));
        assert_eq!(net.host(10).unwrap().address.segments()[7], 10);
    }

    #[test]
    fn what_is_no_address_of_a_host_is_refused() {
        for text in ["fd00::/64", "ff02::1/64", "fe80::1/64", "::1/64"] {
            assert!(!text.parse::<Ipv6Net>().unwrap().is_host(), "{text}");
        }
        for text in ["fd00::1", "10.0.0.1/24", "fd00::1/127", "fd00::1/x"] {
            assert!(text.parse::<Ipv6Net>().is_err(), "{text}");
        }
        let small: Ipv6Net = "fd00::/120".parse().unwrap();
        assert_eq!((small.host(255).is_some(), small.host(256)), (true, None));
    }
}
