//! What the other side wrote: each record is checked and taken, or left where it is until there is room.

use std::os::fd::AsFd;

use mxoe::engine::Counter;

use super::{
    ACCEPTED, ANNOUNCE, BAD_KEY, CONNECT, CONNECTED, DATA, DONE, EAGER, PULL, Pair, Pull, RECORDS_PER_TURN, Scope,
    Stream, WHOLE,
};
use crate::{
    StatusCode,
    local::{
        credentials,
        ring::{Broken, Record},
    },
    memory::SEGMENTS_MAX,
    store::{LocalArrival, LocalLarge},
};

impl Pair {
    /// Reads what there is, a bounded number of records. Whether there was anything.
    #[inline]
    pub(in crate::local) fn read(&mut self, scope: &mut Scope<'_>) -> bool {
        let answers = self.read_answers(scope);
        let messages = self.read_messages(scope);
        answers || messages
    }

    /// Always read: what comes of it is bounded by what this side asked for.
    #[inline]
    fn read_answers(&mut self, scope: &mut Scope<'_>) -> bool {
        let mut records = 0;
        while records < RECORDS_PER_TURN {
            let taken = match self.answers_in.next() {
                Ok(None) => break,
                Ok(Some(record)) => self.take_answer(&record, scope).map(|()| self.answers_in.done(&record)),
                Err(Broken) => Err(Broken),
            };
            if taken.is_err() {
                self.broken = true;
                break;
            }
            records += 1;
        }
        if self.answers_in.say_head(false) {
            credentials::ring(self.socket.as_fd());
        }
        records > 0
    }

    #[inline]
    fn read_messages(&mut self, scope: &mut Scope<'_>) -> bool {
        let mut records = 0;
        while records < RECORDS_PER_TURN && self.takes_messages() {
            let record = match self.messages_in.next() {
                Ok(None) => break,
                Ok(Some(record)) => record,
                Err(Broken) => {
                    self.broken = true;
                    break;
                }
            };
            match self.take(&record, scope) {
                Ok(true) => self.messages_in.done(&record),
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
        if self.messages_in.say_head(!self.takes_messages()) {
            credentials::ring(self.socket.as_fd());
        }
        records > 0
    }

    /// A message, or a question for a connection. `Ok(false)`: not now.
    #[inline]
    fn take(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<bool, Broken> {
        let [first, second, _] = record.words;
        match record.kind {
            EAGER => {
                let source = self.source().ok_or(Broken)?;
                let incoming = &self.messages_in;
                let read = |len: u32, take: &mut dyn FnMut(u32, &[u8])| incoming.for_payload(len, take);
                return Ok(scope.store.arrive_local(source, first, record.len, read));
            }
            // Its bytes are gone with the program.
            ANNOUNCE if self.ended => {}
            ANNOUNCE => return self.take_announced(record, scope),
            CONNECT if record.len != 0 => return Err(Broken),
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
            _ => return Err(Broken),
        }
        Ok(true)
    }

    /// What a message or a connection waits for.
    #[inline]
    fn take_answer(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<(), Broken> {
        let [first, second, third] = record.words;
        if record.kind == DATA {
            return self.take_piece(record, scope);
        }
        if record.len != 0 {
            return Err(Broken);
        }
        match record.kind {
            CONNECTED => {
                if !self.cancel_connect(first) {
                    // Cancelled or given up.
                    return Ok(());
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
                    return Ok(());
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
            _ => return Err(Broken),
        }
        Ok(())
    }

    fn take_announced(&mut self, record: &Record, scope: &mut Scope<'_>) -> Result<bool, Broken> {
        let source = self.source().ok_or(Broken)?;
        let [match_info, length, id] = record.words;
        let length = u32::try_from(length).map_err(|_| Broken)?;
        if record.len as usize > SEGMENTS_MAX * 16 || !record.len.is_multiple_of(16) {
            return Err(Broken);
        }
        let words = self.messages_in.payload_words(record);
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
            self.answers_in
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
}
