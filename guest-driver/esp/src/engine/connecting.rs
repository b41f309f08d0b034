//! How connections begin on this side.

use alloc::boxed::Box;

use ether::Time;

use super::Engine;
use crate::{
    Address, BUFFER_MAX, ConnectionId, Counter, Error,
    connection::{Connection, Phase},
    table::Key,
    wire::Names,
};

/// What a program may ask of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Bytes that may wait to be sent and acknowledged; none for the engine's.
    pub send_buffer: Option<u32>,
    /// Bytes that may wait to be read; none for the engine's. With 0, the peer may send nothing.
    pub receive_buffer: Option<u32>,
    /// After so many nanoseconds of silence the peer is asked whether it is there; none for never.
    pub keep_alive_ns: Option<u64>,
    /// What the program that connects calls both ends, which the peer is told.
    pub names: Option<Names>,
}

impl Engine {
    /// Begins to connect a port of this host to a peer. [`crate::Event::Connected`] or [`crate::Event::Closed`] follows.
    ///
    /// # Errors
    /// [`Error::InUse`] if there is such a connection, [`Error::Limit`] if there are as many as may be, [`Error::Invalid`] for port 0, an
    /// address that is no single host's, or the own one.
    pub fn connect(
        &mut self,
        local_port: u16,
        peer: Address,
        options: Options,
        now: Time,
    ) -> Result<ConnectionId, Error> {
        if local_port == 0 || peer.port == 0 || peer.mac.is_multicast() || peer.mac == self.shared.config.mac {
            return Err(Error::Invalid);
        }
        self.make_room(&Key {
            mac: peer.mac,
            peer_port: peer.port,
            local_port,
        })?;
        let mut connection = Connection::new(peer, local_port, Phase::SynSent);
        connection.ends.listened_port = peer.port;
        connection.terms.instance = self.shared.random.next();
        connection.send.start(self.shared.random.next() as u32);
        self.set_options(&mut connection, &options);
        connection.terms.names = options.names.map(Box::new);
        connection.flags.control_now = true;
        connection.waiting_since = Some(now);
        self.shared.counters.count(Counter::Connects);
        Ok(self.add(connection, now))
    }

    pub(super) fn set_options(&self, connection: &mut Connection, options: &Options) {
        let config = &self.shared.config;
        connection.send.limit = options.send_buffer.unwrap_or(config.send_buffer).min(BUFFER_MAX);
        connection.receive.limit = options.receive_buffer.unwrap_or(config.receive_buffer).min(BUFFER_MAX);
        connection.receive.payload_max = config.payload_max();
        connection.keep_alive_ns = options.keep_alive_ns.unwrap_or(0);
    }

    /// Frees a key of a connection in TIME-WAIT or one that has moved.
    pub(super) fn make_room(&mut self, key: &Key) -> Result<(), Error> {
        if let Some(slot) = self.table.get(key) {
            match self.slots.get(slot).map(|connection| connection.phase) {
                Some(Phase::TimeWait | Phase::Away(_)) => self.leave_key(slot),
                _ => return Err(Error::InUse),
            }
        }
        if self.slots.len() >= self.shared.config.limits.connections {
            return Err(Error::Limit);
        }
        Ok(())
    }

    /// A connection in TIME-WAIT or one that has moved gives its key to a new one.
    pub(super) fn leave_key(&mut self, slot: u32) {
        let is_orphan = self
            .slots
            .get(slot)
            .is_some_and(|connection| connection.flags.is_orphan);
        self.end(slot, crate::Reason::Finished);
        if is_orphan {
            self.forget_slot(slot);
        }
    }

    pub(super) fn add(&mut self, mut connection: Connection, now: Time) -> ConnectionId {
        connection.flags.is_known = true;
        connection.heard = now;
        let key = connection.key();
        let slot = self.slots.add(connection);
        self.table.insert(key, slot);
        self.settle(slot, now);
        self.slots.id(slot)
    }

    /// Sets how many bytes may wait to be sent, and to be read; at most [`BUFFER_MAX`] each. A window that was given to the peer stays.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn set_options_of(&mut self, id: ConnectionId, options: &Options, now: Time) -> Result<(), Error> {
        let (connection, _) = self.connection_mut(id)?;
        if let Some(bytes) = options.send_buffer {
            connection.send.limit = bytes.min(BUFFER_MAX);
        }
        if let Some(bytes) = options.receive_buffer {
            connection.receive.limit = bytes.min(BUFFER_MAX);
            connection.receive.ack_now |=
                matches!(connection.phase, Phase::Open) && connection.receive.is_window_news();
        }
        if let Some(ns) = options.keep_alive_ns {
            connection.keep_alive_ns = ns;
        }
        self.settle(id.slot, now);
        Ok(())
    }
}
