//! Posting: which path a message takes, and what a new receive finds among the unexpected messages.

use mxoe::{
    engine::{PartnerId, Posted, SendError, SendOptions},
    matching::Filter,
    wire::SESSION_NONE,
};

use super::Core;
use crate::{
    Address, Error, Request, SendUntil, StatusCode,
    address::PARTNER_SELF,
    memory::Segments,
    request::RequestKind,
    slab::Key,
    store::{SendBytes, Source, Transfer, Unexp, UnexpBody, transfer_token},
};

/// The longest message that the engine copies when it is posted.
pub(crate) const INLINE_LEN_MAX: usize = 128;

/// The rules by which messages of an endpoint are posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostingRules {
    /// The bits that every receive's mask must cover.
    pub(super) context_mask: u64,
    /// Medium messages are copied so that they complete early.
    pub(super) copies_mediums: bool,
}

/// A message whose frame went to the port before its record was made.
pub(crate) struct ImmediateSend {
    partner: PartnerId,
    went_out: bool,
}

impl Core {
    /// Posts a send to a partner or to the endpoint itself. `None`: a limit is reached, and the send was not taken.
    pub(crate) fn send(
        &mut self,
        memory: Segments,
        to: Address,
        match_info: u64,
        context: u64,
        until: SendUntil,
    ) -> Option<Key> {
        let length = memory.len();
        self.progress.sent();
        let request = self.store.requests.add(RequestKind::Send, match_info, context)?;
        if let Some(entry) = self.store.requests.get_mut(request) {
            entry.status.address = Some(to);
            entry.status.length = length;
        }
        if let Some(endpoint) = to.local_endpoint()
            && to.opened_by == self.own.opened_by
            && let Some(local) = &mut self.local
        {
            let target = (endpoint, to.session);
            local.send(
                &mut self.store,
                self.now,
                target,
                request,
                memory,
                (match_info, until == SendUntil::Matched),
            );
            return Some(request);
        }
        if let Some(code) = self.wrong_address(to) {
            self.store.requests.complete_send(request, code, 0);
            return Some(request);
        }
        let posted = if to.partner == PARTNER_SELF {
            self.send_to_own(request, memory, match_info, until)
        } else {
            match self.engine.partner_at(to.partner as usize) {
                Some(partner) if length as usize <= INLINE_LEN_MAX && until.may_be_early() => {
                    self.send_inline(request, &memory, partner, match_info)
                }
                Some(partner) => self.send_bulk(request, memory, partner, match_info, until),
                None => Err(SendError::NotConnected),
            }
        };
        match posted {
            Ok(()) => Some(request),
            Err(SendError::NotConnected | SendError::UnknownPeer | SendError::Gone) => {
                self.store.requests.complete(request, StatusCode::Unreachable);
                Some(request)
            }
            Err(SendError::TooMany | SendError::TooLong) => {
                self.store.requests.remove(request);
                None
            }
        }
    }

    /// Immediate send: hands the frame of a short message to the port before the message is recorded, if no other frame
    /// must go first. Call [`Core::finish_immediate_send`] next, with the same message.
    #[inline]
    pub(crate) fn begin_immediate_send(&mut self, data: &[u8], to: Address, match_info: u64) -> Option<ImmediateSend> {
        let partner = self.engine.partner_at(to.partner as usize)?;
        let may_go = data.len() <= INLINE_LEN_MAX
            && !self.is_stopped()
            && self.egress.may_send_immediately(|| to.mac == self.own.mac)
            && self.store.requests.has_room()
            && self.wrong_address(to).is_none();
        if !may_go {
            return None;
        }
        let head = self.egress.immediate_head();
        let len = self.engine.begin_immediate_send(partner, match_info, data, head)?;
        let direct_len_max = self.engine.peers_mut().direct_frame_len_max(self.now);
        let went_out = self.egress.send_immediately(len, direct_len_max);
        Some(ImmediateSend { partner, went_out })
    }

    /// Makes the request of a message that was handed over, and completes it.
    pub(crate) fn add_immediate_request(
        &mut self,
        len: u32,
        to: Address,
        (match_info, context): (u64, u64),
    ) -> Option<Key> {
        let request = self.store.requests.add(RequestKind::Send, match_info, context)?;
        if let Some(entry) = self.store.requests.get_mut(request) {
            entry.status.address = Some(to);
            entry.status.length = len;
        }
        self.early(request);
        Some(request)
    }

    /// Finishes [`Core::begin_immediate_send`]: makes the engine's record of the message, whose request is
    /// complete, or [is none](crate::request::NO_REQUEST).
    pub(crate) fn finish_immediate_send(
        &mut self,
        sent: ImmediateSend,
        data: &[u8],
        match_info: u64,
        request: Key,
        watched: bool,
    ) {
        self.progress.sent();
        // It was taken before it went out.
        let ImmediateSend { partner, went_out } = sent;
        let posted = self
            .engine
            .finish_immediate_send(self.now, partner, match_info, request, data, went_out);
        debug_assert!(matches!(posted, Ok(Posted::Early(_))));
        self.egress.batching_mut().allow_deferral();
        self.egress.batching_mut().posted(Some(self.now), watched);
    }

    /// Sends a short message to another endpoint of this host if there is nothing it would have to wait for. False:
    /// nothing was done.
    #[inline]
    pub(crate) fn send_local_immediately(&mut self, data: &[u8], to: Address, match_info: u64) -> bool {
        let Some(endpoint) = to.local_endpoint().filter(|_| to.opened_by == self.own.opened_by) else {
            return false;
        };
        let local = self.local.as_mut();
        local.is_some_and(|local| local.send_immediately((endpoint, to.session), data, match_info))
    }

    /// Says what is wrong with an address; for one of this host, only whether this endpoint knows it.
    pub(crate) fn wrong_address(&self, to: Address) -> Option<StatusCode> {
        if to.opened_by != self.own.opened_by {
            return Some(StatusCode::Unreachable);
        }
        if to.partner == PARTNER_SELF {
            return (to != self.own).then_some(StatusCode::Unreachable);
        }
        let partner = self.engine.partner_at(to.partner as usize)?;
        let (mac, endpoint, session) = self.engine.partner_address(partner)?;
        if (mac, endpoint) != (to.mac(), to.endpoint) {
            return Some(StatusCode::Unreachable);
        }
        // A partner that was given up has none: it does not answer, which is all that is known.
        let opened_anew = session != to.session && session != SESSION_NONE;
        opened_anew.then_some(StatusCode::BadSession)
    }

    /// Records that a send waits to go out with others.
    pub(crate) fn record_deferred(&mut self, request: Request) {
        let batch = self.egress.batching().batch();
        if let Some(entry) = self.store.requests.get_mut(request.0) {
            entry.batch = batch;
        }
    }

    fn early(&mut self, request: Key) {
        self.store.requests.complete_early(request);
    }

    fn send_inline(
        &mut self,
        request: Key,
        memory: &Segments,
        partner: PartnerId,
        match_info: u64,
    ) -> Result<(), SendError> {
        let mut copy = [0; INLINE_LEN_MAX];
        let data = if let Some(data) = memory.as_slice() {
            data
        } else {
            memory.read(&mut copy[..memory.len() as usize]);
            &copy[..memory.len() as usize]
        };
        match self.engine.send_inline(self.now, partner, match_info, request, data)? {
            Posted::Early(_) => {
                self.early(request);
                self.egress.batching_mut().allow_deferral();
            }
            Posted::Pending(send) => {
                if let Some(entry) = self.store.requests.get_mut(request) {
                    entry.send = Some(send);
                    entry.buffered = true;
                }
            }
        }
        Ok(())
    }

    fn send_bulk(
        &mut self,
        request: Key,
        memory: Segments,
        partner: PartnerId,
        match_info: u64,
        until: SendUntil,
    ) -> Result<(), SendError> {
        let length = memory.len();
        let transfer = Transfer::Send {
            request: Some(request),
            bytes: SendBytes::Program(memory),
        };
        let key = self.store.transfers.insert(transfer).ok_or(SendError::TooMany)?;
        let options = SendOptions {
            synchronous: until == SendUntil::Matched,
            copyable: self.posting.copies_mediums && until.may_be_early(),
        };
        let posted = self
            .engine
            .send(self.now, partner, match_info, transfer_token(key), length, options);
        match posted {
            Ok(Posted::Early(_)) => {
                if let Some(Transfer::Send { request, bytes }) = self.store.transfers.get_mut(key)
                    && let SendBytes::Program(memory) = bytes
                {
                    *bytes = SendBytes::Copy(memory.to_boxed());
                    *request = None;
                }
                self.early(request);
                if self.engine.config().dialect.sizes().fragments_of(length) == 1 {
                    self.egress.batching_mut().allow_deferral();
                }
                Ok(())
            }
            Ok(Posted::Pending(send)) => {
                if let Some(entry) = self.store.requests.get_mut(request) {
                    entry.send = Some(send);
                }
                Ok(())
            }
            Err(error) => {
                self.store.transfers.remove(key);
                Err(error)
            }
        }
    }

    /// Posts a message to the endpoint itself. As in MX, it is complete when it is matched, unless the program asks for
    /// less. Until then its bytes are kept, as long as there is room; otherwise they stay with the program, and the send
    /// is not buffered.
    fn send_to_own(
        &mut self,
        request: Key,
        memory: Segments,
        match_info: u64,
        until: SendUntil,
    ) -> Result<(), SendError> {
        let length = memory.len();
        let envelope = self.store.local_envelope(Source::Own, match_info);
        // A receive that waits for an older message comes first.
        let table = &mut self.store.table;
        let receive = if table.unexpected.is_awaited() {
            None
        } else {
            table.posted.take(envelope)
        };
        let in_place = receive.is_none() && !table.unexpected.has_room(length.into());
        let body = if in_place {
            UnexpBody::OwnInPlace(request, memory)
        } else {
            let data = memory.to_boxed();
            if let Some(entry) = self.store.requests.get_mut(request) {
                entry.buffered = true;
            }
            UnexpBody::Own(request, data)
        };
        let message = Unexp {
            source: Source::Own,
            envelope,
            length,
            body,
        };
        if let Some(receive) = receive {
            self.give(receive, message);
            return Ok(());
        }
        let unexpected = &mut self.store.table.unexpected;
        let added = if in_place {
            // There are no more of them than requests.
            unexpected.add_beyond(envelope, message)
        } else {
            unexpected.add(envelope, length.into(), message)
        };
        let id = added.map_err(|_| SendError::TooMany)?;
        if self.store.has_handler {
            self.store.unseen.push(id);
        }
        if !in_place && matches!(until, SendUntil::Buffered | SendUntil::Acknowledged) {
            self.early(request);
        }
        Ok(())
    }

    /// Completes a send to the endpoint itself, which was matched by a receive that took `taken` bytes.
    pub(crate) fn own_matched(&mut self, request: Key, taken: u32, length: u32) {
        if let Some(entry) = self.store.requests.get_mut(request) {
            entry.status.transferred = taken;
        }
        let code = if taken < length {
            StatusCode::Truncated
        } else {
            StatusCode::Success
        };
        self.store.requests.complete(request, code);
    }

    /// Posts a receive.
    pub(crate) fn receive(&mut self, memory: Segments, filter: Filter, context: u64) -> Result<Key, Error> {
        let selector = filter.selector;
        if selector.mask() & self.posting.context_mask != self.posting.context_mask {
            return Err(Error::BadMaskForContextId);
        }
        let request = self
            .store
            .requests
            .add(RequestKind::Receive, selector.info(), context)
            .ok_or(Error::NoResources)?;
        if let Some(entry) = self.store.requests.get_mut(request) {
            entry.memory = memory;
        }
        if let Some(message) = self.store.table.unexpected.take(filter) {
            self.give(request, message);
            // Messages that were refused for want of room are presented again.
            self.resume();
            return Ok(request);
        }
        let Some(posted) = self.store.table.posted.post(filter, request) else {
            self.store.requests.remove(request);
            return Err(Error::NoResources);
        };
        if let Some(entry) = self.store.requests.get_mut(request) {
            entry.posted = Some(posted);
        }
        // A message of this host that was refused may be the one that this receive is for.
        if let Some(local) = &mut self.local {
            local.resume_for(selector);
        }
        Ok(request)
    }

    /// Takes the messages that were refused, because there is room for unexpected messages again.
    pub(crate) fn resume(&mut self) {
        self.engine.resume(self.now, &mut self.store);
        if let Some(local) = &mut self.local {
            local.resume();
        }
    }

    /// Limits the transfer to a receive, if there is one, to this time.
    pub(crate) fn limit_transfer(&mut self, request: Key, limit_ns: u64) {
        let key = self
            .store
            .transfers
            .find(|transfer| matches!(transfer, Transfer::Receive { request: of, pulled: true, .. } if *of == request));
        if let Some(key) = key {
            self.engine.set_pull_give_up(transfer_token(key), limit_ns);
        }
    }

    /// Gives an unexpected message to a receive.
    pub(crate) fn give(&mut self, request: Key, message: Unexp) {
        let wanted = self
            .store
            .matched(request, message.source, message.envelope.match_info, message.length);
        match message.body {
            UnexpBody::Whole(data) => self.store.receive_whole(request, &data),
            UnexpBody::Partial {
                transfer: key, data, ..
            } => {
                // What is not there yet arrives in its place.
                if let Some(entry) = self.store.requests.get_mut(request) {
                    entry.memory.write(0, &data);
                }
                match self.store.transfers.get_mut(key) {
                    Some(transfer) => *transfer = Transfer::receive(request, false),
                    None => self.store.received(request, StatusCode::Unreachable, 0),
                }
            }
            UnexpBody::Large { id: large, .. } => {
                let key = self.store.transfers.insert(Transfer::receive(request, true));
                let pulled = key.map(|key| self.engine.pull(self.now, large, transfer_token(key), wanted));
                if let Some(limit_ns) = self.store.requests.get(request).and_then(|entry| entry.give_up_ns) {
                    self.limit_transfer(request, limit_ns);
                }
                if !matches!(pulled, Some(Ok(()))) {
                    if let Some(key) = key {
                        self.store.transfers.remove(key);
                    }
                    self.store.received(request, StatusCode::Unreachable, 0);
                }
            }
            UnexpBody::LargeLocal(large) => match &mut self.local {
                Some(local) => local.pull(large, request, wanted),
                None => self.store.received(request, StatusCode::Unreachable, 0),
            },
            UnexpBody::Own(send, data) => {
                self.store.receive_whole(request, &data);
                self.own_matched(send, wanted, message.length);
            }
            UnexpBody::OwnInPlace(send, memory) => {
                self.store.receive_from(request, &memory);
                self.own_matched(send, wanted, message.length);
            }
        }
    }
}
