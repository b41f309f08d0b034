//! TCP sockets that are in sets of epoll before they are connected: their places there are remembered, because another descriptor takes
//! their number when the connection is made over ESP.

use std::{
    os::fd::RawFd,
    sync::{Mutex, PoisonError},
};

use libc::epoll_event;

/// A TCP socket that is in sets of epoll.
#[derive(Default)]
pub struct Plain {
    /// Sets, and what was asked for there.
    places: Mutex<Vec<(RawFd, u32, u64)>>,
}

impl Plain {
    /// Notes that the socket is in a set now, or with other events.
    pub(crate) fn put(&self, set: RawFd, event: epoll_event) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|(of, _, _)| *of != set);
        places.push((set, event.events, event.u64));
    }

    /// Notes that the socket is no longer in a set.
    pub(crate) fn take(&self, set: RawFd) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|(of, _, _)| *of != set);
    }

    /// Returns all places.
    pub(crate) fn places(&self) -> Vec<(RawFd, epoll_event)> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let event = |&(set, events, data): &_| (set, epoll_event { events, u64: data });
        places.iter().map(event).collect()
    }
}
