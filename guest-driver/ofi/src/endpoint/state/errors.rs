//! The error numbers of libfabric for what the library refuses, and for how requests end.

use std::ffi::c_int;

use omx::{Error, StatusCode};

use crate::abi::*;

/// Returns the positive error number of a request that failed, and what helps where the peer is on this host or on another one.
pub(super) const fn meaning(code: StatusCode, is_on_this_host: bool) -> (c_int, Option<&'static str>) {
    match code {
        StatusCode::Cancelled => (FI_ECANCELED, None),
        StatusCode::Timeout if is_on_this_host => (FI_ETIMEDOUT, Some("its process was stopped, or gets no processor")),
        StatusCode::Timeout => (
            FI_ETIMEDOUT,
            Some("the network loses too much, or the peer was stopped"),
        ),
        StatusCode::Unreachable if is_on_this_host => (
            FI_EHOSTUNREACH,
            Some("its process has ended, was stopped, or gets no processor"),
        ),
        StatusCode::Unreachable => (
            FI_EHOSTUNREACH,
            Some("check with omx_info on both hosts that they see each other"),
        ),
        StatusCode::EndpointClosed | StatusCode::BadSession | StatusCode::BadRdmaWindow => {
            (FI_ECONNRESET, Some("look for the first process that ended"))
        }
        StatusCode::BadConnection => (FI_ECONNREFUSED, Some("give the interfaces of both hosts one MTU")),
        StatusCode::BadKey => (FI_ECONNREFUSED, Some("its program does not use this provider")),
        StatusCode::BadEndpoint => (
            FI_ECONNREFUSED,
            Some("give omxd the same OMX_ENDPOINTS_MAX on all hosts"),
        ),
        // No failures of the network.
        StatusCode::Success | StatusCode::Truncated => (FI_EIO, None),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_where_the_peer_is_and_whether_it_has_ended() {
        let ended = Some("look for the first process that ended");
        for code in [
            StatusCode::EndpointClosed,
            StatusCode::BadSession,
            StatusCode::BadRdmaWindow,
        ] {
            for is_on_this_host in [false, true] {
                assert_eq!(meaning(code, is_on_this_host), (FI_ECONNRESET, ended), "{code:?}");
            }
        }
        for code in [StatusCode::Unreachable, StatusCode::Timeout] {
            let [elsewhere, here] = [false, true].map(|is_on_this_host| meaning(code, is_on_this_host));
            assert_eq!(elsewhere.0, here.0);
            assert!(here.1.is_some_and(|advice| advice.contains("its process")), "{here:?}");
            assert_ne!(elsewhere.1, here.1);
        }
    }
}
