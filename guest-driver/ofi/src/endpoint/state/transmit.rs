//! Sending: a message of the program becomes a request of the library.

use std::{ffi::c_void, ptr, sync::atomic::Ordering};

use omx::{Address, Error, Segment, SendUntil};

use super::{
    Guarded, State, UNTAGGED, error_number,
    kept::Posting,
    operation::{Kind, Operation, PREFIX_LEN, Prefix, SMALL_LEN_MAX, Sent},
};
use crate::{
    abi::*,
    info::{INJECT_SIZE, IOV_LIMIT, MESSAGE_LEN_MAX, TAG_MASK},
};

/// The flags that a send understands; the others of libfabric are refused.
const SEND_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE
    | FI_REMOTE_CQ_DATA
    | FI_MORE
    | FI_FENCE
    | FI_MSG
    | FI_TAGGED;

/// A message that a program sends.
#[derive(Clone, Copy)]
pub(in crate::endpoint) struct Message<'a> {
    pub(in crate::endpoint) pieces: &'a [libc::iovec],
    pub(in crate::endpoint) to: FiAddr,
    /// `None`: the message is for untagged receives.
    pub(in crate::endpoint) tag: Option<u64>,
    pub(in crate::endpoint) data: Option<u64>,
    pub(in crate::endpoint) context: *mut c_void,
    /// `None`: the call is given no flags, those of the endpoint count.
    pub(in crate::endpoint) flags: Option<u64>,
    /// The program may use its memory again when the call returns, and does not want to hear of the message again.
    pub(in crate::endpoint) is_injected: bool,
}

impl<'a> Message<'a> {
    /// Makes a message for untagged receives, without data, whose completion is as the endpoint's flags say.
    pub(in crate::endpoint) const fn new(pieces: &'a [libc::iovec], to: FiAddr, context: *mut c_void) -> Self {
        Self {
            pieces,
            to,
            tag: None,
            data: None,
            context,
            flags: None,
            is_injected: false,
        }
    }

    /// Makes a message for untagged receives that is copied and never heard of again.
    pub(in crate::endpoint) const fn injected(pieces: &'a [libc::iovec], to: FiAddr) -> Self {
        Self {
            is_injected: true,
            ..Self::new(pieces, to, ptr::null_mut())
        }
    }

    /// Returns when the message is over, by the flags that count.
    const fn until(&self, flags: u64) -> SendUntil {
        match flags {
            _ if self.is_injected => SendUntil::Buffered,
            flags if flags & FI_MATCH_COMPLETE != 0 => SendUntil::Matched,
            flags if flags & FI_DELIVERY_COMPLETE != 0 => SendUntil::Acknowledged,
            _ => SendUntil::Buffered,
        }
    }
}

impl State {
    /// Sends a message, and returns 0 or a negative error number.
    ///
    /// # Safety
    /// The pieces stay valid and unchanged until the operation is over, or until this returns if the message is injected.
    pub(in crate::endpoint) unsafe fn transmit(&self, message: Message<'_>) -> isize {
        if !self.enabled.load(Ordering::Relaxed) {
            return -FI_EOPBADSTATE as isize;
        }
        let flags = message
            .flags
            .unwrap_or_else(|| self.transmit_flags.load(Ordering::Relaxed));
        if flags & !SEND_FLAGS != 0 {
            return -FI_EBADFLAGS as isize;
        }
        if message.pieces.len() > IOV_LIMIT {
            return -FI_EINVAL as isize;
        }
        let len = message
            .pieces
            .iter()
            .fold(0_usize, |sum, piece| sum.saturating_add(piece.iov_len));
        let copies = message.is_injected || flags & FI_INJECT != 0;
        if len > MESSAGE_LEN_MAX || (copies && len > INJECT_SIZE) {
            return -FI_EMSGSIZE as isize;
        }
        let mut guarded = self.lock();
        // SAFETY: the caller's promise.
        match unsafe { self.post(&mut guarded, &message, flags, len, copies) } {
            Ok(()) => 0,
            Err(FI_EAGAIN) => {
                // The program reads its queue next; not every one does.
                self.take_completions(&mut guarded);
                -FI_EAGAIN as isize
            }
            Err(err) => -err as isize,
        }
    }

    /// # Safety
    /// As [`Self::transmit`].
    unsafe fn post(
        &self,
        guarded: &mut Guarded,
        message: &Message<'_>,
        flags: u64,
        len: usize,
        copies: bool,
    ) -> Result<(), i32> {
        let to = self.peer(guarded, message.to)?;
        if to.is_none() && !guarded.kept.has_room() {
            return Err(FI_EAGAIN);
        }
        let Some(binding) = &guarded.bindings.transmit_queue else {
            return Err(FI_ENOCQ);
        };
        let sent = Sent {
            context: if message.is_injected {
                ptr::null_mut()
            } else {
                message.context
            },
            flags: FI_SEND | if message.tag.is_some() { FI_TAGGED } else { FI_MSG },
            is_visible: !message.is_injected && (!binding.is_selective || flags & FI_COMPLETION != 0),
        };
        let until = message.until(flags);
        let match_info = message.tag.map_or(UNTAGGED, |tag| tag & TAG_MASK);
        let prefix = Prefix::new(message.data);
        let mut small = [0; SMALL_LEN_MAX];
        let is_small = PREFIX_LEN + len <= SMALL_LEN_MAX;
        if is_small {
            // SAFETY: the caller's promise.
            let small = unsafe { assemble(&mut small, prefix, message.pieces) };
            if let Some(to) = to
                && until == SendUntil::Buffered
                && self
                    .omx
                    .send_immediately(small, to, match_info)
                    .map_err(|error| error_number(&error))?
            {
                guarded.statistics.sent(len);
                self.complete_send(guarded, &sent, None);
                return Ok(());
            }
        }
        let (number, operation) = guarded.operation_of_send(&sent);
        if is_small {
            operation.set_small(&small[..PREFIX_LEN + len]);
        } else {
            operation.set_prefix(prefix);
            operation.pieces.extend(message.pieces.iter().map(segment));
            if copies {
                // SAFETY: the caller's promise: the pieces can be read now.
                unsafe { operation.keep() };
            }
        }
        let posting = Posting {
            number,
            small_len: if is_small { len } else { 0 },
            match_info,
            until,
            len,
        };
        self.hand_over_or_keep(guarded, posting, (message.to, to))
    }

    /// Hands the message of an operation to the library, or keeps it until the peer of this number has an address. The operation is
    /// over if that fails.
    pub(super) fn hand_over_or_keep(
        &self,
        guarded: &mut Guarded,
        posting: Posting,
        (peer, to): (FiAddr, Option<Address>),
    ) -> Result<(), i32> {
        let Some(to) = to else {
            guarded.kept.push(peer, posting);
            // The answer may be here.
            self.take_completions(guarded);
            return Ok(());
        };
        let posted = self.hand_over(guarded, &posting, to);
        if posted.is_err() {
            guarded.release(posting.number);
        }
        posted
    }

    /// Hands the message of an operation to the library.
    pub(super) fn hand_over(&self, guarded: &mut Guarded, posting: &Posting, to: Address) -> Result<(), i32> {
        if let Kind::Access(header) = guarded.operations[posting.number].kind {
            return self.ask(guarded, posting.number, &header, to);
        }
        let operation = &mut guarded.operations[posting.number];
        let mut list = [operation.scratch(posting.small_len); IOV_LIMIT + 1];
        list[1..=operation.pieces.len()].copy_from_slice(&operation.pieces);
        let list = &list[..=operation.pieces.len()];
        let context = posting.number as u64;
        // SAFETY: the memory is the operation's own, which stays until the request is over, or the program's, as it
        // promises with every send.
        let posted = unsafe {
            self.omx
                .isend_until(list, to, posting.match_info, context, posting.until)
        };
        match posted {
            Ok(request) => {
                operation.request = Some(request);
                guarded.statistics.sent(posting.len);
                Ok(())
            }
            Err(Error::NoResources) => Err(FI_EAGAIN),
            Err(error) => Err(error_number(&error)),
        }
    }
}

impl Guarded {
    /// Returns an operation that sends, to be filled in, and its number.
    pub(super) fn operation_of_send(&mut self, sent: &Sent) -> (usize, &mut Operation) {
        let (number, operation) = self.operation();
        operation.kind = Kind::Send;
        operation.context = sent.context;
        operation.flags = sent.flags;
        operation.is_visible = sent.is_visible;
        (number, operation)
    }
}

/// Puts a small message together behind its prefix.
///
/// # Safety
/// The pieces can be read, and are no longer than fits.
unsafe fn assemble<'a>(small: &'a mut [u8; SMALL_LEN_MAX], prefix: Prefix, pieces: &[libc::iovec]) -> &'a [u8] {
    small[..PREFIX_LEN].copy_from_slice(&prefix.0);
    let mut at = PREFIX_LEN;
    for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
        let place = &mut small[at..at + piece.iov_len];
        // SAFETY: the caller's promise; `place` is this function's.
        unsafe { ptr::copy_nonoverlapping(piece.iov_base.cast_const().cast(), place.as_mut_ptr(), piece.iov_len) };
        at += piece.iov_len;
    }
    &small[..at]
}

/// Translates a piece of the program's memory. Its length was checked with the others'.
pub(super) fn segment(piece: &libc::iovec) -> Segment {
    Segment {
        ptr: piece.iov_base.cast(),
        len: piece.iov_len as u32,
    }
}
