//! The state that the threads of an endpoint share: those of the program that call the library, and the helper thread.

use std::{
    ops::{Deref, DerefMut},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use ether::Time;
use rustix::process::{Pid, getpid};
use weft_authority::Session;

use crate::{Address, Board, Waiting, clock, core::Core, handler::Handlers, helper};

/// The part of an endpoint behind its lock: its state, and the program's handlers.
pub(crate) struct Guarded {
    core: Core,
    pub(crate) handlers: Handlers,
}

impl Guarded {
    /// Makes an endpoint without handlers.
    pub(crate) fn new(core: Core) -> Self {
        Self {
            core,
            handlers: Handlers::default(),
        }
    }
}

impl Deref for Guarded {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

pub(crate) type Locked<'a> = MutexGuard<'a, Guarded>;

/// The descriptors that become readable when an endpoint has something to do.
pub(crate) struct Descriptors {
    /// Readable when frames are there, as the port promises.
    pub(crate) port: OwnedFd,
    /// The port's descriptor for its bulk path, if it has one.
    pub(crate) bulk: Option<OwnedFd>,
    /// Readable when other programs of this host have something for the endpoint.
    pub(crate) others: Option<OwnedFd>,
}

/// The messages between the helper thread and the threads of the program about an endpoint.
pub(crate) struct Helped {
    /// The helper thread makes progress here.
    pub(crate) is_wanted: bool,
    /// When a thread of the program last made progress, in nanoseconds of the library's clock.
    pub(crate) stepped_at: AtomicU64,
    /// The helper thread polls seldom: it wants to be told when the program leaves the library.
    pub(crate) polled_rarely: AtomicBool,
    /// The helper thread waits for this endpoint's frames.
    pub(crate) watched: AtomicBool,
    /// Sends may be deferred: the helper thread sends them when it polls next.
    pub(crate) has_deferred: AtomicBool,
}

impl Helped {
    /// Makes the initial state: the program makes progress at `now`.
    pub(crate) const fn new(is_wanted: bool, now: Time) -> Self {
        Self {
            is_wanted,
            stepped_at: AtomicU64::new(now.as_nanos()),
            polled_rarely: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            has_deferred: AtomicBool::new(false),
        }
    }
}

pub(crate) struct Shared {
    pub(crate) core: Mutex<Guarded>,
    pub(crate) descriptors: Descriptors,
    /// A signal ends a blocking call.
    pub(crate) signals_end_waits: bool,
    /// The number of calls of `wakeup`.
    pub(crate) wakeups: AtomicU64,
    pub(crate) waiting: Waiting,
    /// The number of threads that want the lock: a thread that spins lets them have it.
    pub(crate) wanting: AtomicU32,
    /// The number of the program's threads inside a call.
    pub(crate) inside: AtomicU32,
    pub(crate) helped: Helped,
    /// A blocking connect has every endpoint of the process served.
    pub(crate) connects_for_all: bool,
    /// The endpoint is closed: the connection to the authority ends.
    pub(crate) over: AtomicBool,
    /// A thread that has the session asks the authority's successor for the endpoint, which may take seconds.
    pub(crate) sought: Arc<AtomicBool>,
    pub(crate) session: Option<Arc<Mutex<Session>>>,
    pub(crate) board: Option<Board>,
    /// The process that opened the endpoint.
    pub(crate) process: Pid,
    pub(crate) own: Address,
}

impl Shared {
    /// Returns the endpoint's state, as soon as no other thread has it.
    pub(crate) fn lock(&self) -> Locked<'_> {
        if let Ok(core) = self.core.try_lock() {
            return core;
        }
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        core
    }

    /// Whether this is a child process that closes an endpoint of its parent: the parent goes on, and may have had any
    /// lock at the fork.
    pub(crate) fn is_a_childs(&self) -> bool {
        self.process != getpid()
    }

    /// Returns the endpoint's number.
    pub(crate) const fn own_endpoint(&self) -> u8 {
        self.own.endpoint
    }

    /// Closes the endpoint, which may be closed already.
    pub(crate) fn close(&self) {
        if self.is_a_childs() {
            return;
        }
        let mut core = self.lock();
        core.finish();
        self.wakeups.fetch_add(1, Ordering::SeqCst);
        core.sleepers.wake();
        // Each may own a clone of the endpoint, and would keep it for ever; dropped without the lock for the same reason.
        core.store.has_handler = false;
        let handlers = &mut core.handlers;
        let handlers = (
            handlers.unexpected.take(),
            handlers.failure.take(),
            handlers.help.take(),
        );
        drop(core);
        drop(handlers);
        self.over.store(true, Ordering::SeqCst);
        let Some(session) = &self.session else { return };
        // The helper may be watching the connection: the number becomes free nevertheless. The thread that has the
        // session may be asking an authority that does not answer, for seconds; then the helper thread ends it as soon
        // as it can.
        loop {
            match session.try_lock() {
                Ok(session) => break session.end(),
                Err(TryLockError::Poisoned(session)) => break session.into_inner().end(),
                Err(TryLockError::WouldBlock) if self.sought.load(Ordering::SeqCst) => {
                    break helper::check_authorities();
                }
                // Another thread has the session for a moment: the number is to be free when this returns.
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    /// Sends what was deferred.
    pub(crate) fn flush_deferred(&self) {
        let mut core = self.lock();
        if !core.egress.batching().is_empty() {
            let before = core.completions();
            core.flush(clock::now());
            core.wake_if(before);
        }
    }

    /// Takes the error that the socket reports once when the link goes down. Frames flow again when it is up.
    pub(crate) fn take_port_error(&self) {
        for fd in [Some(&self.descriptors.port), self.descriptors.bulk.as_ref()]
            .into_iter()
            .flatten()
        {
            if let Ok(Err(error)) = rustix::net::sockopt::socket_error(fd) {
                tracing::debug!("the port says: {error}");
            }
        }
    }

    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        self.core.try_lock().ok()
    }
}
