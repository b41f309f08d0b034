//! The domain: one interface. It only opens other objects.

use std::{
    ffi::{CStr, c_int, c_void},
    ptr,
};

use crate::{abi::*, address_vector, completion_queue, counter, endpoint, memory_region};

/// A domain as C sees it, and what its objects need to know of it.
#[repr(C)]
pub(crate) struct Domain {
    fid: FidDomain,
    /// The version that the program asked for.
    api_version: u32,
    /// The name of the interface.
    interface: Option<String>,
}

impl Domain {
    /// # Safety
    /// A domain that the program has opened and not closed.
    pub(crate) unsafe fn of<'a>(domain: *mut FidDomain) -> &'a Self {
        // SAFETY: the caller's promise; `open` made it.
        unsafe { &*domain.cast() }
    }

    pub(crate) const fn api_version(&self) -> u32 {
        self.api_version
    }

    pub(crate) fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }
}

static FID_OPS: FidOps = FidOps {
    size: size_of::<FidOps>(),
    close,
    bind: endpoint::bind_nothing,
    control: endpoint::control_nothing,
    ops_open: unsupported,
    tostr: unsupported,
    ops_set: unsupported,
};

static OPS: DomainOps = DomainOps {
    size: size_of::<DomainOps>(),
    av_open: address_vector::open,
    cq_open: completion_queue::open,
    endpoint: endpoint::open,
    scalable_ep: unsupported,
    cntr_open: counter::open,
    poll_open: unsupported,
    stx_ctx: unsupported,
    srx_ctx: unsupported,
    query_atomic: unsupported,
    query_collective: unsupported,
    endpoint2: endpoint::open_with_flags,
};

/// Opens the domain of an interface.
///
/// # Safety
/// As libfabric calls it: fabric and info are valid, `out` can be written.
pub(crate) unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    out: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let (api_version, interface) = unsafe {
        let Some(info) = info.as_ref() else { return -FI_EINVAL };
        let name = info
            .domain_attr
            .as_ref()
            .map_or(ptr::null_mut(), |attributes| attributes.name);
        let interface = (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned());
        ((*fabric).api_version, interface)
    };
    let domain = Box::new(Domain {
        fid: FidDomain {
            fid: Fid {
                fclass: FI_CLASS_DOMAIN,
                context,
                ops: &raw const FID_OPS,
            },
            ops: &raw const OPS,
            mr: &raw const memory_region::OPS,
        },
        api_version,
        interface,
    });
    // SAFETY: the caller's promise.
    unsafe { ptr::write(out, Box::into_raw(domain).cast()) };
    0
}

/// # Safety
/// As [`open`].
pub(crate) unsafe extern "C" fn open_with_flags(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    out: *mut *mut FidDomain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -FI_ENOSYS;
    }
    // SAFETY: the caller's promise.
    unsafe { open(fabric, info, out, context) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: `open` made it, and the program closes it once.
    drop(unsafe { Box::from_raw(fid.cast::<Domain>()) });
    0
}
