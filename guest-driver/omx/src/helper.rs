//! The helper thread of the process (mx-api 6.7): it makes progress on endpoints whose program has not been in the library for
//! a while, and has endpoints brought back to an authority that was restarted. It starts with the first endpoint.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::{Error, authority::AuthorityCare, blocking::timespec, clock, shared::Shared};

/// A program that was in the library this short ago makes progress itself.
const PROGRAM_NS: u64 = 200_000;
/// While a program calls the library the helper looks this often whether it stopped, and sends what it holds back.
pub(crate) const LOOK: Duration = Duration::from_millis(1);
/// While a program stays inside one call (it sleeps there), this seldom; it says when it leaves it.
pub(crate) const LOOK_RARELY: Duration = Duration::from_secs(1);

struct Helper {
    endpoints: Mutex<Vec<Weak<Shared>>>,
    /// Readable when the list changed or a program came back.
    wake: OwnedFd,
}

static HELPER: OnceLock<Helper> = OnceLock::new();

/// Blocking connects during which every endpoint of the process is looked after.
static ALL_WANTED: AtomicU32 = AtomicU32::new(0);

/// As long as this lives the helper looks after every endpoint of the process, also those whose programs do without it
/// (`OMX_CONNECT_POLLALL`): two processes that connect several endpoints in different orders do not wait for each other.
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

/// Puts an endpoint into the helper's care.
pub(crate) fn register(shared: &Arc<Shared>) -> Result<(), Error> {
    let system = |what| move |source| Error::System { what, source };
    if HELPER.get().is_none() {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| system("make an event")(error.into()))?;
        let helper = Helper {
            endpoints: Mutex::new(Vec::new()),
            wake,
        };
        // Another thread may have been first: then its is used.
        if HELPER.set(helper).is_ok() {
            let builder = thread::Builder::new().name("omx-progress".to_owned());
            weft_authority::without_signals(|| builder.spawn(run)).map_err(system("start the helper thread"))?;
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

/// A send was held, and none was at the helper's last look: it comes at its next one.
#[cold]
pub(crate) fn come_for_held(shared: &Shared) {
    shared.helped.holds.store(true, Ordering::SeqCst);
    if shared.helped.looked_at_rarely.load(Ordering::SeqCst) {
        look_soon(shared);
    }
}

/// The program left the library after a long call: it is looked at again soon.
#[cold]
pub(crate) fn look_soon(shared: &Shared) {
    if shared.helped.looked_at_rarely.swap(false, Ordering::SeqCst)
        && let Some(helper) = HELPER.get()
    {
        helper.wake();
    }
}

/// An endpoint was closed while somebody was asking its authority, or the authority of one was found.
#[cold]
pub(crate) fn look_at_authorities() {
    if let Some(helper) = HELPER.get() {
        helper.wake();
    }
}

impl Helper {
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// What the helper remembers of an endpoint between two looks.
struct Care {
    endpoint: Weak<Shared>,
    stepped_at: u64,
    look: Duration,
    authority: AuthorityCare,
    /// What else is waited for until the next look.
    ports: Vec<OwnedFd>,
}

impl Care {
    const fn new(endpoint: Weak<Shared>) -> Self {
        Self {
            endpoint,
            stepped_at: 0,
            look: LOOK,
            authority: AuthorityCare::NEW,
            ports: Vec::new(),
        }
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
        // While a program is busy this comes once in a millisecond, on its core: one system call, no more.
        let mut fds = vec![PollFd::new(&helper.wake, PollFlags::IN)];
        fds.extend(cares.iter().flat_map(Care::watched));
        let _ = poll(&mut fds, Some(&timespec(sleep)));
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
                // Asked for anew and looked at, if it is this that is ready.
                care.authority.connection = None;
            }
            at += watched;
        }
    }
}

/// Does for an endpoint what is to be done, and says what is to be waited for; how long until the next look.
fn attend(care: &mut Care, shared: &Shared) -> Duration {
    let mut next = care.authority.keep(shared);
    if !shared.helped.is_wanted && ALL_WANTED.load(Ordering::SeqCst) == 0 {
        return next;
    }
    if shared.helped.holds.swap(false, Ordering::SeqCst) {
        shared.flush_held();
    }
    let stepped_at = shared.helped.stepped_at.load(Ordering::Relaxed);
    let now = clock::now();
    let inside = shared.inside.load(Ordering::SeqCst) > 0;
    if inside || now.as_nanos().saturating_sub(stepped_at) < PROGRAM_NS {
        shared.helped.watched.store(false, Ordering::SeqCst);
        care.look = if stepped_at == care.stepped_at {
            (care.look * 2).min(LOOK_RARELY)
        } else {
            LOOK
        };
        care.stepped_at = stepped_at;
        let rarely = care.look > LOOK;
        shared.helped.looked_at_rarely.store(rarely, Ordering::SeqCst);
        if rarely && (shared.inside.load(Ordering::SeqCst) == 0 || shared.helped.holds.load(Ordering::SeqCst)) {
            // It left, or another thread held a send, before it could know.
            shared.helped.looked_at_rarely.store(false, Ordering::SeqCst);
            care.look = LOOK;
        }
        return next.min(care.look);
    }
    care.look = LOOK;
    // The program is elsewhere. From here on it says so when it comes back; had it come before that, it is seen now.
    shared.helped.watched.store(true, Ordering::SeqCst);
    if shared.inside.load(Ordering::SeqCst) > 0 {
        return next.min(LOOK);
    }
    let Some(mut core) = shared.try_lock() else {
        return next.min(LOOK);
    };
    if core.closed {
        return next;
    }
    // Whatever woke it.
    core.egress.expect_bulk();
    core.step(Some(now));
    shared.take_port_error();
    if core.is_ready() {
        return Duration::ZERO;
    }
    if !core.is_stopped() {
        if let Some(due) = core.poll_timeout() {
            next = next.min(Duration::from_nanos(due.nanos_since(clock::now())));
        }
        match shared.descriptors.port.try_clone() {
            Ok(port) => care.ports.push(port),
            // Out of descriptors: it is looked at again.
            Err(_) => next = next.min(LOOK_RARELY),
        }
        care.ports
            .extend(shared.descriptors.bulk.as_ref().and_then(|fd| fd.try_clone().ok()));
        care.ports
            .extend(shared.descriptors.others.as_ref().and_then(|fd| fd.try_clone().ok()));
    }
    if core.egress.is_blocked() {
        next = next.min(LOOK);
    }
    next
}
