//! The client's part for ESP, stream sockets straight over Ethernet: how a program gets its Ethernet port and wire ports, says where it
//! listens, takes over connections whose handshake `omxd` made for it, and finds out who speaks ESP.
//!
//! A program's ESP session is a connection to the authority ([`Session`]), as an endpoint's is: it opens one ([`Session::open_esp`]), and may
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

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

use ether::{EtherType, MacAddr};
use netif::{AfPacket, Interface, PreparedSocket, RingLayout};

pub use counters::EspCounter;
pub use protocol::{
    EspKey, EspListening, EspPong, EspProgram, EspReply, EspRequest, EspRoute, EspStatus, EspTarget, OpenedPort,
    PAGE_ENTRIES_MAX,
};

use crate::{
    OmxdError, Session,
    client::command,
    protocol::{Reply, Request},
    reach::{ANSWER_LIMIT, OPEN_LIMIT},
};

/// Wire ports of one block: a program has whole blocks. One wire port may carry many connections, to different ports of peers.
pub const BLOCK_PORTS: u16 = 256;

/// The first block that a program can have: the wire ports before it, 1 to 4095, are those of the authority's handshakes.
pub const BLOCK_FIRST: u8 = 16;

/// Blocks that a session can have ([`Session::more_esp_ports`]).
pub const SESSION_BLOCKS_MAX: usize = 16;

/// Bytes of the memory in which a program reports about its connections. The library alone decides what is written there; pages that
/// are not written cost nothing.
pub const REPORT_LEN: usize = 1 << 20;

/// The address from which `omxd` connects by TCP to a listener, once for each ESP connection whose handshake is finished: with the port
/// it is the connection's token. (0x45 0x53 are "ES".)
pub const TOKEN_SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 69, 83);

/// The address from which tokens come to listeners that take IPv6 only. Ordinary programs of the host have it too, so only
/// [`Session::claim_esp`] tells them from each other.
pub const TOKEN_SOURCE_V6: Ipv6Addr = Ipv6Addr::LOCALHOST;

/// A connection that no program has claimed so long after its handshake is reset.
pub const TOKEN_LIMIT: Duration = Duration::from_secs(10);

/// Whether a connection that a listening socket accepted from this address may be a token, for [`Session::claim_esp`] to decide.
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
    /// The block of wire ports, by which [`Session::resume_esp`] takes it back.
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
    /// Sealed memory of [`REPORT_LEN`] bytes in which the program may report; tools read it ([`Session::esp_report`]).
    pub report: OwnedFd,
}

/// A listener that the authority knows.
#[derive(Debug)]
pub struct EspListener {
    /// Its number, for [`Session::forget_esp_listener`].
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

impl OpenedPort {
    fn port(&self, socket: OwnedFd) -> Result<EspPort, OmxdError> {
        if self.block < BLOCK_FIRST {
            return Err(OmxdError::Protocol);
        }
        let prepared = PreparedSocket {
            interface: Interface {
                name: self.interface_name.clone(),
                index: self.interface_index,
                mac: MacAddr(self.mac),
                mtu: self.mtu,
                up: true,
                loopback: false,
            },
            layout: RingLayout {
                block_len: self.block_len,
                blocks: self.blocks,
                slot_len: self.slot_len,
            },
            socket,
            bulk: None,
            sink: None,
            direct: None,
        };
        Ok(EspPort {
            port: AfPacket::from_prepared(prepared)?,
            block: self.block,
            ports: ports_of(self.block),
        })
    }
}

/// Requests of programs that use ESP. As all of a session's, they are made one at a time: a program with several threads locks.
impl Session {
    fn ask_esp(&self, request: EspRequest, limit: Duration) -> Result<(EspReply, Vec<OwnedFd>), OmxdError> {
        match self.request(&Request::Esp(request), limit)? {
            (Reply::Esp(reply), fds) => Ok((reply, fds)),
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Opens an Ethernet port with a block of wire ports for this program. Both stay the program's as long as the connection.
    ///
    /// # Errors
    /// [`OmxdError::Refused`]: by [`crate::Refusal::NoEsp`] where the interface has no ESP, by [`crate::Refusal::Busy`] when all blocks
    /// are taken or as many as one user may have; [`OmxdError::Gone`].
    pub fn open_esp(&self) -> Result<OpenedEsp, OmxdError> {
        match self.ask_esp(EspRequest::Open { command: command() }, OPEN_LIMIT)? {
            (EspReply::Opened { port, ether_type }, fds) => {
                let [socket, report] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
                Ok(OpenedEsp {
                    port: port.port(self.placed(socket))?,
                    ether_type: EtherType(ether_type),
                    report: self.placed(report),
                })
            }
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Opens one more port, with a block of its own: the first one's filter is locked.
    ///
    /// # Errors
    /// As [`Session::open_esp`]; [`OmxdError::Refused`] unless this session is open.
    pub fn more_esp_ports(&self) -> Result<EspPort, OmxdError> {
        match self.ask_esp(EspRequest::MorePorts, OPEN_LIMIT)? {
            (EspReply::MorePorts(port), fds) => {
                let [socket] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
                port.port(socket)
            }
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Connects anew after the authority was gone, and takes the open ports back to the new one, by their blocks. The ports themselves
    /// went on receiving. Returns the memory for reports from now on. Listeners must be registered again ([`Session::listen_esp`]).
    ///
    /// # Errors
    /// As [`Session::connect`]; [`OmxdError::Refused`] when a block is another program's.
    pub fn resume_esp(&mut self, blocks: &[u8]) -> Result<OwnedFd, OmxdError> {
        self.reconnect()?;
        let request = EspRequest::Resume {
            blocks: blocks.to_vec(),
            command: command(),
        };
        match self.ask_esp(request, ANSWER_LIMIT)? {
            (EspReply::Resumed, fds) => {
                let [report] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
                Ok(self.placed(report))
            }
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Registers a TCP socket of this program that listens at `address`, as `getsockname` says it; `only_v6`: it takes no IPv4
    /// (`IPV6_V6ONLY`). ESP connections to it are announced by tokens from now on. Several sockets of one address and port
    /// (`SO_REUSEPORT`) are several listeners.
    ///
    /// # Errors
    /// [`OmxdError::Refused`]: by [`crate::Refusal::NotAllowed`] unless a socket of the caller's user, or one that this process has,
    /// listens there; by [`crate::Refusal::Busy`] when there are too many; by [`crate::Refusal::NoEsp`].
    pub fn listen_esp(&self, address: SocketAddr, only_v6: bool) -> Result<EspListener, OmxdError> {
        match self.ask_esp(EspRequest::Listen { address, only_v6 }, ANSWER_LIMIT)? {
            (EspReply::Listening { id, key }, fds) => {
                let [alive] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
                Ok(EspListener { id, key, alive })
            }
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Makes the authority forget a listener although other processes may still have [`EspListener::alive`]. Connections that wait for
    /// it to be claimed are reset unless another listener has its address.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] unless the key is the listener's.
    pub fn forget_esp_listener(&self, id: u64, key: EspKey) -> Result<(), OmxdError> {
        match self.ask_esp(EspRequest::Forget { id, key }, ANSWER_LIMIT)? {
            (EspReply::Done, _) => Ok(()),
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Takes over the ESP connection that a token stands for: `token` is the peer's address of the accepted TCP connection. Root and the
    /// user who owns the listener may, and who has the listener's key.
    ///
    /// # Errors
    /// [`OmxdError::Refused`]: by [`crate::Refusal::NoToken`] when the TCP connection is no token of this interface's authority (so it is
    /// another one's, or an ordinary connection), or the ESP connection ended meanwhile; by [`crate::Refusal::NotAllowed`].
    pub fn claim_esp(&self, token: SocketAddr, key: Option<EspKey>) -> Result<ClaimedEsp, OmxdError> {
        match self.ask_esp(EspRequest::Claim { token, key }, ANSWER_LIMIT)? {
            (EspReply::Claimed { handover, local, peer }, _) => Ok(ClaimedEsp { handover, local, peer }),
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Finds out whether `ip` is on this interface's Ethernet and speaks ESP. The answer is known for half a minute, that nobody answers
    /// for five seconds; finding out takes a third of a second at most.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] by [`crate::Refusal::NoEsp`]; [`OmxdError::Gone`].
    pub fn resolve_esp(&self, ip: IpAddr) -> Result<EspRoute, OmxdError> {
        match self.ask_esp(EspRequest::Resolve { ip }, ANSWER_LIMIT)? {
            (EspReply::Route(route), _) => Ok(route),
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Sends an EDP ping and waits for the answer, `limit` at most, a minute at most; `None`: there was none, or `stop` became readable
    /// or a signal came before.
    ///
    /// # Errors
    /// [`OmxdError::Refused`]: by [`crate::Refusal::NoPeer`] for this interface's own address, by [`crate::Refusal::NoEsp`];
    /// [`OmxdError::Gone`].
    pub fn ping_esp(&self, to: EspTarget, limit: Duration, stop: BorrowedFd<'_>) -> Result<Option<EspPong>, OmxdError> {
        let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        let request = Request::Esp(EspRequest::Ping { to, limit_ms });
        match self.request_or_stop(&request, limit.saturating_add(ANSWER_LIMIT), stop)? {
            Some(Reply::Esp(EspReply::Pong(pong))) => Ok(pong),
            None => Ok(None),
            Some(_) => Err(OmxdError::Protocol),
        }
    }

    /// Returns what the authority knows of ESP on its interface, with its counts.
    ///
    /// # Errors
    /// [`OmxdError::Gone`].
    pub fn esp_status(&self) -> Result<EspStatus, OmxdError> {
        match self.ask_esp(EspRequest::Status, ANSWER_LIMIT)? {
            (EspReply::Status(status), _) => Ok(status),
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Lists the programs that have ports, by their first block.
    ///
    /// # Errors
    /// [`OmxdError::Gone`].
    pub fn esp_programs(&self) -> Result<Vec<EspProgram>, OmxdError> {
        let mut all: Vec<EspProgram> = Vec::new();
        loop {
            let after = all.last().map(|last| last.session);
            match self.ask_esp(EspRequest::Programs { after }, ANSWER_LIMIT)? {
                (EspReply::Programs(page), _) if page.is_empty() => return Ok(all),
                (EspReply::Programs(page), _) => all.extend(page),
                _ => return Err(OmxdError::Protocol),
            }
        }
    }

    /// Lists the listeners.
    ///
    /// # Errors
    /// [`OmxdError::Gone`].
    pub fn esp_listeners(&self) -> Result<Vec<EspListening>, OmxdError> {
        let mut all: Vec<EspListening> = Vec::new();
        loop {
            let after = all.last().map(|last| last.id);
            match self.ask_esp(EspRequest::Listeners { after }, ANSWER_LIMIT)? {
                (EspReply::Listeners(page), _) if page.is_empty() => return Ok(all),
                (EspReply::Listeners(page), _) => all.extend(page),
                _ => return Err(OmxdError::Protocol),
            }
        }
    }

    /// Opens the memory in which a program reports, for reading: [`REPORT_LEN`] bytes that the program can change at any time and may
    /// lie in.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] when there is no such program, and unless the caller is root or of the program's user.
    pub fn esp_report(&self, session: u64) -> Result<OwnedFd, OmxdError> {
        match self.ask_esp(EspRequest::Report { session }, ANSWER_LIMIT)? {
            (EspReply::Done, fds) => {
                let [report] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
                Ok(report)
            }
            _ => Err(OmxdError::Protocol),
        }
    }
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
