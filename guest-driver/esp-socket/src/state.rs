//! What the threads of a process share of an interface: the engine, the port, and what is known of connections beside the engine.

use std::{
    collections::HashMap,
    hash::BuildHasherDefault,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use esp::{ConnectionId, Engine, Event, Reason};
use ether::Time;
use weft_authority::esp::BLOCK_PORTS;

use crate::{
    connection::Connection, id_hasher::IdHasher, mirror::Readiness, own_fds::OwnFd, port::Port, sleepers::Sleepers,
};

/// What a host's lock protects.
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) port: Port,
    pub(crate) connections: HashMap<ConnectionId, Connection, BuildHasherDefault<IdHasher>>,
    /// Memory for reports of the connections; none in a forked child.
    pub(crate) report: Option<Arc<OwnFd>>,
    pub(crate) changes: Arc<AtomicU64>,
    pub(crate) sleepers: Sleepers,
    /// The wire port of the block that is tried next.
    pub(crate) next_port: u16,
    /// Bytes that a connection keeps for sending.
    pub(crate) send_len: usize,
}

impl State {
    pub(crate) fn new(engine: Engine, port: Port, report: OwnFd, changes: Arc<AtomicU64>) -> Self {
        Self {
            send_len: engine.config().send_buffer as usize,
            engine,
            port,
            connections: HashMap::default(),
            report: Some(Arc::new(report)),
            changes,
            sleepers: Sleepers::default(),
            next_port: (crate::random() as u16) % BLOCK_PORTS,
        }
    }

    /// Takes frames from the port, and does what is due.
    #[inline]
    pub(crate) fn receive(&mut self, now: Time) {
        self.port.receive(&mut self.engine, now);
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
    }

    /// Gives the engine the MTU that the interface has by now; says whether it is another one.
    pub(crate) fn follow_mtu(&mut self, now: Time) -> bool {
        self.port.follow_mtu(&mut self.engine, now)
    }

    /// Sends what the engine wants to send; stops when the port is full.
    #[inline]
    pub(crate) fn transmit(&mut self, now: Time) {
        self.port.transmit(&mut self.engine, now);
    }

    /// Takes events of the engine to the threads and mirrors of their connections.
    #[inline]
    pub(crate) fn settle(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            self.note(event);
        }
    }

    fn note(&mut self, event: Event) {
        self.changes.fetch_add(1, Ordering::Release);
        let (id, more) = match event {
            Event::Readable(id) => (id, true),
            Event::Connected(id) | Event::Writable(id) | Event::PeerFinished(id) | Event::Settled(id) => (id, false),
            Event::Closed { id, .. } => (id, false),
            Event::Incoming { .. } => return,
        };
        self.connection(id).take(event);
        if matches!(event, Event::Readable(_)) && self.connection(id).is_of_no_use() {
            // The peer would wait for room for ever.
            let _ = self.engine.abort(id);
            let reason = Reason::Reset;
            self.connection(id).take(Event::Closed { id, reason });
        }
        self.show(id, more);
    }

    pub(crate) fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.connections.entry(id).or_default()
    }

    /// Returns what calls on the connection would do.
    pub(crate) fn readiness(&self, id: ConnectionId) -> Readiness {
        let unread = self.engine.available(id).is_ok_and(|len| len > 0);
        let space = self.engine.space(id).unwrap_or(0);
        let connection = self.connections.get(&id);
        connection.map_or_else(Readiness::default, |connection| {
            connection.readiness(unread, space * 3 >= self.send_len)
        })
    }

    /// Shows the kernel what the connection is ready for, if anybody asked it.
    pub(crate) fn show(&mut self, id: ConnectionId, more: bool) {
        let has_mirror = |connection: &Connection| connection.mirror.is_some();
        if !self.connections.get(&id).is_some_and(has_mirror) {
            return;
        }
        let readiness = self.readiness(id);
        if !readiness.writable {
            // A connection that is gone is writable.
            let _ = self.engine.want_room(id);
        }
        if let Some(mirror) = self.connection(id).mirror.as_mut() {
            mirror.show(readiness, more);
        }
    }

    /// The program has no more use for a connection.
    pub(crate) fn close(&mut self, id: ConnectionId, reset: bool, now: Time) {
        self.connections.remove(&id);
        // A connection that the engine does not know is gone already.
        let _ = if reset {
            self.engine.abort(id)
        } else {
            self.engine.close(id, now)
        };
    }
}
