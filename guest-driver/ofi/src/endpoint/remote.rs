//! The functions by which programs read and write the memory of others.

use std::ffi::c_void;

use super::{state, state::RemoteAccess, tagged::piece};
use crate::{abi::*, object::list};

/// The table of the functions.
pub(super) static OPS: RmaOps = RmaOps {
    size: size_of::<RmaOps>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

unsafe extern "C" fn read(
    ep: *mut FidEp,
    start: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    to: FiAddr,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let pieces = [piece(start, len)];
    let access = RemoteAccess::read(&pieces, to, (address, key), context);
    // SAFETY: libfabric's promise for this call: the memory stays until the completion.
    unsafe { state(ep).access(access) }
}

unsafe extern "C" fn readv(
    ep: *mut FidEp,
    pieces: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's promise for this call: the memory stays until the completion.
    unsafe { state(ep).access(RemoteAccess::read(list(pieces, count), to, (address, key), context)) }
}

unsafe extern "C" fn readmsg(ep: *mut FidEp, message: *const FiMsgRma, flags: u64) -> isize {
    // SAFETY: as in `readv`; the description is valid during this call.
    unsafe {
        let message = &*message;
        let [place] = places(message) else {
            return -FI_EINVAL as isize;
        };
        let pieces = list(message.msg_iov, message.iov_count);
        state(ep).access(RemoteAccess {
            flags: Some(flags),
            other_len: Some(place.len),
            ..RemoteAccess::read(pieces, message.addr, (place.addr, place.key), message.context)
        })
    }
}

unsafe extern "C" fn write(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: FiAddr,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let pieces = [piece(start, len)];
    let access = RemoteAccess::write(&pieces, to, (address, key), context);
    // SAFETY: libfabric's promise for this call: the memory stays until the completion.
    unsafe { state(ep).access(access) }
}

unsafe extern "C" fn writev(
    ep: *mut FidEp,
    pieces: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's promise for this call: the memory stays until the completion.
    unsafe { state(ep).access(RemoteAccess::write(list(pieces, count), to, (address, key), context)) }
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, message: *const FiMsgRma, flags: u64) -> isize {
    // SAFETY: as in `writev`; the description is valid during this call.
    unsafe {
        let message = &*message;
        let [place] = places(message) else {
            return -FI_EINVAL as isize;
        };
        let pieces = list(message.msg_iov, message.iov_count);
        state(ep).access(RemoteAccess {
            data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data),
            flags: Some(flags),
            other_len: Some(place.len),
            ..RemoteAccess::write(pieces, message.addr, (place.addr, place.key), message.context)
        })
    }
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    to: FiAddr,
    address: u64,
    key: u64,
) -> isize {
    let pieces = [piece(start, len)];
    let access = RemoteAccess::injected(&pieces, to, (address, key), None);
    // SAFETY: libfabric's promise for this call: the memory is valid during it.
    unsafe { state(ep).access(access) }
}

unsafe extern "C" fn writedata(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: FiAddr,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let pieces = [piece(start, len)];
    let access = RemoteAccess {
        data: Some(data),
        ..RemoteAccess::write(&pieces, to, (address, key), context)
    };
    // SAFETY: libfabric's promise for this call: the memory stays until the completion.
    unsafe { state(ep).access(access) }
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    data: u64,
    to: FiAddr,
    address: u64,
    key: u64,
) -> isize {
    let pieces = [piece(start, len)];
    let access = RemoteAccess::injected(&pieces, to, (address, key), Some(data));
    // SAFETY: libfabric's promise for this call: the memory is valid during it.
    unsafe { state(ep).access(access) }
}

/// Returns the places of an access.
///
/// # Safety
/// There are as many places as the description says, or none.
unsafe fn places(message: &FiMsgRma) -> &[FiRmaIov] {
    if message.rma_iov.is_null() || message.rma_iov_count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(message.rma_iov, message.rma_iov_count) }
}
