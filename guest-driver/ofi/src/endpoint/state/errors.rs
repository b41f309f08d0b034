//! The error numbers of libfabric for what the library refuses, and for how requests end.

use std::ffi::c_int;

use omx::{Error, StatusCode};

use crate::abi::*;

/// Returns the positive error number of a request that failed, and what helps.
pub(super) const fn meaning(code: StatusCode) -> (c_int, Option<&'static str>) {
    match code {
        StatusCode::Cancelled => (FI_ECANCELED, None),
        StatusCode::Timeout => (
            FI_ETIMEDOUT,
            Some("the network loses too much, or the peer was stopped"),
        ),
        StatusCode::Unreachable => (
            FI_EHOSTUNREACH,
            Some("check with omx_info on both hosts that they see each other"),
        ),
        StatusCode::EndpointClosed | StatusCode::BadSession => {
            (FI_ECONNRESET, Some("look for the first process that ended"))
        }
        StatusCode::BadConnection => (FI_ECONNREFUSED, Some("give the interfaces of both hosts one MTU")),
        _ => (FI_EIO, Some("look at omx_counters on both hosts")),
    }
}

/// Translates an error of the library to a positive error number.
pub(in crate::endpoint) fn error_number(error: &Error) -> c_int {
    match error {
        Error::BoardNotFound { .. } | Error::BoardUnusable { .. } => FI_ENODEV,
        Error::BadEndpoint => FI_EOPBADSTATE,
        Error::NoResources => FI_EAGAIN,
        Error::Busy { .. } => FI_EBUSY,
        Error::AccessDenied { .. } => FI_EACCES,
        Error::PeerNotFound | Error::SameInterface => FI_EHOSTUNREACH,
        Error::Timeout => FI_ETIMEDOUT,
        Error::BadSegments => FI_EMSGSIZE,
        Error::System { source, .. } => source.raw_os_error().unwrap_or(FI_EIO),
        // What omxd is for was refused, not what the caller asked for: the sentence says which of the two to mend.
        Error::Authority(_) | Error::OtherVersion(_) => FI_ECONNREFUSED,
        _ => FI_EINVAL,
    }
}
