//! An endpoint's connection to the authority of its interface: watched by the helper thread, and made anew when it ended. Who asks
//! an authority may wait for seconds for one that hangs, so that is done by a thread of its own: the helper thread has other endpoints.

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
    helper::{self, LOOK, LOOK_RARELY},
    shared::Shared,
};

/// An authority that is gone is looked for again after this long, and after twice as long each time it was not there.
const SEEK: Duration = Duration::from_millis(100);
/// But not more seldom than this: it keeps numbers for their programs for 5 s.
const SEEK_RARELY: Duration = Duration::from_secs(2);
/// Until the connection says something, or somebody wakes the helper thread.
const NEVER: Duration = Duration::from_secs(3600);

/// What the helper thread remembers of an endpoint's authority between two looks.
pub(crate) struct AuthorityCare {
    /// Watched for its end, and for nothing else: answers may lie in it until somebody asks again.
    pub(crate) connection: Option<OwnedFd>,
    state: State,
}

enum State {
    /// There, as far as is known.
    There,
    /// Gone: to be looked for.
    Gone {
        seek_at: Instant,
        /// How long after that to look again.
        seek: Duration,
    },
    /// A thread looks for it.
    Sought {
        found: Receiver<Result<Resumed, OmxdError>>,
        seek: Duration,
    },
    /// It gave the endpoint's number away, or the interface does not exist any more: nothing can be done any more.
    Lost,
}

impl AuthorityCare {
    pub(crate) const NEW: Self = Self {
        connection: None,
        state: State::There,
    };

    /// Looks whether the connection is there, and lets it be made anew when it ended. How long until the next look.
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
            return LOOK;
        };
        // Asked again: it may have been closed, and the connection ended, since.
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
        match look_for(shared, session) {
            Ok(found) => {
                self.state = State::Sought { found, seek };
                NEVER
            }
            Err(error) => self.again_after(seek, &error),
        }
    }

    fn watch(&mut self, session: &Session) -> Duration {
        self.connection = session.as_fd().try_clone_to_owned().ok();
        // Without one, for want of descriptors, it is looked at again.
        self.connection.as_ref().map_or(LOOK_RARELY, |_| NEVER)
    }

    fn again_after(&mut self, seek: Duration, error: &dyn std::error::Error) -> Duration {
        tracing::debug!("{error}");
        self.state = State::Gone {
            seek_at: Instant::now() + seek,
            seek: (seek * 2).min(SEEK_RARELY),
        };
        seek
    }

    /// What came of looking for it. How long until the next look, where it was not found.
    fn found(&mut self, shared: &Shared, found: Result<Resumed, OmxdError>, seek: Duration) -> Option<Duration> {
        match found {
            Ok(resumed) => {
                let mut core = shared.lock();
                core.page = Some(resumed.counters);
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
                tracing::error!("{error}; this endpoint reaches nobody on it any more");
                self.state = State::Lost;
                Some(NEVER)
            }
            Err(error) => Some(self.again_after(seek, &error)),
        }
    }
}

/// A thread takes the endpoint back to its authority, and wakes the helper thread when that is done or did not work.
fn look_for(shared: &Shared, session: &Arc<Mutex<Session>>) -> std::io::Result<Receiver<Result<Resumed, OmxdError>>> {
    let (tell, found) = mpsc::channel();
    let (session, endpoint) = (Arc::clone(session), shared.own_endpoint());
    let sought = Arc::clone(&shared.sought);
    shared.sought.store(true, Ordering::SeqCst);
    let look = move || {
        let resumed = session.lock().unwrap_or_else(PoisonError::into_inner).resume(endpoint);
        sought.store(false, Ordering::SeqCst);
        // Where the endpoint is gone meanwhile nobody hears it, and the connection ends here.
        let _ = tell.send(resumed);
        helper::look_at_authorities();
    };
    let builder = thread::Builder::new().name("omx-authority".to_owned());
    let spawned = weft_authority::without_signals(|| builder.spawn(look));
    if spawned.is_err() {
        shared.sought.store(false, Ordering::SeqCst);
    }
    spawned?;
    Ok(found)
}
