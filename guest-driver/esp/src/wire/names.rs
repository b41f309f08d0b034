//! What programs call the two ends of a connection: the block of a SYN that makes `getpeername` and listeners of single addresses
//! possible.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The IP addresses under which the connecting program knows the two ends. Ports are the wire's for programs only: the port that
/// was connected to is the SYN's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    source: SocketAddr,
    destination: IpAddr,
}

impl Names {
    /// Bytes of the longest block.
    pub(super) const LEN_MAX: usize = 2 * 16 + 2;

    /// The names of a connection from `source` to an address; `None` where these are of different families.
    pub const fn new(source: SocketAddr, destination: IpAddr) -> Option<Self> {
        if source.is_ipv4() == destination.is_ipv4() {
            Some(Self { source, destination })
        } else {
            None
        }
    }

    /// Address and port of the program that connects, as it says.
    pub const fn source(&self) -> SocketAddr {
        self.source
    }

    /// The address that it connects to.
    pub const fn destination(&self) -> IpAddr {
        self.destination
    }

    /// Reads a block, whose length says which family it is of.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (addresses, port) = value.split_last_chunk::<2>()?;
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        let ip = |bytes: &[u8]| -> Option<IpAddr> {
            if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
                return Some(Ipv4Addr::from(bytes).into());
            }
            <[u8; 16]>::try_from(bytes)
                .ok()
                .map(|bytes| Ipv6Addr::from(bytes).into())
        };
        let source = SocketAddr::new(ip(source)?, u16::from_be_bytes(*port));
        Self::new(source, ip(destination)?)
    }

    /// The block as bytes, and how many there are.
    pub(super) fn to_bytes(self) -> ([u8; Self::LEN_MAX], usize) {
        let mut bytes = [0; Self::LEN_MAX];
        let mut len = 0;
        let mut put = |part: &[u8]| {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        };
        for ip in [self.source.ip(), self.destination] {
            match ip {
                IpAddr::V4(ip) => put(&ip.octets()),
                IpAddr::V6(ip) => put(&ip.octets()),
            }
        }
        put(&self.source.port().to_be_bytes());
        (bytes, len)
    }
}
