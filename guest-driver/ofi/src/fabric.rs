//! The fabric, which is the network that all domains are on, and the domains. They only open other objects.

use std::{
    ffi::{CStr, c_int, c_void},
    ptr,
};

use crate::{
    abi::*, address_vector, completion_queue, counter, domain::Domain, endpoint, event_queue, info::offers_regions,
    memory_region, object,
};

static FID_OPS: FidOps = object::closes_by(close);

static OPS: FabricOps = FabricOps {
    size: size_of::<FabricOps>(),
    domain: open_domain,
    passive_ep: unsupported,
    eq_open: event_queue::open,
    wait_open: unsupported,
    trywait: unsupported,
    domain2: open_domain_with_flags,
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

static DOMAIN_FID_OPS: FidOps = object::closes_by(close_domain);

static DOMAIN_OPS: DomainOps = DomainOps {
    size: size_of::<DomainOps>(),
    av_open: address_vector::open,
    cq_open: completion_queue::open,
    endpoint: endpoint::open,
    scalable_ep: unsupported,
    cntr_open: counter::open,
    poll_open: unsupported,
    stx_ctx: unsupported,
    srx_ctx: unsupported,
    query_atomic: endpoint::query,
    query_collective: unsupported,
    endpoint2: endpoint::open_with_flags,
};

/// Opens the domain of an interface.
///
/// # Safety
/// As libfabric calls it: fabric and info are valid, `out` can be written.
unsafe extern "C" fn open_domain(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    out: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let (api_version, interface, has_regions) = unsafe {
        let Some(info) = info.as_ref() else { return -FI_EINVAL };
        let attributes = info.domain_attr.as_ref();
        let name = attributes.map_or(ptr::null_mut(), |attributes| attributes.name);
        let interface = (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned());
        let has_regions = attributes.is_some_and(|attributes| offers_regions(attributes.mr_mode));
        ((*fabric).api_version, interface, has_regions)
    };
    let fid = FidDomain {
        fid: Fid {
            fclass: FI_CLASS_DOMAIN,
            context,
            ops: &raw const DOMAIN_FID_OPS,
        },
        ops: &raw const DOMAIN_OPS,
        mr: &raw const memory_region::OPS,
    };
    // SAFETY: the caller's promise.
    unsafe { ptr::write(out, Domain::into_fid(fid, api_version, interface, has_regions)) };
    0
}

/// # Safety
/// As [`open_domain`].
unsafe extern "C" fn open_domain_with_flags(
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
    unsafe { open_domain(fabric, info, out, context) }
}

unsafe extern "C" fn close_domain(fid: *mut Fid) -> c_int {
    // SAFETY: `open_domain` made it, and the program closes it once.
    drop(unsafe { Domain::from_fid(fid) });
    0
}
