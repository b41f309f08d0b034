//! The threads that sleep on an endpoint. Each has an event of its own: a shared one could only be cleared by the last
//! of its threads, and until then would keep all others from sleeping.

use std::{os::fd::OwnedFd, sync::Arc};

use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

/// At most this many events per endpoint: more threads than block on one at once.
const EVENTS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Asleep,
    /// The thread sleeps, and its event is readable.
    Woken,
}

/// The place where a thread sleeps.
#[derive(Debug)]
pub(crate) struct Place {
    at: usize,
    /// The event becomes readable when the thread is to check again.
    pub(crate) event: Arc<OwnedFd>,
}

/// The sleeping threads; this is behind the endpoint's lock.
#[derive(Debug)]
pub(crate) struct Sleepers {
    /// As many events as threads ever slept at once, and at least one: a single thread always finds its own.
    events: Vec<(Arc<OwnedFd>, State)>,
    /// The number of sleeping threads that were not woken yet.
    asleep: u32,
}

fn event() -> rustix::io::Result<Arc<OwnedFd>> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new)
}

impl Sleepers {
    pub(crate) fn new() -> Result<Self, Error> {
        let first = event().map_err(Error::system("make an event"))?;
        Ok(Self {
            events: vec![(first, State::Free)],
            asleep: 0,
        })
    }

    /// Enters a thread that is about to sleep. `None`: there is no event for it.
    pub(crate) fn enter(&mut self) -> Option<Place> {
        let free = self.events.iter().position(|(_, state)| *state == State::Free);
        let at = match free {
            Some(at) => at,
            None if self.events.len() < EVENTS_MAX => {
                self.events.push((event().ok()?, State::Free));
                self.events.len() - 1
            }
            None => return None,
        };
        let (event, state) = &mut self.events[at];
        *state = State::Asleep;
        self.asleep += 1;
        Some(Place {
            at,
            event: Arc::clone(event),
        })
    }

    /// Notes that a thread is up again.
    pub(crate) fn leave(&mut self, place: Option<Place>) {
        let Some(place) = place else { return };
        let (event, state) = &mut self.events[place.at];
        match state {
            State::Woken => {
                let mut count = [0; 8];
                let _ = rustix::io::read(&**event, &mut count);
            }
            State::Asleep => self.asleep -= 1,
            State::Free => {}
        }
        *state = State::Free;
    }

    /// Wakes every sleeping thread to check again; each is told once.
    #[inline]
    pub(crate) fn wake(&mut self) {
        if self.asleep > 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&mut self) {
        for (event, state) in &mut self.events {
            if *state == State::Asleep {
                *state = State::Woken;
                let _ = rustix::io::write(&**event, &1u64.to_ne_bytes());
            }
        }
        self.asleep = 0;
    }
}
