//! Connections that their programs do not have yet: those that listen are registered, handshakes are announced to them by tokens, and
//! claimed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use esp::{
    ConnectionId, ListenOptions,
    wire::{Body, Frame, Header, Names, Path, ResetCode, emit},
};
use ether::Time;
use rustix::{
    event::epoll,
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};
use weft_authority::{
    OmxdError, Refusal,
    esp::{EspCounter, EspKey, EspReply},
};

use super::{
    BACKLOG_MAX, Esp, Refused, Watched,
    listeners::{Owner, Place},
    sessions::{Answered, Asking, system},
    socket_table,
    tokens::{PATIENT_MAX, PORT_TOKENS_MAX, TOKENS_MAX, Token},
};

/// An address without flow and scope, IPv4 as such.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Esp {
    /// Registers a socket that listens.
    pub(crate) fn listen(&mut self, who: &Asking, address: SocketAddr, only_v6: bool) -> Answered {
        let place = Place {
            address: SocketAddr::new(address.ip(), address.port()),
            only_v6: only_v6 && address.is_ipv6(),
        };
        self.listeners.check_limits(who.user, who.privileged)?;
        let may = who.privileged || socket_table::may_listen(place.address, who.user, who.pid);
        if !may || address.port() == 0 {
            self.counts.count(EspCounter::ListenNotAllowed);
            let sentence = format!("no socket of this program listens at {address}");
            return Err((Refusal::NotAllowed, sentence));
        }
        let key = [self.random.next().map_err(system)?, self.random.next().map_err(system)?];
        let (here, there) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| system(OmxdError::io("make a pipe")(error)))?;
        let id = self.listeners.next();
        // That the last process is gone is said whatever is watched for.
        epoll::add(
            &self.watch,
            &here,
            Watched::Listener(id).to_data(),
            epoll::EventFlags::empty(),
        )
        .map_err(|error| system(OmxdError::io("watch a pipe")(error)))?;
        let port = address.port();
        if !self.engine.is_listening(port) {
            let options = ListenOptions {
                backlog: BACKLOG_MAX,
                hold: true,
            };
            let listened = self.engine.listen(port, options);
            listened.map_err(|error| system(OmxdError::io("listen")(std::io::Error::other(error))))?;
        }
        let owner = Owner { user: who.user, key };
        self.listeners.add(place, who.pid, owner, here);
        self.counts.count(EspCounter::Listens);
        Ok((EspReply::Listening { id, key }, vec![there]))
    }

    /// Forgets a listener of which no program knows any more. What waits to be claimed can be until the kernel says that its TCP
    /// connection is over.
    pub(super) fn forget_listener(&mut self, id: u64) {
        let Some((last_of, _pipe)) = self.listeners.remove(id) else {
            return;
        };
        self.counts.count(EspCounter::ListenersGone);
        if let Some(port) = last_of {
            self.engine.unlisten(port);
        }
    }

    /// Forgets a listener for a program that has its key.
    pub(crate) fn forget(&mut self, id: u64, key: EspKey) -> Answered {
        if self.listeners.key(id) != Some(key) {
            return Err((Refusal::NotAllowed, "there is no listener with this key".to_owned()));
        }
        self.forget_listener(id);
        Ok((EspReply::Done, Vec::new()))
    }

    /// Whether a SYN is for a listener and plausible; refuses the others. That no socket at all listens at a port is for the engine to
    /// say.
    pub(super) fn may_connect(&mut self, frame: &Frame<'_>, now: Time) -> bool {
        let Ok(Body::Syn(syn)) = frame.body(false) else {
            self.counts.count(EspCounter::Malformed);
            return false;
        };
        if self
            .listeners
            .find(frame.header.destination_port, syn.names.as_ref())
            .is_none()
        {
            self.counts.count(EspCounter::SynNoListener);
        } else if syn.names.as_ref().is_none_or(|names| self.is_plausible(names, now)) {
            return true;
        } else {
            self.counts.count(EspCounter::SynBadAddress);
        }
        self.refuse(frame);
        false
    }

    fn is_plausible(&mut self, names: &Names, now: Time) -> bool {
        self.addresses.refresh(now);
        let source = names.source();
        source.port() != 0
            && self
                .addresses
                .is_plausible(&self.wire.interface.name, source.ip().to_canonical())
    }

    /// Refuses a SYN, as the engine does where no socket listens.
    fn refuse(&mut self, frame: &Frame<'_>) {
        if frame.destination != self.wire.interface.mac || frame.source.is_multicast() {
            return;
        }
        let path = Path {
            destination: frame.source,
            source: self.wire.interface.mac,
            ether_type: self.wire.ether_type,
        };
        let header = Header {
            number: frame.header.ack.unwrap_or(0),
            ack: Some(frame.header.number.wrapping_add(1)),
            ..Header::new(frame.header.destination_port, frame.header.source_port)
        };
        let mut reset = [0; 128];
        if let Ok(len) = emit(&mut reset, &path, &header, &Body::Reset(ResetCode::Refused), false) {
            self.send(&reset[..len]);
        }
    }

    /// Announces connections whose handshake is finished, as many as may wait to be claimed.
    pub(super) fn announce(&mut self, now: Time) {
        for port in std::mem::take(&mut self.waiting_ports) {
            loop {
                if self.tokens.len() >= TOKENS_MAX || self.tokens.of_port(port) >= PORT_TOKENS_MAX {
                    self.waiting_ports.insert(port);
                    break;
                }
                let Some(connection) = self.engine.accept(port) else {
                    break;
                };
                self.counts.count(EspCounter::Handshakes);
                self.announce_one(port, connection, now);
            }
        }
    }

    fn announce_one(&mut self, port: u16, connection: ConnectionId, now: Time) {
        let names = self.engine.names(connection).ok().flatten();
        let Some(place) = self.listeners.find(port, names.as_ref()) else {
            // It was forgotten since the SYN came.
            return self.give_up(connection, EspCounter::TokenRefused);
        };
        let owners = self.listeners.owners_of(place);
        let made = self
            .tokens
            .make(connection, place, names, owners, now)
            .and_then(|token| {
                let data = Watched::Token(token.number).to_data();
                epoll::add(
                    &self.watch,
                    token,
                    data,
                    epoll::EventFlags::OUT | epoll::EventFlags::RDHUP,
                )
            });
        match made {
            Ok(()) => self.counts.count(EspCounter::Tokens),
            Err(error) => {
                tracing::debug!("a connection to {} cannot be announced: {error}", place.address);
                if let Some(address) = self.tokens.of(connection) {
                    self.tokens.remove(address);
                }
                self.give_up(connection, EspCounter::TokenRefused);
                if error == Errno::CONNREFUSED {
                    self.forget_place(place);
                }
            }
        }
    }

    /// Forgets the listeners of a place where no socket listens any more.
    fn forget_place(&mut self, place: Place) {
        for id in self.listeners.at(place).collect::<Vec<_>>() {
            self.forget_listener(id);
        }
    }

    fn give_up(&mut self, connection: ConnectionId, counter: EspCounter) {
        self.counts.count(counter);
        // It may be over already.
        let _ = self.engine.abort(connection);
    }

    /// Takes news of a token's TCP connection.
    pub(super) fn token_news(&mut self, number: u64, news: epoll::EventFlags) {
        if news.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            return self.token_hung_up(number);
        }
        let address = self.tokens.numbered(number);
        if let Some(token) = address.and_then(|address| self.tokens.get(address)) {
            token.greet();
            // From now on its end alone is news.
            let data = Watched::Token(number).to_data();
            let _ = epoll::modify(&self.watch, token, data, epoll::EventFlags::RDHUP);
        }
    }

    /// The TCP connection of a token is over: its listener was closed, or a program accepted and closed it.
    fn token_hung_up(&mut self, number: u64) {
        let Some(token) = self
            .tokens
            .numbered(number)
            .and_then(|address| self.tokens.remove(address))
        else {
            return;
        };
        let refused = matches!(rustix::net::sockopt::socket_error(&token), Ok(Err(Errno::CONNREFUSED)));
        self.give_up(token.connection, EspCounter::TokenRefused);
        if refused {
            self.forget_place(token.place);
        }
    }

    /// Resets connections that a program has accepted, or whose token was never taken by the kernel, and that were not claimed in time.
    /// Those in a listener's queue wait on, as TCP's do, unless there are too many.
    pub(super) fn expire_tokens(&mut self, now: Time) {
        if self.tokens.due().is_none_or(|due| due > now) {
            return;
        }
        let unaccepted = socket_table::unaccepted();
        for address in self.tokens.expired(now) {
            if unaccepted.contains(&address) && self.tokens.len() <= PATIENT_MAX {
                self.tokens.extend(address, now);
            } else if let Some(token) = self.tokens.remove(address) {
                self.give_up(token.connection, EspCounter::TokenExpired);
            }
        }
    }

    /// The peer has ended a connection.
    pub(super) fn connection_over(&mut self, connection: ConnectionId, now: Time) {
        if let Some(address) = self.tokens.of(connection) {
            self.tokens.remove(address);
            self.counts.count(EspCounter::TokenPeerEnded);
        }
        let _ = self.engine.close(connection, now);
    }

    /// Hands a connection over to the program that accepted its token.
    pub(crate) fn claim(&mut self, who: &Asking, address: SocketAddr, key: Option<EspKey>, now: Time) -> Answered {
        let address = plain(address);
        let Some(token) = self.tokens.get(address) else {
            self.counts.count(EspCounter::ClaimUnknown);
            let sentence = format!("the connection from {address} is no ESP connection of this interface");
            return Err((Refusal::NoToken, sentence));
        };
        let owns = |owner: &Owner| owner.user == who.user || Some(owner.key) == key;
        if !who.privileged && !token.owners.iter().any(owns) {
            self.counts.count(EspCounter::ClaimNotAllowed);
            let sentence = format!("the connection from {address} is another user's");
            return Err((Refusal::NotAllowed, sentence));
        }
        let detached = self.engine.detach(token.connection, None, now);
        let token = self.tokens.remove(address);
        let (Ok(handover), Some(token)) = (detached, token) else {
            return Err(ended(address));
        };
        self.counts.count(EspCounter::Claims);
        let (local, peer) = ends_of(&token);
        let handover = handover.to_bytes();
        Ok((EspReply::Claimed { handover, local, peer }, Vec::new()))
    }
}

fn ended(address: SocketAddr) -> Refused {
    let sentence = format!("the ESP connection behind {address} has ended");
    (Refusal::NoToken, sentence)
}

/// Returns what the programs at both ends of a connection call themselves. A peer that does not say is unspecified.
fn ends_of(token: &Token) -> (SocketAddr, SocketAddr) {
    let listened = token.place.address;
    match &token.names {
        Some(names) => (SocketAddr::new(names.destination(), listened.port()), names.source()),
        None => {
            let unspecified: IpAddr = match listened {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            (listened, SocketAddr::new(unspecified, 0))
        }
    }
}
