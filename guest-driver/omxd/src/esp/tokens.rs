//! Tokens: connections by TCP over loopback, each of which announces one ESP connection to its listener. The kernel puts them into the
//! listener's queue of connections, and so they wake and reach its programs as any connection does.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use esp::{ConnectionId, wire::Names};
use ether::Time;
use rustix::{
    io::Errno,
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, getsockname, send, socket_with, sockopt},
};
use weft_authority::esp::TOKEN_LIMIT;

use super::listeners::{Owner, Place};

/// Tokens in all.
pub(super) const TOKENS_MAX: usize = 1024;
/// Up to so many, those that no program has accepted wait for as long as that takes, as TCP's connections do.
pub(super) const PATIENT_MAX: usize = TOKENS_MAX / 2;
/// Tokens of one port.
pub(super) const PORT_TOKENS_MAX: usize = 256;

/// What a token sends. Where a listener's queue is full, the kernel may count a connection as established at this end alone, and tells
/// the other end of it again only with bytes, which it repeats. No program reads them.
const GREETING: &[u8] = b"ESP\n";

/// An ESP connection that waits to be claimed.
#[derive(Debug)]
pub(super) struct Token {
    /// Its number, for the kernel's news of its socket.
    pub(super) number: u64,
    pub(super) connection: ConnectionId,
    pub(super) place: Place,
    pub(super) names: Option<Names>,
    /// Those who may claim it: the listeners' when it was made, since a listener may be closed before it is claimed.
    pub(super) owners: Vec<Owner>,
    socket: OwnedFd,
    until: Time,
}

impl Token {
    /// Sends what makes the kernel tell the listener's end of the connection for as long as it takes.
    pub(super) fn greet(&self) {
        // The kernel takes as much of a new connection; if that is over, there is other news of it.
        let _ = send(&self.socket, GREETING, SendFlags::NOSIGNAL);
    }
}

impl AsFd for Token {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// All tokens, by the address that their listeners see.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    by_address: HashMap<SocketAddr, Token>,
    by_connection: HashMap<ConnectionId, SocketAddr>,
    by_number: HashMap<u64, SocketAddr>,
    next: u64,
}

impl Tokens {
    /// Connects to the listener; returns the token, and takes it back with [`Tokens::remove`].
    ///
    /// # Errors
    /// The kernel's: the listener is gone, most likely.
    pub(super) fn make(
        &mut self,
        connection: ConnectionId,
        place: Place,
        names: Option<Names>,
        owners: Vec<Owner>,
        now: Time,
    ) -> rustix::io::Result<&Token> {
        let (socket, address) = connect_to(place)?;
        let until = now.plus_nanos(TOKEN_LIMIT.as_nanos() as u64);
        let number = self.next;
        self.next += 1;
        let token = Token {
            number,
            connection,
            place,
            names,
            owners,
            socket,
            until,
        };
        self.by_connection.insert(connection, address);
        self.by_number.insert(number, address);
        Ok(self.by_address.entry(address).insert_entry(token).into_mut())
    }

    pub(super) fn get(&self, address: SocketAddr) -> Option<&Token> {
        self.by_address.get(&address)
    }

    /// Takes a token out; its TCP connection is reset when it is dropped.
    pub(super) fn remove(&mut self, address: SocketAddr) -> Option<Token> {
        let token = self.by_address.remove(&address)?;
        self.by_connection.remove(&token.connection);
        self.by_number.remove(&token.number);
        Some(token)
    }

    /// Returns the token of an ESP connection.
    pub(super) fn of(&self, connection: ConnectionId) -> Option<SocketAddr> {
        self.by_connection.get(&connection).copied()
    }

    /// Returns the token with a number.
    pub(super) fn numbered(&self, number: u64) -> Option<SocketAddr> {
        self.by_number.get(&number).copied()
    }

    /// Lists those that were not claimed in time.
    pub(super) fn expired(&self, now: Time) -> Vec<SocketAddr> {
        let over = self.by_address.iter().filter(|(_, token)| token.until <= now);
        over.map(|(address, _)| *address).collect()
    }

    /// Gives one more time, since its program has not accepted any connection so far.
    pub(super) fn extend(&mut self, address: SocketAddr, now: Time) {
        if let Some(token) = self.by_address.get_mut(&address) {
            token.until = now.plus_nanos(TOKEN_LIMIT.as_nanos() as u64);
        }
    }

    /// Returns when the first one's time is over.
    pub(super) fn due(&self) -> Option<Time> {
        self.by_address.values().map(|token| token.until).min()
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Returns how many there are of a port.
    pub(super) fn of_port(&self, port: u16) -> usize {
        self.by_address
            .values()
            .filter(|token| token.place.address.port() == port)
            .count()
    }

    /// Returns how many there are of an address that is listened at.
    pub(super) fn of_address(&self, address: SocketAddr) -> usize {
        let tokens = self.by_address.values();
        tokens.filter(|token| token.place.address == address).count()
    }
}

/// Begins a connection to a place; over loopback the kernel finishes it at once unless the listener's queue is full.
fn connect_to(place: Place) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let (from, to) = place.token_path();
    let family = match from {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // No side is to remember it when it is over.
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let address = SocketAddr::try_from(getsockname(&socket)?).map_err(|_| Errno::INVAL)?;
    Ok((socket, SocketAddr::new(address.ip(), address.port())))
}
