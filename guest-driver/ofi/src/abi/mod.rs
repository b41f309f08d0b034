//! The structures and numbers that libfabric and a provider exchange, as its headers define them (API 1.17 to 2.6;
//! `docs/spec/ofi-provider.md` section 2.1). Only what the provider uses has a name and a type; every other slot of a table
//! of functions is a [`Stub`].

use std::ffi::{c_char, c_int, c_void};

/// A slot of a function table that answers "not implemented", whatever its arguments are.
pub(crate) type Stub = unsafe extern "C" fn() -> isize;

/// Answers a call that the provider does not implement: callers jump through the tables without a check.
pub(crate) unsafe extern "C" fn unsupported() -> isize {
    -FI_ENOSYS as isize
}

/// An address in an address vector: the number of its entry.
pub(crate) type FiAddr = u64;

pub(crate) const FI_ADDR_UNSPEC: FiAddr = u64::MAX;
pub(crate) const FI_ADDR_NOTAVAIL: FiAddr = u64::MAX;

pub(crate) const FI_ENOENT: c_int = libc::ENOENT;
pub(crate) const FI_EIO: c_int = libc::EIO;
pub(crate) const FI_EAGAIN: c_int = libc::EAGAIN;
pub(crate) const FI_EACCES: c_int = libc::EACCES;
pub(crate) const FI_EBUSY: c_int = libc::EBUSY;
pub(crate) const FI_ENODEV: c_int = libc::ENODEV;
pub(crate) const FI_EINVAL: c_int = libc::EINVAL;
pub(crate) const FI_ENOSYS: c_int = libc::ENOSYS;
pub(crate) const FI_ENOMSG: c_int = libc::ENOMSG;
pub(crate) const FI_ENODATA: c_int = libc::ENODATA;
pub(crate) const FI_EOPNOTSUPP: c_int = libc::EOPNOTSUPP;
pub(crate) const FI_EMSGSIZE: c_int = libc::EMSGSIZE;
pub(crate) const FI_ENOPROTOOPT: c_int = libc::ENOPROTOOPT;
pub(crate) const FI_ECONNRESET: c_int = libc::ECONNRESET;
pub(crate) const FI_ETIMEDOUT: c_int = libc::ETIMEDOUT;
pub(crate) const FI_ECONNREFUSED: c_int = libc::ECONNREFUSED;
pub(crate) const FI_EHOSTUNREACH: c_int = libc::EHOSTUNREACH;
pub(crate) const FI_ECANCELED: c_int = libc::ECANCELED;
pub(crate) const FI_ETOOSMALL: c_int = 257;
pub(crate) const FI_EOPBADSTATE: c_int = 258;
pub(crate) const FI_EAVAIL: c_int = 259;
pub(crate) const FI_EBADFLAGS: c_int = 260;
pub(crate) const FI_ENOCQ: c_int = 263;
pub(crate) const FI_ETRUNC: c_int = 265;
pub(crate) const FI_ENOAV: c_int = 267;

pub(crate) const FI_MSG: u64 = 1 << 1;
pub(crate) const FI_RMA: u64 = 1 << 2;
pub(crate) const FI_TAGGED: u64 = 1 << 3;
pub(crate) const FI_ATOMIC: u64 = 1 << 4;
pub(crate) const FI_READ: u64 = 1 << 8;
pub(crate) const FI_WRITE: u64 = 1 << 9;
pub(crate) const FI_RECV: u64 = 1 << 10;
pub(crate) const FI_SEND: u64 = 1 << 11;
pub(crate) const FI_REMOTE_READ: u64 = 1 << 12;
pub(crate) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const FI_MULTI_RECV: u64 = 1 << 16;
pub(crate) const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub(crate) const FI_MORE: u64 = 1 << 18;
pub(crate) const FI_PEEK: u64 = 1 << 19;
pub(crate) const FI_FENCE: u64 = 1 << 21;
pub(crate) const FI_COMPLETION: u64 = 1 << 24;
pub(crate) const FI_INJECT: u64 = 1 << 25;
pub(crate) const FI_INJECT_COMPLETE: u64 = 1 << 26;
pub(crate) const FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
pub(crate) const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub(crate) const FI_MATCH_COMPLETE: u64 = 1 << 31;
pub(crate) const FI_LOCAL_COMM: u64 = 1 << 51;
pub(crate) const FI_REMOTE_COMM: u64 = 1 << 52;
pub(crate) const FI_SOURCE: u64 = 1 << 57;
/// A flag of a receive; in other fields the bit means something else.
pub(crate) const FI_DISCARD: u64 = 1 << 58;
/// A flag of a receive; in other fields the bit means something else.
pub(crate) const FI_CLAIM: u64 = 1 << 59;
/// A capability; in other fields the bit means something else.
pub(crate) const FI_DIRECTED_RECV: u64 = 1 << 59;
/// A flag of a binding; in other fields the bit means something else.
pub(crate) const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;
/// A flag of `getinfo`: a utility provider of libfabric asks, not a program.
pub(crate) const OFI_CORE_PROV_ONLY: u64 = 1 << 59;
/// A flag of `getinfo`: a later spelling of the above.
pub(crate) const OFI_GETINFO_INTERNAL: u64 = 1 << 58;
/// A flag of `getinfo`: node and service are the caller's own.
pub(crate) const FI_GETINFO_SOURCE: u64 = 1 << 57;

/// A flag of `query_atomic`; in other fields the bit means something else.
pub(crate) const FI_FETCH_ATOMIC: u64 = 1 << 58;
/// A flag of `query_atomic`; in other fields the bit means something else.
pub(crate) const FI_COMPARE_ATOMIC: u64 = 1 << 59;

pub(crate) const FI_ORDER_SAS: u64 = 1 << 8;
pub(crate) const FI_ORDER_ATOMIC_RAR: u64 = 1 << 36;
pub(crate) const FI_ORDER_ATOMIC_RAW: u64 = 1 << 37;
pub(crate) const FI_ORDER_ATOMIC_WAR: u64 = 1 << 38;
pub(crate) const FI_ORDER_ATOMIC_WAW: u64 = 1 << 39;

pub(crate) const FI_INT8: c_int = 0;
pub(crate) const FI_UINT8: c_int = 1;
pub(crate) const FI_INT16: c_int = 2;
pub(crate) const FI_UINT16: c_int = 3;
pub(crate) const FI_INT32: c_int = 4;
pub(crate) const FI_UINT32: c_int = 5;
pub(crate) const FI_INT64: c_int = 6;
pub(crate) const FI_UINT64: c_int = 7;
pub(crate) const FI_FLOAT: c_int = 8;
pub(crate) const FI_DOUBLE: c_int = 9;

pub(crate) const FI_MIN: c_int = 0;
pub(crate) const FI_MAX: c_int = 1;
pub(crate) const FI_SUM: c_int = 2;
pub(crate) const FI_PROD: c_int = 3;
pub(crate) const FI_LOR: c_int = 4;
pub(crate) const FI_LAND: c_int = 5;
pub(crate) const FI_BOR: c_int = 6;
pub(crate) const FI_BAND: c_int = 7;
pub(crate) const FI_LXOR: c_int = 8;
pub(crate) const FI_BXOR: c_int = 9;
pub(crate) const FI_ATOMIC_READ: c_int = 10;
pub(crate) const FI_ATOMIC_WRITE: c_int = 11;
pub(crate) const FI_CSWAP: c_int = 12;
pub(crate) const FI_CSWAP_NE: c_int = 13;
pub(crate) const FI_CSWAP_LE: c_int = 14;
pub(crate) const FI_CSWAP_LT: c_int = 15;
pub(crate) const FI_CSWAP_GE: c_int = 16;
pub(crate) const FI_CSWAP_GT: c_int = 17;
pub(crate) const FI_MSWAP: c_int = 18;

/// In old versions of the interface: the three that follow.
pub(crate) const FI_MR_BASIC: c_int = 1 << 0;
pub(crate) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(crate) const FI_MR_ALLOCATED: c_int = 1 << 5;
pub(crate) const FI_MR_PROV_KEY: c_int = 1 << 6;
/// No region has this key.
pub(crate) const FI_KEY_NOTAVAIL: u64 = u64::MAX;

pub(crate) const FI_EP_RDM: c_int = 3;
pub(crate) const FI_AV_MAP: c_int = 1;
pub(crate) const FI_AV_TABLE: c_int = 2;
pub(crate) const FI_PROGRESS_AUTO: c_int = 1;
pub(crate) const FI_PROGRESS_MANUAL: c_int = 2;
pub(crate) const FI_THREAD_SAFE: c_int = 1;
/// The last threading level that the headers of 1.17 define; later ones define no more.
pub(crate) const FI_THREAD_LAST: c_int = 5;
pub(crate) const FI_RM_ENABLED: c_int = 2;
/// A number that is the provider's own has this bit.
pub(crate) const FI_PROV_SPECIFIC: u32 = 1 << 31;

pub(crate) const FI_CLASS_FABRIC: usize = 1;
pub(crate) const FI_CLASS_DOMAIN: usize = 2;
pub(crate) const FI_CLASS_EP: usize = 3;
pub(crate) const FI_CLASS_AV: usize = 11;
pub(crate) const FI_CLASS_MR: usize = 12;
pub(crate) const FI_CLASS_EQ: usize = 13;
pub(crate) const FI_CLASS_CQ: usize = 14;
pub(crate) const FI_CLASS_CNTR: usize = 15;

pub(crate) const FI_GETOPSFLAG: c_int = 2;
pub(crate) const FI_SETOPSFLAG: c_int = 3;
pub(crate) const FI_ENABLE: c_int = 6;

pub(crate) const FI_OPT_ENDPOINT: c_int = 0;
pub(crate) const FI_OPT_MIN_MULTI_RECV: c_int = 0;

pub(crate) const FI_WAIT_NONE: c_int = 0;
pub(crate) const FI_WAIT_UNSPEC: c_int = 1;
pub(crate) const FI_WAIT_YIELD: c_int = 5;

pub(crate) const FI_CQ_FORMAT_UNSPEC: c_int = 0;
pub(crate) const FI_CQ_FORMAT_CONTEXT: c_int = 1;
pub(crate) const FI_CQ_FORMAT_MSG: c_int = 2;
pub(crate) const FI_CQ_FORMAT_DATA: c_int = 3;
pub(crate) const FI_CQ_FORMAT_TAGGED: c_int = 4;

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
