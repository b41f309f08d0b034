//! Receiving: posted receives, buffers for many messages, and messages that are looked at or claimed before they are
//! received.

use std::{ffi::c_void, sync::atomic::Ordering};

use omx::{Error, MessageFilter, Segment};

use super::{
    Guarded, State, UNTAGGED, error_number,
    operation::{Kind, PREFIX_LEN, Prefix},
    transmit::segment,
};
use crate::{
    abi::*,
    address_vector::key,
    completion_queue::{Completion, Failure},
    info::{IOV_LIMIT, MESSAGE_LEN_MAX, TAG_MASK},
};

/// The flags that a receive understands; the others of libfabric are refused.
const RECEIVE_FLAGS: u64 = FI_COMPLETION
    | FI_MULTI_RECV
    | FI_PEEK
    | FI_CLAIM
    | FI_DISCARD
    | FI_MORE
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MSG
    | FI_TAGGED;

/// A receive that a program posts.
#[derive(Clone, Copy)]
pub(in crate::endpoint) struct Receive<'a> {
    pub(in crate::endpoint) pieces: &'a [libc::iovec],
    pub(in crate::endpoint) from: FiAddr,
    /// The tag, and the bits of it that do not count. `None`: the receive is for untagged messages.
    pub(in crate::endpoint) tag: Option<(u64, u64)>,
    pub(in crate::endpoint) context: *mut c_void,
    /// `None`: the call is given no flags, those of the endpoint count.
    pub(in crate::endpoint) flags: Option<u64>,
}

impl Receive<'_> {
    /// Returns which messages the receive takes, from whomever.
    fn filter(&self) -> MessageFilter {
        let (info, tag_mask) = self.tag.map_or((UNTAGGED, 0), |(tag, ignored)| {
            (tag & TAG_MASK & !ignored, TAG_MASK & !ignored)
        });
        MessageFilter {
            match_info: info,
            match_mask: !TAG_MASK | tag_mask,
            source: None,
        }
    }

    const fn space(&self) -> u64 {
        FI_RECV | if self.tag.is_some() { FI_TAGGED } else { FI_MSG }
    }

    /// Returns an entry of the receive that says nothing of a message.
    fn entry(&self) -> FiCqTaggedEntry {
        FiCqTaggedEntry {
            op_context: self.context,
            flags: self.space(),
            len: 0,
            buf: std::ptr::null_mut(),
            data: 0,
            tag: self.tag.map_or(0, |(tag, _)| tag & TAG_MASK),
        }
    }
}

impl State {
    /// Posts a receive, or looks for a message, and returns 0 or a negative error number.
    ///
    /// # Safety
    /// The pieces stay valid, and are not used elsewhere, until the operation is over.
    pub(in crate::endpoint) unsafe fn receive(&self, receive: Receive<'_>) -> isize {
        if !self.enabled.load(Ordering::Relaxed) {
            return -FI_EOPBADSTATE as isize;
        }
        let flags = receive
            .flags
            .unwrap_or_else(|| self.receive_flags.load(Ordering::Relaxed));
        if flags & !RECEIVE_FLAGS != 0 || (receive.tag.is_some() && flags & FI_MULTI_RECV != 0) {
            return -FI_EBADFLAGS as isize;
        }
        let len = receive
            .pieces
            .iter()
            .fold(0_usize, |sum, piece| sum.saturating_add(piece.iov_len));
        if receive.pieces.len() > IOV_LIMIT || (flags & FI_MULTI_RECV != 0 && receive.pieces.len() != 1) {
            return -FI_EINVAL as isize;
        }
        let mut guarded = self.lock();
        let result = if flags & FI_PEEK != 0 {
            self.look(&mut guarded, &receive, flags)
        } else if flags & FI_CLAIM != 0 {
            // SAFETY: the caller's promise.
            unsafe { self.receive_claimed(&mut guarded, &receive, flags) }
        } else if len > MESSAGE_LEN_MAX && flags & FI_MULTI_RECV == 0 {
            Err(FI_EMSGSIZE)
        } else {
            self.post_receive(&mut guarded, &receive, flags)
        };
        match result {
            Ok(()) => 0,
            Err(err) => -err as isize,
        }
    }

    /// Returns which messages a receive takes: those of a peer alone if the program says so.
    fn filter(&self, guarded: &Guarded, receive: &Receive<'_>) -> Result<MessageFilter, i32> {
        let mut filter = receive.filter();
        if self.is_directed && receive.from != FI_ADDR_UNSPEC {
            let peers = guarded.bindings.peers.as_ref().ok_or(FI_ENOAV)?.peers();
            filter.source = Some(key(peers.get(receive.from).ok_or(FI_EINVAL)?));
        }
        Ok(filter)
    }

    /// Makes the operation of a receive.
    fn add_receive(&self, guarded: &mut Guarded, receive: &Receive<'_>, flags: u64, filter: MessageFilter) -> usize {
        let is_visible = guarded.bindings.shows_receive(flags);
        let (number, operation) = guarded.operation();
        operation.kind = if flags & FI_MULTI_RECV != 0 {
            Kind::MultiReceive { used: 0 }
        } else {
            Kind::Receive
        };
        operation.context = receive.context;
        operation.flags = receive.space();
        operation.is_visible = is_visible;
        operation.buffer = receive
            .pieces
            .first()
            .map_or(std::ptr::null_mut(), |piece| piece.iov_base);
        operation.filter = filter;
        operation.room = receive.pieces.iter().map(|piece| piece.iov_len).sum();
        operation.pieces.extend(receive.pieces.iter().map(segment));
        number
    }

    fn post_receive(&self, guarded: &mut Guarded, receive: &Receive<'_>, flags: u64) -> Result<(), i32> {
        if guarded.bindings.receive_queue.is_none() {
            return Err(FI_ENOCQ);
        }
        let filter = self.filter(guarded, receive)?;
        let number = self.add_receive(guarded, receive, flags, filter);
        if receive.tag.is_none() && guarded.multi_receive.is_some() {
            // It takes messages when the buffer before it is full.
            guarded.behind.push_back(number);
            return Ok(());
        }
        self.post_operation(guarded, number)
    }

    /// Hands a receive to the library.
    fn post_operation(&self, guarded: &mut Guarded, number: usize) -> Result<(), i32> {
        let operation = &mut guarded.operations[number];
        let mut list = [operation.scratch(0); IOV_LIMIT + 1];
        let mut count = 1;
        if let Kind::MultiReceive { used } = operation.kind {
            let room = (operation.room - used).min(MESSAGE_LEN_MAX);
            list[1] = Segment {
                ptr: operation.buffer.cast::<u8>().wrapping_add(used),
                len: room as u32,
            };
            count = 2;
            if operation.filter.source.is_none() {
                guarded.multi_receive = Some(number);
            }
        } else {
            list[1..=operation.pieces.len()].copy_from_slice(&operation.pieces);
            count += operation.pieces.len();
        }
        // SAFETY: the prefix is the operation's own, which stays until the request is over; the rest is the program's,
        // as it promised when it posted the receive.
        let posted = unsafe { self.omx.irecv_filtered(&list[..count], operation.filter, number as u64) };
        match posted {
            Ok(request) => {
                operation.request = Some(request);
                Ok(())
            }
            Err(error) => {
                if guarded.multi_receive == Some(number) {
                    guarded.multi_receive = None;
                }
                guarded.release(number);
                Err(match error {
                    Error::NoResources => FI_EAGAIN,
                    error => error_number(&error),
                })
            }
        }
    }

    /// Notes that a buffer for many messages took one: it takes the next one, or is given back.
    pub(super) fn filled(&self, guarded: &mut Guarded, number: usize, used: usize, mut completion: Completion) {
        let entry = &mut completion.entry;
        let operation = &mut guarded.operations[number];
        entry.buf = operation.buffer.cast::<u8>().wrapping_add(used).cast();
        let used = used + entry.len;
        let is_visible = operation.is_visible;
        operation.kind = Kind::MultiReceive { used };
        operation.request = None;
        let min_len = self.min_multi_receive_len.load(Ordering::Relaxed);
        if operation.room - used < min_len.max(1) || completion.failure.is_some() {
            entry.flags |= FI_MULTI_RECV;
            guarded.release(number);
            if guarded.multi_receive == Some(number) {
                self.next_multi_receive(guarded);
            }
        } else if let Err(err) = self.post_operation(guarded, number) {
            // The buffer is gone: the program posts it again.
            entry.flags |= FI_MULTI_RECV;
            crate::log::log(crate::log::Level::Error, || {
                format!("a receive cannot be posted again: error {err}")
            });
            self.next_multi_receive(guarded);
        }
        self.complete_receive(guarded, completion, is_visible);
    }

    /// Posts the receives behind a buffer for many messages that was given back, up to the next such buffer.
    pub(super) fn next_multi_receive(&self, guarded: &mut Guarded) {
        guarded.multi_receive = None;
        while guarded.multi_receive.is_none() {
            let Some(number) = guarded.behind.pop_front() else {
                return;
            };
            let operation = &guarded.operations[number];
            let entry = FiCqTaggedEntry {
                op_context: operation.context,
                flags: operation.flags,
                len: 0,
                buf: operation.buffer,
                data: 0,
                tag: 0,
            };
            if let Err(err) = self.post_operation(guarded, number) {
                let completion = Completion {
                    entry,
                    source: FI_ADDR_NOTAVAIL,
                    failure: Some(Failure { err, overflow_len: 0 }),
                };
                self.complete_receive(guarded, completion, true);
            }
        }
    }

    /// Looks for a message that has arrived and matches no receive (`FI_PEEK`): it is described, and claimed or dropped
    /// where the program says so.
    fn look(&self, guarded: &mut Guarded, receive: &Receive<'_>, flags: u64) -> Result<(), i32> {
        let filter = self.filter(guarded, receive)?;
        let claims = flags & (FI_CLAIM | FI_DISCARD) != 0;
        let found = if claims {
            self.omx
                .claim(filter)
                .map(|found| found.map(|(claim, message)| (Some(claim), message)))
        } else {
            self.omx
                .iprobe_filtered(filter)
                .map(|found| found.map(|message| (None, message)))
        }
        .map_err(|error| error_number(&error))?;
        let mut entry = receive.entry();
        let Some((claim, message)) = found else {
            let failure = Failure {
                err: FI_ENOMSG,
                overflow_len: 0,
            };
            let source = FI_ADDR_NOTAVAIL;
            let failure = Some(failure);
            self.tell_receive(guarded, Completion { entry, source, failure });
            return Ok(());
        };
        match claim {
            Some(claim) if flags & FI_DISCARD != 0 => {
                self.omx.drop_claimed(claim).map_err(|error| error_number(&error))?;
            }
            Some(claim) => _ = guarded.claims.insert(receive.context.addr(), claim),
            None => {}
        }
        let status = message.status;
        entry.len = (status.length as usize).saturating_sub(PREFIX_LEN);
        entry.tag = status.match_info & TAG_MASK;
        if let Some(data) = Prefix(message.head).data() {
            entry.flags |= FI_REMOTE_CQ_DATA;
            entry.data = data;
        }
        // Nothing was received, and nothing is counted.
        let completion = Completion {
            entry,
            source: self.source(guarded, status.address),
            failure: None,
        };
        self.tell_receive(guarded, completion);
        Ok(())
    }

    /// Receives, or drops, the message that was claimed under this context (`FI_CLAIM`).
    ///
    /// # Safety
    /// As [`Self::receive`].
    unsafe fn receive_claimed(&self, guarded: &mut Guarded, receive: &Receive<'_>, flags: u64) -> Result<(), i32> {
        let claim = guarded.claims.remove(&receive.context.addr()).ok_or(FI_EINVAL)?;
        if flags & FI_DISCARD != 0 {
            self.omx.drop_claimed(claim).map_err(|error| error_number(&error))?;
            self.tell_dropped(guarded, receive, flags);
            return Ok(());
        }
        let number = self.add_receive(guarded, receive, flags, receive.filter());
        let operation = &mut guarded.operations[number];
        let mut list = [operation.scratch(0); IOV_LIMIT + 1];
        list[1..=operation.pieces.len()].copy_from_slice(&operation.pieces);
        // SAFETY: as in `post_operation`.
        let posted = unsafe {
            self.omx
                .receive_claimed(claim, &list[..=operation.pieces.len()], number as u64)
        };
        match posted {
            Ok(request) => {
                operation.request = Some(request);
                Ok(())
            }
            Err(error) => {
                guarded.release(number);
                Err(error_number(&error))
            }
        }
    }

    /// Tells that a message that had been claimed is dropped, as for any other receive.
    fn tell_dropped(&self, guarded: &Guarded, receive: &Receive<'_>, flags: u64) {
        if !guarded.bindings.shows_receive(flags) {
            return;
        }
        let completion = Completion {
            entry: receive.entry(),
            source: FI_ADDR_NOTAVAIL,
            failure: None,
        };
        self.tell_receive(guarded, completion);
    }
}
