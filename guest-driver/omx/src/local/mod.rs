//! Messages between endpoints of one host. They go over memory that the authority of the interface made for the two
//! endpoints; long ones are copied once, from the other program's memory. The interface is not used. All that the other
//! program writes is checked.

/// Borrows all parts but the pairs, for a pair to work with.
macro_rules! scope {
    ($local:ident, $store:ident) => {
        Scope {
            store: $store,
            counters: &mut $local.counters,
            pulls: &mut $local.pulls,
            frames: &mut $local.frames,
            session: $local.options.session,
            key: $local.options.key,
            announces_head: $local.options.announces_head,
        }
    };
}

mod copying;
mod credentials;
mod pair;
mod ready;
mod ring;

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex},
};

use ether::Time;
use mxoe::{
    engine::{Counter, Counters},
    matching::Selector,
};
use rustix::event::epoll;
use weft_authority::{News, OmxdError, QuarantinedSocket, Session};

use self::{
    pair::{Pair, Pull, Scope, Waiting},
    ring::Memory,
};
use crate::{
    Error, StatusCode,
    memory::Segments,
    slab::Key,
    store::{LocalLarge, Store},
};

pub(crate) use ring::PAYLOAD_LEN_MAX;

/// The sockets are polled this often while no thread sleeps: whether an endpoint came or went.
const POLL_INTERVAL_NS: u64 = 1_000_000;
/// The channel's name among the watched descriptors; pairs have the number of their endpoint.
const VISITS: u64 = 1 << 32;

/// At most this many visits are taken from the channel in one poll.
const VISITS_PER_POLL: usize = 32;
/// At most this many programs of each endpoint number are kept that are gone and had sent more than there was room for.
/// What further ones had sent is dropped, so that no program can push out what others sent before.
const ENDED_MAX: usize = 4;

/// Whether an endpoint of this host can be reached.
pub(crate) enum Reach {
    Now,
    /// The endpoint cannot be reached now: its authority is away or busy, or the endpoint is.
    Later,
    Never(StatusCode),
}

/// The endpoint's options for messages within the host.
pub(crate) struct LocalOptions {
    pub(crate) session: u32,
    pub(crate) key: u32,
    /// The longest message that goes through the ring, in bytes.
    pub(crate) rndv_threshold: u32,
    pub(crate) give_up_ns: u64,
    /// Long messages are read from the other program's memory where the system allows it.
    pub(crate) single_copy: bool,
    /// The announcement of a long message carries its first bytes.
    pub(crate) announces_head: bool,
}

pub(crate) struct Local {
    options: LocalOptions,
    authority: Arc<Mutex<Session>>,
    watched: OwnedFd,
    visits: Option<QuarantinedSocket>,
    /// The pairs, at most one per endpoint.
    pairs: Vec<Pair>,
    /// The pairs with programs that are gone and had sent more than there was room for, oldest first.
    ended: VecDeque<Pair>,
    /// The last pair with each endpoint, which is over or in `pairs`.
    last: [Option<u64>; weft_authority::ENDPOINTS as usize],
    /// The session of each endpoint that was last given up from this side.
    given_up: [Option<u32>; weft_authority::ENDPOINTS as usize],
    pulls: VecDeque<Pull>,
    /// The frames that came from other endpoints, with the numbers of these.
    frames: VecDeque<(u8, Vec<u8>)>,
    counters: Counters,
    poll_at: Time,
    /// The last pair with each endpoint that there were no descriptors for.
    missed: [Option<u64>; weft_authority::ENDPOINTS as usize],
    /// The process that opened the endpoint.
    process: rustix::process::Pid,
}

impl Local {
    pub(crate) fn new(options: LocalOptions, authority: Arc<Mutex<Session>>, visits: OwnedFd) -> Result<Self, Error> {
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("watch other programs"))?;
        let mut local = Self {
            options,
            authority,
            watched,
            visits: None,
            pairs: Vec::new(),
            ended: VecDeque::new(),
            last: [None; weft_authority::ENDPOINTS as usize],
            given_up: [None; weft_authority::ENDPOINTS as usize],
            pulls: VecDeque::new(),
            frames: VecDeque::new(),
            counters: Counters::default(),
            poll_at: Time::ZERO,
            missed: [None; weft_authority::ENDPOINTS as usize],
            process: rustix::process::getpid(),
        };
        local.set_visits(visits)?;
        Ok(local)
    }

    /// Sets the channel on which other endpoints show up from now on.
    pub(crate) fn set_visits(&mut self, visits: OwnedFd) -> Result<(), Error> {
        rustix::io::ioctl_fionbio(&visits, true).map_err(Error::system("watch other programs"))?;
        self.forget_visits();
        epoll::add(
            &self.watched,
            &visits,
            epoll::EventData::new_u64(VISITS),
            epoll::EventFlags::IN,
        )
        .map_err(Error::system("watch other programs"))?;
        self.visits = Some(visits.into());
        self.poll_at = Time::ZERO;
        Ok(())
    }

    /// Returns a descriptor that is readable when there is something to do, after [`Local::sleep`].
    pub(crate) fn watched(&self) -> io::Result<OwnedFd> {
        self.watched.try_clone()
    }

    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) const fn give_up_ns(&self) -> u64 {
        self.options.give_up_ns
    }

    /// Returns the connection to the authority of the interface.
    pub(crate) fn authority(&self) -> Arc<Mutex<Session>> {
        Arc::clone(&self.authority)
    }

    pub(crate) const fn set_give_up(&mut self, give_up_ns: u64) {
        self.options.give_up_ns = give_up_ns;
    }

    /// Closes the endpoint's pairs: other endpoints learn of it, also while a child process has its sockets.
    pub(crate) fn close(&mut self) {
        if self.process != rustix::process::getpid() {
            // The child, which ends what it was born with. Its parent goes on.
            return;
        }
        for mut pair in self.pairs.drain(..) {
            pair.hang_up();
        }
        self.ended.clear();
        self.pulls.clear();
    }

    /// Returns the session of a connected endpoint.
    fn connected(&mut self, endpoint: u8) -> Option<(usize, u32)> {
        let at = self.pairs.iter().position(|pair| pair.endpoint == endpoint)?;
        Some((at, self.pairs[at].session?))
    }

    /// Starts a connection. False: the authority is needed, and away, or its answer is not here yet.
    pub(crate) fn connect(
        &mut self,
        store: &mut Store,
        now: Time,
        endpoint: u8,
        key: u32,
        request: Key,
    ) -> Result<bool, Error> {
        self.poll(store, now);
        match self.pair_with(store, endpoint)? {
            Reach::Now => {}
            Reach::Later => return Ok(false),
            Reach::Never(code) => {
                store.requests.complete(request, code);
                return Ok(true);
            }
        }
        let until = now.plus_nanos(self.options.give_up_ns);
        let Some(pair) = self.pairs.iter_mut().find(|pair| pair.endpoint == endpoint) else {
            store.requests.complete(request, StatusCode::Unreachable);
            return Ok(true);
        };
        let mut scope = scope!(self, store);
        pair.connect(request, key, until, &mut scope);
        pair.write_waiting(&mut scope);
        Ok(true)
    }

    /// Whether memory is shared with an endpoint.
    pub(crate) fn knows(&self, endpoint: u8) -> bool {
        self.pairs.iter().any(|pair| pair.endpoint == endpoint)
    }

    /// Gets memory to be shared with an endpoint.
    pub(crate) fn pair_with(&mut self, store: &mut Store, endpoint: u8) -> Result<Reach, Error> {
        if self.knows(endpoint) {
            return Ok(Reach::Now);
        }
        let known = self.last.get(usize::from(endpoint)).copied().flatten();
        let authority = Arc::clone(&self.authority);
        // Busy: the connection to it is being made anew.
        let Ok(session) = authority.try_lock() else {
            return Ok(Reach::Later);
        };
        match session.pair(endpoint, known) {
            Ok(()) => {
                self.take_visits(store);
                let last = self.last.get(usize::from(endpoint)).copied().flatten();
                let missed = self.missed.get(usize::from(endpoint)).copied().flatten();
                // Where nothing is new: the connection was made anew just now, and its channel is not known here yet; or others come
                // first; or there were no descriptors for it.
                let is_new = last != known && last != missed;
                Ok(if is_new { Reach::Now } else { Reach::Later })
            }
            Err(error) if error.is_away() => Ok(Reach::Later),
            // Others came to it, or to this endpoint, and it has not looked at them yet.
            Err(OmxdError::Refused {
                reason: weft_authority::Refusal::Busy,
                ..
            }) => Ok(Reach::Later),
            Err(OmxdError::Refused { reason, sentence }) => {
                tracing::debug!("{sentence}");
                Ok(Reach::Never(match reason {
                    weft_authority::Refusal::NotOpen => StatusCode::EndpointClosed,
                    weft_authority::Refusal::BadEndpoint => StatusCode::BadEndpoint,
                    _ => StatusCode::Unreachable,
                }))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a frame to an endpoint that memory is shared with; without such memory it is lost.
    pub(crate) fn send_frame(&mut self, endpoint: u8, frame: Vec<u8>) {
        if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.endpoint == endpoint) {
            pair.send_frame(frame);
        }
    }

    /// Writes frames to the endpoints that they are for, as far as there is room.
    pub(crate) fn write_frames(&mut self, store: &mut Store) {
        let mut scope = scope!(self, store);
        for pair in &mut self.pairs {
            pair.write_waiting(&mut scope);
        }
    }

    /// Takes the next frame that came, with the endpoint that sent it.
    pub(crate) fn next_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        self.frames.pop_front()
    }

    pub(crate) fn has_frames(&self) -> bool {
        !self.frames.is_empty()
    }

    pub(crate) fn cancel_connect(&mut self, request: Key) -> bool {
        self.pairs.iter_mut().any(|pair| pair.cancel_connect(request))
    }

    /// Ends the conversation with an endpoint.
    pub(crate) fn disconnect(&mut self, store: &mut Store, endpoint: u8, session: u32) {
        if let Some((at, of)) = self.connected(endpoint)
            && of == session
        {
            self.remove(store, at, StatusCode::Unreachable);
        }
    }

    /// Sends a message to an endpoint of this host; its request ends when the message is over.
    #[inline]
    pub(crate) fn send(
        &mut self,
        store: &mut Store,
        now: Time,
        (endpoint, session): (u8, u32),
        request: Key,
        memory: Segments,
        (match_info, synchronous): (u64, bool),
    ) {
        let at = match self.connected(endpoint) {
            Some((at, of)) if of == session => at,
            Some(_) => return store.requests.complete_send(request, StatusCode::BadSession, 0),
            None => {
                // Not connected any more: the other end went, unless it was given up here.
                let given_up = self.given_up.get(usize::from(endpoint)) == Some(&Some(session));
                let code = if given_up {
                    StatusCode::Unreachable
                } else {
                    StatusCode::EndpointClosed
                };
                return store.requests.complete_send(request, code, 0);
            }
        };
        let eager = !synchronous && memory.len() <= self.options.rndv_threshold;
        let until = now.plus_nanos(self.options.give_up_ns);
        let mut scope = scope!(self, store);
        let message = Waiting {
            request,
            memory,
            match_info,
            eager,
            until,
        };
        self.pairs[at].send(message, &mut scope);
        if self.pairs[at].is_broken() {
            self.remove_broken(store, at);
        }
    }

    /// Sends a short message to a connected endpoint, unless it would have to wait. False: nothing was done.
    #[inline]
    pub(crate) fn send_immediately(&mut self, (endpoint, session): (u8, u32), data: &[u8], match_info: u64) -> bool {
        match self.connected(endpoint) {
            Some((at, of)) if of == session => self.pairs[at].send_immediately(data, match_info, &mut self.counters),
            _ => false,
        }
    }

    /// Begins to copy the first `wanted` bytes of an announced message that was matched.
    pub(crate) fn pull(&mut self, large: LocalLarge, request: Key, wanted: u32) {
        self.pulls.push_back(Pull {
            large,
            request,
            offset: 0,
            wanted,
        });
    }

    /// Whether every message was handed over, and every long one fetched.
    pub(crate) fn is_delivered(&self) -> bool {
        self.pairs.iter().all(Pair::is_delivered)
    }

    /// Declines an announced message.
    pub(crate) fn decline(&mut self, store: &mut Store, large: &LocalLarge) {
        let mut scope = scope!(self, store);
        if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.id == large.pair) {
            pair.finish(large.id, Some(0), &mut scope);
            pair.write_waiting(&mut scope);
        }
    }

    /// Tries messages again that were refused, because a receive was posted that may be for them.
    pub(crate) fn resume_for(&mut self, selector: Selector) {
        for pair in self.pairs.iter_mut().chain(&mut self.ended) {
            pair.incoming.refused &= !selector.matches(pair.incoming.refused_info);
        }
    }

    /// Tries messages again that were refused, because there is room for unexpected messages.
    pub(crate) fn resume(&mut self) {
        for pair in self.pairs.iter_mut().chain(&mut self.ended) {
            pair.incoming.refused = false;
        }
    }

    /// Whether the sockets are to be polled.
    pub(crate) fn needs_poll(&self, now: Time) -> bool {
        self.poll_at <= now
    }

    /// Reads, copies, writes. Whether there was anything.
    #[inline]
    pub(crate) fn step(&mut self, store: &mut Store) -> bool {
        let mut busy = false;
        if !self.ended.is_empty() {
            busy |= self.read_ended(store);
        }
        let mut at = 0;
        while at < self.pairs.len() {
            let mut scope = scope!(self, store);
            let pair = &mut self.pairs[at];
            busy |= pair.read(&mut scope);
            busy |= pair.write_waiting(&mut scope);
            if pair.is_broken() {
                self.remove_broken(store, at);
            } else {
                at += 1;
            }
        }
        if !self.pulls.is_empty() {
            self.copy(store);
            busy = true;
        }
        busy
    }

    /// Takes messages of programs that are gone. Whether there was anything.
    fn read_ended(&mut self, store: &mut Store) -> bool {
        let before = self.ended.len();
        let mut scope = scope!(self, store);
        self.ended.retain_mut(|pair| !pair.is_read(&mut scope));
        let some_are_read = self.ended.len() < before;
        if some_are_read {
            self.put_in_order();
            self.resume();
        }
        some_are_read
    }

    /// Moves messages from before an endpoint connected anew before those that it sends now.
    fn put_in_order(&mut self) {
        let mut before = [None; weft_authority::ENDPOINTS as usize];
        for pair in self.ended.iter_mut().chain(&mut self.pairs) {
            if let Some(before) = before.get_mut(usize::from(pair.endpoint)) {
                pair.behind = *before;
                *before = pair.session.filter(|_| pair.ended);
            }
        }
    }

    /// Checks who came, who went, and what took too long.
    pub(crate) fn poll(&mut self, store: &mut Store, now: Time) {
        self.poll_at = now.plus_nanos(POLL_INTERVAL_NS);
        let Ok(names) = ready::ready(self.watched.as_fd(), 1 + self.pairs.len()) else {
            return;
        };
        for name in names {
            if name == VISITS {
                self.take_visits(store);
            } else if let Some(at) = self.pairs.iter().position(|pair| u64::from(pair.endpoint) == name)
                && !self.pairs[at].hear()
            {
                self.remove(store, at, StatusCode::EndpointClosed);
            }
        }
        let mut scope = scope!(self, store);
        for pair in &mut self.pairs {
            pair.expire(now, &mut scope);
        }
    }

    fn take_visits(&mut self, store: &mut Store) {
        // As long as others come, this endpoint has other things to do as well.
        for _ in 0..VISITS_PER_POLL {
            let Some(visits) = &self.visits else { return };
            match weft_authority::next_visit(visits.as_fd()) {
                Ok(None) => return,
                Ok(Some(News::Paired(pair))) => self.add(store, pair),
                Ok(Some(News::Missed { id, endpoint })) => {
                    tracing::warn!("cannot share memory with endpoint {endpoint}: no file descriptors left");
                    self.begin_anew(store, id, endpoint);
                    if let Some(missed) = self.missed.get_mut(usize::from(endpoint)) {
                        *missed = Some(id);
                    }
                }
                Ok(Some(News::Over { id, endpoint })) => {
                    let is_it = |pair: &Pair| id.map_or(pair.endpoint == endpoint, |id| pair.id == id);
                    if let Some(at) = self.pairs.iter().position(is_it) {
                        self.remove(store, at, StatusCode::EndpointClosed);
                    }
                }
                // Its successor gives a new channel.
                Err(OmxdError::Gone) => self.forget_visits(),
                Err(error) => return tracing::warn!("cannot share memory with another endpoint: {error}"),
            }
        }
    }

    fn forget_visits(&mut self) {
        if let Some(visits) = self.visits.take() {
            // A child process may have it, too, and would keep it watched.
            let _ = epoll::delete(&self.watched, visits);
        }
    }

    /// Replaces the pair with this endpoint by another one.
    fn begin_anew(&mut self, store: &mut Store, id: u64, endpoint: u8) -> bool {
        let Some(last) = self.last.get_mut(usize::from(endpoint)) else {
            return false;
        };
        *last = Some(id);
        if let Some(at) = self.pairs.iter().position(|pair| pair.endpoint == endpoint) {
            self.remove(store, at, StatusCode::EndpointClosed);
        }
        true
    }

    fn add(&mut self, store: &mut Store, made: weft_authority::Pair) {
        let endpoint = made.endpoint;
        if !self.begin_anew(store, made.id, endpoint) {
            return;
        }
        let watch = || -> io::Result<Arc<Memory>> {
            let memory = Memory::map(&made.memory)?;
            let data = epoll::EventData::new_u64(endpoint.into());
            epoll::add(&self.watched, &made.socket, data, epoll::EventFlags::IN)?;
            Ok(memory)
        };
        match watch() {
            Ok(memory) => {
                self.pairs.push(Pair::new(made, &memory));
                self.put_in_order();
            }
            Err(error) => tracing::error!("cannot share memory with endpoint {endpoint}: {error}"),
        }
    }

    fn remove(&mut self, store: &mut Store, at: usize, code: StatusCode) {
        let pair = self.pairs.swap_remove(at);
        // A child process may have the socket, too, and would keep it watched.
        let _ = epoll::delete(&self.watched, &pair.socket);
        if let Some(given_up) = self.given_up.get_mut(usize::from(pair.endpoint)) {
            *given_up = pair.session.filter(|_| code == StatusCode::Unreachable);
        }
        let mut scope = scope!(self, store);
        if let Some(rest) = pair.end(code, &mut scope) {
            let of_this_number = self.ended.iter().filter(|pair| pair.endpoint == rest.endpoint);
            if of_this_number.count() < ENDED_MAX {
                self.ended.push_back(rest);
                self.put_in_order();
            } else {
                tracing::warn!(
                    "messages of endpoint {}'s program, which is gone, are dropped: messages of programs that ended before are not received either",
                    rest.endpoint
                );
            }
        }
        // What it had announced is gone: there may be room for others.
        self.resume();
    }

    /// Sets the time when a request that waits for room or an answer is given up.
    pub(crate) fn set_until(&mut self, request: Key, until: Time) {
        for pair in &mut self.pairs {
            pair.set_until(request, until);
        }
    }

    fn remove_broken(&mut self, store: &mut Store, at: usize) {
        tracing::warn!(
            "endpoint {} of this host does not keep to the rules of shared memory; nothing more is taken from it",
            self.pairs[at].endpoint
        );
        self.counters.count(Counter::SharedBroken);
        self.remove(store, at, StatusCode::Unreachable);
    }

    /// Asks to be woken through [`Local::watched`], before sleeping. True if there is something to do already.
    pub(crate) fn sleep(&mut self) -> bool {
        // Whatever wakes the sleeper, the sockets are looked at then.
        self.poll_at = Time::ZERO;
        let mut something = !self.pulls.is_empty() || self.ended.iter().any(|pair| !pair.incoming.refused);
        for pair in &mut self.pairs {
            something |= pair.sleep();
        }
        something
    }

    /// Returns when something is given up.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.pairs.iter().filter_map(|pair| pair.due).min()
    }
}
