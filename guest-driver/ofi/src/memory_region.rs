//! Memory regions. Messages need none: a region is a name that a program may ask for.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use crate::{abi::*, object};

static FID_OPS: FidOps = object::closes_by(close);

/// The functions of a domain that register memory.
pub(crate) static OPS: MrOps = MrOps {
    size: size_of::<MrOps>(),
    reg,
    regv,
    regattr,
};

/// # Safety
/// `out` can be written.
unsafe fn register(key: u64, flags: u64, out: *mut *mut FidMr, context: *mut c_void) -> c_int {
    if flags != 0 {
        return -FI_EBADFLAGS;
    }
    let region = Box::new(FidMr {
        fid: Fid {
            fclass: FI_CLASS_MR,
            context,
            ops: &raw const FID_OPS,
        },
        mem_desc: ptr::null_mut(),
        key,
    });
    // SAFETY: the caller's promise.
    unsafe { ptr::write(out, Box::into_raw(region)) };
    0
}

unsafe extern "C" fn reg(
    _domain: *mut Fid,
    _start: *const c_void,
    _len: usize,
    _access: u64,
    _offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe { register(key, flags, out, context) }
}

unsafe extern "C" fn regv(
    _domain: *mut Fid,
    _pieces: *const libc::iovec,
    _count: usize,
    _access: u64,
    _offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe { register(key, flags, out, context) }
}

unsafe extern "C" fn regattr(
    _domain: *mut Fid,
    attributes: *const FiMrAttr,
    flags: u64,
    out: *mut *mut FidMr,
) -> c_int {
    // SAFETY: libfabric's promise for this call.
    match unsafe { attributes.as_ref() } {
        // SAFETY: as above.
        Some(attributes) => unsafe { register(attributes.requested_key, flags, out, attributes.context) },
        None => -FI_EINVAL,
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: `register` made it, and the program closes it once.
    drop(unsafe { Box::from_raw(fid.cast::<FidMr>()) });
    0
}
