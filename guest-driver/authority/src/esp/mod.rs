//! The client's part for ESP, stream sockets directly over Ethernet: how a program gets its Ethernet port and wire ports, says where it
//! listens, takes over connections whose handshake `omxd` made for it, and finds out who speaks ESP.
//!
//! A program's ESP session is a connection to the authority ([`crate::Session`]), as an endpoint's is: it opens one ([`crate::Session::open_esp`]), and may
//! have further ports on it. Listening needs no port: a program that only listens gets one with its first connection.
//!
//! ```no_run
//! use weft_authority::Session;
//!
//! fn accepted(interface: &netif::Interface, peer: std::net::SocketAddr) -> Result<(), weft_authority::OmxdError> {
//!     let (session, opened) = Session::begin(interface, Session::open_esp)?;
//!     let listener = session.listen_esp("0.0.0.0:7000".parse().unwrap(), false)?;
//!     // … the program's own TCP socket accepted a connection from `peer`:
//!     if weft_authority::esp::may_be_token(peer.ip()) {
//!         let claimed = session.claim_esp(peer, Some(listener.key))?;
//!         // … an engine attaches `claimed.handover` at one of `opened.port.ports`.
//!         # drop(claimed);
//!     }
//!     # drop(opened);
//!     Ok(())
//! }
//! ```

mod counters;
mod protocol;
mod report;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    os::fd::OwnedFd,
    time::Duration,
};

use ether::EtherType;
use netif::AfPacket;

pub use counters::EspCounter;
pub use protocol::{
    EspKey, EspListening, EspPong, EspProgram, EspReply, EspRequest, EspRoute, EspStatus, EspTarget, OpenedPort,
    PAGE_ENTRIES_MAX,
};
pub use report::{EspConnection, EspReport, RECORD_LEN, RECORDS_MAX, read_report, write_report};

/// Wire ports of one block: a program has whole blocks. One wire port may carry many connections, to different ports of peers.
pub const BLOCK_PORTS: u16 = 256;

/// The first block that a program can have: the wire ports before it, 1 to 4095, are those of the authority's handshakes.
pub const BLOCK_FIRST: u8 = 16;

/// Blocks that a session can have ([`crate::Session::more_esp_ports`]).
pub const SESSION_BLOCKS_MAX: usize = 16;

/// Bytes of the memory in which a program reports about its connections ([`write_report`]): there is room for more than 10,000 of them.
/// Pages that are not written cost nothing.
pub const REPORT_LEN: usize = 2 << 20;

/// The address from which `omxd` connects by TCP to a listener, once for each ESP connection whose handshake is finished: with the port
/// it is the connection's token. (0x45 0x53 are "ES".)
pub const TOKEN_SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 69, 83);

/// The address from which tokens come to listeners that take IPv6 only. Ordinary programs of the host have it too, so only
/// [`crate::Session::claim_esp`] tells them from each other.
pub const TOKEN_SOURCE_V6: Ipv6Addr = Ipv6Addr::LOCALHOST;

/// A connection that no program has claimed so long after its handshake is reset.
pub const TOKEN_LIMIT: Duration = Duration::from_secs(10);

/// Whether a connection that a listening socket accepted from this address may be a token, for [`crate::Session::claim_esp`] to decide.
pub fn may_be_token(from: IpAddr) -> bool {
    match from.to_canonical() {
        IpAddr::V4(from) => from == TOKEN_SOURCE,
        IpAddr::V6(from) => from == TOKEN_SOURCE_V6,
    }
}

/// Returns the wire ports of a block: those whose upper half is its number.
pub const fn ports_of(block: u8) -> RangeInclusive<u16> {
    let first = (block as u16) * BLOCK_PORTS;
    first..=first + (BLOCK_PORTS - 1)
}

/// An Ethernet port for ESP frames, with the wire ports that are the program's.
pub struct EspPort {
    /// The port on which frames for these wire ports arrive: all kinds but SYN and EDP's.
    pub port: AfPacket,
    /// The block of wire ports, by which [`crate::Session::resume_esp`] takes it back.
    pub block: u8,
    /// The wire ports: `ports_of(block)`.
    pub ports: RangeInclusive<u16>,
}

/// What a program gets that opens an ESP session.
pub struct OpenedEsp {
    /// Its first port.
    pub port: EspPort,
    /// EtherType of all frames.
    pub ether_type: EtherType,
    /// Sealed memory of [`REPORT_LEN`] bytes in which the program may report; tools read it ([`crate::Session::esp_report`]).
    pub report: OwnedFd,
}

/// A listener that the authority knows.
#[derive(Debug)]
pub struct EspListener {
    /// Its number, for [`crate::Session::forget_esp_listener`].
    pub id: u64,
    /// What proves that a process may claim this listener's connections, whichever user it has become: forked children have it too.
    pub key: EspKey,
    /// The end of a pipe: the authority forgets the listener when no process has it any more. So it must stay open, also in forked
    /// children, as long as they have the listening socket. Nothing is to be written.
    pub alive: OwnedFd,
}

/// A connection that was taken over from the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedEsp {
    /// The connection as the authority's engine had it: `esp::Handover` as bytes. Its window is 0 until an engine attaches it.
    pub handover: Vec<u8>,
    /// The address that the peer's program connected to, as it says: for `getsockname`.
    pub local: SocketAddr,
    /// The address that the peer's program has, as it says and the authority found plausible: for `getpeername`.
    pub peer: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_the_upper_halves_of_ports_and_begin_behind_the_authoritys() {
        assert_eq!(ports_of(BLOCK_FIRST), 4096..=4351);
        assert_eq!(ports_of(255), 65280..=65535);
    }

    #[test]
    fn tokens_come_from_their_own_address_also_as_ipv6_programs_see_it() {
        for (from, may) in [
            ("127.0.69.83", true),
            ("::ffff:127.0.69.83", true),
            ("::1", true),
            ("127.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(may_be_token(from.parse().unwrap()), may, "{from}");
        }
    }
}
