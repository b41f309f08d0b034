//! One other endpoint of the same host: what is said over the shared ring, in order, and what waits for room or an answer. The
//! ring is reliable, so nothing is acknowledged or repeated; the end of the other program shows at the socket.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::{AsFd, OwnedFd},
};

use ether::Time;
use mxoe::engine::{Counter, Counters};

use super::{
    credentials,
    ring::{Broken, Consumer, PAYLOAD_LEN_MAX, Payload, Producer, Record},
};
use crate::{
    StatusCode,
    memory::{SEGMENTS_MAX, Segments},
    slab::Key,
    store::{LocalArrival, LocalLarge, Source, Store},
};

/// Records handled before what they cause is written.
const RECORDS_PER_TURN: usize = 32;
/// Answers that wait for room. At the limit nothing is read from the one who does not read.
const CONTROL_MAX: usize = 64;
/// Bytes of a long message in one record where memory cannot be read across processes.
const PIECE_LEN: u32 = 16 << 10;

const CONNECT: u32 = 1;
const CONNECTED: u32 = 2;
const EAGER: u32 = 3;
const ANNOUNCE: u32 = 4;
const DONE: u32 = 5;
const PULL: u32 = 6;
const DATA: u32 = 7;

const ACCEPTED: u64 = 0;
const BAD_KEY: u64 = 1;

/// How a transfer went, in DONE.
const WHOLE: u64 = 0;
const FAILED: u64 = 1;

/// What a pair needs of the endpoint while it works.
pub(super) struct Scope<'a> {
    pub(super) store: &'a mut Store,
    pub(super) counters: &'a mut Counters,
    /// Transfers to be copied from here.
    pub(super) pulls: &'a mut VecDeque<Pull>,
    pub(super) session: u32,
    pub(super) key: u32,
}

/// A message to be written to the ring.
pub(super) struct Waiting {
    pub(super) request: Key,
    pub(super) memory: Segments,
    pub(super) match_info: u64,
    /// Its bytes go through the ring.
    pub(super) eager: bool,
    pub(super) until: Time,
}

/// An announced message, until the other side says that it is done.
struct Announced {
    request: Key,
    memory: Segments,
    until: Time,
    /// It is being sent piece by piece.
    streams: bool,
}

/// Bytes that the other side asked for.
struct Stream {
    id: u64,
    offset: u32,
    end: u32,
}

/// A message that arrives piece by piece.
struct Arriving {
    request: Key,
    wanted: u32,
    got: u32,
    /// It is given up then.
    until: Time,
}

/// A matched announced message whose bytes are to be copied.
#[derive(Debug)]
pub(super) struct Pull {
    pub(super) large: LocalLarge,
    pub(super) request: Key,
    pub(super) offset: u32,
    pub(super) wanted: u32,
}

pub(super) struct Pair {
    pub(super) id: u64,
    pub(super) endpoint: u8,
    pub(super) socket: OwnedFd,
    /// The other program, as the system says.
    pid: Option<i32>,
    /// The session of the other endpoint, once connected.
    pub(super) session: Option<u32>,
    out: Producer,
    incoming: Consumer,
    connects: Vec<(Key, Time)>,
    control: VecDeque<Record>,
    waiting: VecDeque<Waiting>,
    announced: HashMap<u64, Announced>,
    announced_next: u64,
    streams: VecDeque<Stream>,
    arriving: HashMap<u64, Arriving>,
    /// The oldest record was refused for want of room among the unexpected messages.
    pub(super) refused: bool,
    /// The other program's memory cannot be read.
    pub(super) two_copies: bool,
    /// The earliest time at which something is given up.
    pub(super) due: Option<Time>,
    broken: bool,
}

impl Pair {
    pub(super) fn new(made: omxd::Pair, ends: (Producer, Consumer)) -> Self {
        credentials::greet(made.socket.as_fd());
        let (out, incoming) = ends;
        Self {
            id: made.id,
            endpoint: made.endpoint,
            socket: made.socket,
            pid: None,
            session: None,
            out,
            incoming,
            connects: Vec::new(),
            control: VecDeque::new(),
            waiting: VecDeque::new(),
            announced: HashMap::new(),
            announced_next: 1,
            streams: VecDeque::new(),
            arriving: HashMap::new(),
            refused: false,
            two_copies: false,
            due: None,
            broken: false,
        }
    }

    pub(super) const fn is_broken(&self) -> bool {
        self.broken
    }

    fn note_due(&mut self, until: Time) {
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
    }

    fn source(&self) -> Option<Source> {
        let endpoint = self.endpoint;
        self.session.map(|session| Source::Local { endpoint, session })
    }

    /// The process number of the other side; `None` when it cannot be named here.
    pub(super) fn pid(&mut self) -> Option<i32> {
        if self.pid.is_none() {
            self.hear();
        }
        self.pid
    }

    /// Takes what came through the socket. False: the other side is gone.
    pub(super) fn hear(&mut self) -> bool {
        loop {
            match credentials::hear(self.socket.as_fd()) {
                credentials::Heard::From(pid) => self.pid = self.pid.or(pid),
                credentials::Heard::Nothing => return true,
                credentials::Heard::Gone => return false,
            }
        }
    }

    pub(super) fn connect(&mut self, request: Key, key: u32, until: Time, scope: &mut Scope<'_>) {
        self.connects.push((request, until));
        self.note_due(until);
        self.control.push_back(Record {
            kind: CONNECT,
            len: 0,
            words: [request, u64::from(key) << 32 | u64::from(scope.session), 0],
        });
        scope.counters.count(Counter::SharedConnectRequest);
    }

    /// True if the connect was still without an answer.
    pub(super) fn cancel_connect(&mut self, request: Key) -> bool {
        let before = self.connects.len();
        self.connects.retain(|(of, _)| *of != request);
        self.connects.len() != before
    }

    /// A message. Completes here if its bytes are in the ring.
    #[inline]
    pub(super) fn send(&mut self, waiting: Waiting, scope: &mut Scope<'_>) {
        let until = waiting.until;
        if self.waiting.is_empty() && self.control.is_empty() {
            match self.write(waiting, scope) {
                None => return self.ring_bell(),
                Some(waiting) => self.waiting.push_back(waiting),
            }
        } else {
            self.waiting.push_back(waiting);
        }
        scope.counters.count(Counter::SendsThrottled);
        self.note_due(until);
    }

    fn push(&mut self, record: &Record, payload: &Payload<'_>) -> bool {
        let pushed = self.out.push(record, payload);
        self.broken |= pushed.is_err();
        pushed == Ok(true)
    }

    /// Writes a message to the ring; gives it back when there is no room.
    #[inline]
    fn write(&mut self, waiting: Waiting, scope: &mut Scope<'_>) -> Option<Waiting> {
        let length = waiting.memory.len();
        if waiting.eager {
            let record = Record {
                kind: EAGER,
                len: length,
                words: [waiting.match_info, 0, 0],
            };
            if !self.push(&record, &Payload::Memory(&waiting.memory, 0)) {
                return Some(waiting);
            }
            scope.counters.count(match length {
                0..=32 => Counter::SharedTiny,
                33..=128 => Counter::SharedSmall,
                _ => Counter::SharedMediumsqFrag,
            });
            let requests = &mut scope.store.requests;
            requests.set_buffered(waiting.request);
            requests.complete_send(waiting.request, StatusCode::Success, length);
            return None;
        }
        let list: Vec<u64> = waiting
            .memory
            .addresses()
            .flat_map(|(address, len)| [address, len])
            .collect();
        let id = self.announced_next;
        let record = Record {
            kind: ANNOUNCE,
            len: (list.len() * 8) as u32,
            words: [waiting.match_info, length.into(), id],
        };
        if !self.push(&record, &Payload::Words(&list)) {
            return Some(waiting);
        }
        self.announced_next += 1;
        self.note_due(waiting.until);
        let announced = Announced {
            request: waiting.request,
            memory: waiting.memory,
            until: waiting.until,
            streams: false,
        };
        self.announced.insert(id, announced);
        scope.counters.count(Counter::SharedRndv);
        None
    }

    /// Wakes the other side if it sleeps.
    #[inline]
    fn ring_bell(&self) {
        if self.out.consumer_sleeps() {
            credentials::ring(self.socket.as_fd());
        }
    }

    /// Reads what there is, a bounded number of records. Whether there was anything.
    #[inline]
    pub(super) fn read(&mut self, scope: &mut Scope<'_>) -> bool {
        let mut records = 0;
        while records < RECORDS_PER_TURN && !self.refused && self.control.len() < CONTROL_MAX {
            let record = match self.incoming.next() {
                Ok(None) => break,
                Ok(Some(record)) => record,
                Err(Broken) => {
                    self.broken = true;
                    break;
                }
            };
            match self.take(&record, scope) {
                Ok(true) => self.incoming.done(&record),
                Ok(false) => {
                    scope.counters.count(Counter::UnexpEventqFull);
                    self.refused = true;
                    break;
                }
                Err(Broken) => {
                    self.broken = true;
                    break;
                }
            }
            records += 1;
        }
        if records > 0 && self.incoming.producer_waits() {
            credentials::ring(self.socket.as_fd());
        }
        records > 0
    }

    /// `Ok(false)`: not now.
    #[inline]
    fn take(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<bool, Broken> {
        let [first, second, third] = record.words;
        match record.kind {
            EAGER => {
                let source = self.source().ok_or(Broken)?;
                let incoming = &self.incoming;
                let read = |len: u32, take: &mut dyn FnMut(u32, &[u8])| incoming.for_payload(len, take);
                return Ok(scope.store.arrive_local(source, first, record.len, read));
            }
            ANNOUNCE => return self.take_announced(record, scope),
            CONNECT => {
                let accepted = (second >> 32) as u32 == scope.key;
                if self.session.is_some_and(|session| session != second as u32) {
                    return Err(Broken);
                }
                if accepted {
                    self.session = Some(second as u32);
                }
                self.control.push_back(Record {
                    kind: CONNECTED,
                    len: 0,
                    words: [
                        first,
                        u64::from(scope.session),
                        if accepted { ACCEPTED } else { BAD_KEY },
                    ],
                });
                scope.counters.count(Counter::SharedConnectReply);
            }
            CONNECTED => {
                if !self.cancel_connect(first) {
                    // Cancelled or given up.
                    return Ok(true);
                }
                let code = match third {
                    ACCEPTED => {
                        self.session = Some(second as u32);
                        StatusCode::Success
                    }
                    _ => StatusCode::BadKey,
                };
                scope.store.connected_local(first, self.source(), code);
            }
            DONE => {
                if let Some(announced) = self.announced.remove(&first) {
                    let length = announced.memory.len();
                    let (code, transferred) = match third {
                        WHOLE if second >= length.into() => (StatusCode::Success, length),
                        WHOLE => (StatusCode::Truncated, second as u32),
                        _ => (StatusCode::Unreachable, 0),
                    };
                    let requests = &mut scope.store.requests;
                    requests.complete_send(announced.request, code, transferred);
                }
                self.streams.retain(|stream| stream.id != first);
            }
            PULL => {
                let Some(announced) = self.announced.get_mut(&first) else {
                    // Given up meanwhile.
                    return Ok(true);
                };
                if announced.streams || second > announced.memory.len().into() {
                    return Err(Broken);
                }
                announced.streams = true;
                self.streams.push_back(Stream {
                    id: first,
                    offset: 0,
                    end: second as u32,
                });
            }
            DATA => self.take_piece(record, scope)?,
            _ => return Err(Broken),
        }
        Ok(true)
    }

    fn take_announced(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<bool, Broken> {
        let source = self.source().ok_or(Broken)?;
        let [match_info, length, id] = record.words;
        let length = u32::try_from(length).map_err(|_| Broken)?;
        if record.len as usize > SEGMENTS_MAX * 16 || !record.len.is_multiple_of(16) {
            return Err(Broken);
        }
        let words = self.incoming.payload_words(record);
        let list: Box<[(u64, u64)]> = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        // Each is at most 4 GiB, so the sum cannot wrap.
        if list.iter().any(|(_, len)| *len > u32::MAX.into())
            || list.iter().map(|(_, len)| len).sum::<u64>() != u64::from(length)
        {
            return Err(Broken);
        }
        let large = LocalLarge {
            pair: self.id,
            id,
            list,
        };
        match scope.store.announced_local(source, match_info, length, large) {
            LocalArrival::Matched { request, wanted, large } => {
                scope.pulls.push_back(Pull {
                    large,
                    request,
                    offset: 0,
                    wanted,
                });
                Ok(true)
            }
            LocalArrival::Kept => Ok(true),
            LocalArrival::Refused => Ok(false),
        }
    }

    fn take_piece(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<(), Broken> {
        let [id, offset, _] = record.words;
        let Some(arriving) = self.arriving.get_mut(&id) else {
            // Given up meanwhile.
            return Ok(());
        };
        if offset != u64::from(arriving.got) || record.len == 0 || record.len > arriving.wanted - arriving.got {
            return Err(Broken);
        }
        if let Some(entry) = scope.store.requests.get_mut(arriving.request) {
            let memory = &mut entry.memory;
            self.incoming
                .for_payload(record.len, |at, data| memory.write(arriving.got + at, data));
        }
        arriving.got += record.len;
        let (request, wanted) = (arriving.request, arriving.wanted);
        if arriving.got == wanted {
            self.arriving.remove(&id);
            scope.store.received(request, StatusCode::Success, wanted);
            self.finish(id, Some(wanted), scope);
        }
        Ok(())
    }

    /// A transfer from the other side is over: how many bytes were taken, `None` if it failed.
    pub(super) fn finish(&mut self, id: u64, taken: Option<u32>, scope: &mut Scope<'_>) {
        self.control.push_back(Record {
            kind: DONE,
            len: 0,
            words: [
                id,
                taken.unwrap_or(0).into(),
                if taken.is_some() { WHOLE } else { FAILED },
            ],
        });
        scope.counters.count(Counter::SharedNotify);
    }

    /// Asks for the bytes of an announced message piece by piece.
    pub(super) fn ask(&mut self, pull: &Pull, until: Time, scope: &mut Scope<'_>) {
        let id = pull.large.id;
        self.arriving.insert(
            id,
            Arriving {
                request: pull.request,
                wanted: pull.wanted,
                got: 0,
                until,
            },
        );
        self.note_due(until);
        self.control.push_back(Record {
            kind: PULL,
            len: 0,
            words: [id, pull.wanted.into(), 0],
        });
        scope.counters.count(Counter::SharedPull);
    }

    fn has_output(&self) -> bool {
        !self.control.is_empty() || !self.waiting.is_empty() || !self.streams.is_empty()
    }

    /// Writes what waits, as far as there is room. Whether anything was written.
    #[inline]
    pub(super) fn write_waiting(&mut self, scope: &mut Scope<'_>) -> bool {
        if !self.has_output() {
            return false;
        }
        let wrote = self.write_in_order(scope);
        if wrote {
            self.ring_bell();
        }
        wrote
    }

    fn write_in_order(&mut self, scope: &mut Scope<'_>) -> bool {
        let mut wrote = false;
        while let Some(record) = self.control.pop_front() {
            if !self.push(&record, &Payload::None) {
                self.control.push_front(record);
                return wrote;
            }
            wrote = true;
        }
        while let Some(waiting) = self.waiting.pop_front() {
            if let Some(waiting) = self.write(waiting, scope) {
                self.waiting.push_front(waiting);
                return wrote;
            }
            wrote = true;
        }
        while let Some(stream) = self.streams.front() {
            let (id, offset) = (stream.id, stream.offset);
            let len = PIECE_LEN.min(stream.end - offset);
            let record = Record {
                kind: DATA,
                len,
                words: [id, offset.into(), 0],
            };
            let Some(announced) = self.announced.get(&id) else {
                self.streams.pop_front();
                continue;
            };
            let pushed = self.out.push(&record, &Payload::Memory(&announced.memory, offset));
            self.broken |= pushed.is_err();
            if pushed != Ok(true) {
                return wrote;
            }
            wrote = true;
            if let Some(stream) = self.streams.front_mut() {
                stream.offset += len;
                if stream.offset == stream.end {
                    self.streams.pop_front();
                }
            }
        }
        wrote
    }

    /// Before sleeping: asks to be woken. True if there is something to do already.
    pub(super) fn sleep(&mut self) -> bool {
        let something = !self.refused && self.control.len() < CONTROL_MAX && self.incoming.sleep();
        let room = self.has_output() && self.out.want_room();
        something || room || self.broken
    }

    /// A request of this pair is given up then.
    pub(super) fn set_until(&mut self, request: Key, until: Time) {
        let connects = self.connects.iter_mut().filter(|(of, _)| *of == request);
        let waiting = self.waiting.iter_mut().filter(|waiting| waiting.request == request);
        let announced = self
            .announced
            .values_mut()
            .filter(|announced| announced.request == request);
        let places = connects
            .map(|(_, place)| place)
            .chain(waiting.map(|waiting| &mut waiting.until))
            .chain(announced.map(|announced| &mut announced.until));
        if places.map(|place| *place = until).count() > 0 {
            self.note_due(until);
        }
    }

    /// Gives up what waits too long.
    pub(super) fn expire(&mut self, now: Time, scope: &mut Scope<'_>) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let requests = &mut scope.store.requests;
        self.connects.retain(|(request, until)| {
            let goes_on = *until > now;
            if !goes_on {
                requests.complete(*request, StatusCode::Unreachable);
            }
            goes_on
        });
        self.waiting.retain(|waiting| {
            let goes_on = waiting.until > now;
            if !goes_on {
                requests.complete_send(waiting.request, StatusCode::Unreachable, 0);
            }
            goes_on
        });
        self.announced.retain(|_, announced| {
            let goes_on = announced.until > now;
            if !goes_on {
                requests.complete_send(announced.request, StatusCode::Timeout, 0);
            }
            goes_on
        });
        let late: Vec<(u64, Key)> = self
            .arriving
            .iter()
            .filter(|(_, arriving)| arriving.until <= now)
            .map(|(id, arriving)| (*id, arriving.request))
            .collect();
        for (id, request) in late {
            self.arriving.remove(&id);
            scope.store.received(request, StatusCode::Timeout, 0);
            self.finish(id, None, scope);
        }
        self.due = self
            .connects
            .iter()
            .map(|(_, until)| *until)
            .chain(self.waiting.iter().map(|waiting| waiting.until))
            .chain(self.announced.values().map(|announced| announced.until))
            .chain(self.arriving.values().map(|arriving| arriving.until))
            .min();
    }

    /// Everything with the other side ends.
    pub(super) fn end(mut self, code: StatusCode, scope: &mut Scope<'_>) {
        // What was written before the other side went is received.
        while !self.broken && self.read(scope) {}
        for (request, _) in self.connects.drain(..) {
            scope.store.requests.complete(request, code);
        }
        for waiting in self.waiting.drain(..) {
            scope.store.requests.complete_send(waiting.request, code, 0);
        }
        for (_, announced) in self.announced.drain() {
            scope.store.requests.complete_send(announced.request, code, 0);
        }
        for (_, arriving) in self.arriving.drain() {
            scope.store.received(arriving.request, code, 0);
        }
        let (pair, store) = (self.id, &mut *scope.store);
        scope.pulls.retain(|pull| {
            let goes_on = pull.large.pair != pair;
            if !goes_on {
                store.received(pull.request, code, 0);
            }
            goes_on
        });
        store.forget_announced(pair);
        scope.counters.count(Counter::PartnersLost);
    }
}

const _: () = assert!(SEGMENTS_MAX * 16 <= PAYLOAD_LEN_MAX);
