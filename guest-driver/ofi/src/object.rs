//! What the objects have in common: calls that most of them do not take.

use std::{
    ffi::{c_int, c_void},
    slice,
    time::{Duration, Instant},
};

use crate::abi::*;

/// Makes the table of an object that can only be closed.
pub(crate) const fn closes_by(close: unsafe extern "C" fn(*mut Fid) -> c_int) -> FidOps {
    FidOps {
        size: size_of::<FidOps>(),
        close,
        bind: bind_nothing,
        control: control_nothing,
        ops_open: unsupported,
        tostr: unsupported,
        ops_set: unsupported,
    }
}

/// Returns when a call ends that may take so many milliseconds; `None` for a negative number, which is no limit.
pub(crate) fn deadline(timeout_ms: c_int) -> Option<Instant> {
    let limit_ms = u64::try_from(timeout_ms).ok()?;
    Some(Instant::now() + Duration::from_millis(limit_ms))
}

/// Answers a binding to an object that nothing can be bound to.
unsafe extern "C" fn bind_nothing(_fid: *mut Fid, _other: *mut Fid, _flags: u64) -> c_int {
    -FI_ENOSYS
}

/// Answers a command to an object that takes none.
unsafe extern "C" fn control_nothing(_fid: *mut Fid, _command: c_int, _argument: *mut c_void) -> c_int {
    -FI_ENOSYS
}

/// Whether a program waits by calls alone, without a descriptor or another object of its own.
pub(crate) fn waits_without_object(wait_object: c_int) -> bool {
    [FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD].contains(&wait_object)
}

/// Returns the pieces of memory that a program lists.
///
/// # Safety
/// There are `count` pieces, or none.
pub(crate) unsafe fn list<'a>(pieces: *const libc::iovec, count: usize) -> &'a [libc::iovec] {
    if count == 0 || pieces.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(pieces, count) }
}
