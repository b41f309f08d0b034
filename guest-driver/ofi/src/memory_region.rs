//! Memory regions as programs register them. Messages need none: such a region is a name.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use crate::{abi::*, domain::Domain, object, object::list, regions::Region};

/// The rights that a region gives to other endpoints.
const REMOTE_RIGHTS: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// A region as C sees it.
#[repr(C)]
struct Object {
    fid: FidMr,
    domain: *const Domain,
    /// Others may access it.
    is_remote: bool,
}

static FID_OPS: FidOps = object::closes_by(close);

/// The functions of a domain that register memory.
pub(crate) static OPS: MrOps = MrOps {
    size: size_of::<MrOps>(),
    reg,
    regv,
    regattr,
};

/// What a program registers.
struct Wish<'a> {
    pieces: &'a [libc::iovec],
    access: u64,
    /// Where the program chooses the keys, which only a region for messages has.
    key: u64,
    flags: u64,
    context: *mut c_void,
}

/// # Safety
/// `domain` is one that the program has opened; `out` can be written; the memory stays until the region is closed.
unsafe fn register(domain: *mut Fid, wish: &Wish<'_>, out: *mut *mut FidMr) -> c_int {
    if wish.flags != 0 {
        return -FI_EBADFLAGS;
    }
    // SAFETY: the caller's promise.
    let domain = unsafe { Domain::of(domain.cast()) };
    let rights = wish.access & REMOTE_RIGHTS;
    let is_remote = domain.has_regions() && rights != 0;
    let mut key = wish.key;
    if is_remote {
        let [piece] = wish.pieces else { return -FI_EINVAL };
        let region = Region {
            start: piece.iov_base.expose_provenance(),
            len: piece.iov_len,
            rights,
        };
        match domain.regions().add(region) {
            Some(random) => key = random,
            None => return -FI_EIO,
        }
    }
    let object = Box::new(Object {
        fid: FidMr {
            fid: Fid {
                fclass: FI_CLASS_MR,
                context: wish.context,
                ops: &raw const FID_OPS,
            },
            mem_desc: ptr::null_mut(),
            key,
        },
        domain,
        is_remote,
    });
    // SAFETY: the caller's promise.
    unsafe { ptr::write(out, Box::into_raw(object).cast()) };
    0
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    start: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    let wish = Wish {
        pieces: &[libc::iovec {
            iov_base: start.cast_mut(),
            iov_len: len,
        }],
        access,
        key,
        flags,
        context,
    };
    // SAFETY: libfabric's promise for this call.
    unsafe { register(domain, &wish, out) }
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    pieces: *const libc::iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe {
        let wish = Wish {
            pieces: list(pieces, count),
            access,
            key,
            flags,
            context,
        };
        register(domain, &wish, out)
    }
}

unsafe extern "C" fn regattr(domain: *mut Fid, attributes: *const FiMrAttr, flags: u64, out: *mut *mut FidMr) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe {
        let Some(attributes) = attributes.as_ref() else {
            return -FI_EINVAL;
        };
        let wish = Wish {
            pieces: list(attributes.mr_iov, attributes.iov_count),
            access: attributes.access,
            key: attributes.requested_key,
            flags,
            context: attributes.context,
        };
        register(domain, &wish, out)
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: `register` made it, and the program closes it once, before its domain.
    let (object, domain) = unsafe {
        let object = Box::from_raw(fid.cast::<Object>());
        let domain = &*object.domain;
        (object, domain)
    };
    if object.is_remote {
        // The program's memory is its own from then on.
        domain.regions().remove(object.fid.key);
    }
    0
}
