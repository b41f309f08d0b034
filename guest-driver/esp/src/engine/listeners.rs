//! Ports that are listened at, with the connections that wait there.

use alloc::collections::{BTreeMap, VecDeque};

use super::{Engine, half_open::HalfOpen};
use crate::{ConnectionId, Error, Event};

/// How a listener takes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that may wait to be accepted.
    pub backlog: usize,
    /// Connections take no data: their window is 0 until they are detached and live elsewhere.
    pub hold: bool,
}

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) options: ListenOptions,
    pub(super) half_open: HalfOpen,
    /// The oldest first.
    pub(super) complete: VecDeque<u32>,
    has_news: bool,
}

#[derive(Debug, Default)]
pub(super) struct Listeners {
    by_port: BTreeMap<u16, Listener>,
    news: VecDeque<u16>,
}

impl Listeners {
    pub(super) fn get(&mut self, port: u16) -> Option<&mut Listener> {
        self.by_port.get_mut(&port)
    }

    /// Takes a half-open connection of the listener that has the most of them.
    pub(super) fn pop_of_most(&mut self) -> Option<u32> {
        let most = self
            .by_port
            .values_mut()
            .max_by_key(|listener| listener.half_open.len());
        most?.half_open.pop()
    }

    pub(super) fn remove_slot(&mut self, port: u16, slot: u32) {
        if let Some(listener) = self.by_port.get_mut(&port) {
            listener.half_open.remove(slot);
            listener.complete.retain(|other| *other != slot);
        }
    }

    /// Moves a half-open connection to those that wait to be accepted.
    pub(super) fn complete(&mut self, port: u16, slot: u32) {
        if let Some(listener) = self.by_port.get_mut(&port) {
            listener.half_open.remove(slot);
            listener.complete.push_back(slot);
            if !core::mem::replace(&mut listener.has_news, true) {
                self.news.push_back(port);
            }
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        while let Some(port) = self.news.pop_front() {
            if let Some(listener) = self.by_port.get_mut(&port)
                && core::mem::take(&mut listener.has_news)
                && !listener.complete.is_empty()
            {
                return Some(Event::Incoming { port });
            }
        }
        None
    }
}

impl Engine {
    /// Takes connections at a port from now on.
    ///
    /// # Errors
    /// [`Error::InUse`] if the port is listened at, [`Error::Invalid`] for port 0.
    pub fn listen(&mut self, port: u16, options: ListenOptions) -> Result<(), Error> {
        if port == 0 {
            return Err(Error::Invalid);
        }
        if self.listeners.by_port.contains_key(&port) {
            return Err(Error::InUse);
        }
        let backlog = options.backlog.clamp(1, self.shared.config.limits.backlog.max(1));
        let listener = Listener {
            options: ListenOptions { backlog, ..options },
            half_open: HalfOpen::default(),
            complete: VecDeque::new(),
            has_news: false,
        };
        self.listeners.by_port.insert(port, listener);
        Ok(())
    }

    /// Whether a port is listened at.
    pub fn is_listening(&self, port: u16) -> bool {
        self.listeners.by_port.contains_key(&port)
    }

    /// Takes the oldest connection that waits at a port.
    pub fn accept(&mut self, port: u16) -> Option<ConnectionId> {
        let slot = self.listeners.by_port.get_mut(&port)?.complete.pop_front()?;
        let connection = self.slots.get_mut(slot)?;
        connection.flags.is_incoming = false;
        if !connection.receive.ring.is_empty() {
            connection.events |= crate::event::READABLE;
        }
        if connection.receive.is_finished() {
            connection.events |= crate::event::PEER_FINISHED;
        }
        if connection.events != 0 {
            connection.flags.has_events = true;
            self.eventful.push_back(slot);
        }
        Some(self.slots.id(slot))
    }

    /// Takes no more connections at a port; those that were not accepted are reset.
    pub fn unlisten(&mut self, port: u16) {
        let Some(listener) = self.listeners.by_port.remove(&port) else {
            return;
        };
        for slot in listener.half_open.into_slots().chain(listener.complete) {
            self.abort_slot(slot);
            self.forget_slot(slot);
        }
    }
}
