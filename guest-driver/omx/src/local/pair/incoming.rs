//! The records that the other side wrote: each is checked and taken, or left in the ring until there is room.

use std::os::fd::AsFd;

use mxoe::engine::Counter;

use super::{
    ACCEPTED, ANNOUNCE, BAD_KEY, CONNECT, CONNECTED, CONNECTED_MAX, DATA, DONE, EAGER, FRAME, FRAMES_MAX, GONE, PULL,
    Pair, Pull, RECORDS_PER_TURN, Scope, Stream, WHOLE,
};
use crate::{
    StatusCode,
    local::{
        credentials,
        ring::{Broken, RECORDS_MAX, Record},
    },
    memory::SEGMENTS_MAX,
    store::{HEAD_LEN, LocalArrival, LocalLarge},
};

impl Pair {
    /// Reads the records that are there, up to a bound, and returns whether there were any.
    #[inline]
    pub(in crate::local) fn read(&mut self, scope: &mut Scope<'_>) -> bool {
        let answers = self.read_answers(scope);
        let messages = self.read_messages(scope);
        answers || messages
    }

    /// Reads answers, for which there always is room: what this side asked for bounds them.
    #[inline]
    fn read_answers(&mut self, scope: &mut Scope<'_>) -> bool {
        let mut records = 0;
        while records < RECORDS_PER_TURN {
            let taken = match self.rings.answers_in.next() {
                Ok(None) => break,
                Ok(Some(record)) => self
                    .take_answer(&record, scope)
                    .map(|()| self.rings.answers_in.done(&record)),
                Err(Broken) => Err(Broken),
            };
            if taken.is_err() {
                self.broken = true;
                break;
            }
            records += 1;
        }
        if self.rings.answers_in.say_head(false) {
            credentials::ring(self.socket.as_fd());
        }
        records > 0
    }

    #[inline]
    fn read_messages(&mut self, scope: &mut Scope<'_>) -> bool {
        let mut records = 0;
        while records < RECORDS_PER_TURN && self.takes_messages() {
            let record = match self.rings.messages_in.next() {
                Ok(None) => break,
                Ok(Some(record)) => record,
                Err(Broken) => {
                    self.broken = true;
                    break;
                }
            };
            match self.take(&record, scope) {
                Ok(true) => self.rings.messages_in.done(&record),
                Ok(false) => {
                    scope.counters.count(Counter::UnexpEventqFull);
                    self.incoming.refused = true;
                    self.incoming.refused_info = record.words[0];
                    break;
                }
                Err(Broken) => {
                    self.broken = true;
                    break;
                }
            }
            records += 1;
        }
        if self.rings.messages_in.say_head(!self.takes_messages()) {
            credentials::ring(self.socket.as_fd());
        }
        records > 0
    }

    /// Takes a message. `Ok(false)`: not now.
    #[inline]
    fn take(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<bool, Broken> {
        let [match_info, _, _] = record.words;
        if self.session.is_none() {
            // What the connection was made with lies in the other ring, before this one was written.
            for _ in 0..=RECORDS_MAX / RECORDS_PER_TURN {
                if self.session.is_some() || !self.read_answers(scope) {
                    break;
                }
            }
        }
        if self.behind.is_some() && self.behind == self.session {
            return Ok(false);
        }
        match record.kind {
            EAGER => {
                let source = self.source().ok_or(Broken)?;
                let incoming = &self.rings.messages_in;
                let read = |len: u32, take: &mut dyn FnMut(u32, &[u8])| incoming.for_payload(len, take);
                return Ok(scope.store.arrive_local(source, match_info, record.len, read));
            }
            // Its bytes are gone with the program.
            ANNOUNCE if self.ended => {}
            ANNOUNCE => return self.take_announced(record, scope),
            _ => return Err(Broken),
        }
        Ok(true)
    }

    /// Takes a record that a message or a connection waits for.
    #[inline]
    fn take_answer(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<(), Broken> {
        if record.kind == DATA {
            return self.take_piece(record, scope);
        }
        if record.kind == FRAME {
            // What is beyond is lost, as frames may be.
            if scope.frames.len() < FRAMES_MAX {
                let mut frame = Vec::with_capacity(record.len as usize);
                self.rings
                    .answers_in
                    .for_payload(record.len, |_, data| frame.extend_from_slice(data));
                scope.frames.push_back((self.endpoint, frame));
            }
            return Ok(());
        }
        if record.len != 0 {
            return Err(Broken);
        }
        match record.kind {
            CONNECT => self.take_connect(record, scope),
            CONNECTED => self.take_connected(record, scope),
            DONE => {
                self.take_done(record, scope);
                Ok(())
            }
            PULL => self.take_pull(record),
            GONE => {
                if let Some(arriving) = self.incoming.arriving.remove(&record.words[0]) {
                    scope.store.received(arriving.request, StatusCode::BadRdmaWindow, 0);
                }
                Ok(())
            }
            _ => Err(Broken),
        }
    }

    /// Takes the other side's request for a connection.
    fn take_connect(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<(), Broken> {
        let [request, key_and_session, _] = record.words;
        if self.outgoing.control.len() >= CONNECTED_MAX {
            return Err(Broken);
        }
        let accepted = (key_and_session >> 32) as u32 == scope.key;
        if accepted {
            self.connected_to(key_and_session as u32)?;
        }
        // A program that does not know the key is not told the session: with it, and this endpoint's number later on,
        // it would be taken for this one.
        let words = if accepted {
            [request, u64::from(scope.session), ACCEPTED]
        } else {
            [request, 0, BAD_KEY]
        };
        self.outgoing.control.push_back(Record {
            kind: CONNECTED,
            len: 0,
            words,
        });
        scope.counters.count(Counter::SharedConnectReply);
        Ok(())
    }

    /// Takes the other side's answer, that this one is connected or may not be.
    fn take_connected(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<(), Broken> {
        let [request, session, answer] = record.words;
        // Also when no connect waits for it any more: the other side is connected. A side that was not asked has to
        // name the key.
        if answer == ACCEPTED && self.has_asked {
            self.connected_to(session as u32)?;
        }
        if !self.cancel_connect(request) {
            // Cancelled or given up.
            return Ok(());
        }
        let code = match answer {
            ACCEPTED => StatusCode::Success,
            _ => StatusCode::BadKey,
        };
        scope.store.connected_local(request, self.source(), code);
        Ok(())
    }

    /// Takes the other side's word that it has transferred an announced message, or failed to.
    fn take_done(&mut self, record: &Record, scope: &mut Scope<'_>) {
        let [id, taken, outcome] = record.words;
        if let Some(announced) = self.outgoing.announced.remove(&id) {
            let length = announced.memory.len();
            let (code, transferred) = match outcome {
                WHOLE if taken >= length.into() => (StatusCode::Success, length),
                WHOLE => (StatusCode::Truncated, taken as u32),
                _ => (StatusCode::Unreachable, 0),
            };
            let requests = &mut scope.store.requests;
            requests.complete_send(announced.request, code, transferred);
        }
        self.outgoing.streams.retain(|stream| stream.id != id);
    }

    /// Takes the other side's request for an announced message, piece by piece.
    fn take_pull(&mut self, record: &Record) -> Result<(), Broken> {
        let [id, wanted, _] = record.words;
        let Some(announced) = self.outgoing.announced.get_mut(&id) else {
            return self.say_gone(id);
        };
        if announced.streams || wanted > announced.memory.len().into() {
            return Err(Broken);
        }
        announced.streams = true;
        self.outgoing.streams.push_back(Stream {
            id,
            offset: 0,
            end: wanted as u32,
        });
        Ok(())
    }

    /// Notes the other side's session, which stays as long as the pair.
    fn connected_to(&mut self, session: u32) -> Result<(), Broken> {
        if *self.session.get_or_insert(session) == session {
            Ok(())
        } else {
            Err(Broken)
        }
    }

    fn take_announced(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<bool, Broken> {
        let source = self.source().ok_or(Broken)?;
        let [match_info, numbers, id] = record.words;
        let (withdrawn, length) = ((numbers >> 32) as u32, numbers as u32);
        if id <= self.incoming.announced_last {
            return Err(Broken);
        }
        // Pairs of words, and one more for the first bytes where both ends announce them.
        let head_len = if scope.announces_head { HEAD_LEN } else { 0 };
        let list_len = (record.len as usize).checked_sub(head_len).ok_or(Broken)?;
        if list_len > SEGMENTS_MAX * 16 || !list_len.is_multiple_of(16) {
            return Err(Broken);
        }
        let words = self.rings.messages_in.payload_words(record);
        let head = words
            .chunks_exact(2)
            .remainder()
            .first()
            .map_or([0; HEAD_LEN], |word| word.to_ne_bytes());
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
            withdrawn,
            list,
            head,
        };
        let before = std::mem::replace(&mut self.incoming.announced_last, id);
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
            LocalArrival::Refused => {
                self.incoming.announced_last = before;
                Ok(false)
            }
        }
    }

    fn take_piece(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<(), Broken> {
        let [id, offset, _] = record.words;
        let Some(arriving) = self.incoming.arriving.get_mut(&id) else {
            // Given up meanwhile.
            return Ok(());
        };
        if offset != u64::from(arriving.got) || record.len == 0 || record.len > arriving.wanted - arriving.got {
            return Err(Broken);
        }
        if let Some(entry) = scope.store.requests.get_mut(arriving.request) {
            let memory = &mut entry.memory;
            self.rings
                .answers_in
                .for_payload(record.len, |at, data| memory.write(arriving.got + at, data));
        }
        arriving.got += record.len;
        let (request, wanted) = (arriving.request, arriving.wanted);
        if arriving.got == wanted {
            self.incoming.arriving.remove(&id);
            scope.store.received(request, StatusCode::Success, wanted);
            self.finish(id, Some(wanted), scope);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, os::fd::OwnedFd, sync::Arc};

    use mxoe::engine::Counters;
    use rustix::{
        fs::{MemfdFlags, ftruncate, memfd_create},
        net::{AddressFamily, SocketFlags, SocketType, socketpair},
    };

    use super::*;
    use crate::{
        Address,
        local::ring::{Memory, Payload},
        store::Store,
    };

    fn pairs() -> [Pair; 2] {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, weft_authority::PAIR_MEMORY_LEN as u64).unwrap();
        let memory: Arc<Memory> = Memory::map(&file).unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let made = |socket: OwnedFd, asked: bool| weft_authority::Pair {
            id: 1,
            endpoint: u8::from(asked),
            asked,
            socket: socket.into(),
            memory: file.try_clone().unwrap(),
        };
        [(a, true), (b, false)].map(|(socket, asked)| Pair::new(made(socket, asked), &memory))
    }

    #[test]
    fn a_message_that_is_seen_before_its_connection_is_taken_all_the_same() {
        let [mut from, mut to] = pairs();
        let own = Address::from_words([0, 0]);
        let (mut store, mut counters, mut pulls) = (Store::new(1 << 20, 1, own), Counters::default(), VecDeque::new());
        let mut scope = Scope {
            store: &mut store,
            counters: &mut counters,
            pulls: &mut pulls,
            frames: &mut VecDeque::new(),
            session: 7,
            key: 0,
            announces_head: false,
        };
        let eager = Record {
            kind: EAGER,
            len: 0,
            words: [9, 0, 0],
        };
        from.connect(1, 0, ether::Time::MAX, &mut scope);
        assert!(from.write_waiting(&mut scope));
        assert!(from.push(&eager, &Payload::None));
        // It looked for answers just before they came.
        assert!(to.read_messages(&mut scope) && !to.broken);
        assert_eq!(to.session, Some(7));
        // No connect waits for this connection any more, but the other side has it.
        assert!(from.cancel_connect(1) && to.write_waiting(&mut scope) && to.push(&eager, &Payload::None));
        assert!(from.read_messages(&mut scope) && !from.broken);
    }
}
