//! Pairing of endpoints of one interface: the authority makes the memory and the socket that two endpoints share, and
//! hands them to both through a channel that each has for that, since only the authority knows which program has which
//! endpoint. The messages between them do not pass through it.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
    net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair, sockopt},
};
use weft_authority::{
    ENDPOINTS, OmxdError, PAIR_MEMORY_LEN, QuarantinedSocket,
    protocol::{self, Refusal, Reply, Visit},
};

use crate::{endpoints::Endpoints, setup::begin_serial};

/// The length of a channel whose program does not take its visits, in bytes as the kernel counts them: some dozens of
/// visits. Their descriptors are open as long as they are there, and the system allows so many of them in sockets of
/// one user as one process may have open.
const CHANNEL_LEN: usize = 16 << 10;

/// The pairs that were made. Connections are named by their numbers.
pub(crate) struct Pairing {
    /// The authority's ends of the channels for visits.
    channels: HashMap<u64, OwnedFd>,
    /// The last pair of two connections, the smaller number first.
    pairs: HashMap<(u64, u64), u64>,
    pair_next: u64,
    /// Endpoints that an earlier authority opened, by connection.
    resumed: HashMap<u64, u8>,
    /// Endpoints of that kind that are gone: a program that comes back later has not heard of it.
    gone: Vec<u8>,
}

impl Default for Pairing {
    fn default() -> Self {
        Self {
            channels: HashMap::new(),
            pairs: HashMap::new(),
            // Not the numbers of an earlier authority, which programs may remember.
            pair_next: u64::from(begin_serial()) << 32,
            resumed: HashMap::new(),
            gone: Vec::new(),
        }
    }
}

impl Pairing {
    /// Makes a channel for a connection that has an endpoint now, and returns the program's end.
    pub(crate) fn open(&mut self, connection: u64) -> Result<OwnedFd, OmxdError> {
        let (own, theirs) = socket_pair(false)?;
        sockopt::set_socket_send_buffer_size(&own, CHANNEL_LEN).map_err(OmxdError::io("prepare a socket"))?;
        // No message is to come through it, and no program's descriptors are to lie in it.
        shutdown(&own, Shutdown::Read).map_err(OmxdError::io("prepare a socket"))?;
        self.channels.insert(connection, own);
        Ok(theirs)
    }

    /// As [`Pairing::open`], for an endpoint that an earlier authority opened.
    pub(crate) fn open_again(&mut self, connection: u64, endpoint: u8) -> Result<OwnedFd, OmxdError> {
        self.resumed.insert(connection, endpoint);
        let channel = self.open(connection)?;
        if let Some(own) = self.channels.get(&connection) {
            for gone in &self.gone {
                say_over(own, *gone, Visit::ANY_PAIR);
            }
        }
        Ok(channel)
    }

    /// Tells the paired programs that an endpoint is gone which an earlier authority opened.
    pub(crate) fn forget_endpoint(&mut self, endpoint: u8) {
        if !self.gone.contains(&endpoint) {
            self.gone.push(endpoint);
        }
        for channel in self.channels.values() {
            say_over(channel, endpoint, Visit::ANY_PAIR);
        }
    }

    /// Tells the paired programs that a connection is gone: their shared socket shows it only when no child has that
    /// any more.
    pub(crate) fn forget(&mut self, connection: u64) {
        self.channels.remove(&connection);
        if let Some(endpoint) = self.resumed.remove(&connection) {
            self.forget_endpoint(endpoint);
        }
        let channels = &self.channels;
        self.pairs.retain(|(a, b), pair| {
            let other = match connection {
                _ if *a == connection => b,
                _ if *b == connection => a,
                _ => return true,
            };
            if let Some(channel) = channels.get(other) {
                say_over(channel, 0, *pair);
            }
            false
        });
    }

    /// Pairs `connection` with an endpoint.
    pub(crate) fn pair(&mut self, connection: u64, endpoint: u8, known: Option<u64>, endpoints: &Endpoints) -> Reply {
        match self.try_pair(connection, endpoint, known, endpoints) {
            Ok(()) => Reply::Paired,
            Err((reason, sentence)) => Reply::Refused { reason, sentence },
        }
    }

    fn try_pair(
        &mut self,
        connection: u64,
        endpoint: u8,
        known: Option<u64>,
        endpoints: &Endpoints,
    ) -> Result<(), (Refusal, String)> {
        if endpoint >= ENDPOINTS {
            return Err((Refusal::BadEndpoint, format!("there is no endpoint {endpoint}")));
        }
        let not_open = || (Refusal::NotOpen, format!("endpoint {endpoint} is not open"));
        let no_own = || (Refusal::BadEndpoint, "this program has no endpoint open".to_owned());
        let own = endpoints.number_of(connection).ok_or_else(no_own)?;
        let own_channel = self.channels.get(&connection).ok_or_else(no_own)?;
        if endpoints.is_expected(endpoint) {
            let sentence = format!("the program of endpoint {endpoint} is not back yet after omxd was restarted");
            return Err((Refusal::NotBack, sentence));
        }
        let other = endpoints.connection_of(endpoint).ok_or_else(not_open)?;
        let channel = self.channels.get(&other).ok_or_else(not_open)?;
        let names = (connection.min(other), connection.max(other));
        let last = self.pairs.get(&names).copied();
        if last.is_some() && last != known {
            return Ok(());
        }
        let system = |error: OmxdError| (Refusal::System, error.to_string());
        let (here, there) = socket_pair(true).map_err(system)?;
        let memory = sealed_memory("omx-pair", PAIR_MEMORY_LEN).map_err(system)?;
        // No two pairs have one number, whatever becomes of them.
        let pair = self.pair_next;
        self.pair_next += 1;
        // A program that does not take its visits has so many of them waiting, and no more. Should the second one not
        // get its own, the first one's pair is over at once: no process has the other end of its socket.
        for (to, number, visit, end) in [
            (
                channel,
                endpoint,
                Visit {
                    endpoint: own,
                    asked: false,
                    pair,
                    over: false,
                },
                there,
            ),
            (
                own_channel,
                own,
                Visit {
                    endpoint,
                    asked: true,
                    pair,
                    over: false,
                },
                here,
            ),
        ] {
            if let Err(error) = protocol::send(to.as_fd(), &visit, &[end.as_fd(), memory.as_fd()]) {
                // A process that has the other end already may have put something in.
                drop(QuarantinedSocket::from(end));
                let sentence = format!("endpoint {number} does not take visits: {error}");
                return Err((Refusal::Busy, sentence));
            }
        }
        self.pairs.insert(names, pair);
        Ok(())
    }
}

/// Tells a program that a pair is over. One that does not take its visits learns it from the pair's socket, unless a
/// child of the other one has that.
fn say_over(channel: &OwnedFd, endpoint: u8, pair: u64) {
    let visit = Visit {
        endpoint,
        asked: false,
        pair,
        over: true,
    };
    let _ = protocol::send(channel.as_fd(), &visit, &[]);
}

/// Makes two joined sockets that preserve message boundaries, never block, and may say who sent a message.
fn socket_pair(credentials: bool) -> Result<(OwnedFd, OwnedFd), OmxdError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (a, b) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(OmxdError::io("make sockets"))?;
    for socket in [&a, &b] {
        sockopt::set_socket_passcred(socket, credentials).map_err(OmxdError::io("prepare a socket"))?;
    }
    Ok((a, b))
}

/// Makes memory of fixed length, so that no process that maps it can be made to fault.
pub(crate) fn sealed_memory(name: &str, len: usize) -> Result<OwnedFd, OmxdError> {
    let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(OmxdError::io("make memory to be shared"))?;
    ftruncate(&memory, len as u64).map_err(OmxdError::io("make memory to be shared"))?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(OmxdError::io("fix the length of memory"))?;
    Ok(memory)
}
