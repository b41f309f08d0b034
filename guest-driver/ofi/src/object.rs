//! What the objects have in common: calls that most of them do not take.

use std::ffi::{c_int, c_void};

use crate::abi::*;

/// Answers a binding to an object that nothing can be bound to.
pub(crate) unsafe extern "C" fn bind_nothing(_fid: *mut Fid, _other: *mut Fid, _flags: u64) -> c_int {
    -FI_ENOSYS
}

/// Answers a command to an object that takes none.
pub(crate) unsafe extern "C" fn control_nothing(_fid: *mut Fid, _command: c_int, _argument: *mut c_void) -> c_int {
    -FI_ENOSYS
}

/// Whether a program waits by calls alone, without a descriptor or another object of its own.
pub(crate) fn waits_without_object(wait_object: c_int) -> bool {
    [FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD].contains(&wait_object)
}
