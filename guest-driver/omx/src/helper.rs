//! The helper thread of the process (mx-api 6.7): it makes progress on endpoints whose program has not been in the
//! library for a while, and has endpoints brought back to an authority that was restarted. It starts with the first
//! endpoint.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use mxoe::matching::Selector;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::{Error, authority::AuthorityCare, clock, shared::Shared, short_slice};

/// A program that was in the library this short ago makes progress itself.
const PROGRAM_NS: u64 = 200_000;
/// While a program calls the library, the helper checks this often whether it stopped, and sends what it has deferred.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// While a program stays inside one call (it sleeps there), the interval grows up to this; the program says when it
/// leaves the call.
pub(crate) const POLL_INTERVAL_MAX: Duration = Duration::from_secs(1);

struct Helper {
    endpoints: Mutex<Vec<Weak<Shared>>>,
    /// Readable when the list changed or a program came back.
    wake: OwnedFd,
}

static HELPER: OnceLock<Helper> = OnceLock::new();

/// The number of blocking connects during which every endpoint of the process is served.
static ALL_WANTED: AtomicU32 = AtomicU32::new(0);

/// As long as this value lives, the helper serves every endpoint of the process, also those whose programs do without
/// it (`OMX_CONNECT_POLLALL`): two processes that connect several endpoints in different orders do not wait for each
/// other.
pub(crate) struct AllWanted;

impl AllWanted {
    pub(crate) fn begin() -> Self {
        ALL_WANTED.fetch_add(1, Ordering::SeqCst);
        if let Some(helper) = HELPER.get() {
            helper.wake();
        }
        Self
    }
}

impl Drop for AllWanted {
    fn drop(&mut self) {
        ALL_WANTED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Hands an endpoint to the helper.
pub(crate) fn register(shared: &Arc<Shared>) -> Result<(), Error> {
    if HELPER.get().is_none() {
        let wake =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Error::system("make an event"))?;
        let helper = Helper {
            endpoints: Mutex::new(Vec::new()),
            wake,
        };
        // Another thread may have been first: then its helper is used.
        if HELPER.set(helper).is_ok() {
            let builder = thread::Builder::new().name("omx-progress".to_owned());
            weft_authority::without_signals(|| builder.spawn(run)).map_err(Error::system("start the helper thread"))?;
        }
    }
    if let Some(helper) = HELPER.get() {
        let mut endpoints = helper.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.retain(|endpoint| endpoint.strong_count() > 0);
        endpoints.push(Arc::downgrade(shared));
        helper.wake();
    }
    Ok(())
}

/// The program calls the library: the helper stops waiting for this endpoint's frames.
#[cold]
pub(crate) fn leave_to_program(shared: &Shared) {
    if shared.helped.watched.swap(false, Ordering::SeqCst)
        && let Some(helper) = HELPER.get()
    {
        helper.wake();
    }
}

/// Asks the helper to send deferred sends at its next poll. Called for the first one that was deferred since its last
/// poll.
#[cold]
pub(crate) fn schedule_flush(shared: &Shared) {
    shared.helped.has_deferred.store(true, Ordering::SeqCst);
    if shared.helped.polled_rarely.load(Ordering::SeqCst) {
        poll_soon(shared);
    }
}

/// The program left the library after a long call: the helper polls its endpoint soon.
#[cold]
pub(crate) fn poll_soon(shared: &Shared) {
    if shared.helped.polled_rarely.swap(false, Ordering::SeqCst)
        && let Some(helper) = HELPER.get()
    {
        helper.wake();
    }
}

/// Has the helper check all authorities: an endpoint was closed while a thread was asking its authority, or an
/// authority was found.
#[cold]
pub(crate) fn check_authorities() {
    if let Some(helper) = HELPER.get() {
        helper.wake();
    }
}

impl Helper {
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// What the helper remembers of an endpoint between two polls.
struct Care {
    endpoint: Weak<Shared>,
    stepped_at: u64,
    interval: Duration,
    authority: AuthorityCare,
    /// The descriptors to be watched until the next poll, besides the authority's.
    ports: Vec<OwnedFd>,
}

impl Care {
    const fn new(endpoint: Weak<Shared>) -> Self {
        Self {
            endpoint,
            stepped_at: 0,
            interval: POLL_INTERVAL,
            authority: AuthorityCare::NEW,
            ports: Vec::new(),
        }
    }

    /// Watches the endpoint's descriptors until the next poll. Returns the time until that, which is shorter where there are none left.
    fn watch_ports(&mut self, shared: &Shared, mut next: Duration) -> Duration {
        let descriptors = &shared.descriptors;
        match descriptors.port.try_clone() {
            Ok(port) => self.ports.push(port),
            // Out of descriptors: the port is polled again.
            Err(_) => next = next.min(POLL_INTERVAL_MAX),
        }
        for fd in [&descriptors.bulk, &descriptors.others].into_iter().flatten() {
            self.ports.extend(fd.try_clone().ok());
        }
        next
    }

    fn watched(&self) -> impl Iterator<Item = PollFd<'_>> {
        let connection = self
            .authority
            .connection
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::RDHUP));
        connection.chain(self.ports.iter().map(|fd| PollFd::new(fd, PollFlags::IN)))
    }
}

fn run() {
    let Some(helper) = HELPER.get() else { return };
    short_slice::ask();
    let mut cares: Vec<Care> = Vec::new();
    loop {
        {
            let endpoints = helper.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
            cares.retain(|care| care.endpoint.strong_count() > 0);
            for endpoint in endpoints.iter() {
                if !cares.iter().any(|care| care.endpoint.ptr_eq(endpoint)) {
                    cares.push(Care::new(Weak::clone(endpoint)));
                }
            }
        }
        let mut sleep = Duration::from_secs(3600);
        for care in &mut cares {
            care.ports.clear();
            if let Some(shared) = care.endpoint.upgrade() {
                sleep = sleep.min(attend(care, &shared));
            }
        }
        // While a program is busy this happens once in a millisecond, on its core: one system call, no more.
        let mut fds = vec![PollFd::new(&helper.wake, PollFlags::IN)];
        fds.extend(cares.iter().flat_map(Care::watched));
        let _ = poll(&mut fds, Timespec::try_from(sleep).ok().as_ref());
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            // A thread of the program told it in passing, which is on its way out of the library: if both have one core, that goes
            // first.
            thread::yield_now();
            let mut count = [0; 8];
            let _ = rustix::io::read(&helper.wake, &mut count);
        }
        let mut at = 1;
        for care in &mut cares {
            let watched = care.watched().count();
            if ready[at..at + watched].first() == Some(&true) {
                // The descriptor is asked for anew and the connection checked, if it is the one that is ready.
                care.authority.connection = None;
            }
            at += watched;
        }
    }
}

/// Does for an endpoint what is due, and notes the descriptors to be watched. Returns the time until the next poll.
fn attend(care: &mut Care, shared: &Shared) -> Duration {
    let mut next = care.authority.keep(shared);
    if !shared.helped.is_wanted && ALL_WANTED.load(Ordering::SeqCst) == 0 {
        return next;
    }
    if shared.helped.has_deferred.swap(false, Ordering::SeqCst) {
        shared.flush_deferred();
    }
    let stepped_at = shared.helped.stepped_at.load(Ordering::Relaxed);
    let now = clock::now();
    let inside = shared.inside.load(Ordering::SeqCst) > 0;
    if inside || now.as_nanos().saturating_sub(stepped_at) < PROGRAM_NS {
        shared.helped.watched.store(false, Ordering::SeqCst);
        care.interval = if stepped_at == care.stepped_at {
            (care.interval * 2).min(POLL_INTERVAL_MAX)
        } else {
            POLL_INTERVAL
        };
        care.stepped_at = stepped_at;
        let rarely = care.interval > POLL_INTERVAL;
        shared.helped.polled_rarely.store(rarely, Ordering::SeqCst);
        if rarely && (shared.inside.load(Ordering::SeqCst) == 0 || shared.helped.has_deferred.load(Ordering::SeqCst)) {
            // The program left, or another thread deferred a send, before it could know.
            shared.helped.polled_rarely.store(false, Ordering::SeqCst);
            care.interval = POLL_INTERVAL;
        }
        return next.min(care.interval);
    }
    care.interval = POLL_INTERVAL;
    // The program is elsewhere. From here on it tells when it comes back; had it come before that, it is seen now.
    shared.helped.watched.store(true, Ordering::SeqCst);
    if shared.inside.load(Ordering::SeqCst) > 0 {
        return next.min(POLL_INTERVAL);
    }
    let Some(mut core) = shared.try_lock() else {
        return next.min(POLL_INTERVAL);
    };
    if core.closed {
        return next;
    }
    // The event that woke the helper may be bulk data.
    core.egress.expect_bulk();
    core.step(Some(now));
    shared.take_port_error();
    if let Some(handler) = core.handlers.help.clone()
        && core.store.requests.first_done(Selector::ANY).is_some()
    {
        drop(core);
        handler();
        // It was no call of the program, which still is elsewhere.
        shared.helped.stepped_at.store(stepped_at, Ordering::Relaxed);
        return Duration::ZERO;
    }
    if core.is_ready() {
        return Duration::ZERO;
    }
    if !core.is_stopped() {
        if let Some(due) = core.poll_timeout() {
            next = next.min(Duration::from_nanos(due.nanos_since(clock::now())));
        }
        next = care.watch_ports(shared, next);
    }
    if core.egress.is_blocked() {
        next = next.min(POLL_INTERVAL);
    }
    next
}
