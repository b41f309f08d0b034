//! What names one end of a connection.

use ether::MacAddr;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The Ethernet address.
    pub mac: MacAddr,
    /// The port.
    pub port: u16,
}
