//! Reads and writes of the memory of others: what the endpoint that asks for them does. The other one is in `serve`.
//!
//! An access is a request, with the data of a short write, and an answer. The data of a longer write are a message of their own, which the
//! other endpoint receives in its place; those of a read come with the answer. Long ones are pulled, as every long message is.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::Ordering,
};

use omx::{Address, Error, MessageFilter, Segment, SendUntil, Status, StatusCode};

use super::{
    Guarded, State,
    kept::Posting,
    operation::{Kind, PREFIX_LEN, Prefix, Remote, Sent},
    transmit::segment,
};
use crate::{
    abi::*,
    atomic::{Atomic, OPERAND_LEN_MAX},
    completion_queue::Failure,
    info::{INJECT_SIZE, IOV_LIMIT, MESSAGE_LEN_MAX},
};

/// The match information of a request.
pub(super) const REQUEST: u64 = 1 << 62;
/// With the number of an access: its data, from the endpoint that asked for it.
pub(super) const WRITTEN: u64 = 1 << 61;
/// With the number of an access: the answer, and what was read.
pub(super) const ANSWER: u64 = 1 << 60;
/// Accesses are numbered below this.
const NUMBERS: u64 = 1 << 48;
/// Requests of the library with this bit in their context carry an access to the other endpoint.
pub(super) const CARRIES: u64 = 1 << 62;

/// The bytes of a request before data.
pub(super) const HEADER_LEN: usize = 48;
/// The longest request in bytes: a longer write has its data in a message of their own.
pub(super) const REQUEST_LEN_MAX: usize = 8192;
const _: () = assert!(HEADER_LEN + INJECT_SIZE <= REQUEST_LEN_MAX);

/// The flags that an access understands; the others of libfabric are refused.
const ACCESS_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_REMOTE_CQ_DATA
    | FI_MORE
    | FI_RMA
    | FI_ATOMIC
    | FI_READ
    | FI_WRITE;

/// What is to happen to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::endpoint) enum Action {
    Read,
    Write,
    Atomic(Atomic),
}

impl Action {
    /// Whether the answer has what was in the memory.
    pub(super) const fn fetches(self) -> bool {
        match self {
            Self::Read => true,
            Self::Write => false,
            Self::Atomic(atomic) => atomic.fetches,
        }
    }

    /// Returns the bytes behind a request for memory of this length.
    fn data_len(self, len: u64, data_follow: bool) -> u64 {
        match self {
            Self::Write if !data_follow => len,
            Self::Read | Self::Write => 0,
            Self::Atomic(atomic) => len * (u64::from(atomic.has_operand()) + u64::from(atomic.compares())),
        }
    }
}

/// What a request says, in words of eight bytes, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The immediate data of a write.
    pub(super) prefix: Prefix,
    pub(super) action: Action,
    /// The data of the write are in a message of their own.
    pub(super) data_follow: bool,
    pub(super) key: u64,
    pub(super) address: u64,
    pub(super) len: u64,
    /// The number of the access.
    pub(super) number: u64,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let action = match (self.action, self.data_follow) {
            (Action::Read, _) => 0,
            (Action::Write, false) => 1,
            (Action::Write, true) => 2,
            (Action::Atomic(atomic), _) => 3 | atomic.to_bits() << 8,
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..PREFIX_LEN].copy_from_slice(&self.prefix.0);
        let words = [action, self.key, self.address, self.len, self.number];
        for (place, word) in bytes[PREFIX_LEN..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&u64::to_le_bytes(word));
        }
        bytes
    }

    /// Reads a request of another endpoint, with the data behind it. `None`: it says nothing that makes sense.
    pub(super) fn read(request: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, data) = request.split_first_chunk::<HEADER_LEN>()?;
        let mut words = [0; HEADER_LEN / 8];
        for (word, place) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*place);
        }
        let [prefix, action, key, address, len, number] = words;
        let (action, data_follow) = match action {
            0 => (Action::Read, false),
            1 => (Action::Write, false),
            2 => (Action::Write, true),
            atomic if atomic & 0xff == 3 => (Action::Atomic(Atomic::from_bits(atomic >> 8)?), false),
            _ => return None,
        };
        let is_whole = match action {
            Action::Atomic(atomic) => len <= OPERAND_LEN_MAX as u64 && len.is_multiple_of(atomic.size() as u64),
            Action::Read | Action::Write => len <= MESSAGE_LEN_MAX as u64,
        };
        let fits = is_whole && number < NUMBERS && data.len() as u64 == action.data_len(len, data_follow);
        let header = Self {
            prefix: Prefix(prefix.to_le_bytes()),
            action,
            data_follow,
            key,
            address,
            len,
            number,
        };
        fits.then_some((header, data))
    }
}

/// An access that a program asks for.
#[derive(Clone, Copy)]
pub(in crate::endpoint) struct RemoteAccess<'a> {
    pub(in crate::endpoint) action: Action,
    /// The program's memory.
    pub(in crate::endpoint) pieces: &'a [libc::iovec],
    pub(in crate::endpoint) to: FiAddr,
    pub(in crate::endpoint) address: u64,
    pub(in crate::endpoint) key: u64,
    pub(in crate::endpoint) context: *mut c_void,
    pub(in crate::endpoint) is_injected: bool,
    /// The operands of an atomic operation, and what they are compared with: they are copied.
    pub(in crate::endpoint) operands: [&'a [libc::iovec]; 2],
    pub(in crate::endpoint) data: Option<u64>,
    /// `None`: the call is given no flags, those of the endpoint count.
    pub(in crate::endpoint) flags: Option<u64>,
    /// The length of the other memory, where the call gives one.
    pub(in crate::endpoint) other_len: Option<usize>,
}

impl<'a> RemoteAccess<'a> {
    /// Makes a read of the memory at an address, of the region with a key.
    pub(in crate::endpoint) const fn read(
        pieces: &'a [libc::iovec],
        to: FiAddr,
        (address, key): (u64, u64),
        context: *mut c_void,
    ) -> Self {
        Self {
            action: Action::Read,
            pieces,
            to,
            address,
            key,
            context,
            is_injected: false,
            operands: [&[], &[]],
            data: None,
            flags: None,
            other_len: None,
        }
    }

    /// Makes a write to the memory at an address, of the region with a key.
    pub(in crate::endpoint) const fn write(
        pieces: &'a [libc::iovec],
        to: FiAddr,
        place: (u64, u64),
        context: *mut c_void,
    ) -> Self {
        Self {
            action: Action::Write,
            ..Self::read(pieces, to, place, context)
        }
    }

    /// Makes an atomic operation on the memory at an address. The old values go to the pieces.
    pub(in crate::endpoint) const fn atomic(
        atomic: Atomic,
        operands: [&'a [libc::iovec]; 2],
        results: &'a [libc::iovec],
        (to, place): (FiAddr, (u64, u64)),
        context: *mut c_void,
    ) -> Self {
        Self {
            action: Action::Atomic(atomic),
            operands,
            ..Self::read(results, to, place, context)
        }
    }

    /// Returns the bytes of the other memory.
    fn len(&self) -> usize {
        let pieces = match self.action {
            Action::Atomic(atomic) if !atomic.fetches => self.operands[0],
            _ => self.pieces,
        };
        pieces
            .iter()
            .fold(0_usize, |sum, piece| sum.saturating_add(piece.iov_len))
    }

    /// Whether there is an operand for each value, and something to compare, as the operation wants them.
    fn has_operands(&self, atomic: Atomic, len: usize) -> bool {
        let [operands, compared] = self
            .operands
            .map(|pieces| pieces.iter().map(|piece| piece.iov_len).sum::<usize>());
        let expected = |is_wanted: bool| if is_wanted { len } else { 0 };
        len.is_multiple_of(atomic.size())
            && operands == expected(atomic.has_operand())
            && compared == expected(atomic.compares())
    }

    /// Returns the flags of the completion.
    const fn flags(&self) -> u64 {
        match self.action {
            Action::Read => FI_RMA | FI_READ,
            Action::Write => FI_RMA | FI_WRITE,
            Action::Atomic(atomic) if atomic.fetches => FI_ATOMIC | FI_READ,
            Action::Atomic(_) => FI_ATOMIC | FI_WRITE,
        }
    }

    /// Makes a write that is copied and never heard of again.
    pub(in crate::endpoint) const fn injected(
        pieces: &'a [libc::iovec],
        to: FiAddr,
        place: (u64, u64),
        data: Option<u64>,
    ) -> Self {
        Self {
            is_injected: true,
            data,
            ..Self::write(pieces, to, place, ptr::null_mut())
        }
    }
}

impl State {
    /// Begins an access, and returns 0 or a negative error number.
    ///
    /// # Safety
    /// The pieces stay valid and unused elsewhere until the operation is over, or until this returns if the access is injected.
    pub(in crate::endpoint) unsafe fn access(&self, access: RemoteAccess<'_>) -> isize {
        if !self.has_remote_access {
            return -FI_ENOSYS as isize;
        }
        if !self.enabled.load(Ordering::Relaxed) {
            return -FI_EOPBADSTATE as isize;
        }
        let defaults = || self.transmit_flags.load(Ordering::Relaxed) & ACCESS_FLAGS;
        let flags = access.flags.unwrap_or_else(defaults);
        if flags & !ACCESS_FLAGS != 0 {
            return -FI_EBADFLAGS as isize;
        }
        let len = access.len();
        let pieces_max = access.operands.iter().map(|pieces| pieces.len()).max();
        if access.pieces.len().max(pieces_max.unwrap_or(0)) > IOV_LIMIT
            || access.other_len.is_some_and(|other| other != len)
        {
            return -FI_EINVAL as isize;
        }
        let copies = access.action == Action::Write && (access.is_injected || flags & FI_INJECT != 0);
        let len_max = match access.action {
            Action::Atomic(_) => OPERAND_LEN_MAX,
            Action::Read | Action::Write if copies => INJECT_SIZE,
            Action::Read | Action::Write => MESSAGE_LEN_MAX,
        };
        if len > len_max {
            return -FI_EMSGSIZE as isize;
        }
        if let Action::Atomic(atomic) = access.action
            && !access.has_operands(atomic, len)
        {
            return -FI_EINVAL as isize;
        }
        let mut guarded = self.lock();
        // SAFETY: the caller's promise.
        match unsafe { self.post_access(&mut guarded, &access, (flags, len, copies)) } {
            Ok(()) => 0,
            Err(err) => {
                if err == FI_EAGAIN {
                    // As for a send.
                    self.take_completions(&mut guarded);
                }
                -err as isize
            }
        }
    }

    /// # Safety
    /// As [`Self::access`].
    unsafe fn post_access(
        &self,
        guarded: &mut Guarded,
        access: &RemoteAccess<'_>,
        (flags, len, copies): (u64, usize, bool),
    ) -> Result<(), c_int> {
        let to = self.peer(guarded, access.to)?;
        if to.is_none() && !guarded.kept.has_room() {
            return Err(FI_EAGAIN);
        }
        let Some(binding) = &guarded.bindings.transmit_queue else {
            return Err(FI_ENOCQ);
        };
        let sent = Sent {
            context: access.context,
            flags: access.flags(),
            is_visible: !access.is_injected && (!binding.is_selective || flags & FI_COMPLETION != 0),
        };
        guarded.service.accesses = (guarded.service.accesses + 1) % NUMBERS;
        let header = Header {
            prefix: Prefix::new(access.data),
            action: access.action,
            data_follow: access.action == Action::Write && HEADER_LEN + len > REQUEST_LEN_MAX,
            key: access.key,
            address: access.address,
            len: len as u64,
            number: guarded.service.accesses,
        };
        let (number, operation) = guarded.operation_of_send(&sent);
        operation.kind = Kind::Access(header);
        operation.pieces.extend(access.pieces.iter().map(segment));
        // SAFETY: the caller's promise: the pieces and the operands can be read now.
        unsafe {
            if copies {
                operation.keep();
            }
            for pieces in access.operands {
                operation.add_copy(pieces);
            }
        }
        let posting = Posting {
            number,
            small_len: 0,
            match_info: REQUEST,
            until: SendUntil::Buffered,
            len,
        };
        self.hand_over_or_keep(guarded, posting, (access.to, to))
    }

    /// Asks the other endpoint for an access: the answer is awaited, and the request goes out.
    pub(super) fn ask(&self, guarded: &mut Guarded, number: usize, header: &Header, to: Address) -> Result<(), c_int> {
        let operation = &mut guarded.operations[number];
        operation.set_header(header);
        let mut list = [operation.scratch(0); IOV_LIMIT + 1];
        let pieces = &operation.pieces;
        list[1..=pieces.len()].copy_from_slice(pieces);
        let (with_data, alone) = (&list[..=pieces.len()], &list[..1]);
        let filter = MessageFilter {
            match_info: ANSWER | header.number,
            match_mask: u64::MAX,
            source: Some(to.source_key()),
        };
        let room = if header.action.fetches() { with_data } else { alone };
        // SAFETY: the memory is the operation's own, which stays until all its requests are over, or the program's, as it promises
        // with every access.
        let answer = unsafe { self.omx.irecv_filtered(room, filter, number as u64) }.map_err(posting_error)?;
        let mut request = list;
        request[0] = operation.header_memory();
        let count = match header.action {
            Action::Write if !header.data_follow => pieces.len(),
            Action::Read | Action::Write => 0,
            Action::Atomic(_) => {
                request[1] = Segment::of(&operation.copy);
                1
            }
        };
        let request = &request[..=count];
        let context = number as u64 | CARRIES;
        // SAFETY: as above.
        let sent = unsafe { self.omx.isend_until(request, to, REQUEST, context, SendUntil::Buffered) };
        if let Err(error) = sent {
            // It has no message: nothing was asked for.
            let _ = self.omx.cancel(answer);
            return Err(posting_error(error));
        }
        operation.request = Some(answer);
        operation.remote = Remote {
            peer: Some(to),
            pending: 2,
            ..Remote::default()
        };
        if header.data_follow {
            guarded.service.owed.push_back(number);
            self.send_owed(guarded);
        }
        Ok(())
    }

    /// Sends the data of a write that does not fit in its request. False: the library has no room now.
    pub(super) fn send_written(&self, guarded: &mut Guarded, number: usize, header: &Header) -> bool {
        let operation = &mut guarded.operations[number];
        let Some(to) = operation.remote.peer else { return true };
        let (info, context) = (WRITTEN | header.number, number as u64 | CARRIES);
        // SAFETY: as in `ask`.
        let sent = unsafe {
            self.omx
                .isend_until(&operation.pieces, to, info, context, SendUntil::Buffered)
        };
        match sent {
            Ok(_) => operation.remote.pending += 1,
            Err(Error::NoResources) => return false,
            // The endpoint is closed.
            Err(_) => {}
        }
        true
    }

    /// Notes that a message of an access has gone, or cannot go.
    pub(super) fn carried(&self, guarded: &mut Guarded, number: usize, status: &Status) {
        if !matches!(status.code, StatusCode::Success | StatusCode::Truncated) {
            let failure = self.failure(guarded, status.code, status.address);
            let operation = &mut guarded.operations[number];
            operation.remote.err.get_or_insert(failure.err);
            // No answer will come.
            if let Some(answer) = operation.request
                && self.omx.cancel(answer).unwrap_or(false)
            {
                operation.request = None;
                operation.remote.pending -= 1;
            }
        }
        self.end_part(guarded, number);
    }

    /// Takes the answer to an access.
    pub(super) fn answered(&self, guarded: &mut Guarded, number: usize, header: &Header, status: &Status) {
        let expected = PREFIX_LEN
            + if header.action.fetches() {
                header.len as usize
            } else {
                0
            };
        let err = match status.code {
            StatusCode::Success => match guarded.operations[number].answer() {
                0 if status.transferred as usize == expected => None,
                // A number of this system's, or nonsense.
                err @ 1..=4095 => Some(err as c_int),
                _ => Some(FI_EIO),
            },
            StatusCode::Truncated => Some(FI_EIO),
            code => Some(self.failure(guarded, code, status.address).err),
        };
        let operation = &mut guarded.operations[number];
        operation.request = None;
        operation.remote.err = operation.remote.err.or(err);
        self.end_part(guarded, number);
    }

    /// Ends a request of an access, and the access with the last one.
    fn end_part(&self, guarded: &mut Guarded, number: usize) {
        let operation = &mut guarded.operations[number];
        let Kind::Access(header) = operation.kind else { return };
        operation.remote.pending = operation.remote.pending.saturating_sub(1);
        if operation.remote.pending > 0 {
            return;
        }
        // What was not sent, because the other endpoint refused it first, is not sent any more.
        guarded.service.owed.retain(|owed| *owed != number);
        let operation = &guarded.operations[number];
        let (sent, err) = (operation.sent(), operation.remote.err);
        guarded.release(number);
        if err.is_none() {
            if header.action.fetches() {
                guarded.statistics.received(header.len as usize);
            } else {
                guarded.statistics.sent(header.len as usize);
            }
        }
        let failure = err.map(|err| Failure { err, overflow_len: 0 });
        self.complete_send(guarded, &sent, failure);
    }
}

/// Returns the error number of what the library refused.
fn posting_error(error: Error) -> c_int {
    match error {
        Error::NoResources => FI_EAGAIN,
        error => super::error_number(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(action: Action, data_follow: bool, len: u64) -> Header {
        Header {
            prefix: Prefix::new(Some(7)),
            action,
            data_follow,
            key: 1 << 63 | 5,
            address: 0x7fff_1234_5678,
            len,
            number: NUMBERS - 1,
        }
    }

    #[test]
    fn a_request_survives_the_wire_with_its_data() {
        let cases = [
            (header(Action::Read, false, 1 << 20), 0),
            (header(Action::Write, true, 1 << 20), 0),
            (header(Action::Write, false, 100), 100),
        ];
        for (header, data_len) in cases {
            let mut bytes = header.to_bytes().to_vec();
            bytes.resize(HEADER_LEN + data_len, 9);
            assert_eq!(Header::read(&bytes), Some((header, &bytes[HEADER_LEN..])));
        }
    }

    #[test]
    fn requests_that_make_no_sense_are_refused() {
        let good = header(Action::Write, false, 4).to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = [&good[..], &[0; 4]].concat();
            bytes[at] = byte;
            bytes
        };
        assert!(Header::read(&with(0, 0)).is_some());
        for (bytes, why) in [
            (Vec::new(), "nothing"),
            (good[..HEADER_LEN - 1].to_vec(), "a part of it"),
            (good.to_vec(), "without its data"),
            (with(8, 4), "another action"),
            (with(9, 1), "another action"),
            (with(32, 5), "less data than it says"),
            (with(8, 0), "data of a read"),
            (with(8, 2), "data twice"),
            (with(46, 1), "a number that is too high"),
        ] {
            assert_eq!(Header::read(&bytes), None, "{why}");
        }
        let long = header(Action::Read, false, MESSAGE_LEN_MAX as u64 + 1).to_bytes();
        assert_eq!(Header::read(&long), None, "more than a message holds");
    }
}
