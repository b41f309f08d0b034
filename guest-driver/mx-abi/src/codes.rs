//! The numbers and texts of both interfaces (`mx-api.md` section 4). Inside this crate, errors have Open-MX's numbers.

use std::ffi::CStr;

use omx::StatusCode;

use crate::types::Flavor;

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const BAD_ERROR: u32 = 1;
pub(crate) const ALREADY_INITIALIZED: u32 = 3;
pub(crate) const NOT_INITIALIZED: u32 = 4;
pub(crate) const NO_DRIVER: u32 = 6;
pub(crate) const ACCESS_DENIED: u32 = 7;
pub(crate) const BOARD_NOT_FOUND: u32 = 8;
pub(crate) const BAD_ENDPOINT: u32 = 9;
pub(crate) const SEGMENTS_BAD_COUNT: u32 = 12;
pub(crate) const BAD_REQUEST: u32 = 13;
pub(crate) const NO_RESOURCES: u32 = 15;
pub(crate) const BUSY: u32 = 20;
pub(crate) const BAD_INFO_KEY: u32 = 21;
pub(crate) const BAD_INFO_ADDRESS: u32 = 22;
pub(crate) const ENDPOINT_PARAMS_BAD_LIST: u32 = 24;
pub(crate) const ENDPOINT_PARAM_BAD_KEY: u32 = 25;
pub(crate) const PEER_NOT_FOUND: u32 = 28;
pub(crate) const TIMEOUT: u32 = 30;
pub(crate) const REMOTE_ENDPOINT_BAD_ID: u32 = 32;
pub(crate) const REMOTE_ENDPOINT_CLOSED: u32 = 33;
pub(crate) const BAD_INFO_LENGTH: u32 = 35;
pub(crate) const NIC_ID_NOT_FOUND: u32 = 36;
pub(crate) const BAD_KERNEL_ABI: u32 = 37;
pub(crate) const BAD_LIB_ABI: u32 = 38;
pub(crate) const REMOTE_ENDPOINT_UNREACHABLE: u32 = 92;
pub(crate) const REMOTE_ENDPOINT_BAD_SESSION: u32 = 93;
pub(crate) const NOT_SUPPORTED_IN_HANDLER: u32 = 96;
pub(crate) const NO_SYSTEM_RESOURCES: u32 = 97;
pub(crate) const NOT_IMPLEMENTED: u32 = 99;

/// `MX_FAILURE` also stands for a call inside a handler in MX.
pub(crate) const MX_FAILURE: u32 = 2;
/// A list that is NULL.
pub(crate) const MX_BAD_SEG_LIST: u32 = 10;
/// A segment without memory.
pub(crate) const MX_BAD_SEG_MEM: u32 = 11;
const MX_CLOSE_IN_HANDLER: u32 = 41;

/// Converts an Open-MX return code to the interface's.
pub(crate) const fn return_code(flavor: Flavor, code: u32) -> u32 {
    match (flavor, code) {
        (Flavor::OpenMx, code) => code,
        (Flavor::Mx, NOT_SUPPORTED_IN_HANDLER) => MX_CLOSE_IN_HANDLER,
        (Flavor::Mx, REMOTE_ENDPOINT_UNREACHABLE) => TIMEOUT,
        (Flavor::Mx, REMOTE_ENDPOINT_BAD_SESSION) => REMOTE_ENDPOINT_CLOSED,
        (Flavor::Mx, NO_SYSTEM_RESOURCES) => NO_RESOURCES,
        (Flavor::Mx, NOT_IMPLEMENTED) => MX_FAILURE,
        (Flavor::Mx, code) => code,
    }
}

/// Converts a status code to the interface's.
pub(crate) const fn status_code(flavor: Flavor, code: StatusCode) -> u32 {
    let number = code.code();
    match (flavor, code) {
        (Flavor::OpenMx, _) | (Flavor::Mx, StatusCode::Success) => number,
        (Flavor::Mx, StatusCode::Timeout) => 4,
        (Flavor::Mx, StatusCode::Truncated) => 5,
        (Flavor::Mx, StatusCode::Cancelled) => 6,
        (Flavor::Mx, StatusCode::EndpointClosed) => 8,
        (Flavor::Mx, StatusCode::Unreachable) => 9,
        (Flavor::Mx, StatusCode::BadSession | StatusCode::BadConnection) => 10,
        (Flavor::Mx, StatusCode::BadKey) => 11,
        (Flavor::Mx, StatusCode::BadEndpoint) => 12,
        (Flavor::Mx, StatusCode::BadRdmaWindow) => 13,
    }
}

/// Returns the text of a return code of either interface.
pub(crate) const fn text(flavor: Flavor, code: u32) -> &'static CStr {
    match (flavor, code) {
        (_, 0) => c"success",
        (_, 1) => c"unexpected system error",
        (Flavor::Mx, 2) => c"this call is not implemented",
        (_, 3) => c"the library is initialized already",
        (_, 4) => c"the library is not initialized",
        (_, 5) => c"no device file",
        (_, 6) => c"no daemon of the interface answers",
        (_, 7) => c"permission denied",
        (_, 8) => c"no such board",
        (_, 9) => c"no such endpoint, or it is closed",
        (Flavor::Mx, 10) => c"the segment list is NULL",
        (Flavor::Mx, 11) => c"bad segment memory",
        (_, 12) => c"too many segments or bytes",
        (_, 13) => c"the request is over, or this call does not take its kind",
        (_, 14) => c"the match information has bits outside the mask",
        (_, 15) => c"out of resources",
        (Flavor::Mx, 16) => c"bad address list",
        (Flavor::Mx, 17) => c"bad address count",
        (Flavor::Mx, 18) => c"bad root",
        (Flavor::Mx, 19) => c"not completed",
        (_, 20) => c"the endpoint is in use",
        (_, 21) => c"no such information key",
        (_, 22) => c"the information pointer is NULL",
        (Flavor::Mx, 23) => c"bad network card",
        (_, 24) => c"the parameter list is NULL",
        (_, 25) => c"no such parameter",
        (_, 26) => c"bad parameter value",
        (Flavor::Mx, 27) => c"bad host name arguments",
        (_, 28) => c"no such peer",
        (Flavor::Mx, 29) => c"the request is pending",
        (_, 30) => c"timed out",
        (Flavor::Mx, 31) => c"no match",
        (_, 32) => c"the remote host has no such endpoint number",
        (_, 33) => c"the remote endpoint is not open",
        (_, 34) => c"wrong connection key",
        (_, 35) => c"bad length of information",
        (_, 36) => c"no such network address",
        (_, 37) => c"the daemon is of another version",
        (_, 38) => c"the library is of another version",
        (Flavor::Mx, 39) => c"the network card is dead",
        (Flavor::Mx, 40) => c"this request cannot be cancelled",
        (Flavor::Mx, 41) => c"not allowed inside an unexpected handler",
        (_, 42) => c"the mask must hold the whole context id",
        (Flavor::Mx, 43) => c"not supported with context ids",
        (Flavor::OpenMx, 90) => c"cancelled",
        (Flavor::OpenMx, 91) => c"the sender has given the message up",
        (Flavor::OpenMx, 92) => c"the remote endpoint does not answer",
        (Flavor::OpenMx, 93) => c"the remote endpoint was opened anew",
        (Flavor::OpenMx, 94) => c"the message was aborted",
        (Flavor::OpenMx, 95) => c"the message was truncated",
        (Flavor::OpenMx, 96) => c"not allowed inside an unexpected handler",
        (Flavor::OpenMx, 97) => c"out of system resources",
        (Flavor::OpenMx, 99) => c"this call is not implemented",
        _ => c"unknown return code",
    }
}

/// Returns the text of a status code of MX.
pub(crate) const fn mx_status_text(code: u32) -> &'static CStr {
    match code {
        0 => c"success",
        1 => c"pending",
        2 => c"buffered",
        3 => c"rejected",
        4 => c"timed out",
        5 => c"the message was truncated",
        6 => c"cancelled",
        7 => c"unknown endpoint",
        8 => c"the remote endpoint is not open",
        9 => c"the remote endpoint does not answer",
        10 => c"the remote endpoint was opened anew",
        11 => c"wrong connection key",
        12 => c"the remote host has no such endpoint number",
        13 => c"the sender has given the message up",
        14 => c"the message was aborted",
        15 => c"the event queue is full",
        16 => c"out of resources",
        _ => c"unknown status code",
    }
}
