//! The messages of an endpoint: requests, running transfers, posted receives and unexpected messages. The store is the
//! engine's host: it decides where arriving messages go and takes their bytes.

use std::io::IoSlice;

use mxoe::{
    engine::{Arrival, Body, Host, LargeId, PartnerId, Token, Verdict},
    matching::{Envelope, MatchTable, SourceKey, UnexpectedId},
};

use crate::{
    Address, StatusCode,
    copies::Copies,
    memory::Segments,
    request::{Requests, State},
    slab::{Key, Slab},
};

/// At most this many transfers run at once: sends and receives that the engine knows by name.
const TRANSFERS_MAX: u32 = 1 << 20;
/// This many bytes are copied at once from one place of the program to another.
const PIECE_LEN: u32 = 64 << 10;
/// Tokens of transfers have this bit, tokens of requests do not.
const TRANSFER: Token = 1 << 63;

/// An unexpected message.
#[derive(Debug)]
pub(crate) struct Unexp {
    pub(crate) source: Source,
    pub(crate) envelope: Envelope,
    pub(crate) length: u32,
    pub(crate) body: UnexpBody,
}

/// The first bytes of a message, which a probe tells.
pub(crate) const HEAD_LEN: usize = 8;

impl Unexp {
    /// Returns the first bytes of the message, zeros beyond its end. `None`: they are still to arrive.
    pub(crate) fn head(&self) -> Option<[u8; HEAD_LEN]> {
        let mut head = [0; HEAD_LEN];
        let len = HEAD_LEN.min(self.length as usize);
        match &self.body {
            UnexpBody::Whole(data) | UnexpBody::Own(_, data) => head[..len].copy_from_slice(&data[..len]),
            UnexpBody::Partial { data, has_head, .. } if *has_head => head[..len].copy_from_slice(&data[..len]),
            UnexpBody::Partial { .. } => return None,
            UnexpBody::Large { head: announced, .. } => head = *announced,
            UnexpBody::LargeLocal(large) => head = large.head,
            UnexpBody::OwnInPlace(_, memory) => memory.read(&mut head[..len]),
        }
        Some(head)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The partner as it was when the message came: answers go to the endpoint that sent it, or nowhere.
    Partner { partner: PartnerId, session: u32 },
    /// Another endpoint of this host.
    Local { endpoint: u8, session: u32 },
    /// The endpoint itself.
    Own,
}

impl Source {
    const fn of(arrival: &Arrival<'_>) -> Self {
        Self::Partner {
            partner: arrival.partner,
            session: arrival.session,
        }
    }
}

/// A long message that another program of this host announced, and the place of its bytes in that program.
#[derive(Debug)]
pub(crate) struct LocalLarge {
    /// The number of the pair that announced it.
    pub(crate) pair: u64,
    /// The name that the other side gave it.
    pub(crate) id: u64,
    /// The number of messages that the other side had announced and given up before this one.
    pub(crate) withdrawn: u32,
    /// The addresses and lengths of the bytes.
    pub(crate) list: Box<[(u64, u64)]>,
    /// The first bytes, if the other side announced them.
    pub(crate) head: [u8; HEAD_LEN],
}

/// The fate of an announced message.
#[derive(Debug)]
pub(crate) enum LocalArrival {
    Matched {
        request: Key,
        /// The bytes that the receive takes.
        wanted: u32,
        large: LocalLarge,
    },
    Kept,
    /// There is no room.
    Refused,
}

/// An announced message counts so much among the unexpected ones, besides its list.
const ANNOUNCED_BYTES: usize = 64;

#[derive(Debug)]
pub(crate) enum UnexpBody {
    Whole(Box<[u8]>),
    /// The message still arrives, under the name of a transfer.
    Partial {
        transfer: Key,
        data: Box<[u8]>,
        /// The first fragment is there.
        has_head: bool,
    },
    Large {
        id: LargeId,
        /// The first bytes, if the other side announced them.
        head: [u8; HEAD_LEN],
    },
    /// The message is in another program of this host.
    LargeLocal(LocalLarge),
    /// The message is from the endpoint itself: the send completes when it is matched.
    Own(Key, Box<[u8]>),
    /// The message is from the endpoint itself, and there was no room for a copy: the bytes stay with the program.
    OwnInPlace(Key, Segments),
}

/// The bytes of a send.
#[derive(Debug)]
pub(crate) enum SendBytes {
    Program(Segments),
    Copy(Box<[u8]>),
}

#[derive(Debug)]
pub(crate) enum Transfer {
    /// The request is gone when the send completed early.
    Send { request: Option<Key>, bytes: SendBytes },
    /// Bytes go to a request's buffer. `pulled`: they come directly from frames, not from packets kept since earlier; `last_copy` is the
    /// number of the last copy that an engine makes of them.
    Receive { request: Key, pulled: bool, last_copy: u64 },
    /// Bytes go to an unexpected message that arrives in fragments. `None` until it has its name.
    Unexpected { id: Option<UnexpectedId> },
}

impl Transfer {
    /// Makes a receive that has got nothing yet.
    pub(crate) const fn receive(request: Key, pulled: bool) -> Self {
        Self::Receive {
            request,
            pulled,
            last_copy: 0,
        }
    }
}

pub(crate) const fn transfer_token(key: Key) -> Token {
    key | TRANSFER
}

pub(crate) const fn transfer_key(token: Token) -> Option<Key> {
    if token & TRANSFER != 0 {
        Some(token & !TRANSFER)
    } else {
        None
    }
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) table: MatchTable<Key, Unexp>,
    pub(crate) requests: Requests,
    pub(crate) transfers: Slab<Transfer>,
    /// Unexpected messages that the handler has not seen; kept only while there is one.
    pub(crate) unseen: Vec<UnexpectedId>,
    pub(crate) has_handler: bool,
    /// Copies that must be finished before their frames go back to the port.
    pub(crate) copies: Copies,
    /// The endpoint itself.
    own: Address,
}

impl Store {
    pub(crate) fn new(unexpected_bytes_max: u64, seed: u64, own: Address) -> Self {
        Self {
            table: MatchTable::new(unexpected_bytes_max, seed),
            requests: Requests::new(),
            transfers: Slab::new(TRANSFERS_MAX),
            unseen: Vec::new(),
            has_handler: false,
            copies: Copies::default(),
            own,
        }
    }

    /// Returns what matching knows of a message from an endpoint of this host.
    #[inline]
    pub(crate) const fn local_envelope(&self, source: Source, match_info: u64) -> Envelope {
        let endpoint = match source {
            Source::Local { endpoint, .. } => endpoint,
            Source::Own | Source::Partner { .. } => self.own.endpoint,
        };
        Envelope {
            match_info,
            source: Some(SourceKey::new(self.own.mac(), endpoint)),
        }
    }

    /// Matches a receive with its message, and returns how many bytes it takes.
    pub(crate) fn matched(&mut self, request: Key, source: Source, match_info: u64, length: u32) -> u32 {
        let Some(entry) = self.requests.get_mut(request) else {
            return 0;
        };
        entry.state = State::Matched;
        entry.posted = None;
        entry.source = Some(source);
        entry.status.match_info = match_info;
        entry.status.length = length;
        entry.memory.len().min(length)
    }

    /// Completes a matched receive that has all it gets.
    pub(crate) fn received(&mut self, request: Key, code: StatusCode, transferred: u32) {
        let Some(entry) = self.requests.get_mut(request) else {
            return;
        };
        self.copies.over(&entry.memory);
        let (length, room) = (entry.status.length, entry.memory.len());
        let (code, transferred) = match code {
            StatusCode::Success | StatusCode::Truncated if length > room => (StatusCode::Truncated, room),
            StatusCode::Success | StatusCode::Truncated => (StatusCode::Success, transferred.min(room)),
            code => (code, 0),
        };
        entry.status.transferred = transferred;
        self.requests.complete(request, code);
    }

    /// Copies a whole message to a matched receive, which is over then.
    #[inline]
    pub(crate) fn receive_whole(&mut self, request: Key, data: &[u8]) {
        if let Some(entry) = self.requests.get_mut(request) {
            entry.memory.write(0, data);
        }
        self.received(request, StatusCode::Success, data.len() as u32);
    }

    /// Receives a message from the endpoint itself, from where the program has it.
    pub(crate) fn receive_from(&mut self, request: Key, message: &Segments) {
        if let Some(entry) = self.requests.get_mut(request) {
            let wanted = entry.memory.len().min(message.len());
            let mut piece = vec![0; wanted.min(PIECE_LEN) as usize];
            let mut at = 0;
            // Not directly from one to the other: the program may have given one piece of memory for both.
            while at < wanted {
                piece.truncate((wanted - at) as usize);
                message.read_at(at, &mut piece);
                entry.memory.write(at, &piece);
                at += piece.len() as u32;
            }
        }
        self.received(request, StatusCode::Success, message.len());
    }

    /// Matches a receive with a message and gives it all of it: [`Self::matched`] and [`Self::receive_whole`] in one
    /// step. `write` writes the bytes, as many as there is room for.
    #[inline]
    fn arrive_whole(
        &mut self,
        request: Key,
        source: Source,
        (match_info, length): (u64, u32),
        write: impl FnOnce(&mut Segments),
    ) {
        let Some(entry) = self.requests.get_mut(request) else {
            return;
        };
        write(&mut entry.memory);
        self.copies.over(&entry.memory);
        let room = entry.memory.len();
        let code = if length > room {
            StatusCode::Truncated
        } else {
            StatusCode::Success
        };
        entry.posted = None;
        entry.source = Some(source);
        entry.status.match_info = match_info;
        entry.status.length = length;
        entry.status.transferred = length.min(room);
        self.requests.complete(request, code);
    }

    /// Adds the memory that a frame's payload names to a list for sending. False if its send is over.
    #[inline]
    pub(crate) fn append_parts<'a>(
        &'a self,
        token: Token,
        offset: u32,
        len: u32,
        parts: &mut Vec<IoSlice<'a>>,
    ) -> bool {
        let transfer = transfer_key(token).and_then(|key| self.transfers.get(key));
        match transfer {
            Some(Transfer::Send { bytes, .. }) => {
                match bytes {
                    SendBytes::Program(segments) => segments.append_parts(offset, len, parts),
                    SendBytes::Copy(data) => {
                        let range = offset as usize..(offset + len) as usize;
                        parts.extend(data.get(range).map(IoSlice::new));
                    }
                }
                true
            }
            _ => false,
        }
    }

    /// Returns a copy of the bytes that a send names; `None` if it is over, or the program has given its memory back.
    pub(crate) fn bytes_of(&self, token: Token) -> Option<Vec<u8>> {
        match self.transfers.get(transfer_key(token)?)? {
            Transfer::Send { bytes, .. } => match bytes {
                SendBytes::Program(segments) => segments.copied(),
                SendBytes::Copy(data) => Some(data.to_vec()),
            },
            _ => None,
        }
    }

    /// Takes a short message from another endpoint of this host, whose bytes `read` gives. False: there is no room for
    /// it now.
    #[inline]
    pub(crate) fn arrive_local(
        &mut self,
        source: Source,
        match_info: u64,
        length: u32,
        read: impl Fn(u32, &mut dyn FnMut(u32, &[u8])),
    ) -> bool {
        let envelope = self.local_envelope(source, match_info);
        if let Some(request) = self.table.posted.take(envelope) {
            self.arrive_whole(request, source, (match_info, length), |memory| {
                read(memory.len().min(length), &mut |at, data| memory.write(at, data));
            });
            return true;
        }
        if !self.table.unexpected.has_room(length.into()) {
            return false;
        }
        let mut data = Vec::with_capacity(length as usize);
        read(length, &mut |_, more| data.extend_from_slice(more));
        let body = UnexpBody::Whole(data.into_boxed_slice());
        self.keep(source, envelope, length, body, length as usize)
    }

    /// Takes the announcement of a long message from another endpoint of this host.
    pub(crate) fn announced_local(
        &mut self,
        source: Source,
        match_info: u64,
        length: u32,
        large: LocalLarge,
    ) -> LocalArrival {
        let envelope = self.local_envelope(source, match_info);
        if let Some(request) = self.table.posted.take(envelope) {
            let wanted = self.matched(request, source, match_info, length);
            return LocalArrival::Matched { request, wanted, large };
        }
        let bytes = ANNOUNCED_BYTES + size_of_val(&*large.list);
        if self.keep(source, envelope, length, UnexpBody::LargeLocal(large), bytes) {
            LocalArrival::Kept
        } else {
            LocalArrival::Refused
        }
    }

    fn keep(&mut self, source: Source, envelope: Envelope, length: u32, body: UnexpBody, bytes: usize) -> bool {
        let message = Unexp {
            source,
            envelope,
            length,
            body,
        };
        let Ok(id) = self.table.unexpected.add(envelope, bytes as u64, message) else {
            return false;
        };
        if self.has_handler {
            self.unseen.push(id);
        }
        true
    }

    /// Completes a connect to another endpoint of this host.
    pub(crate) fn connected_local(&mut self, request: Key, source: Option<Source>, code: StatusCode) {
        if let Some(entry) = self.requests.get_mut(request)
            && code == StatusCode::Success
        {
            entry.source = source;
        }
        self.requests.complete(request, code);
    }

    /// Forgets what this pair announced, because it cannot be had any more.
    pub(crate) fn forget_announced(&mut self, pair: u64) {
        let of_pair = |message: &Unexp| matches!(&message.body, UnexpBody::LargeLocal(large) if large.pair == pair);
        self.table.unexpected.remove_if(of_pair, |_| {});
    }

    fn arrive_posted(&mut self, request: Key, arrival: Arrival<'_>) -> Verdict {
        let source = Source::of(&arrival);
        let pulled = match arrival.body {
            Body::Whole(data) => {
                let message = (arrival.match_info, data.len() as u32);
                self.arrive_whole(request, source, message, |memory| memory.write(0, data));
                return Verdict::Take(0);
            }
            Body::Fragments => false,
            Body::Announced { .. } => true,
        };
        let wanted = self.matched(request, source, arrival.match_info, arrival.length);
        match self.transfers.insert(Transfer::receive(request, pulled)) {
            Some(key) if pulled => Verdict::Pull {
                receive: transfer_token(key),
                length: wanted,
            },
            Some(key) => Verdict::Take(transfer_token(key)),
            None => {
                self.received(request, StatusCode::Unreachable, 0);
                Verdict::Consumed
            }
        }
    }

    fn arrive_unexpected(&mut self, arrival: Arrival<'_>) -> Verdict {
        let (body, bytes, token) = match arrival.body {
            Body::Whole(data) => (UnexpBody::Whole(data.into()), data.len(), None),
            Body::Fragments => {
                let Some(key) = self.transfers.insert(Transfer::Unexpected { id: None }) else {
                    return Verdict::Refuse;
                };
                let memory = vec![0; arrival.length as usize].into_boxed_slice();
                let body = UnexpBody::Partial {
                    transfer: key,
                    data: memory,
                    has_head: false,
                };
                (body, arrival.length as usize, Some(key))
            }
            Body::Announced { large, head: announced } => {
                let mut head = [0; HEAD_LEN];
                let len = announced.len().min(HEAD_LEN);
                head[..len].copy_from_slice(&announced[..len]);
                (UnexpBody::Large { id: large, head }, 0, None)
            }
        };
        let envelope = envelope(&arrival);
        let message = Unexp {
            source: Source::of(&arrival),
            envelope,
            length: arrival.length,
            body,
        };
        match self.table.unexpected.add(envelope, bytes as u64, message) {
            Ok(id) => {
                if self.has_handler {
                    self.unseen.push(id);
                }
                if let Some(Transfer::Unexpected { id: name }) = token.and_then(|key| self.transfers.get_mut(key)) {
                    *name = Some(id);
                }
                Verdict::Take(token.map_or(0, transfer_token))
            }
            Err(_) => {
                if let Some(key) = token {
                    self.transfers.remove(key);
                }
                Verdict::Refuse
            }
        }
    }
}

/// Returns what matching knows of a message from another host.
#[inline]
const fn envelope(arrival: &Arrival<'_>) -> Envelope {
    Envelope {
        match_info: arrival.match_info,
        source: Some(arrival.source),
    }
}

impl Host for Store {
    #[inline]
    fn arrive(&mut self, arrival: Arrival<'_>) -> Verdict {
        match self.table.posted.take(envelope(&arrival)) {
            Some(request) => self.arrive_posted(request, arrival),
            None => self.arrive_unexpected(arrival),
        }
    }

    fn transfer_limit_ns(&self, receive: Token) -> Option<u64> {
        match transfer_key(receive).and_then(|key| self.transfers.get(key)) {
            Some(Transfer::Receive { request, .. }) => self.requests.get(*request)?.give_up_ns,
            _ => None,
        }
    }

    #[inline]
    fn deliver(&mut self, receive: Token, offset: u32, data: &[u8]) {
        match transfer_key(receive).and_then(|key| self.transfers.get_mut(key)) {
            Some(Transfer::Receive {
                request,
                pulled,
                last_copy,
            }) => {
                if let Some(entry) = self.requests.get_mut(*request) {
                    if *pulled && self.copies.takes(entry.status.length, data.len()) {
                        // SAFETY: what is pulled lies in the frame, which `Core::keep_frame` keeps until the copies are finished, and the
                        // request is over (`Core::copied`, with `received`) when they are.
                        let submitted = unsafe { entry.memory.write_by(offset, data, &mut self.copies) };
                        if submitted > 0 {
                            *last_copy = self.copies.count_packet(submitted == data.len());
                        }
                    } else {
                        entry.memory.write(offset, data);
                    }
                }
            }
            Some(Transfer::Unexpected { id: Some(id) }) => {
                if let Some(Unexp {
                    body: UnexpBody::Partial {
                        data: memory, has_head, ..
                    },
                    ..
                }) = self.table.unexpected.get_mut(*id)
                {
                    let at = offset as usize;
                    *has_head |= at == 0;
                    if let Some(place) = memory.get_mut(at..at + data.len()) {
                        place.copy_from_slice(data);
                    }
                }
            }
            _ => {}
        }
    }
}
