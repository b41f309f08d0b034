//! Reads and writes of registered memory (`rdma/fi_rma.h`).

use std::ffi::c_void;

use super::{FiAddr, FidEp};

#[repr(C)]
pub(crate) struct FiRmaIov {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct FiMsgRma {
    pub(crate) msg_iov: *const libc::iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: FiAddr,
    pub(crate) rma_iov: *const FiRmaIov,
    pub(crate) rma_iov_count: usize,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct RmaOps {
    pub(crate) size: usize,
    pub(crate) read:
        unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, FiAddr, u64, u64, *mut c_void) -> isize,
    pub(crate) readv: unsafe extern "C" fn(
        *mut FidEp,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) readmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize,
    pub(crate) write:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, FiAddr, u64, u64, *mut c_void) -> isize,
    pub(crate) writev: unsafe extern "C" fn(
        *mut FidEp,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) writemsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr, u64, u64) -> isize,
    pub(crate) writedata: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr, u64, u64) -> isize,
}
