//! The completion queue: the ends of operations, and the place where a program makes progress.

use std::{
    collections::VecDeque,
    ffi::{c_char, c_int, c_void},
    mem::MaybeUninit,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use crate::{
    abi::*,
    bound::BoundEndpoints,
    domain::Domain,
    idle::{self, Idle, Next},
    object,
};

/// Since this version of the interface an error entry has a length of error data.
const ERR_DATA_SIZE_SINCE: u32 = fi_version(1, 5);

/// An operation that is over.
#[derive(Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) entry: FiCqTaggedEntry,
    /// The peer that a message came from.
    pub(crate) source: FiAddr,
    pub(crate) failure: Option<Failure>,
}

/// Why an operation failed.
#[derive(Clone, Copy)]
pub(crate) struct Failure {
    /// A positive error number.
    pub(crate) err: c_int,
    /// The bytes of a truncated message that did not fit.
    pub(crate) overflow_len: usize,
}

// SAFETY: the pointers are the program's, and only handed back to it.
unsafe impl Send for Completion {}

/// A completion queue, which endpoints share.
pub(crate) struct CompletionQueue {
    /// The bytes of an entry in the format that the program chose.
    entry_len: usize,
    api_version: u32,
    entries: Mutex<VecDeque<Completion>>,
    pub(crate) endpoints: BoundEndpoints,
    /// A thread that waits is to return.
    signalled: AtomicBool,
    idle: Idle,
    opened: Instant,
}

impl CompletionQueue {
    fn entries(&self) -> MutexGuard<'_, VecDeque<Completion>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what an endpoint has completed.
    pub(crate) fn push(&self, completion: Completion, endpoint: &omx::Endpoint) {
        self.entries().push_back(completion);
        if self.endpoints.has_waiters() {
            endpoint.wakeup();
        }
    }

    /// Writes up to `count` entries, those before the first failure.
    ///
    /// # Safety
    /// `out` has room for so many entries of the queue's format, `sources` for so many numbers or is null.
    unsafe fn take(&self, out: *mut c_void, count: usize, sources: *mut FiAddr) -> isize {
        let mut entries = self.entries();
        let mut taken = 0;
        while taken < count {
            let Some(completion) = entries.pop_front_if(|completion| completion.failure.is_none()) else {
                break;
            };
            // SAFETY: the caller's promise; every format is the beginning of the fullest one.
            unsafe {
                let place = out.cast::<u8>().add(taken * self.entry_len);
                ptr::copy_nonoverlapping((&raw const completion.entry).cast(), place, self.entry_len);
                if !sources.is_null() {
                    sources.add(taken).write(completion.source);
                }
            }
            taken += 1;
        }
        match entries.front() {
            _ if taken > 0 => taken as isize,
            Some(completion) if completion.failure.is_some() => -FI_EAVAIL as isize,
            _ => -FI_EAGAIN as isize,
        }
    }

    /// # Safety
    /// As [`Self::take`].
    unsafe fn read(&self, out: *mut c_void, count: usize, sources: *mut FiAddr) -> isize {
        // SAFETY: the caller's promise.
        let taken = unsafe { self.take(out, count, sources) };
        if taken != -FI_EAGAIN as isize {
            return taken;
        }
        self.endpoints.progress();
        // SAFETY: as above.
        let taken = unsafe { self.take(out, count, sources) };
        if taken != -FI_EAGAIN as isize {
            self.idle.found();
            return taken;
        }
        let now_ns = || u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match self.idle.found_nothing(now_ns) {
            Next::Return => return taken,
            Next::LetOthersRun => {
                let (from_ns, switches) = (now_ns(), context_switches());
                thread::yield_now();
                self.idle.others_ran(context_switches() != switches, from_ns);
                self.endpoints.progress();
            }
            Next::Sleep => self.sleep(),
        }
        // The program may let others run, too, before it looks again.
        // SAFETY: as above.
        let taken = unsafe { self.take(out, count, sources) };
        if taken != -FI_EAGAIN as isize {
            self.idle.found();
        }
        taken
    }

    /// Sleeps until something is there, or a moment has passed.
    fn sleep(&self) {
        let mut waiter = self.endpoints.waiter();
        waiter.prepare();
        self.endpoints.progress();
        if self.entries().is_empty() {
            waiter.sleep(Some(idle::SLEEP));
        }
    }

    /// # Safety
    /// As [`Self::take`].
    unsafe fn wait(&self, out: *mut c_void, count: usize, sources: *mut FiAddr, timeout_ms: c_int) -> isize {
        let until = object::deadline(timeout_ms);
        let mut waiter = self.endpoints.waiter();
        loop {
            waiter.prepare();
            self.endpoints.progress();
            // SAFETY: the caller's promise.
            let taken = unsafe { self.take(out, count, sources) };
            if taken != -FI_EAGAIN as isize || self.signalled.swap(false, Ordering::SeqCst) {
                return taken;
            }
            let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
            if limit.is_some_and(|limit| limit.is_zero()) {
                return -FI_EAGAIN as isize;
            }
            waiter.sleep(limit);
        }
    }
}

/// Returns how often another thread ran in place of this one.
fn context_switches() -> libc::c_long {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is this function's, and all zeros are one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw + usage.ru_nivcsw
}

#[repr(C)]
struct Object {
    fid: FidCq,
    queue: Arc<CompletionQueue>,
}

static FID_OPS: FidOps = object::closes_by(close);

static OPS: CqOps = CqOps {
    size: size_of::<CqOps>(),
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
};

/// # Safety
/// `fid` is a completion queue that the program has opened and not closed.
pub(crate) unsafe fn of_fid(fid: *mut Fid) -> Arc<CompletionQueue> {
    // SAFETY: the caller's promise; `open` made it.
    Arc::clone(unsafe { &(*fid.cast::<Object>()).queue })
}

/// Opens a completion queue. Its size is a hint: it grows, so that no entry is lost.
///
/// # Safety
/// As libfabric calls it.
pub(crate) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attributes: *mut FiCqAttr,
    out: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(attributes) = (unsafe { attributes.as_mut() }) else {
        return -FI_EINVAL;
    };
    if !object::waits_without_object(attributes.wait_obj) {
        return -FI_ENOSYS;
    }
    let entry_len = match attributes.format {
        FI_CQ_FORMAT_UNSPEC => {
            attributes.format = FI_CQ_FORMAT_CONTEXT;
            8
        }
        FI_CQ_FORMAT_CONTEXT => 8,
        FI_CQ_FORMAT_MSG => 24,
        FI_CQ_FORMAT_DATA => 40,
        FI_CQ_FORMAT_TAGGED => size_of::<FiCqTaggedEntry>(),
        _ => return -FI_ENOSYS,
    };
    // SAFETY: the caller's promise.
    let domain = unsafe { Domain::of(domain) };
    let object = Box::new(Object {
        fid: FidCq {
            fid: Fid {
                fclass: FI_CLASS_CQ,
                context,
                ops: &raw const FID_OPS,
            },
            ops: &raw const OPS,
        },
        queue: Arc::new(CompletionQueue {
            entry_len,
            api_version: domain.api_version(),
            entries: Mutex::default(),
            endpoints: BoundEndpoints::default(),
            signalled: AtomicBool::new(false),
            idle: Idle::new(),
            opened: Instant::now(),
        }),
    });
    // SAFETY: the caller's promise.
    unsafe { ptr::write(out, Box::into_raw(object).cast()) };
    0
}

/// # Safety
/// `cq` is valid, as libfabric promises.
unsafe fn queue<'a>(cq: *mut FidCq) -> &'a CompletionQueue {
    // SAFETY: the caller's promise; `open` made it.
    unsafe { &(*cq.cast::<Object>()).queue }
}

unsafe extern "C" fn read(cq: *mut FidCq, out: *mut c_void, count: usize) -> isize {
    // SAFETY: libfabric's promise for this call.
    unsafe { queue(cq).read(out, count, ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(cq: *mut FidCq, out: *mut c_void, count: usize, sources: *mut FiAddr) -> isize {
    // SAFETY: libfabric's promise for this call.
    unsafe { queue(cq).read(out, count, sources) }
}

unsafe extern "C" fn sread(
    cq: *mut FidCq,
    out: *mut c_void,
    count: usize,
    _condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    // SAFETY: libfabric's promise for this call.
    unsafe { queue(cq).wait(out, count, ptr::null_mut(), timeout_ms) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut FidCq,
    out: *mut c_void,
    count: usize,
    sources: *mut FiAddr,
    _condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    // SAFETY: libfabric's promise for this call.
    unsafe { queue(cq).wait(out, count, sources, timeout_ms) }
}

unsafe extern "C" fn readerr(cq: *mut FidCq, out: *mut FiCqErrEntry, _flags: u64) -> isize {
    // SAFETY: libfabric's promise for this call.
    let queue = unsafe { queue(cq) };
    let mut entries = queue.entries();
    let Some((completion, failure)) = entries.front().and_then(|front| Some((*front, front.failure?))) else {
        return -FI_EAGAIN as isize;
    };
    entries.pop_front();
    drop(entries);
    let entry = completion.entry;
    // SAFETY: as above. The fields are written one by one: a program of an old version has no room for the last ones.
    unsafe {
        (&raw mut (*out).op_context).write(entry.op_context);
        (&raw mut (*out).flags).write(entry.flags);
        (&raw mut (*out).len).write(entry.len);
        (&raw mut (*out).buf).write(entry.buf);
        (&raw mut (*out).data).write(entry.data);
        (&raw mut (*out).tag).write(entry.tag);
        (&raw mut (*out).olen).write(failure.overflow_len);
        (&raw mut (*out).err).write(failure.err);
        (&raw mut (*out).prov_errno).write(failure.err);
        if queue.api_version >= ERR_DATA_SIZE_SINCE {
            (&raw mut (*out).err_data_size).write(0);
        }
    }
    1
}

unsafe extern "C" fn signal(cq: *mut FidCq) -> c_int {
    // SAFETY: libfabric's promise for this call.
    let queue = unsafe { queue(cq) };
    queue.signalled.store(true, Ordering::SeqCst);
    queue.endpoints.wake();
    0
}

unsafe extern "C" fn strerror(
    _cq: *mut FidCq,
    err: c_int,
    _data: *const c_void,
    _out: *mut c_char,
    _len: usize,
) -> *const c_char {
    sentence(err).as_ptr()
}

/// Says what an error of an operation means and what helps.
fn sentence(err: c_int) -> &'static std::ffi::CStr {
    match err {
        FI_ETRUNC => c"the message was longer than the receive buffer",
        FI_ECANCELED => c"the program cancelled the operation",
        FI_ENOMSG => c"no such message has arrived",
        FI_EHOSTUNREACH => c"the peer does not answer; check with omx_info on both hosts that they see each other",
        FI_ECONNRESET => c"the peer's endpoint was closed; look for the first process that ended",
        FI_ECONNREFUSED => c"the peer's endpoint is not open, or was opened anew",
        FI_ETIMEDOUT => c"the transfer took longer than its time limit",
        _ => c"the operation failed",
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: `open` made it, and the program closes it once. Endpoints that are bound to the queue keep it.
    drop(unsafe { Box::from_raw(fid.cast::<Object>()) });
    0
}
