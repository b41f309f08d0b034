//! The numbers of libfabric: errors, capabilities, flags, and the values of enumerations.

use std::ffi::c_int;

use super::FiAddr;

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
