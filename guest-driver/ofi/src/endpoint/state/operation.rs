//! An operation of a program between its posting and its end, with the memory that it needs.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::Arc,
};

use omx::{Address, MessageFilter, Request, Segment};

use super::access::{HEADER_LEN, Header};
use crate::regions::Region;

/// Every message begins with so many bytes of the provider.
pub(super) const PREFIX_LEN: usize = 8;
/// A message of up to so many bytes, the prefix among them, is put together in one piece: the library copies such a
/// message when it is posted.
pub(super) const SMALL_LEN_MAX: usize = 128;

/// The prefix of a message: four bytes of immediate data, then whether there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix(pub(super) [u8; PREFIX_LEN]);

impl Prefix {
    pub(super) const fn new(data: Option<u64>) -> Self {
        let word = match data {
            // A program gives four bytes: more are not supported.
            Some(data) => data & 0xffff_ffff | 1 << 32,
            None => 0,
        };
        Self(word.to_le_bytes())
    }

    pub(super) const fn data(self) -> Option<u64> {
        let word = u64::from_le_bytes(self.0);
        if word >> 32 == 0 {
            None
        } else {
            Some(word & 0xffff_ffff)
        }
    }
}

/// The memory of an operation that the library reads or writes: the prefix, and a small message behind it.
type Scratch = [u8; SMALL_LEN_MAX];

/// The header of an access is here in the memory of its operation, behind a prefix.
const HEADER_AT: usize = SMALL_LEN_MAX - HEADER_LEN;
const _: () = assert!(HEADER_AT >= PREFIX_LEN);

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is over, and kept for another one.
    None,
    Send,
    Receive,
    /// A buffer that takes one message after the other: `used` of its bytes are taken.
    MultiReceive {
        used: usize,
    },
    /// The program reads or writes the memory of another endpoint.
    Access(Header),
    /// A request of another endpoint is awaited.
    Request,
    /// The data of a write of another endpoint are awaited.
    Landing(Header),
    /// The access with this number of another endpoint is answered.
    Answer(u64),
}

/// What an operation with the memory of another endpoint, or for one, needs besides.
#[derive(Clone, Default)]
pub(super) struct Remote {
    pub(super) peer: Option<Address>,
    /// The requests of the library that an access waits for.
    pub(super) pending: u8,
    /// Why an access fails.
    pub(super) err: Option<c_int>,
    /// The region that the operation uses, which cannot be closed until then.
    pub(super) region: Option<Arc<Region>>,
}

/// What the completion of a send says.
pub(super) struct Sent {
    /// The program's name for the send.
    pub(super) context: *mut c_void,
    /// The flags of the completion.
    pub(super) flags: u64,
    /// The program wants to see the completion.
    pub(super) is_visible: bool,
}

/// An operation that goes on.
pub(super) struct Operation {
    pub(super) kind: Kind,
    /// The program's name for it.
    pub(super) context: *mut c_void,
    /// The flags of its completion.
    pub(super) flags: u64,
    /// The program wants to see its completion.
    pub(super) is_visible: bool,
    /// The first piece of the program's memory.
    pub(super) buffer: *mut c_void,
    /// The pieces of the program's memory.
    pub(super) pieces: Vec<Segment>,
    /// The messages that a receive takes.
    pub(super) filter: MessageFilter,
    /// The bytes of a receive's memory.
    pub(super) room: usize,
    /// The request of the library, once it is posted.
    pub(super) request: Option<Request>,
    /// The bytes of an injected message that is not small, or the memory for a request of another endpoint.
    pub(super) copy: Vec<u8>,
    pub(super) remote: Remote,
    scratch: *mut Scratch,
}

// SAFETY: the pointers are the program's, which promises that they may be used by any thread until the operation is over,
// or to memory of the operation's own.
unsafe impl Send for Operation {}

impl Operation {
    pub(super) fn new() -> Self {
        Self {
            kind: Kind::None,
            context: ptr::null_mut(),
            flags: 0,
            is_visible: false,
            buffer: ptr::null_mut(),
            pieces: Vec::new(),
            filter: MessageFilter::ANY,
            room: 0,
            request: None,
            copy: Vec::new(),
            remote: Remote::default(),
            scratch: Box::into_raw(Box::new([0; SMALL_LEN_MAX])),
        }
    }

    /// Whether this is a receive that goes on.
    pub(super) const fn is_receive(&self) -> bool {
        matches!(self.kind, Kind::Receive | Kind::MultiReceive { .. })
    }

    /// Returns what the completion of a send says.
    pub(super) const fn sent(&self) -> Sent {
        Sent {
            context: self.context,
            flags: self.flags,
            is_visible: self.is_visible,
        }
    }

    /// Returns the bytes of the program's memory.
    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len as usize).sum()
    }

    /// Returns the piece of memory with the prefix and `len` bytes behind it.
    pub(super) fn scratch(&self, len: usize) -> Segment {
        debug_assert!(PREFIX_LEN + len <= SMALL_LEN_MAX);
        Segment {
            ptr: self.scratch.cast(),
            len: (PREFIX_LEN + len) as u32,
        }
    }

    /// Writes the prefix of a message to be sent.
    pub(super) fn set_prefix(&mut self, prefix: Prefix) {
        // SAFETY: the scratch memory is this operation's own, and nothing of it is posted now.
        unsafe { self.scratch.cast::<[u8; PREFIX_LEN]>().write(prefix.0) };
    }

    /// Reads the prefix of a message that was received.
    pub(super) fn prefix(&self) -> Prefix {
        // SAFETY: as above: the request that wrote it is over.
        Prefix(unsafe { self.scratch.cast::<[u8; PREFIX_LEN]>().read() })
    }

    /// Writes the request of an access.
    pub(super) fn set_header(&mut self, header: &Header) {
        // SAFETY: as in `set_prefix`; it ends where the memory ends.
        unsafe {
            self.scratch
                .cast::<u8>()
                .add(HEADER_AT)
                .cast::<[u8; HEADER_LEN]>()
                .write(header.to_bytes());
        }
    }

    /// Returns the memory of the request of an access.
    pub(super) fn header_memory(&self) -> Segment {
        Segment {
            ptr: self.scratch.cast::<u8>().wrapping_add(HEADER_AT),
            len: HEADER_LEN as u32,
        }
    }

    /// Writes the answer to an access: 0, or an error number.
    pub(super) fn set_answer(&mut self, err: c_int) {
        self.set_prefix(Prefix(u64::from(err.unsigned_abs()).to_le_bytes()));
    }

    /// Reads the answer to an access.
    pub(super) fn answer(&self) -> u64 {
        u64::from_le_bytes(self.prefix().0)
    }

    /// Keeps a small message with its prefix.
    pub(super) fn set_small(&mut self, small: &[u8]) {
        debug_assert!(small.len() <= SMALL_LEN_MAX);
        // SAFETY: as above; a small message is no longer than the memory.
        unsafe { ptr::copy_nonoverlapping(small.as_ptr(), self.scratch.cast(), small.len().min(SMALL_LEN_MAX)) };
    }

    /// Copies further bytes behind those that are copied.
    ///
    /// # Safety
    /// The pieces can be read.
    pub(super) unsafe fn add_copy(&mut self, pieces: &[libc::iovec]) {
        for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(piece.iov_base.cast_const().cast::<u8>(), piece.iov_len) };
            self.copy.extend_from_slice(bytes);
        }
    }

    /// Copies the program's bytes, which become the operation's pieces.
    ///
    /// # Safety
    /// The pieces can be read.
    pub(super) unsafe fn keep(&mut self) {
        self.copy.clear();
        self.copy.reserve_exact(self.len());
        for piece in &self.pieces {
            if piece.len > 0 {
                // SAFETY: the caller's promise.
                let bytes = unsafe { std::slice::from_raw_parts(piece.ptr.cast_const(), piece.len as usize) };
                self.copy.extend_from_slice(bytes);
            }
        }
        self.pieces.clear();
        self.pieces.push(Segment::of_mut(&mut self.copy));
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody else frees it.
        drop(unsafe { Box::from_raw(self.scratch) });
    }
}
