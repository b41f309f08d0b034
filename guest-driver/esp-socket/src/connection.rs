//! What a host knows of a connection beside its engine's state.

use std::sync::Arc;

use esp::{Event, Reason};

use crate::{
    errno::Errno,
    mirror::{Mirror, Readiness},
    report::Ends,
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
    /// The peer's stream has ended, as it should.
    pub(crate) has_finished: bool,
    /// This side sends nothing more.
    pub(crate) is_shut: bool,
    /// This side wants to receive nothing more.
    pub(crate) is_deaf: bool,
    /// Both directions are over; the engine has forgotten the connection.
    pub(crate) is_ended: bool,
    /// What the program calls it, once it has a socket for it.
    pub(crate) ends: Option<Box<Ends>>,
}

impl Connection {
    /// Whether the peer will send nothing more.
    pub(crate) const fn is_over(&self) -> bool {
        self.has_finished || self.is_ended
    }

    /// Takes the end of a connection, and returns the error that calls on it have.
    fn end(&mut self, reason: Reason) -> Option<Errno> {
        // A peer that had finished takes nothing more: TCP calls that a broken pipe.
        let is_broken = self.has_finished && reason == Reason::Reset;
        self.is_ended = true;
        Some(Errno(if is_broken { libc::EPIPE } else { reason.errno() })).filter(|error| error.0 != 0)
    }

    /// Takes what happened to it, and tells the threads that wait.
    pub(crate) fn take(&mut self, event: Event) {
        match event {
            Event::Connected(_) => (self.is_connected, self.is_settled) = (true, true),
            Event::PeerFinished(_) => self.has_finished = true,
            Event::Closed { reason, .. } => {
                if let Some(error) = self.end(reason) {
                    self.error = Some(error);
                }
            }
            Event::Settled(_) => self.is_settled = true,
            Event::Readable(_) | Event::Writable(_) | Event::Incoming { .. } => {}
        }
        for waiter in &self.waiters {
            waiter.wake();
        }
    }

    /// Whether bytes of the peer find no reader, and the program sends none either: TCP resets a connection then when some come.
    pub(crate) const fn is_of_no_use(&self) -> bool {
        self.is_deaf && self.is_shut && !self.is_over()
    }

    /// Returns what calls on it would do. `unread`: bytes wait to be read; `has_room`: there is room to send.
    #[inline]
    pub(crate) const fn readiness(&self, unread: bool, has_room: bool) -> Readiness {
        let failed = self.error.is_some();
        Readiness {
            readable: unread || self.is_over() || failed || self.is_deaf,
            writable: self.is_ended || failed || self.is_shut || has_room,
            finished: self.is_over() || self.is_deaf,
            hung_up: self.is_ended || (self.is_over() || self.is_deaf) && self.is_shut,
            failed,
        }
    }

    /// A thread sleeps no more.
    pub(crate) fn forget_waiter(&mut self, waiter: &Arc<Waiter>) {
        if let Some(at) = self.waiters.iter().position(|one| Arc::ptr_eq(one, waiter)) {
            self.waiters.swap_remove(at);
        }
    }
}
