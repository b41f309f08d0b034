//! The structures and numbers that libfabric and a provider exchange, as its headers define them (API 1.17 to 2.6;
//! `docs/spec/ofi-provider.md` section 2.1). Only what the provider uses has a name and a type; every other slot of a table
//! of functions is a [`Stub`].

mod atomic;
mod constants;
mod rma;

use std::ffi::{c_char, c_int, c_void};

pub(crate) use self::{atomic::*, constants::*, rma::*};

/// A slot of a function table that answers "not implemented", whatever its arguments are.
pub(crate) type Stub = unsafe extern "C" fn() -> isize;

/// Answers a call that the provider does not implement: callers jump through the tables without a check.
pub(crate) unsafe extern "C" fn unsupported() -> isize {
    -FI_ENOSYS as isize
}

/// An address in an address vector: the number of its entry.
pub(crate) type FiAddr = u64;

/// Encodes a version of libfabric's interface.
pub(crate) const fn fi_version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// The head of every object.
#[repr(C)]
pub(crate) struct Fid {
    pub(crate) fclass: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const FidOps,
}

#[repr(C)]
pub(crate) struct FidOps {
    pub(crate) size: usize,
    pub(crate) close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub(crate) bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub(crate) control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
    pub(crate) ops_open: Stub,
    pub(crate) tostr: Stub,
    pub(crate) ops_set: Stub,
}

#[repr(C)]
pub(crate) struct FiProvider {
    pub(crate) version: u32,
    pub(crate) fi_version: u32,
    /// The memory of the library.
    pub(crate) context: [*mut c_void; 4],
    pub(crate) name: *const c_char,
    pub(crate) getinfo:
        unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const FiInfo, *mut *mut FiInfo) -> c_int,
    pub(crate) fabric: unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    pub(crate) cleanup: unsafe extern "C" fn(),
}

#[repr(C)]
pub(crate) struct FiInfo {
    pub(crate) next: *mut FiInfo,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) src_addrlen: usize,
    pub(crate) dest_addrlen: usize,
    pub(crate) src_addr: *mut c_void,
    pub(crate) dest_addr: *mut c_void,
    pub(crate) handle: *mut Fid,
    pub(crate) tx_attr: *mut FiTxAttr,
    pub(crate) rx_attr: *mut FiRxAttr,
    pub(crate) ep_attr: *mut FiEpAttr,
    pub(crate) domain_attr: *mut FiDomainAttr,
    pub(crate) fabric_attr: *mut FiFabricAttr,
    pub(crate) nic: *mut c_void,
}

#[repr(C)]
pub(crate) struct FiTxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) inject_size: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
    pub(crate) rma_iov_limit: usize,
    pub(crate) tclass: u32,
}

#[repr(C)]
pub(crate) struct FiRxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) total_buffered_recv: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
}

#[repr(C)]
pub(crate) struct FiEpAttr {
    pub(crate) type_: c_int,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) max_msg_size: usize,
    pub(crate) msg_prefix_size: usize,
    pub(crate) max_order_raw_size: usize,
    pub(crate) max_order_war_size: usize,
    pub(crate) max_order_waw_size: usize,
    pub(crate) mem_tag_format: u64,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
}

#[repr(C)]
pub(crate) struct FiDomainAttr {
    pub(crate) domain: *mut c_void,
    pub(crate) name: *mut c_char,
    pub(crate) threading: c_int,
    pub(crate) control_progress: c_int,
    pub(crate) data_progress: c_int,
    pub(crate) resource_mgmt: c_int,
    pub(crate) av_type: c_int,
    pub(crate) mr_mode: c_int,
    pub(crate) mr_key_size: usize,
    pub(crate) cq_data_size: usize,
    pub(crate) cq_cnt: usize,
    pub(crate) ep_cnt: usize,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) max_ep_tx_ctx: usize,
    pub(crate) max_ep_rx_ctx: usize,
    pub(crate) max_ep_stx_ctx: usize,
    pub(crate) max_ep_srx_ctx: usize,
    pub(crate) cntr_cnt: usize,
    pub(crate) mr_iov_limit: usize,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) auth_key: *mut u8,
    pub(crate) auth_key_size: usize,
    pub(crate) max_err_data: usize,
    pub(crate) mr_cnt: usize,
    pub(crate) tclass: u32,
}

#[repr(C)]
pub(crate) struct FiFabricAttr {
    pub(crate) fabric: *mut c_void,
    pub(crate) name: *mut c_char,
    pub(crate) prov_name: *mut c_char,
    pub(crate) prov_version: u32,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct FidFabric {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FabricOps,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct FabricOps {
    pub(crate) size: usize,
    pub(crate) domain: unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, *mut c_void) -> c_int,
    pub(crate) passive_ep: Stub,
    pub(crate) eq_open: unsafe extern "C" fn(*mut FidFabric, *mut FiEqAttr, *mut *mut FidEq, *mut c_void) -> c_int,
    pub(crate) wait_open: Stub,
    pub(crate) trywait: Stub,
    pub(crate) domain2:
        unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, u64, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct FidDomain {
    pub(crate) fid: Fid,
    pub(crate) ops: *const DomainOps,
    pub(crate) mr: *const MrOps,
}

#[repr(C)]
pub(crate) struct DomainOps {
    pub(crate) size: usize,
    pub(crate) av_open: unsafe extern "C" fn(*mut FidDomain, *mut FiAvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    pub(crate) cq_open: unsafe extern "C" fn(*mut FidDomain, *mut FiCqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub(crate) endpoint: unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int,
    pub(crate) scalable_ep: Stub,
    pub(crate) cntr_open:
        unsafe extern "C" fn(*mut FidDomain, *mut FiCntrAttr, *mut *mut FidCntr, *mut c_void) -> c_int,
    pub(crate) poll_open: Stub,
    pub(crate) stx_ctx: Stub,
    pub(crate) srx_ctx: Stub,
    pub(crate) query_atomic: unsafe extern "C" fn(*mut FidDomain, c_int, c_int, *mut FiAtomicAttr, u64) -> c_int,
    pub(crate) query_collective: Stub,
    pub(crate) endpoint2: unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, u64, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct MrOps {
    pub(crate) size: usize,
    pub(crate) reg:
        unsafe extern "C" fn(*mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void) -> c_int,
    pub(crate) regv: unsafe extern "C" fn(
        *mut Fid,
        *const libc::iovec,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub(crate) regattr: unsafe extern "C" fn(*mut Fid, *const FiMrAttr, u64, *mut *mut FidMr) -> c_int,
}

/// The fields that API 1.17 has; later versions add others behind them.
#[repr(C)]
pub(crate) struct FiMrAttr {
    pub(crate) mr_iov: *const libc::iovec,
    pub(crate) iov_count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) requested_key: u64,
    pub(crate) context: *mut c_void,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
    pub(crate) iface: c_int,
    pub(crate) device: u64,
}

#[repr(C)]
pub(crate) struct FidMr {
    pub(crate) fid: Fid,
    pub(crate) mem_desc: *mut c_void,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct FiAvAttr {
    pub(crate) type_: c_int,
    pub(crate) rx_ctx_bits: c_int,
    pub(crate) count: usize,
    pub(crate) ep_per_node: usize,
    pub(crate) name: *const c_char,
    pub(crate) map_addr: *mut c_void,
    pub(crate) flags: u64,
}

#[repr(C)]
pub(crate) struct FidAv {
    pub(crate) fid: Fid,
    pub(crate) ops: *const AvOps,
}

#[repr(C)]
pub(crate) struct AvOps {
    pub(crate) size: usize,
    pub(crate) insert: unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut FiAddr, u64, *mut c_void) -> c_int,
    pub(crate) insertsvc: Stub,
    pub(crate) insertsym: Stub,
    pub(crate) remove: unsafe extern "C" fn(*mut FidAv, *mut FiAddr, usize, u64) -> c_int,
    pub(crate) lookup: unsafe extern "C" fn(*mut FidAv, FiAddr, *mut c_void, *mut usize) -> c_int,
    pub(crate) straddr: unsafe extern "C" fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    pub(crate) av_set: Stub,
}

#[repr(C)]
pub(crate) struct FiCqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct FidCq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const CqOps,
}

#[repr(C)]
pub(crate) struct CqOps {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub(crate) readfrom: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut FiAddr) -> isize,
    pub(crate) readerr: unsafe extern "C" fn(*mut FidCq, *mut FiCqErrEntry, u64) -> isize,
    pub(crate) sread: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize,
    pub(crate) sreadfrom:
        unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut FiAddr, *const c_void, c_int) -> isize,
    pub(crate) signal: unsafe extern "C" fn(*mut FidCq) -> c_int,
    pub(crate) strerror: unsafe extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

/// The entry of the fullest format; the entries of the others are its beginning.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FiCqTaggedEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
}

#[repr(C)]
pub(crate) struct FiCqErrEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    /// Only there since API 1.5.
    pub(crate) err_data_size: usize,
}

#[repr(C)]
pub(crate) struct FiCntrAttr {
    pub(crate) events: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) wait_set: *mut c_void,
    pub(crate) flags: u64,
}

#[repr(C)]
pub(crate) struct FidCntr {
    pub(crate) fid: Fid,
    pub(crate) ops: *const CntrOps,
}

#[repr(C)]
pub(crate) struct CntrOps {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut FidCntr) -> u64,
    pub(crate) readerr: unsafe extern "C" fn(*mut FidCntr) -> u64,
    pub(crate) add: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) set: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) wait: unsafe extern "C" fn(*mut FidCntr, u64, c_int) -> c_int,
    pub(crate) adderr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) seterr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
}

#[repr(C)]
pub(crate) struct FiEqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct FidEq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const EqOps,
}

#[repr(C)]
pub(crate) struct EqOps {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize,
    pub(crate) readerr: unsafe extern "C" fn(*mut FidEq, *mut c_void, u64) -> isize,
    pub(crate) write: unsafe extern "C" fn(*mut FidEq, u32, *const c_void, usize, u64) -> isize,
    pub(crate) sread: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
    pub(crate) strerror: unsafe extern "C" fn(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

#[repr(C)]
pub(crate) struct FidEp {
    pub(crate) fid: Fid,
    pub(crate) ops: *const EpOps,
    pub(crate) cm: *const CmOps,
    pub(crate) msg: *const MsgOps,
    pub(crate) rma: *const RmaOps,
    pub(crate) tagged: *const TaggedOps,
    pub(crate) atomic: *const AtomicOps,
    pub(crate) collective: *const c_void,
}

#[repr(C)]
pub(crate) struct EpOps {
    pub(crate) size: usize,
    pub(crate) cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize,
    pub(crate) getopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub(crate) setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
    pub(crate) tx_ctx: Stub,
    pub(crate) rx_ctx: Stub,
    pub(crate) rx_size_left: Stub,
    pub(crate) tx_size_left: Stub,
}

#[repr(C)]
pub(crate) struct CmOps {
    pub(crate) size: usize,
    pub(crate) setname: Stub,
    pub(crate) getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    pub(crate) getpeer: Stub,
    pub(crate) connect: Stub,
    pub(crate) listen: Stub,
    pub(crate) accept: Stub,
    pub(crate) reject: Stub,
    pub(crate) shutdown: Stub,
    pub(crate) join: Stub,
}

#[repr(C)]
pub(crate) struct FiMsg {
    pub(crate) msg_iov: *const libc::iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: FiAddr,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct FiMsgTagged {
    pub(crate) msg_iov: *const libc::iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: FiAddr,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct MsgOps {
    pub(crate) size: usize,
    pub(crate) recv: unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, FiAddr, *mut c_void) -> isize,
    pub(crate) recvv:
        unsafe extern "C" fn(*mut FidEp, *const libc::iovec, *mut *mut c_void, usize, FiAddr, *mut c_void) -> isize,
    pub(crate) recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
    pub(crate) send: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, FiAddr, *mut c_void) -> isize,
    pub(crate) sendv:
        unsafe extern "C" fn(*mut FidEp, *const libc::iovec, *mut *mut c_void, usize, FiAddr, *mut c_void) -> isize,
    pub(crate) sendmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr) -> isize,
    pub(crate) senddata:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, FiAddr, *mut c_void) -> isize,
    pub(crate) injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr) -> isize,
}

#[repr(C)]
pub(crate) struct TaggedOps {
    pub(crate) size: usize,
    pub(crate) recv:
        unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, FiAddr, u64, u64, *mut c_void) -> isize,
    pub(crate) recvv: unsafe extern "C" fn(
        *mut FidEp,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgTagged, u64) -> isize,
    pub(crate) send:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, FiAddr, u64, *mut c_void) -> isize,
    pub(crate) sendv: unsafe extern "C" fn(
        *mut FidEp,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) sendmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgTagged, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr, u64) -> isize,
    pub(crate) senddata:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, FiAddr, u64, *mut c_void) -> isize,
    pub(crate) injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr, u64) -> isize,
}

#[cfg(test)]
mod tests;
