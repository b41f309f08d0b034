//! The core of an endpoint, which is behind its lock: the type [`Core`], its parts, and the contract of its calls.

use std::os::fd::OwnedFd;

use ether::Time;
use mxoe::engine::{Counters, Engine};
use rustix::process::{Pid, getpid};
use weft_authority::{CounterPage, HandoverMemory};

mod completion;
mod connecting;
mod copying;
mod loopback;
mod posting;
mod progress;
mod unexpected;

pub(crate) use connecting::Wanted;
pub(crate) use posting::{INLINE_LEN_MAX, ImmediateSend};

use self::{connecting::LateConnects, posting::PostingRules, progress::Progress};
use crate::{
    Error, address::Address, clock, egress::Egress, local::Local, number::OpenNumber, peers::EndpointPeers,
    request::Requests, sleepers::Sleepers, store::Store,
};

/// The parts of an endpoint that is opened, of which [`Core::new`] makes the core.
pub(crate) struct Opened {
    pub(crate) engine: Engine<EndpointPeers>,
    pub(crate) store: Store,
    pub(crate) egress: Egress,
    /// Endpoints of this host, where the interface has an authority.
    pub(crate) local: Option<Local>,
    /// The memory in which the authority sees the counts.
    pub(crate) page: Option<CounterPage>,
    pub(crate) own: Address,
    pub(crate) number: OpenNumber,
    /// The bits that every receive's mask must cover.
    pub(crate) context_mask: u64,
    /// Medium messages are copied so that they complete early.
    pub(crate) copies_mediums: bool,
    /// Other endpoints of this host are reached by frames.
    pub(crate) others_by_frames: bool,
}

/// Everything behind an endpoint's lock. Its parts own their state; `Core` takes what one of them says to the others.
///
/// - `engine`: the protocol ([`mxoe::engine::Engine`]).
/// - `store`: requests, receives that are matched, and unexpected messages; what completes a request completes it there.
/// - `egress`: the port, and what waits to go out by it.
/// - `local`: other endpoints of this host, over shared memory.
/// - `connecting`: connects that wait for the authority of the interface.
/// - `progress`: whether progress is made, and how often the port is polled.
///
/// # Calls
///
/// The thread that has the lock makes three kinds of calls, in this order:
///
/// 1. **Posting** (`posting.rs`, `connecting.rs`): a send, receive or connect. It sets [`Core::now`] first.
/// 2. **Progress** (`progress.rs`): [`Core::step`], [`Core::glance`], [`Core::poll`] or [`Core::spin`] take frames, do what is due and send; the ends
///    of requests that come of it are noted in `store`.
/// 3. **Completion** (`completion.rs`): [`Core::take`] and others hand a request that is over to the program.
///
/// A thread that is about to sleep asks [`Core::is_ready`] and [`Core::poll_timeout`] last. [`Core::completions`] changes with every
/// completion: the thread that changed it wakes those that sleep ([`Core::wake_if`]).
pub(crate) struct Core {
    pub(crate) engine: Engine<EndpointPeers>,
    // Before the port: a copy engine reads frames in its memory.
    pub(crate) store: Store,
    pub(crate) egress: Egress,
    pub(crate) local: Option<Local>,
    connecting: LateConnects,
    progress: Progress,
    posting: PostingRules,
    /// Threads asleep on this endpoint.
    pub(crate) sleepers: Sleepers,
    /// The memory in which the authority sees the counts.
    pub(crate) page: Option<CounterPage>,
    pub(crate) own: Address,
    /// The time when the call that has the lock began: reading the clock costs as much as handling a frame.
    pub(crate) now: Time,
    pub(crate) closed: bool,
    /// Kept as long as addresses of this endpoint mean something.
    _number: OpenNumber,
    /// The process that opened the endpoint.
    process: Pid,
}

impl Core {
    /// Makes an endpoint with nothing posted.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn new(opened: Opened) -> Result<Self, Error> {
        Ok(Self {
            engine: opened.engine,
            store: opened.store,
            egress: opened.egress,
            local: opened.local,
            connecting: LateConnects::new(opened.others_by_frames),
            progress: Progress::new(),
            posting: PostingRules {
                context_mask: opened.context_mask,
                copies_mediums: opened.copies_mediums,
            },
            sleepers: Sleepers::new()?,
            page: opened.page,
            own: opened.own,
            now: clock::now(),
            closed: false,
            _number: opened.number,
            process: getpid(),
        })
    }

    /// Returns the endpoint's counts.
    pub(crate) fn counters(&mut self) -> Counters {
        let mut counters = self.engine.counters().clone();
        if let Some(local) = &self.local {
            counters.add(local.counters());
        }
        self.store.copies.add_to(&mut counters);
        counters
    }

    /// Publishes the counts for the authority: now and then, before sleeping, and at the end.
    pub(crate) fn publish(&mut self) {
        if self.page.is_none() {
            return;
        }
        let counters = self.counters();
        if let Some(page) = &self.page {
            page.publish(counters.values());
        }
    }

    /// Returns a count that changes with every completion.
    pub(crate) const fn completions(&self) -> u64 {
        let requests: &Requests = &self.store.requests;
        requests.completions
    }

    /// Wakes the threads that sleep if requests were completed since.
    #[inline]
    pub(crate) fn wake_if(&mut self, completions_before: u64) {
        if self.completions() != completions_before {
            self.sleepers.wake();
        }
    }

    /// Whether every message that was sent is over: acknowledged, fetched, or given up.
    pub(crate) fn is_delivered(&self) -> bool {
        self.engine.is_delivered() && self.local.as_ref().is_none_or(Local::is_delivered)
    }

    /// Takes the memory that a new authority gave for what is owed.
    pub(crate) fn note_in(&mut self, memory: Option<OwnedFd>) {
        let config = self.engine.config();
        let map = |memory| HandoverMemory::map(memory, config.endpoint, config.session);
        match memory.map(map).transpose() {
            Ok(owed) => {
                self.engine.peers_mut().note_in(owed);
                self.engine.note_all();
            }
            Err(error) => tracing::warn!("{error}; what this endpoint owes when it closes may be lost"),
        }
    }

    /// Leaves what peers still wait for to the authority.
    fn hand_over(&mut self) {
        if self.engine.peers_mut().owed().is_none() {
            return;
        }
        let store = &self.store;
        let handover = self
            .engine
            .hand_over(HandoverMemory::ROOM, |token| store.bytes_of(token));
        if let Some(owed) = self.engine.peers_mut().owed()
            && !owed.hand_over(&handover)
        {
            tracing::warn!("more messages are not acknowledged than can be left to omxd; those are lost");
        }
    }

    /// Sends the last frames of the endpoint.
    pub(crate) fn finish(&mut self) {
        if self.closed {
            return;
        }
        if self.process != getpid() {
            // A child's copy: the acknowledgements are its parent's to send.
            self.closed = true;
            return;
        }
        let now = clock::now();
        self.engine.flush_acks();
        self.flush(now);
        // The program's buffers are its own from now on.
        self.finish_copies();
        self.hand_over();
        self.publish();
        if let Some(local) = &mut self.local {
            local.close();
        }
        self.closed = true;
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.finish();
    }
}
