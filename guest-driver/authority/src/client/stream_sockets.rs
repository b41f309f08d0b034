//! What a session asks for ESP: ports, listeners, claims, and where hosts are.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

use ether::{EtherType, MacAddr};
use netif::{AfPacket, Interface, PreparedSocket, RingLayout};

use super::{Session, command};
use crate::{
    OmxdError,
    esp::{
        BLOCK_FIRST, ClaimedEsp, EspKey, EspListener, EspListening, EspPong, EspPort, EspProgram, EspReply, EspReport,
        EspRequest, EspRoute, EspStatus, EspTarget, OpenedEsp, OpenedPort, ports_of, read_report,
    },
    protocol::{Reply, Request},
    reach::{ANSWER_LIMIT, OPEN_LIMIT},
};

/// Makes the port of a program of a packet socket.
fn port_of(opened: &OpenedPort, socket: OwnedFd, bulk: Option<OwnedFd>) -> Result<EspPort, OmxdError> {
    if opened.block < BLOCK_FIRST {
        return Err(OmxdError::Protocol);
    }
    let prepared = PreparedSocket {
        interface: Interface {
            name: opened.interface_name.clone(),
            index: opened.interface_index,
            mac: MacAddr(opened.mac),
            mtu: opened.mtu,
            up: true,
            loopback: false,
        },
        layout: RingLayout {
            block_len: opened.block_len,
            blocks: opened.blocks,
            slot_len: opened.slot_len,
        },
        socket,
        bulk,
        sink: None,
        direct: None,
    };
    Ok(EspPort {
        port: AfPacket::from_prepared(prepared)?,
        block: opened.block,
        ports: ports_of(opened.block),
    })
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
        let request = EspRequest::Open {
            command: command(),
            bulk_socket: true,
        };
        match self.ask_esp(request, OPEN_LIMIT)? {
            (EspReply::Opened { port, ether_type }, mut fds) => {
                if fds.len() != 2 + usize::from(port.bulk_socket) {
                    return Err(OmxdError::Protocol);
                }
                let bulk = port.bulk_socket.then(|| self.placed(fds.remove(1)));
                let [socket, report] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
                Ok(OpenedEsp {
                    port: port_of(&port, self.placed(socket), bulk)?,
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
                port_of(&port, socket, None)
            }
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Connects anew after the authority was gone, and takes the open ports back to the new one, by their blocks. The ports themselves
    /// went on receiving. `mtu`: the least one that a port had when it was opened. Returns the memory for reports from now on. Listeners must be registered again ([`Session::listen_esp`]).
    ///
    /// # Errors
    /// As [`Session::connect`]; [`OmxdError::Refused`] when a block is another program's.
    pub fn resume_esp(&mut self, blocks: &[u8], mtu: usize) -> Result<OwnedFd, OmxdError> {
        self.reconnect()?;
        let request = EspRequest::Resume {
            blocks: blocks.to_vec(),
            mtu,
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

    /// Finds out whether `ip` is on this interface's Ethernet and speaks ESP. The answer is known for half a minute, that no host answers
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

    /// Reads what a program reports about its connections. Every program of the host may: what is in it is in each frame, and the
    /// reporting program may lie.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] when there is no such program; [`OmxdError::Gone`].
    pub fn esp_report(&self, session: u64) -> Result<EspReport, OmxdError> {
        self.report_of(EspRequest::Report { session })
    }

    /// Lists the connections that no program has yet: half open, or not claimed.
    ///
    /// # Errors
    /// [`OmxdError::Gone`].
    pub fn esp_handshakes(&self) -> Result<EspReport, OmxdError> {
        self.report_of(EspRequest::Handshakes)
    }

    fn report_of(&self, request: EspRequest) -> Result<EspReport, OmxdError> {
        match self.ask_esp(request, ANSWER_LIMIT)? {
            (EspReply::Done, fds) => {
                let [report] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
                read_report(report).map_err(OmxdError::io("read what a program reports"))
            }
            _ => Err(OmxdError::Protocol),
        }
    }
}
