//! The fabric: the network that all domains are on. It only opens other objects.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use crate::{abi::*, domain, event_queue};

static FID_OPS: FidOps = FidOps {
    size: size_of::<FidOps>(),
    close,
    bind: crate::endpoint::bind_nothing,
    control: crate::endpoint::control_nothing,
    ops_open: unsupported,
    tostr: unsupported,
    ops_set: unsupported,
};

static OPS: FabricOps = FabricOps {
    size: size_of::<FabricOps>(),
    domain: domain::open,
    passive_ep: unsupported,
    eq_open: event_queue::open,
    wait_open: unsupported,
    trywait: unsupported,
    domain2: domain::open_with_flags,
};

/// Opens the fabric. The version that the program asked for decides which fields of its structures exist.
///
/// # Safety
/// As libfabric calls it: `attributes` is valid, `out` can be written.
pub(crate) unsafe extern "C" fn open(
    attributes: *mut FiFabricAttr,
    out: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    let fabric = Box::new(FidFabric {
        fid: Fid {
            fclass: FI_CLASS_FABRIC,
            context,
            ops: &raw const FID_OPS,
        },
        ops: &raw const OPS,
        // SAFETY: the caller's promise.
        api_version: unsafe { attributes.as_ref() }.map_or(0, |attributes| attributes.api_version),
    });
    // SAFETY: the caller's promise.
    unsafe { ptr::write(out, Box::into_raw(fabric)) };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: `open` made it, and the program closes it once.
    drop(unsafe { Box::from_raw(fid.cast::<FidFabric>()) });
    0
}
