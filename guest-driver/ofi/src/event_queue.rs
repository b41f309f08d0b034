//! The event queue. Nothing of this provider reports to it: it holds what the program writes.

use std::{
    collections::VecDeque,
    ffi::{c_char, c_int, c_void},
    ptr, slice,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{abi::*, object};

#[repr(C)]
struct Object {
    fid: FidEq,
    /// The program may write to the queue.
    writable: bool,
    events: Mutex<VecDeque<(u32, Box<[u8]>)>>,
    written: Condvar,
}

static FID_OPS: FidOps = object::closes_by(close);

static OPS: EqOps = EqOps {
    size: size_of::<EqOps>(),
    read,
    readerr,
    write,
    sread,
    strerror,
};

/// Opens an event queue.
///
/// # Safety
/// As libfabric calls it.
pub(crate) unsafe extern "C" fn open(
    _fabric: *mut FidFabric,
    attributes: *mut FiEqAttr,
    out: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let attributes = unsafe { attributes.as_ref() };
    if attributes.is_some_and(|attributes| !object::waits_without_object(attributes.wait_obj)) {
        return -FI_ENOSYS;
    }
    let object = Box::new(Object {
        fid: FidEq {
            fid: Fid {
                fclass: FI_CLASS_EQ,
                context,
                ops: &raw const FID_OPS,
            },
            ops: &raw const OPS,
        },
        writable: attributes.is_some_and(|attributes| attributes.flags & FI_WRITE != 0),
        events: Mutex::default(),
        written: Condvar::new(),
    });
    // SAFETY: the caller's promise.
    unsafe { ptr::write(out, Box::into_raw(object).cast()) };
    0
}

/// # Safety
/// `eq` is valid, as libfabric promises.
unsafe fn object<'a>(eq: *mut FidEq) -> &'a Object {
    // SAFETY: the caller's promise; `open` made it.
    unsafe { &*eq.cast::<Object>() }
}

/// Hands out the oldest event, which stays if the program only looks.
///
/// # Safety
/// `kind` can be written, and `len` bytes of `out`.
unsafe fn take(
    events: &mut VecDeque<(u32, Box<[u8]>)>,
    kind: *mut u32,
    out: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    let Some((event, data)) = events.front() else {
        return -FI_EAGAIN as isize;
    };
    if len < data.len() {
        return -FI_ETOOSMALL as isize;
    }
    // SAFETY: the caller's promise.
    unsafe {
        kind.write(*event);
        ptr::copy_nonoverlapping(data.as_ptr(), out.cast(), data.len());
    }
    let read = data.len() as isize;
    if flags & FI_PEEK == 0 {
        events.pop_front();
    }
    read
}

unsafe extern "C" fn read(eq: *mut FidEq, kind: *mut u32, out: *mut c_void, len: usize, flags: u64) -> isize {
    // SAFETY: libfabric's promise for this call.
    unsafe {
        let mut events = object(eq).events.lock().unwrap_or_else(PoisonError::into_inner);
        take(&mut events, kind, out, len, flags)
    }
}

unsafe extern "C" fn sread(
    eq: *mut FidEq,
    kind: *mut u32,
    out: *mut c_void,
    len: usize,
    timeout_ms: c_int,
    flags: u64,
) -> isize {
    // SAFETY: libfabric's promise for this call.
    let object = unsafe { object(eq) };
    let until = object::deadline(timeout_ms);
    let mut events = object.events.lock().unwrap_or_else(PoisonError::into_inner);
    while events.is_empty() {
        let limit = until.map_or(Duration::from_secs(3600), |until| {
            until.saturating_duration_since(Instant::now())
        });
        if limit.is_zero() {
            return -FI_EAGAIN as isize;
        }
        events = object
            .written
            .wait_timeout(events, limit)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    // SAFETY: as above.
    unsafe { take(&mut events, kind, out, len, flags) }
}

unsafe extern "C" fn readerr(_eq: *mut FidEq, _out: *mut c_void, _flags: u64) -> isize {
    -FI_EAGAIN as isize
}

unsafe extern "C" fn write(eq: *mut FidEq, kind: u32, data: *const c_void, len: usize, _flags: u64) -> isize {
    // SAFETY: libfabric's promise for this call.
    let object = unsafe { object(eq) };
    if !object.writable {
        return -FI_EINVAL as isize;
    }
    let data = match len {
        0 => &[],
        // SAFETY: as above.
        _ => unsafe { slice::from_raw_parts(data.cast::<u8>(), len) },
    };
    let mut events = object.events.lock().unwrap_or_else(PoisonError::into_inner);
    events.push_back((kind, data.into()));
    object.written.notify_one();
    len as isize
}

unsafe extern "C" fn strerror(
    _eq: *mut FidEq,
    _err: c_int,
    _data: *const c_void,
    _out: *mut c_char,
    _len: usize,
) -> *const c_char {
    c"no event of this provider fails".as_ptr()
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: `open` made it, and the program closes it once.
    drop(unsafe { Box::from_raw(fid.cast::<Object>()) });
    0
}
