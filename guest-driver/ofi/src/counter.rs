//! The counter: how many operations are over, and how many failed.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use crate::{abi::*, bound::BoundEndpoints, object};

/// A counter, which endpoints share.
#[derive(Default)]
pub(crate) struct Counter {
    value: AtomicU64,
    errors: AtomicU64,
    pub(crate) endpoints: BoundEndpoints,
}

impl Counter {
    /// Counts an operation of an endpoint that is over.
    pub(crate) fn count(&self, failed: bool, endpoint: &omx::Endpoint) {
        let count = if failed { &self.errors } else { &self.value };
        count.fetch_add(1, Ordering::SeqCst);
        if self.endpoints.has_waiters() {
            endpoint.wakeup();
        }
    }

    /// Changes a count as the program says, and has threads that wait look at it.
    fn change(&self, change: impl FnOnce(&Self)) {
        change(self);
        if self.endpoints.has_waiters() {
            self.endpoints.wake();
        }
    }
}

#[repr(C)]
struct Object {
    fid: FidCntr,
    counter: Arc<Counter>,
}

static FID_OPS: FidOps = object::closes_by(close);

static OPS: CntrOps = CntrOps {
    size: size_of::<CntrOps>(),
    read,
    readerr,
    add,
    set,
    wait,
    adderr,
    seterr,
};

/// # Safety
/// `fid` is a counter that the program has opened and not closed.
pub(crate) unsafe fn of_fid(fid: *mut Fid) -> Arc<Counter> {
    // SAFETY: the caller's promise; `open` made it.
    Arc::clone(unsafe { &(*fid.cast::<Object>()).counter })
}

/// Opens a counter.
///
/// # Safety
/// As libfabric calls it.
pub(crate) unsafe extern "C" fn open(
    _domain: *mut FidDomain,
    attributes: *mut FiCntrAttr,
    out: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    if !crate::info::has_counters() {
        return -FI_ENOSYS;
    }
    // SAFETY: the caller's promise.
    if let Some(attributes) = unsafe { attributes.as_ref() }
        && (attributes.events != 0 || !object::waits_without_object(attributes.wait_obj))
    {
        return -FI_ENOSYS;
    }
    let object = Box::new(Object {
        fid: FidCntr {
            fid: Fid {
                fclass: FI_CLASS_CNTR,
                context,
                ops: &raw const FID_OPS,
            },
            ops: &raw const OPS,
        },
        counter: Arc::default(),
    });
    // SAFETY: the caller's promise.
    unsafe { ptr::write(out, Box::into_raw(object).cast()) };
    0
}

/// # Safety
/// `cntr` is valid, as libfabric promises.
unsafe fn counter<'a>(cntr: *mut FidCntr) -> &'a Counter {
    // SAFETY: the caller's promise; `open` made it.
    unsafe { &(*cntr.cast::<Object>()).counter }
}

unsafe extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    // SAFETY: libfabric's promise for this call.
    let counter = unsafe { counter(cntr) };
    counter.endpoints.progress();
    counter.value.load(Ordering::SeqCst)
}

unsafe extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    // SAFETY: libfabric's promise for this call.
    let counter = unsafe { counter(cntr) };
    counter.endpoints.progress();
    counter.errors.load(Ordering::SeqCst)
}

unsafe extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe { counter(cntr) }.change(|counter| _ = counter.value.fetch_add(value, Ordering::SeqCst));
    0
}

unsafe extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe { counter(cntr) }.change(|counter| counter.value.store(value, Ordering::SeqCst));
    0
}

unsafe extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe { counter(cntr) }.change(|counter| _ = counter.errors.fetch_add(value, Ordering::SeqCst));
    0
}

unsafe extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe { counter(cntr) }.change(|counter| counter.errors.store(value, Ordering::SeqCst));
    0
}

unsafe extern "C" fn wait(cntr: *mut FidCntr, threshold: u64, timeout_ms: c_int) -> c_int {
    // SAFETY: libfabric's promise for this call.
    let counter = unsafe { counter(cntr) };
    let until = object::deadline(timeout_ms);
    let errors = counter.errors.load(Ordering::SeqCst);
    let mut waiter = counter.endpoints.waiter();
    loop {
        waiter.prepare();
        counter.endpoints.progress();
        if counter.value.load(Ordering::SeqCst) >= threshold {
            return 0;
        }
        if counter.errors.load(Ordering::SeqCst) != errors {
            return -FI_EAVAIL;
        }
        let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
        if limit.is_some_and(|limit| limit.is_zero()) {
            return -FI_ETIMEDOUT;
        }
        waiter.sleep(limit);
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: `open` made it, and the program closes it once. Endpoints that are bound to the counter keep it.
    drop(unsafe { Box::from_raw(fid.cast::<Object>()) });
    0
}
