//! What a host knows of a connection beside its engine's state, and whom it tells.

use std::sync::{Arc, atomic::Ordering};

use esp::{ConnectionId, Event, Reason};

use crate::{
    errno::Errno,
    host::State,
    mirror::{Mirror, Readiness},
    waiter::Waiter,
};

/// What is known of a connection beside its engine's state.
#[derive(Default)]
pub(crate) struct Connection {
    pub(crate) waiters: Vec<Arc<Waiter>>,
    pub(crate) mirror: Option<Mirror>,
    pub(crate) is_connected: bool,
    /// The peer knows the port at which it is now.
    pub(crate) is_settled: bool,
    /// Why it ended, until a call returns it.
    pub(crate) error: Option<Errno>,
    /// The peer will send nothing more, or the connection is over.
    pub(crate) is_over: bool,
    /// This side sends nothing more.
    pub(crate) is_shut: bool,
    /// This side wants to receive nothing more.
    pub(crate) is_deaf: bool,
    /// Both directions are over; the engine has forgotten the connection.
    pub(crate) is_ended: bool,
}

impl Connection {
    /// Takes the end of a connection, and returns the error that calls on it have.
    fn end(&mut self, reason: Reason) -> Option<Errno> {
        // A peer that had finished takes nothing more: TCP calls that a broken pipe.
        let is_broken = self.is_over && reason == Reason::Reset;
        self.is_over = true;
        self.is_ended = true;
        Some(Errno(if is_broken { libc::EPIPE } else { reason.errno() })).filter(|error| error.0 != 0)
    }
}

impl State {
    /// Hands events of the engine to the threads and mirrors of their connections.
    #[inline]
    pub(crate) fn settle(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            self.note(event);
        }
    }

    fn note(&mut self, event: Event) {
        self.changes.fetch_add(1, Ordering::Release);
        let mut more = false;
        let id = match event {
            Event::Connected(id) => {
                let connection = self.connection(id);
                (connection.is_connected, connection.is_settled) = (true, true);
                id
            }
            Event::Readable(id) => {
                more = true;
                id
            }
            Event::Writable(id) => id,
            Event::PeerFinished(id) => {
                self.connection(id).is_over = true;
                id
            }
            Event::Closed { id, reason } => {
                let connection = self.connection(id);
                if let Some(error) = connection.end(reason) {
                    connection.error = Some(error);
                }
                id
            }
            Event::Settled(id) => {
                self.connection(id).is_settled = true;
                id
            }
            Event::Incoming { .. } => return,
        };
        for waiter in &self.connection(id).waiters {
            waiter.wake();
        }
        self.show(id, more);
    }

    pub(crate) fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.connections.entry(id).or_default()
    }

    /// Returns what calls on the connection would do.
    pub(crate) fn readiness(&self, id: ConnectionId) -> Readiness {
        let Some(connection) = self.connections.get(&id) else {
            return Readiness::default();
        };
        let failed = connection.error.is_some();
        let unread = self.engine.available(id).is_ok_and(|len| len > 0);
        let space = self.engine.space(id).unwrap_or(0);
        Readiness {
            readable: unread || connection.is_over || failed || connection.is_deaf,
            writable: connection.is_ended || failed || connection.is_shut || space * 3 >= self.send_len,
            finished: connection.is_over || connection.is_deaf,
            hung_up: connection.is_ended || connection.is_over && connection.is_shut,
            failed,
        }
    }

    /// Shows the kernel what the connection is ready for, if anybody asked it.
    pub(crate) fn show(&mut self, id: ConnectionId, more: bool) {
        if self
            .connections
            .get(&id)
            .is_none_or(|connection| connection.mirror.is_none())
        {
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
}
