//! A pair of endpoints of one host: the records over the shared rings, and what waits for room or an answer. The rings
//! are reliable, so nothing is acknowledged or repeated; the end of the other program shows at the socket.
//!
//! Messages go over one ring, in order, and are left there while there is no room for them. Everything that they wait for goes over the
//! other, which is always read: so neither side ever waits for the other in a circle.

mod incoming;
mod over;

use std::{
    collections::{HashMap, VecDeque},
    os::fd::AsFd,
    sync::Arc,
};

use ether::Time;
use mxoe::engine::{Counter, Counters};

use super::{
    credentials,
    ring::{self, Broken, Consumer, Memory, PAYLOAD_LEN_MAX, Payload, Producer, Record, Traffic},
};
use crate::{
    StatusCode,
    memory::{SEGMENTS_MAX, Segments},
    slab::Key,
    store::{HEAD_LEN, LocalLarge, Source, Store},
};

/// This many records are handled before what they cause is written.
const RECORDS_PER_TURN: usize = 32;
/// This many bells, and pieces of long messages, are handled before the endpoint gets its turn: a side that takes them as
/// fast as they are written must not keep the other one here.
const BELLS_PER_TURN: usize = 32;
const PIECES_PER_TURN: usize = 64;
/// At most this many answers wait for room. At the limit no messages are read from a side that does not read answers.
const CONTROL_MAX: usize = 64;
/// At most this many answers to requests for a connection or a message wait for room. A side that asks more often does
/// not read answers.
const CONNECTED_MAX: usize = 1 << 16;
/// This many bytes of a long message go in one record where memory cannot be read across processes.
const PIECE_LEN: u32 = 16 << 10;

const CONNECT: u32 = 1;
const CONNECTED: u32 = 2;
const EAGER: u32 = 3;
const ANNOUNCE: u32 = 4;
const DONE: u32 = 5;
const PULL: u32 = 6;
const DATA: u32 = 7;
/// The message that was asked for was given up.
const GONE: u32 = 8;
/// A frame as it would be on the wire.
const FRAME: u32 = 9;

/// At most this many bytes of frames wait for room, as many as a receive ring holds: what is beyond is lost as there, and
/// sent again.
const FRAMES_LEN_MAX: usize = 4 << 20;
/// At most this many frames of all pairs wait to be taken: more than are in all rings when an endpoint polls after a
/// while.
const FRAMES_MAX: usize = 4096;

const ACCEPTED: u64 = 0;
const BAD_KEY: u64 = 1;

/// The success of a transfer, in DONE.
const WHOLE: u64 = 0;
const FAILED: u64 = 1;

/// The parts of the endpoint that a pair needs while it works.
pub(in crate::local) struct Scope<'a> {
    pub(in crate::local) store: &'a mut Store,
    pub(in crate::local) counters: &'a mut Counters,
    /// Transfers to be copied from here.
    pub(in crate::local) pulls: &'a mut VecDeque<Pull>,
    /// The frames that came, with the endpoints that sent them.
    pub(in crate::local) frames: &'a mut VecDeque<(u8, Vec<u8>)>,
    pub(in crate::local) session: u32,
    pub(in crate::local) key: u32,
    /// The announcement of a long message carries its first bytes.
    pub(in crate::local) announces_head: bool,
}

/// A message to be written to the ring.
pub(in crate::local) struct Waiting {
    pub(in crate::local) request: Key,
    pub(in crate::local) memory: Segments,
    pub(in crate::local) match_info: u64,
    /// The bytes go through the ring.
    pub(in crate::local) eager: bool,
    pub(in crate::local) until: Time,
}

/// An announced message, until the other side says that it is done.
struct Announced {
    request: Key,
    memory: Segments,
    until: Time,
    /// The message is being sent piece by piece.
    streams: bool,
}

/// The bytes that the other side asked for.
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
    /// The time when the message is given up.
    until: Time,
}

/// A matched announced message whose bytes are to be copied.
#[derive(Debug)]
pub(in crate::local) struct Pull {
    pub(in crate::local) large: LocalLarge,
    pub(in crate::local) request: Key,
    pub(in crate::local) offset: u32,
    pub(in crate::local) wanted: u32,
}

/// The rings that two endpoints share, in each direction one for messages in order and one that is always read.
struct Rings {
    messages_out: Producer,
    messages_in: Consumer,
    answers_out: Producer,
    answers_in: Consumer,
}

/// The records that wait for the other side, and the messages that it still may ask for.
#[derive(Default)]
struct Outgoing {
    /// Connections, ends of transfers and requests of bytes.
    control: VecDeque<Record>,
    /// Messages for which there is no room yet.
    waiting: VecDeque<Waiting>,
    /// Announced messages, by number.
    announced: HashMap<u64, Announced>,
    /// The number of messages that were announced.
    announced_count: u64,
    /// Announced messages that go piece by piece.
    streams: VecDeque<Stream>,
    frames: VecDeque<Vec<u8>>,
    /// The bytes of `frames`.
    frames_len: usize,
}

/// The state of what comes from the other side.
#[derive(Default)]
pub(in crate::local) struct Incoming {
    /// The number that was announced last; it counts upwards.
    announced_last: u64,
    /// Messages that come piece by piece, by number.
    arriving: HashMap<u64, Arriving>,
    /// The oldest message was refused for want of room among the unexpected ones.
    pub(in crate::local) refused: bool,
    /// The match information of the message that was refused.
    pub(in crate::local) refused_info: u64,
}

/// Returns the counter of a message of this length whose bytes go through the ring.
const fn eager_counter(len: u32) -> Counter {
    match len {
        0..=32 => Counter::SharedTiny,
        33..=128 => Counter::SharedSmall,
        _ => Counter::SharedMediumsqFrag,
    }
}

/// Another endpoint of this host: the memory and the socket that both share, and the messages between them that are not
/// over.
pub(in crate::local) struct Pair {
    pub(in crate::local) id: u64,
    pub(in crate::local) endpoint: u8,
    pub(in crate::local) socket: weft_authority::QuarantinedSocket,
    /// The process of the other program, as the kernel says.
    pid: Option<i32>,
    /// The session of the other endpoint, once connected.
    pub(in crate::local) session: Option<u32>,
    rings: Rings,
    connects: Vec<(Key, Time)>,
    /// This side has asked for a connection, with or without success.
    has_asked: bool,
    outgoing: Outgoing,
    pub(in crate::local) incoming: Incoming,
    /// The other program is gone; messages that it had sent are still there.
    pub(in crate::local) ended: bool,
    /// Messages of this session, from before the other endpoint connected anew, come first.
    pub(in crate::local) behind: Option<u32>,
    /// The other program's memory cannot be read.
    pub(in crate::local) two_copies: bool,
    /// The earliest time at which something is given up.
    pub(in crate::local) due: Option<Time>,
    broken: bool,
}

impl Pair {
    pub(in crate::local) fn new(made: weft_authority::Pair, memory: &Arc<Memory>) -> Self {
        credentials::greet(made.socket.as_fd());
        let (messages_out, messages_in) = ring::ends(memory, Traffic::Messages, made.asked);
        let (answers_out, answers_in) = ring::ends(memory, Traffic::Answers, made.asked);
        Self {
            id: made.id,
            endpoint: made.endpoint,
            socket: made.socket,
            pid: None,
            session: None,
            rings: Rings {
                messages_out,
                messages_in,
                answers_out,
                answers_in,
            },
            connects: Vec::new(),
            has_asked: false,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            ended: false,
            behind: None,
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

    /// Returns the process number of the other side; `None` when it cannot be named here.
    pub(in crate::local) fn pid(&mut self) -> Option<i32> {
        if self.pid.is_none() {
            self.hear();
        }
        self.pid
    }

    /// Takes what came through the socket, a bounded number of bells. False: the other side is gone.
    pub(in crate::local) fn hear(&mut self) -> bool {
        for _ in 0..BELLS_PER_TURN {
            match credentials::hear(self.socket.as_fd()) {
                credentials::Heard::From(pid) => self.pid = self.pid.or(pid),
                credentials::Heard::Nothing => return true,
                credentials::Heard::Gone => return false,
            }
        }
        true
    }

    /// Tells the other side that this one is over, also while a child process has the socket, too. Announced messages
    /// may be overwritten from now on.
    pub(in crate::local) fn hang_up(&mut self) {
        self.rings.messages_out.withdraw();
        // One that the other side has closed is as good.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Whether a message that was announced was given up since, as far as can be said: perhaps it was another one.
    pub(in crate::local) fn may_be_withdrawn(&self, large: &LocalLarge) -> bool {
        self.rings.messages_in.withdrawn() != large.withdrawn
    }

    pub(in crate::local) fn connect(&mut self, request: Key, key: u32, until: Time, scope: &mut Scope<'_>) {
        self.connects.push((request, until));
        self.note_due(until);
        self.has_asked = true;
        self.outgoing.control.push_back(Record {
            kind: CONNECT,
            len: 0,
            words: [request, u64::from(key) << 32 | u64::from(scope.session), 0],
        });
        scope.counters.count(Counter::SharedConnectRequest);
    }

    /// Forgets a connect. True if it was still without an answer.
    pub(in crate::local) fn cancel_connect(&mut self, request: Key) -> bool {
        let before = self.connects.len();
        self.connects.retain(|(of, _)| *of != request);
        self.connects.len() != before
    }

    /// Sends a message. It is complete here if its bytes are in the ring.
    #[inline]
    pub(in crate::local) fn send(&mut self, waiting: Waiting, scope: &mut Scope<'_>) {
        let until = waiting.until;
        if self.outgoing.waiting.is_empty() {
            match self.write(waiting, scope) {
                None => return self.ring_bell(&self.rings.messages_out),
                Some(waiting) => self.outgoing.waiting.push_back(waiting),
            }
        } else {
            self.outgoing.waiting.push_back(waiting);
        }
        scope.counters.count(Counter::SendsThrottled);
        self.note_due(until);
    }

    /// Writes a short message to the ring if nothing waits for room there. False: nothing was done.
    #[inline]
    pub(in crate::local) fn send_immediately(&mut self, data: &[u8], match_info: u64, counters: &mut Counters) -> bool {
        if !self.outgoing.waiting.is_empty() {
            return false;
        }
        let record = Record {
            kind: EAGER,
            len: data.len() as u32,
            words: [match_info, 0, 0],
        };
        // A broken ring is noticed when the message is posted.
        if self.rings.messages_out.push(&record, &Payload::Bytes(data)) != Ok(true) {
            return false;
        }
        counters.count(eager_counter(record.len));
        self.ring_bell(&self.rings.messages_out);
        true
    }

    fn push(&mut self, record: &Record, payload: &Payload<'_>) -> bool {
        let pushed = self.rings.messages_out.push(record, payload);
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
            scope.counters.count(eager_counter(length));
            let requests = &mut scope.store.requests;
            requests.set_buffered(waiting.request);
            requests.complete_send(waiting.request, StatusCode::Success, length);
            return None;
        }
        let mut list: Vec<u64> = waiting
            .memory
            .addresses()
            .flat_map(|(address, len)| [address, len])
            .collect();
        if scope.announces_head {
            let mut head = [0; HEAD_LEN];
            waiting.memory.read(&mut head[..HEAD_LEN.min(length as usize)]);
            list.push(u64::from_ne_bytes(head));
        }
        let id = self.outgoing.announced_count + 1;
        let record = Record {
            kind: ANNOUNCE,
            len: (list.len() * 8) as u32,
            words: [
                waiting.match_info,
                u64::from(self.rings.messages_out.withdrawn()) << 32 | u64::from(length),
                id,
            ],
        };
        if !self.push(&record, &Payload::Words(&list)) {
            return Some(waiting);
        }
        self.outgoing.announced_count = id;
        self.note_due(waiting.until);
        let announced = Announced {
            request: waiting.request,
            memory: waiting.memory,
            until: waiting.until,
            streams: false,
        };
        self.outgoing.announced.insert(id, announced);
        scope.counters.count(Counter::SharedRndv);
        None
    }

    /// Wakes the other side if it sleeps, after something was written.
    #[inline]
    fn ring_bell(&self, out: &Producer) {
        if out.consumer_sleeps() {
            credentials::ring(self.socket.as_fd());
        }
    }

    /// Finishes a transfer from the other side: how many bytes were taken, `None` if it failed.
    pub(in crate::local) fn finish(&mut self, id: u64, taken: Option<u32>, scope: &mut Scope<'_>) {
        self.outgoing.control.push_back(Record {
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
    pub(in crate::local) fn ask(&mut self, pull: &Pull, until: Time, scope: &mut Scope<'_>) {
        let id = pull.large.id;
        self.incoming.arriving.insert(
            id,
            Arriving {
                request: pull.request,
                wanted: pull.wanted,
                got: 0,
                until,
            },
        );
        self.note_due(until);
        self.outgoing.control.push_back(Record {
            kind: PULL,
            len: 0,
            words: [id, pull.wanted.into(), 0],
        });
        scope.counters.count(Counter::SharedPull);
    }

    /// Whether every message was handed over, and every long one fetched.
    pub(in crate::local) fn is_delivered(&self) -> bool {
        self.ended || (self.outgoing.waiting.is_empty() && self.outgoing.announced.is_empty() && !self.has_answers())
    }

    fn has_answers(&self) -> bool {
        !self.outgoing.control.is_empty() || !self.outgoing.streams.is_empty() || !self.outgoing.frames.is_empty()
    }

    /// Writes what waits, as far as there is room. Returns whether anything was written.
    #[inline]
    pub(in crate::local) fn write_waiting(&mut self, scope: &mut Scope<'_>) -> bool {
        let answers = self.has_answers() && self.write_answers();
        if answers {
            self.ring_bell(&self.rings.answers_out);
        }
        let messages = !self.outgoing.waiting.is_empty() && self.write_messages(scope);
        if messages {
            self.ring_bell(&self.rings.messages_out);
        }
        answers || messages
    }

    /// Writes messages that wait, and returns whether any was written.
    fn write_messages(&mut self, scope: &mut Scope<'_>) -> bool {
        let mut wrote = false;
        while let Some(waiting) = self.outgoing.waiting.pop_front() {
            if let Some(waiting) = self.write(waiting, scope) {
                self.outgoing.waiting.push_front(waiting);
                break;
            }
            wrote = true;
        }
        wrote
    }

    /// Writes answers that wait, and returns whether any was written.
    fn write_answers(&mut self) -> bool {
        let wrote = self.push_answers();
        self.broken |= wrote.is_err();
        wrote == Ok(true)
    }

    fn push_answers(&mut self) -> Result<bool, Broken> {
        let mut wrote = false;
        while let Some(record) = self.outgoing.control.front() {
            if !self.rings.answers_out.push(record, &Payload::None)? {
                return Ok(wrote);
            }
            self.outgoing.control.pop_front();
            wrote = true;
        }
        wrote |= self.push_frames()?;
        for _ in 0..PIECES_PER_TURN {
            let Some(stream) = self.outgoing.streams.front_mut() else {
                break;
            };
            let Some(announced) = self.outgoing.announced.get(&stream.id) else {
                let id = stream.id;
                self.outgoing.streams.pop_front();
                self.say_gone(id)?;
                continue;
            };
            let len = PIECE_LEN.min(stream.end - stream.offset);
            let record = Record {
                kind: DATA,
                len,
                words: [stream.id, stream.offset.into(), 0],
            };
            let piece = Payload::Memory(&announced.memory, stream.offset);
            if !self.rings.answers_out.push(&record, &piece)? {
                break;
            }
            wrote = true;
            stream.offset += len;
            if stream.offset == stream.end {
                self.outgoing.streams.pop_front();
            }
        }
        Ok(wrote)
    }

    /// Queues a frame for the other side, after those that wait.
    pub(in crate::local) fn send_frame(&mut self, frame: Vec<u8>) {
        if self.outgoing.frames_len + frame.len() <= FRAMES_LEN_MAX && frame.len() <= PAYLOAD_LEN_MAX {
            self.outgoing.frames_len += frame.len();
            self.outgoing.frames.push_back(frame);
        }
    }

    fn push_frames(&mut self) -> Result<bool, Broken> {
        let mut wrote = false;
        while let Some(frame) = self.outgoing.frames.front() {
            let words: Vec<u64> = frame
                .chunks(8)
                .map(|bytes| {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_ne_bytes(word)
                })
                .collect();
            let record = Record {
                kind: FRAME,
                len: frame.len() as u32,
                words: [0; 3],
            };
            if !self.rings.answers_out.push(&record, &Payload::Words(&words))? {
                break;
            }
            self.outgoing.frames_len -= frame.len();
            self.outgoing.frames.pop_front();
            wrote = true;
        }
        Ok(wrote)
    }

    /// Answers a request for a message that is gone.
    fn say_gone(&mut self, id: u64) -> Result<(), Broken> {
        if self.outgoing.control.len() >= CONNECTED_MAX {
            return Err(Broken);
        }
        self.outgoing.control.push_back(Record {
            kind: GONE,
            len: 0,
            words: [id, 0, 0],
        });
        Ok(())
    }

    /// Whether messages that are there may be read.
    fn takes_messages(&self) -> bool {
        !self.incoming.refused && self.outgoing.control.len() < CONTROL_MAX
    }

    /// Asks to be woken, before sleeping. True if there is something to do already.
    pub(in crate::local) fn sleep(&mut self) -> bool {
        let messages = self.takes_messages() && self.rings.messages_in.sleep();
        let answers = self.rings.answers_in.sleep();
        let messages_room = match self.outgoing.waiting.front() {
            Some(waiting) => self.rings.messages_out.want_room(waiting.payload_len()),
            None => false,
        };
        let answer_len = if self.outgoing.control.is_empty() {
            PIECE_LEN as usize
        } else {
            0
        };
        let answers_room = self.has_answers() && self.rings.answers_out.want_room(answer_len);
        messages || answers || messages_room || answers_room || self.broken
    }
}

impl Waiting {
    /// Returns the bytes behind the record's head.
    fn payload_len(&self) -> usize {
        if self.eager {
            self.memory.len() as usize
        } else {
            self.memory.addresses().count() * 16
        }
    }
}

const _: () = assert!(SEGMENTS_MAX * 16 <= PAYLOAD_LEN_MAX);
