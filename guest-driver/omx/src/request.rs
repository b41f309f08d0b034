//! The requests of an endpoint and the order in which they completed.

use mxoe::{
    engine::SendId,
    matching::{PostedId, Selector},
};

use crate::{
    Address, StatusCode,
    memory::Segments,
    slab::{Key, Slab},
    store::Source,
};

/// At most this many requests of an endpoint exist at once: this ends an unbounded loop of postings.
const REQUESTS_MAX: u32 = 1 << 20;

/// No request has this key, since there are fewer of them: the engine gets it with a message that has none.
pub(crate) const NO_REQUEST: Key = u32::MAX as Key;
const _: () = assert!(REQUESTS_MAX < u32::MAX);

/// At most this many failures are kept for a program that asks for them: more say nothing more.
const UNHEARD_MAX: usize = 64;

/// Names a request of one endpoint until its completion was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request(pub(crate) Key);

impl Request {
    /// Returns the request as a number below 2⁵⁶.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the request that [`Request::to_bits`] gave; of other numbers one that no endpoint knows, or another one.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A message to be sent.
    Send,
    /// A message to be received.
    Receive,
    /// A connection.
    Connect,
}

/// When a send completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendUntil {
    /// When its bytes are safe elsewhere or arrived; a message to the endpoint itself when it is matched, as in MX.
    Standard,
    /// When its bytes are safe elsewhere or arrived, also those of a message to the endpoint itself.
    Buffered,
    /// When the other endpoint has acknowledged it; one on this host when it is in memory that both share.
    Acknowledged,
    /// When it is matched.
    Matched,
}

impl SendUntil {
    /// Whether the send may complete before the other endpoint has said anything.
    pub(crate) const fn may_be_early(self) -> bool {
        matches!(self, Self::Standard | Self::Buffered)
    }
}

/// How a request ended, or what a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// How the request ended.
    pub code: StatusCode,
    /// The source, the destination, or the endpoint that was connected to.
    pub address: Option<Address>,
    /// Match information of the message, or as given.
    pub match_info: u64,
    /// Bytes of the message.
    pub length: u32,
    /// Bytes that were transferred.
    pub transferred: u32,
    /// The context that was given at posting.
    pub context: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The request goes on. A receive is in the queue and can be cancelled.
    Pending,
    /// The receive has its message.
    Matched,
    Done,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: RequestKind,
    pub(crate) state: State,
    pub(crate) status: Status,
    /// A receive's buffer.
    pub(crate) memory: Segments,
    /// The sender of a receive's message.
    pub(crate) source: Option<Source>,
    pub(crate) posted: Option<PostedId>,
    pub(crate) send: Option<SendId>,
    /// The time limit of a receive's transfer, if the general one does not apply.
    pub(crate) give_up_ns: Option<u64>,
    /// The data of a send is safe elsewhere.
    pub(crate) buffered: bool,
    /// The batch in which a send was deferred, or 0.
    pub(crate) batch: u32,
    /// The program will not take the completion.
    forgotten: bool,
    next: Option<Key>,
    previous: Option<Key>,
}

/// The remaining parts of a request that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) status: Status,
    pub(crate) source: Option<Source>,
    pub(crate) batch: u32,
}

#[derive(Debug)]
pub(crate) struct Requests {
    entries: Slab<Entry>,
    first_done: Option<Key>,
    last_done: Option<Key>,
    /// The ends of failed requests whose completion is not taken.
    unheard: Vec<StatusCode>,
    /// The number of completions so far: a sleeper checks whether it changed.
    pub(crate) completions: u64,
}

impl Requests {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Slab::new(REQUESTS_MAX),
            first_done: None,
            last_done: None,
            unheard: Vec::new(),
            completions: 0,
        }
    }

    /// Whether another request can be added.
    pub(crate) fn has_room(&self) -> bool {
        self.entries.has_room()
    }

    pub(crate) fn add(&mut self, kind: RequestKind, match_info: u64, context: u64) -> Option<Key> {
        self.entries.insert(Entry {
            kind,
            state: State::Pending,
            status: Status {
                code: StatusCode::Success,
                address: None,
                match_info,
                length: 0,
                transferred: 0,
                context,
            },
            memory: Segments::EMPTY,
            source: None,
            posted: None,
            send: None,
            give_up_ns: None,
            buffered: false,
            batch: 0,
            forgotten: false,
            next: None,
            previous: None,
        })
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Entry> {
        self.entries.get_mut(key)
    }

    /// Completes a send as soon as it is posted: its bytes are safe elsewhere.
    #[inline]
    pub(crate) fn complete_early(&mut self, key: Key) {
        self.complete_with(key, StatusCode::Success, |entry| {
            entry.status.transferred = entry.status.length;
            entry.buffered = true;
        });
    }

    /// Completes a request. Its status is set already, except for the code.
    #[inline]
    pub(crate) fn complete(&mut self, key: Key, code: StatusCode) {
        self.complete_with(key, code, |_| ());
    }

    #[inline]
    fn complete_with(&mut self, key: Key, code: StatusCode, with: impl FnOnce(&mut Entry)) {
        let last = self.last_done;
        let Some(entry) = self.entries.get_mut(key) else { return };
        if entry.state == State::Done {
            return;
        }
        with(entry);
        entry.state = State::Done;
        entry.status.code = code;
        entry.memory = Segments::EMPTY;
        self.completions += 1;
        if entry.forgotten {
            self.unheard(code);
            self.entries.discard(key);
            return;
        }
        entry.previous = last;
        match last.and_then(|last| self.entries.get_mut(last)) {
            Some(before) => before.next = Some(key),
            None => self.first_done = Some(key),
        }
        self.last_done = Some(key);
    }

    /// Notes that the bytes of a send are safe elsewhere.
    #[inline]
    pub(crate) fn set_buffered(&mut self, key: Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.buffered = true;
        }
    }

    /// Completes a send.
    #[inline]
    pub(crate) fn complete_send(&mut self, key: Key, code: StatusCode, transferred: u32) {
        self.complete_with(key, code, |entry| entry.status.transferred = transferred);
    }

    /// Notes the failure of a request whose completion is not taken.
    pub(crate) fn unheard(&mut self, code: StatusCode) {
        if code.is_failure() && self.unheard.len() < UNHEARD_MAX {
            self.unheard.push(code);
        }
    }

    pub(crate) const fn has_unheard(&self) -> bool {
        !self.unheard.is_empty()
    }

    /// Takes the failures that the program has not heard of.
    pub(crate) fn take_unheard(&mut self) -> Vec<StatusCode> {
        std::mem::take(&mut self.unheard)
    }

    /// Forgets a request, complete or not.
    pub(crate) fn remove(&mut self, key: Key) {
        let Some(entry) = self.entries.get(key) else { return };
        if entry.state == State::Done {
            self.unlink(entry.previous, entry.next);
        }
        self.entries.discard(key);
    }

    /// Takes out a request that is over.
    #[inline]
    pub(crate) fn take(&mut self, key: Key) -> Option<Taken> {
        let entry = self.entries.get(key)?;
        if entry.state != State::Done {
            return None;
        }
        let taken = Taken {
            status: entry.status,
            source: entry.source,
            batch: entry.batch,
        };
        self.unlink(entry.previous, entry.next);
        self.entries.discard(key);
        Some(taken)
    }

    /// Takes out the request that was over first.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Option<(Key, Taken)> {
        let key = self.first_done?;
        Some((key, self.take(key)?))
    }

    /// Takes the request between these two out of the completed ones.
    #[inline]
    fn unlink(&mut self, previous: Option<Key>, next: Option<Key>) {
        match previous.and_then(|previous| self.entries.get_mut(previous)) {
            Some(before) => before.next = next,
            None => self.first_done = next,
        }
        match next.and_then(|next| self.entries.get_mut(next)) {
            Some(after) => after.previous = previous,
            None => self.last_done = previous,
        }
    }

    /// Finds the oldest completed request that matches.
    pub(crate) fn first_done(&self, selector: Selector) -> Option<Key> {
        let mut at = self.first_done;
        while let Some(key) = at {
            let entry = self.entries.get(key)?;
            if selector.matches(entry.status.match_info) {
                return Some(key);
            }
            at = entry.next;
        }
        None
    }

    /// Notes that the program will not ask for the completion.
    pub(crate) fn forget(&mut self, key: Key) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        if entry.state == State::Done {
            self.remove(key);
        } else {
            entry.forgotten = true;
        }
        true
    }
}
