//! Atomic operations on registered memory (`rdma/fi_atomic.h`).

use std::ffi::{c_int, c_void};

use super::{FiAddr, FidEp};

#[repr(C)]
pub(crate) struct FiIoc {
    pub(crate) addr: *mut c_void,
    pub(crate) count: usize,
}

#[repr(C)]
pub(crate) struct FiRmaIoc {
    pub(crate) addr: u64,
    pub(crate) count: usize,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct FiAtomicAttr {
    pub(crate) count: usize,
    pub(crate) size: usize,
}

#[repr(C)]
pub(crate) struct FiMsgAtomic {
    pub(crate) msg_iov: *const FiIoc,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: FiAddr,
    pub(crate) rma_iov: *const FiRmaIoc,
    pub(crate) rma_iov_count: usize,
    pub(crate) datatype: c_int,
    pub(crate) op: c_int,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

/// What a registration of memory gives: nothing here.
type Desc = *mut c_void;
type Descs = *mut *mut c_void;

#[repr(C)]
pub(crate) struct AtomicOps {
    pub(crate) size: usize,
    pub(crate) write: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        Desc,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) writev: unsafe extern "C" fn(
        *mut FidEp,
        *const FiIoc,
        Descs,
        usize,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) writemsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgAtomic, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr, u64, u64, c_int, c_int) -> isize,
    pub(crate) readwrite: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        Desc,
        *mut c_void,
        Desc,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) readwritev: unsafe extern "C" fn(
        *mut FidEp,
        *const FiIoc,
        Descs,
        usize,
        *mut FiIoc,
        Descs,
        usize,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) readwritemsg:
        unsafe extern "C" fn(*mut FidEp, *const FiMsgAtomic, *mut FiIoc, Descs, usize, u64) -> isize,
    pub(crate) compwrite: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        Desc,
        *const c_void,
        Desc,
        *mut c_void,
        Desc,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) compwritev: unsafe extern "C" fn(
        *mut FidEp,
        *const FiIoc,
        Descs,
        usize,
        *const FiIoc,
        Descs,
        usize,
        *mut FiIoc,
        Descs,
        usize,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) compwritemsg: unsafe extern "C" fn(
        *mut FidEp,
        *const FiMsgAtomic,
        *const FiIoc,
        Descs,
        usize,
        *mut FiIoc,
        Descs,
        usize,
        u64,
    ) -> isize,
    pub(crate) writevalid: unsafe extern "C" fn(*mut FidEp, c_int, c_int, *mut usize) -> c_int,
    pub(crate) readwritevalid: unsafe extern "C" fn(*mut FidEp, c_int, c_int, *mut usize) -> c_int,
    pub(crate) compwritevalid: unsafe extern "C" fn(*mut FidEp, c_int, c_int, *mut usize) -> c_int,
}
