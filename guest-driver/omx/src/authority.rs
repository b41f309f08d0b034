//! An endpoint's connection to the authority of its interface: the helper thread watches it, and has it made anew when
//! it ended. Asking an authority that hangs can take seconds, so a separate thread asks: the helper thread has other
//! endpoints to serve.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::Ordering,
        mpsc::{self, Receiver, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use netif::NetifError;
use weft_authority::{OmxdError, Resumed, Session};

use crate::{
    helper::{self, POLL_INTERVAL, POLL_INTERVAL_MAX},
    shared::Shared,
};

/// An authority that is gone is sought again after this long, and after twice as long each time it was not there.
const SEEK: Duration = Duration::from_millis(100);
/// The interval grows up to this: an authority keeps endpoint numbers for their programs for 5 s.
const SEEK_RARELY: Duration = Duration::from_secs(2);
/// The check is due only when the connection becomes readable or the helper thread is woken.
const NEVER: Duration = Duration::from_secs(3600);

/// What the helper thread remembers of an endpoint's authority between two checks.
pub(crate) struct AuthorityCare {
    /// This descriptor is watched only for the connection's end: answers may lie in it until the next question.
    pub(crate) connection: Option<OwnedFd>,
    state: State,
}

enum State {
    /// The authority is there, as far as is known.
    There,
    /// The authority is gone and must be sought.
    Gone {
        seek_at: Instant,
        /// The interval from that attempt to the next.
        seek: Duration,
    },
    /// A thread seeks the authority.
    Sought {
        found: Receiver<Result<Resumed, OmxdError>>,
        seek: Duration,
    },
    /// The authority gave the endpoint's number away, or the interface does not exist any more: the endpoint cannot be
    /// recovered.
    Lost,
}

impl AuthorityCare {
    pub(crate) const NEW: Self = Self {
        connection: None,
        state: State::There,
    };

    /// Checks whether the connection is there, and has it made anew when it ended. Returns the time until the next
    /// check.
    pub(crate) fn keep(&mut self, shared: &Shared) -> Duration {
        let Some(session) = &shared.session else { return NEVER };
        let over = || shared.over.load(Ordering::SeqCst);
        if let State::Sought { found, seek } = &self.state {
            let seek = *seek;
            let found = match found.try_recv() {
                Err(TryRecvError::Empty) => return NEVER,
                found => found.unwrap_or(Err(OmxdError::Gone)),
            };
            if let Some(wait) = self.found(shared, found, seek) {
                return wait;
            }
        }
        if !over() && (matches!(self.state, State::Lost) || self.connection.is_some()) {
            return NEVER;
        }
        // Busy: a peer is being added, so the authority is there.
        let Ok(locked) = session.try_lock() else {
            return POLL_INTERVAL;
        };
        // Checked again, because the endpoint may have been closed, and the connection ended, since.
        if over() {
            locked.end();
            return NEVER;
        }
        let (seek_at, seek) = match self.state {
            State::Gone { seek_at, seek } => (seek_at, seek),
            _ => {
                if !locked.is_gone() {
                    return self.watch(&locked);
                }
                tracing::info!(
                    interface = locked.interface().name,
                    "omxd ended; looking for its successor"
                );
                (Instant::now(), SEEK)
            }
        };
        drop(locked);
        self.state = State::Gone { seek_at, seek };
        let left = seek_at.saturating_duration_since(Instant::now());
        if left > Duration::ZERO {
            return left;
        }
        match seek_authority(shared, session) {
            Ok(found) => {
                self.state = State::Sought { found, seek };
                NEVER
            }
            Err(error) => self.again_after(seek, &error),
        }
    }

    fn watch(&mut self, session: &Session) -> Duration {
        self.connection = session.as_fd().try_clone_to_owned().ok();
        // Without a descriptor to watch, the connection is checked now and then.
        self.connection.as_ref().map_or(POLL_INTERVAL_MAX, |_| NEVER)
    }

    fn again_after(&mut self, seek: Duration, error: &dyn std::error::Error) -> Duration {
        tracing::debug!("{error}");
        self.state = State::Gone {
            seek_at: Instant::now() + seek,
            seek: (seek * 2).min(SEEK_RARELY),
        };
        seek
    }

    /// Handles the result of the search. Returns the time until the next check if the authority was not found.
    fn found(&mut self, shared: &Shared, found: Result<Resumed, OmxdError>, seek: Duration) -> Option<Duration> {
        match found {
            Ok(resumed) => {
                let mut core = shared.lock();
                core.page = Some(resumed.counters);
                core.note_in(resumed.handover);
                if let Some(local) = &mut core.local
                    && let Err(error) = local.set_visits(resumed.visits)
                {
                    tracing::error!("{error}; endpoints of this host cannot connect to this one any more");
                }
                drop(core);
                tracing::info!(
                    endpoint = shared.own_endpoint(),
                    "omxd is back and has the endpoint again"
                );
                self.state = State::There;
                None
            }
            Err(error @ OmxdError::Refused { .. }) => {
                tracing::error!("{error}; messages of this endpoint reach the other program");
                self.state = State::Lost;
                Some(NEVER)
            }
            Err(OmxdError::Interface(error @ NetifError::NoSuchInterface { .. })) => {
                tracing::error!("{error}; this endpoint cannot reach other hosts any more");
                self.state = State::Lost;
                Some(NEVER)
            }
            Err(error) => Some(self.again_after(seek, &error)),
        }
    }
}

/// Starts a thread that takes the endpoint back to its authority, and wakes the helper thread when it has succeeded or
/// failed.
fn seek_authority(
    shared: &Shared,
    session: &Arc<Mutex<Session>>,
) -> std::io::Result<Receiver<Result<Resumed, OmxdError>>> {
    let (tell, found) = mpsc::channel();
    let (session, endpoint) = (Arc::clone(session), shared.own_endpoint());
    let sought = Arc::clone(&shared.sought);
    shared.sought.store(true, Ordering::SeqCst);
    let seek = move || {
        let resumed = session.lock().unwrap_or_else(PoisonError::into_inner).resume(endpoint);
        sought.store(false, Ordering::SeqCst);
        // If the endpoint is gone meanwhile, the result is dropped and the connection ends here.
        let _ = tell.send(resumed);
        helper::check_authorities();
    };
    let builder = thread::Builder::new().name("omx-authority".to_owned());
    let spawned = weft_authority::without_signals(|| builder.spawn(seek));
    if spawned.is_err() {
        shared.sought.store(false, Ordering::SeqCst);
    }
    spawned?;
    Ok(found)
}
