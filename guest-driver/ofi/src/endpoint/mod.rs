//! The endpoint as C sees it: it is opened, bound, enabled and closed here. Its messages and accesses to remote memory are in `state`, the
//! functions by which programs ask for them in `tagged`, `message`, `remote` and `atomic`.

mod atomic;
mod message;
mod remote;
mod state;
mod tagged;

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::{Arc, atomic::Ordering},
};

pub(crate) use self::atomic::query;
use self::state::State;
use crate::{
    abi::*,
    address::ADDRESS_LEN,
    address_vector, completion_queue, counter,
    domain::Domain,
    info::QUEUE_SIZE,
    log::{Level, log},
};

#[repr(C)]
struct Object {
    fid: FidEp,
    state: Arc<State>,
}

static FID_OPS: FidOps = FidOps {
    size: size_of::<FidOps>(),
    close,
    bind,
    control,
    ops_open: unsupported,
    tostr: unsupported,
    ops_set: unsupported,
};

static OPS: EpOps = EpOps {
    size: size_of::<EpOps>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: unsupported,
    rx_ctx: unsupported,
    rx_size_left: unsupported,
    tx_size_left: unsupported,
};

static CM_OPS: CmOps = CmOps {
    size: size_of::<CmOps>(),
    setname: unsupported,
    getname,
    getpeer: unsupported,
    connect: unsupported,
    listen: unsupported,
    accept: unsupported,
    reject: unsupported,
    shutdown: unsupported,
    join: unsupported,
};

/// # Safety
/// `ep` is valid, as libfabric promises.
unsafe fn state<'a>(ep: *mut FidEp) -> &'a Arc<State> {
    // SAFETY: the caller's promise; `open` made it.
    unsafe { &(*ep.cast::<Object>()).state }
}

/// Opens an endpoint on the interface of the domain.
///
/// # Safety
/// As libfabric calls it.
pub(crate) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let (domain, info) = unsafe { (Domain::of(domain), info.as_ref()) };
    let Some(info) = info else { return -FI_EINVAL };
    // SAFETY: as above.
    let (tx, rx) = unsafe { (info.tx_attr.as_ref(), info.rx_attr.as_ref()) };
    let flags = (
        tx.map_or(0, |attributes| attributes.op_flags),
        rx.map_or(0, |attributes| attributes.op_flags),
    );
    let size = tx.map_or(0, |attributes| attributes.size);
    let sends_kept_max = if size == 0 { QUEUE_SIZE } else { size };
    let state = match State::open(domain, info.caps, flags, sends_kept_max) {
        Ok(state) => state,
        Err(error) => {
            log(Level::Error, || format!("no endpoint can be opened: {error}"));
            return -state::error_number(&error);
        }
    };
    let object = Box::new(Object {
        fid: FidEp {
            fid: Fid {
                fclass: FI_CLASS_EP,
                context,
                ops: &raw const FID_OPS,
            },
            ops: &raw const OPS,
            cm: &raw const CM_OPS,
            msg: &raw const message::OPS,
            rma: &raw const remote::OPS,
            tagged: &raw const tagged::OPS,
            atomic: &raw const atomic::OPS,
            collective: ptr::null(),
        },
        state,
    });
    // SAFETY: the caller's promise.
    unsafe { ptr::write(out, Box::into_raw(object).cast()) };
    0
}

/// # Safety
/// As [`open`].
pub(crate) unsafe extern "C" fn open_with_flags(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    out: *mut *mut FidEp,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -FI_ENOSYS;
    }
    // SAFETY: the caller's promise.
    unsafe { open(domain, info, out, context) }
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: libfabric's promise for this call: both objects are valid.
    let (state, class) = unsafe { (state(fid.cast()), (*other).fclass) };
    if state.enabled.load(Ordering::SeqCst) {
        return -FI_EOPBADSTATE;
    }
    match class {
        FI_CLASS_AV => {
            // SAFETY: as above, and its class says what it is.
            state.lock().bindings.peers = Some(unsafe { address_vector::of_fid(other) });
        }
        FI_CLASS_CQ => {
            if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0 || flags & (FI_SEND | FI_RECV) == 0 {
                return -FI_EBADFLAGS;
            }
            // SAFETY: as for the address vector.
            let queue = unsafe { completion_queue::of_fid(other) };
            queue.endpoints.add(&(Arc::clone(state) as _));
            let binding = state::QueueBinding {
                queue,
                is_selective: flags & FI_SELECTIVE_COMPLETION != 0,
            };
            let mut locked = state.lock();
            if flags & FI_SEND != 0 {
                locked.bindings.transmit_queue = Some(binding.clone());
            }
            if flags & FI_RECV != 0 {
                locked.bindings.receive_queue = Some(binding);
            }
        }
        FI_CLASS_CNTR => {
            // SAFETY: as for the address vector.
            let counter = unsafe { counter::of_fid(other) };
            counter.endpoints.add(&(Arc::clone(state) as _));
            state.lock().bindings.counters.push((flags, counter));
        }
        // Nothing reports to it.
        FI_CLASS_EQ => {}
        _ => return -FI_EINVAL,
    }
    0
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: libfabric's promise for this call.
    let state = unsafe { state(fid.cast()) };
    match command {
        FI_ENABLE => {
            let locked = state.lock();
            if locked.bindings.peers.is_none() {
                return -FI_ENOAV;
            }
            if locked.bindings.transmit_queue.is_none()
                && locked.bindings.receive_queue.is_none()
                && locked.bindings.counters.is_empty()
            {
                return -FI_ENOCQ;
            }
            drop(locked);
            state.enabled.store(true, Ordering::SeqCst);
            state.begin_to_serve()
        }
        FI_GETOPSFLAG | FI_SETOPSFLAG => {
            // SAFETY: as above: the argument of these commands.
            let Some(flags) = (unsafe { argument.cast::<u64>().as_mut() }) else {
                return -FI_EINVAL;
            };
            let defaults = match *flags & (FI_SEND | FI_RECV) {
                FI_SEND => &state.transmit_flags,
                FI_RECV => &state.receive_flags,
                _ => return -FI_EINVAL,
            };
            if command == FI_GETOPSFLAG {
                *flags = defaults.load(Ordering::Relaxed);
            } else {
                defaults.store(*flags & !(FI_SEND | FI_RECV), Ordering::Relaxed);
            }
            0
        }
        _ => -FI_ENOSYS,
    }
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    // SAFETY: libfabric's promise for this call.
    unsafe { state(fid.cast()) }.cancel(context)
}

unsafe extern "C" fn getopt(fid: *mut Fid, level: c_int, name: c_int, out: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: libfabric's promise for this call.
    let state = unsafe { state(fid.cast()) };
    if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -FI_ENOPROTOOPT;
    }
    // SAFETY: as above.
    unsafe {
        if *len < size_of::<usize>() {
            return -FI_ETOOSMALL;
        }
        *len = size_of::<usize>();
        out.cast::<usize>()
            .write_unaligned(state.min_multi_receive_len.load(Ordering::Relaxed));
    }
    0
}

unsafe extern "C" fn setopt(fid: *mut Fid, level: c_int, name: c_int, value: *const c_void, len: usize) -> c_int {
    // SAFETY: libfabric's promise for this call.
    let state = unsafe { state(fid.cast()) };
    if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -FI_ENOPROTOOPT;
    }
    if len != size_of::<usize>() || value.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: as above.
    let value = unsafe { value.cast::<usize>().read_unaligned() };
    state.min_multi_receive_len.store(value, Ordering::Relaxed);
    0
}

unsafe extern "C" fn getname(fid: *mut Fid, out: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: libfabric's promise for this call.
    let state = unsafe { state(fid.cast()) };
    // SAFETY: as above: `out` has `len` bytes or is null.
    unsafe {
        let room = len.replace(ADDRESS_LEN);
        if out.is_null() || room < ADDRESS_LEN {
            return -FI_ETOOSMALL;
        }
        ptr::copy_nonoverlapping(state.address().to_bytes().as_ptr(), out.cast(), ADDRESS_LEN);
    }
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: `open` made it, and the program closes it once.
    let object = unsafe { Box::from_raw(fid.cast::<Object>()) };
    object.state.close();
    0
}
