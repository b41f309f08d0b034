//! The functions by which programs make atomic operations on the memory of others.

use std::{
    ffi::{c_int, c_void},
    slice,
};

use super::{state, state::RemoteAccess, tagged::piece};
use crate::{
    abi::*,
    atomic::{Atomic, OPERAND_LEN_MAX},
    info::IOV_LIMIT,
};

/// The table of the functions.
pub(super) static OPS: AtomicOps = AtomicOps {
    size: size_of::<AtomicOps>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// Where an operation is made, and which.
#[derive(Clone, Copy)]
struct Target {
    to: FiAddr,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
    /// `None`: the call is given no flags, those of the endpoint count.
    flags: Option<u64>,
    /// The values of the other memory, where the call gives their number.
    count: Option<usize>,
    is_injected: bool,
}

impl Target {
    const fn new(to: FiAddr, (address, key): (u64, u64), (datatype, op): (c_int, c_int), context: *mut c_void) -> Self {
        Self {
            to,
            address,
            key,
            datatype,
            op,
            context,
            flags: None,
            count: None,
            is_injected: false,
        }
    }

    /// Reads the description of an operation. `None`: it has not one place.
    ///
    /// # Safety
    /// The description is valid.
    unsafe fn of(message: &FiMsgAtomic, flags: u64) -> Option<Self> {
        // SAFETY: the caller's promise.
        let [place] = (unsafe { list(message.rma_iov, message.rma_iov_count) }) else {
            return None;
        };
        Some(Self {
            flags: Some(flags),
            count: Some(place.count),
            ..Self::new(
                message.addr,
                (place.addr, place.key),
                (message.datatype, message.op),
                message.context,
            )
        })
    }

    /// Asks for the operation.
    ///
    /// # Safety
    /// As the functions of libfabric promise: the values can be read now, and the results written until the completion.
    unsafe fn ask(self, ep: *mut FidEp, operands: [&[FiIoc]; 2], results: Option<&[FiIoc]>) -> isize {
        // Only the calls for it give something to compare.
        let atomic = Atomic::new(self.datatype, self.op, results.is_some())
            .filter(|atomic| atomic.compares() != operands[1].is_empty());
        let Some(atomic) = atomic else {
            return -FI_EOPNOTSUPP as isize;
        };
        let size = atomic.size();
        // An operation without operand may be given one all the same.
        let first = if atomic.has_operand() { operands[0] } else { &[] };
        let [first, compared, room] = [first, operands[1], results.unwrap_or_default()].map(|values| {
            let mut pieces = [piece(std::ptr::null(), 0); IOV_LIMIT + 1];
            for (place, values) in pieces.iter_mut().zip(values) {
                *place = piece(values.addr, values.count.saturating_mul(size));
            }
            (pieces, values.len().min(IOV_LIMIT + 1))
        });
        let access = RemoteAccess {
            flags: self.flags,
            other_len: self.count.map(|count| count.saturating_mul(size)),
            is_injected: self.is_injected,
            ..RemoteAccess::atomic(
                atomic,
                [&first.0[..first.1], &compared.0[..compared.1]],
                &room.0[..room.1],
                (self.to, (self.address, self.key)),
                self.context,
            )
        };
        // SAFETY: the caller's promise.
        unsafe { state(ep).access(access) }
    }
}

/// # Safety
/// There are `count` values, or none.
unsafe fn list<'a, T>(values: *const T, count: usize) -> &'a [T] {
    if values.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(values, count) }
}

const fn values(addr: *const c_void, count: usize) -> FiIoc {
    FiIoc {
        addr: addr.cast_mut(),
        count,
    }
}

unsafe extern "C" fn write(
    ep: *mut FidEp,
    operand: *const c_void,
    count: usize,
    _desc: *mut c_void,
    to: FiAddr,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let target = Target::new(to, (address, key), (datatype, op), context);
    // SAFETY: libfabric's promise for this call.
    unsafe { target.ask(ep, [&[values(operand, count)], &[]], None) }
}

unsafe extern "C" fn writev(
    ep: *mut FidEp,
    operands: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let target = Target::new(to, (address, key), (datatype, op), context);
    // SAFETY: libfabric's promise for this call.
    unsafe { target.ask(ep, [list(operands, count), &[]], None) }
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, message: *const FiMsgAtomic, flags: u64) -> isize {
    // SAFETY: libfabric's promise for this call.
    unsafe {
        let message = &*message;
        let Some(target) = Target::of(message, flags) else {
            return -FI_EINVAL as isize;
        };
        let operands = [list(message.msg_iov, message.iov_count), &[]];
        target.ask(ep, operands, None)
    }
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    operand: *const c_void,
    count: usize,
    to: FiAddr,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    let target = Target {
        is_injected: true,
        ..Target::new(to, (address, key), (datatype, op), std::ptr::null_mut())
    };
    // SAFETY: libfabric's promise for this call.
    unsafe { target.ask(ep, [&[values(operand, count)], &[]], None) }
}

unsafe extern "C" fn readwrite(
    ep: *mut FidEp,
    operand: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    to: FiAddr,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let target = Target::new(to, (address, key), (datatype, op), context);
    // SAFETY: libfabric's promise for this call.
    unsafe { target.ask(ep, [&[values(operand, count)], &[]], Some(&[values(result, count)])) }
}

unsafe extern "C" fn readwritev(
    ep: *mut FidEp,
    operands: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    results: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    to: FiAddr,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let target = Target::new(to, (address, key), (datatype, op), context);
    // SAFETY: libfabric's promise for this call.
    unsafe { target.ask(ep, [list(operands, count), &[]], Some(list(results, result_count))) }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut FidEp,
    message: *const FiMsgAtomic,
    results: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: libfabric's promise for this call.
    unsafe {
        let message = &*message;
        let Some(target) = Target::of(message, flags) else {
            return -FI_EINVAL as isize;
        };
        let operands = [list(message.msg_iov, message.iov_count), &[]];
        target.ask(ep, operands, Some(list(results, result_count)))
    }
}

unsafe extern "C" fn compwrite(
    ep: *mut FidEp,
    operand: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compared: *const c_void,
    _compared_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    to: FiAddr,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let target = Target::new(to, (address, key), (datatype, op), context);
    // SAFETY: libfabric's promise for this call.
    unsafe {
        target.ask(
            ep,
            [&[values(operand, count)], &[values(compared, count)]],
            Some(&[values(result, count)]),
        )
    }
}

unsafe extern "C" fn compwritev(
    ep: *mut FidEp,
    operands: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    compared: *const FiIoc,
    _compared_desc: *mut *mut c_void,
    compared_count: usize,
    results: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    to: FiAddr,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let target = Target::new(to, (address, key), (datatype, op), context);
    // SAFETY: libfabric's promise for this call.
    unsafe {
        target.ask(
            ep,
            [list(operands, count), list(compared, compared_count)],
            Some(list(results, result_count)),
        )
    }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut FidEp,
    message: *const FiMsgAtomic,
    compared: *const FiIoc,
    _compared_desc: *mut *mut c_void,
    compared_count: usize,
    results: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: libfabric's promise for this call.
    unsafe {
        let message = &*message;
        let Some(target) = Target::of(message, flags) else {
            return -FI_EINVAL as isize;
        };
        let operands = [list(message.msg_iov, message.iov_count), list(compared, compared_count)];
        target.ask(ep, operands, Some(list(results, result_count)))
    }
}

/// Says how many values one operation takes.
///
/// # Safety
/// `count` can be written.
unsafe fn valid(datatype: c_int, op: c_int, (fetches, compares): (bool, bool), count: *mut usize) -> c_int {
    let atomic = Atomic::new(datatype, op, fetches).filter(|atomic| atomic.compares() == compares);
    let Some(atomic) = atomic else { return -FI_EOPNOTSUPP };
    // SAFETY: the caller's promise.
    unsafe { count.write(OPERAND_LEN_MAX / atomic.size()) };
    0
}

unsafe extern "C" fn writevalid(_ep: *mut FidEp, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe { valid(datatype, op, (false, false), count) }
}

unsafe extern "C" fn readwritevalid(_ep: *mut FidEp, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe { valid(datatype, op, (true, false), count) }
}

unsafe extern "C" fn compwritevalid(_ep: *mut FidEp, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric's promise for this call.
    unsafe { valid(datatype, op, (true, true), count) }
}

/// Answers a domain's question after an operation: how many values it takes, and of which size.
///
/// # Safety
/// As libfabric calls it.
pub(crate) unsafe extern "C" fn query(
    _domain: *mut FidDomain,
    datatype: c_int,
    op: c_int,
    attributes: *mut FiAtomicAttr,
    flags: u64,
) -> c_int {
    let kind = match flags {
        0 => (false, false),
        FI_FETCH_ATOMIC => (true, false),
        FI_COMPARE_ATOMIC => (true, true),
        _ => return -FI_EBADFLAGS,
    };
    // SAFETY: libfabric's promise for this call.
    unsafe {
        let Some(attributes) = attributes.as_mut() else {
            return -FI_EINVAL;
        };
        let result = valid(datatype, op, kind, &raw mut attributes.count);
        if result == 0 {
            attributes.size = OPERAND_LEN_MAX / attributes.count;
        }
        result
    }
}
