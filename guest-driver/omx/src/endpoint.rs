//! An open endpoint: it is opened, entered, advanced and closed here. Its calls are in `api`, those that tell of the ends
//! of requests in `completion`, and waiting for them in `blocking`.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use ether::Time;
use mxoe::{engine::PeerMap, wire::Preset};
use netif::Netif;
use weft_authority::Session;

use crate::{
    Address, Board, EndpointOptions, Error,
    backoff::BACKOFF_NS,
    binding, clock,
    core::Core,
    endpoint_builder::{EndpointBuilder, random},
    environment, handler, helper,
    peers::EndpointPeers,
    shared::{Locked, Shared},
};

/// A thread that spins polls so often between two releases of the lock: a few hundred nanoseconds, unless another
/// thread wants it.
const SPIN_POLLS: u32 = 16;
/// The number of peers of a port without an authority.
const OWN_PEERS_MAX: u32 = mxoe::engine::PEERS_DEFAULT;

/// An open endpoint. All clones stand for one endpoint; it is closed by [`Endpoint::close`] or with the last clone. All
/// calls may be made from any thread.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) shared: Arc<Shared>,
    _open: Arc<Open>,
}

/// The part that all clones of an endpoint share and the helper thread does not, which may be anywhere when the last
/// clone goes.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A thread of the program inside a call.
pub(crate) struct Inside<'a>(&'a Shared);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
        if self.0.helped.polled_rarely.load(Ordering::SeqCst) {
            helper::poll_soon(self.0);
        }
    }
}

impl Endpoint {
    /// Opens an endpoint on an interface, with its authority.
    ///
    /// # Errors
    /// [`Error::BoardNotFound`], [`Error::Busy`], [`Error::BadEndpoint`], [`Error::BadParameter`],
    /// [`Error::AccessDenied`], [`Error::Authority`].
    pub fn open(options: &EndpointOptions) -> Result<Self, Error> {
        options.context_mask()?;
        let board = match &options.interface {
            Some(name) => Board::named(name)?,
            None => Board::first()?,
        };
        let (session, opened) = Session::begin(board.interface(), |session| session.open_endpoint(options.endpoint))?;
        let (number, preset) = (opened.endpoint, opened.preset);
        let endpoint = EndpointBuilder::opened(options, board, session, opened)?.build()?;
        binding::bind(endpoint.address().mac(), number);
        endpoint.introduce(preset);
        Ok(endpoint)
    }

    /// Opens an endpoint on a port of the program's own, which no authority serves: inside one process, for tests. Its number
    /// is that of the options, or 0.
    ///
    /// # Errors
    /// [`Error::BadParameter`], [`Error::System`].
    pub fn open_on(options: &EndpointOptions, port: Box<dyn Netif + Send>, preset: Preset) -> Result<Self, Error> {
        let (mac, endpoint) = (port.mac(), options.endpoint.unwrap_or(0));
        let peers = EndpointPeers::Own(PeerMap::new(OWN_PEERS_MAX, random()?));
        EndpointBuilder::new(options, endpoint, preset, port, peers, mac)?.build()
    }

    /// Makes an endpoint that is closed with its last clone.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            _open: Arc::new(Open(Arc::clone(&shared))),
            shared,
        }
    }

    /// Writes one line about the endpoint, for a program that wants to know (`OMX_VERBOSE`).
    fn introduce(&self, preset: Preset) {
        let Some(board) = self.board().filter(|_| environment::verbose()) else {
            return;
        };
        let peers = match &self.shared.session {
            Some(session) => session
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .status()
                .map_or(0, |(_, table)| table.len().saturating_sub(1)),
            None => 0,
        };
        environment::say(
            Some((self.shared.own_endpoint(), board)),
            &format!(
                "endpoint {} on {} ({}), {} sizes on the wire, {peers} peers known; paths: net for other hosts, shm for endpoints of this one, self",
                self.shared.own_endpoint(),
                board.interface().name,
                self.shared.own.mac(),
                preset,
            ),
        );
    }

    /// Returns the endpoint's own address; what is sent to it is received here.
    pub fn address(&self) -> Address {
        self.shared.own
    }

    /// Returns the interface, where the endpoint was opened on one.
    pub fn board(&self) -> Option<&Board> {
        self.shared.board.as_ref()
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.shared.lock()
    }

    /// Begins a call of the program.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_> {
        let shared = &*self.shared;
        shared.inside.fetch_add(1, Ordering::SeqCst);
        if shared.helped.watched.load(Ordering::SeqCst) {
            helper::leave_to_program(shared);
        }
        Inside(shared)
    }

    /// Ends a call of the program that had the lock and did not sleep. Such a call needs no [`Endpoint::enter`]: what
    /// the helper thread said before it took the lock is seen now, and otherwise the helper found the lock taken. It
    /// comes last, since waking a thread takes longer than sending a message.
    #[inline]
    pub(crate) fn leave(&self) {
        if self.shared.helped.watched.load(Ordering::Relaxed) {
            helper::leave_to_program(&self.shared);
        }
    }

    /// Makes progress and shows the handler what came; returns with the lock.
    #[inline]
    pub(crate) fn advance(&self, now: Option<Time>) -> Locked<'_> {
        let mut core = self.lock();
        core.egress.batching_mut().end_burst();
        let before = core.completions();
        self.step(core, now, before)
    }

    /// Makes progress under the lock, for a call in which requests may have completed already.
    #[inline]
    pub(crate) fn step<'a>(&'a self, mut core: Locked<'a>, now: Option<Time>, completions_before: u64) -> Locked<'a> {
        core.step(now);
        self.stepped(core, completions_before)
    }

    /// Spins for a while: polls a few times, until something happened or another thread wants the lock.
    #[inline]
    pub(crate) fn spin<'a>(&'a self, mut core: Locked<'a>) -> Locked<'a> {
        let before = core.completions();
        if core.takes_pause() {
            self.pause(&mut core);
        }
        for _ in 0..SPIN_POLLS {
            if core.spin() || self.shared.wanting.load(Ordering::Relaxed) > 0 {
                break;
            }
        }
        self.stepped(core, before)
    }

    /// Pauses polling for a while, unless another thread wants the lock.
    fn pause(&self, core: &mut Core) {
        core.now = clock::now();
        let until_ns = core.now.as_nanos() + BACKOFF_NS;
        while core.now.as_nanos() < until_ns && self.shared.wanting.load(Ordering::Relaxed) == 0 {
            std::hint::spin_loop();
            core.now = clock::now();
        }
    }

    /// Tells others of progress that was made.
    #[inline]
    pub(crate) fn stepped<'a>(&'a self, mut core: Locked<'a>, completions_before: u64) -> Locked<'a> {
        self.shared
            .helped
            .stepped_at
            .store(core.now.as_nanos(), Ordering::Relaxed);
        core.wake_if(completions_before);
        if core.store.requests.has_unheard() {
            core = handler::tell_failures(self, core);
        }
        if core.store.unseen.is_empty() {
            return core;
        }
        let before = core.completions();
        let mut core = handler::run(self, core);
        core.wake_if(before);
        core
    }

    /// Closes the endpoint: acknowledgements that are due go out, everything pending is dropped, and calls on other clones
    /// find it closed.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    pub fn close(self) -> Result<(), Error> {
        if self.shared.is_a_childs() {
            return Ok(());
        }
        let _inside = self.enter();
        if self.is_in_handler() {
            return Err(Error::InHandler);
        }
        self.shared.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ether::MacAddr;

    use super::*;

    #[test]
    fn an_endpoint_is_closed_with_its_last_clone_wherever_the_helper_thread_is() {
        let macs = [1, 2].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        let (port, _other) = netif::memory_pair(macs, 9000, 16).unwrap();
        let endpoint = Endpoint::open_on(&EndpointOptions::default(), Box::new(port), Preset::Native9000).unwrap();
        // The helper thread has the endpoint like this while it serves it.
        let helped = Arc::clone(&endpoint.shared);
        let clone = endpoint.clone();
        drop(endpoint);
        assert!(!helped.lock().closed, "a clone is there");
        drop(clone);
        assert!(helped.lock().closed);
    }

    #[test]
    fn handlers_that_own_their_endpoint_keep_nothing_of_it_when_it_is_closed() {
        let macs = [1, 2].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        let (port, _other) = netif::memory_pair(macs, 9000, 16).unwrap();
        let endpoint = Endpoint::open_on(&EndpointOptions::default(), Box::new(port), Preset::Native9000).unwrap();
        let owners = [endpoint.clone(), endpoint.clone()];
        let [unexpected, failure] = owners;
        endpoint.set_unexpected_handler(Some(Box::new(move |_, _| {
            unexpected.progress();
            crate::Action::Continue
        })));
        endpoint.set_failure_handler(Some(Arc::new(move |_, _| failure.progress())));
        let left = Arc::downgrade(&endpoint._open);
        endpoint.close().unwrap();
        assert!(left.upgrade().is_none());
    }
}
