//! The address of an endpoint as launchers exchange it: 16 bytes, of one length for all peers, that mean the same on every
//! host of the network.

use ether::MacAddr;

/// The length of an address in bytes. Open MPI 4.1 and MPICH take up to 64, in multiples of 8.
pub(crate) const ADDRESS_LEN: usize = 16;

/// The version of the 16 bytes.
const VERSION: u8 = 1;

/// The endpoint number of an address that names an interface and no endpoint of it.
pub(crate) const ENDPOINT_ANY: u8 = u8::MAX;

/// An endpoint of an interface somewhere on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerAddress {
    pub(crate) mac: MacAddr,
    pub(crate) endpoint: u8,
    /// The session of the endpoint: it tells an endpoint from an earlier one with this number.
    pub(crate) session: u32,
}

impl PeerAddress {
    pub(crate) fn to_bytes(self) -> [u8; ADDRESS_LEN] {
        let mut bytes = [0; ADDRESS_LEN];
        bytes[..6].copy_from_slice(&self.mac.0);
        bytes[6] = self.endpoint;
        bytes[7] = VERSION;
        bytes[8..12].copy_from_slice(&self.session.to_be_bytes());
        bytes
    }

    /// Reads an address that a program gives. `None`: these bytes name no endpoint.
    pub(crate) fn from_bytes(bytes: &[u8; ADDRESS_LEN]) -> Option<Self> {
        let [a, b, c, d, e, f, endpoint, version, s, t, u, v, rest @ ..] = *bytes;
        let mac = MacAddr([a, b, c, d, e, f]);
        let valid = version == VERSION && rest == [0; 4] && endpoint != ENDPOINT_ANY && !mac.is_multicast();
        valid.then_some(Self {
            mac,
            endpoint,
            session: u32::from_be_bytes([s, t, u, v]),
        })
    }
}

impl std::fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fi_mx://{}", self.mac)?;
        if self.endpoint != ENDPOINT_ANY {
            write!(f, "/{}", self.endpoint)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_being_exchanged_as_bytes() {
        let address = PeerAddress {
            mac: MacAddr([2, 0, 0, 0, 0, 7]),
            endpoint: 3,
            session: 0xfeed_f00d,
        };
        assert_eq!(PeerAddress::from_bytes(&address.to_bytes()), Some(address));
        assert_eq!(address.to_string(), "fi_mx://02:00:00:00:00:07/3");
    }

    #[test]
    fn bytes_that_are_no_address_are_refused() {
        let good = PeerAddress {
            mac: MacAddr([2, 0, 0, 0, 0, 7]),
            endpoint: 3,
            session: 1,
        };
        for (at, value) in [(0, 1), (6, ENDPOINT_ANY), (7, 0), (7, 2), (12, 1), (15, 1)] {
            let mut bytes = good.to_bytes();
            bytes[at] = value;
            assert_eq!(PeerAddress::from_bytes(&bytes), None, "byte {at} = {value}");
        }
        assert_eq!(PeerAddress::from_bytes(&[0; ADDRESS_LEN]), None);
    }
}
