//! The functions that only Open-MX has, or has with its own order of arguments: the remaining ones of `open-mx.h`.

use std::ffi::{c_char, c_void};

use crate::{
    boundary::c_functions,
    calls::{self, Send, on},
    codes, info,
    slots::{CRequest, Handle},
    state,
    types::{
        CAddress, CStatus, ErrorHandler,
        Flavor::{self, OpenMx},
        Out,
    },
};

const FLAVOR: Flavor = OpenMx;

c_functions! {
    fn omx_isend(
        endpoint: Handle,
        buffer: Out<c_void>,
        length: usize,
        to: CAddress,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_isend", |opened| {
            let send = Send { to, match_info, context: context.bits(), synchronous: false };
            calls::isend(opened, &calls::buffer(buffer, length)?, &send, request)
        })
    }

    fn omx_issend(
        endpoint: Handle,
        buffer: Out<c_void>,
        length: usize,
        to: CAddress,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_issend", |opened| {
            let send = Send { to, match_info, context: context.bits(), synchronous: true };
            calls::isend(opened, &calls::buffer(buffer, length)?, &send, request)
        })
    }

    fn omx_irecv(
        endpoint: Handle,
        buffer: Out<c_void>,
        length: usize,
        match_info: u64,
        match_mask: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_irecv", |opened| {
            let segments = calls::buffer(buffer, length)?;
            calls::irecv(opened, &segments, (match_info, match_mask), context.bits(), request)
        })
    }

    fn omx_cancel_notest(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) -> u32 {
        on(FLAVOR, endpoint, "omx_cancel_notest", |opened| calls::cancel(opened, request, true, result))
    }

    fn omx_wait(
        endpoint: Handle,
        request: Out<CRequest>,
        status: Out<CStatus>,
        result: Out<u32>,
        timeout_ms: u32,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_wait", |opened| {
            let limit = FLAVOR.limit(timeout_ms);
            calls::complete(FLAVOR, opened, request, Some(limit), (status, result))
        })
    }

    fn omx_wait_any(
        endpoint: Handle,
        match_info: u64,
        match_mask: u64,
        status: Out<CStatus>,
        result: Out<u32>,
        timeout_ms: u32,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_wait_any", |opened| {
            let limit = FLAVOR.limit(timeout_ms);
            calls::complete_any(FLAVOR, opened, (match_info, match_mask), Some(limit), (status, result))
        })
    }

    fn omx_peek(endpoint: Handle, request: Out<CRequest>, result: Out<u32>, timeout_ms: u32) -> u32 {
        on(FLAVOR, endpoint, "omx_peek", |opened| {
            calls::peek(opened, Some(FLAVOR.limit(timeout_ms)), request, result)
        })
    }

    fn omx_probe(
        endpoint: Handle,
        match_info: u64,
        match_mask: u64,
        status: Out<CStatus>,
        result: Out<u32>,
        timeout_ms: u32,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_probe", |opened| {
            calls::probe(opened, (match_info, match_mask), Some(FLAVOR.limit(timeout_ms)), (status, result))
        })
    }

    fn omx_get_info(
        endpoint: Handle,
        key: u32,
        input: Out<c_void>,
        input_len: u32,
        output: Out<c_void>,
        output_len: u32,
    ) -> u32 {
        info::answer(FLAVOR, endpoint, "omx_get_info", (input, input_len), (output, output_len), |call| call.open_mx(key))
    }
}

/// Sets the handler of an endpoint, or of the process for NULL, and returns the former one. Allowed before init.
#[unsafe(no_mangle)]
extern "C" fn omx_set_error_handler(endpoint: Handle, handler: Option<ErrorHandler>) -> ErrorHandler {
    if endpoint.is_null() {
        return state::set_handler(FLAVOR, handler);
    }
    let before = endpoint.opened().ok().and_then(|opened| opened.set_handler(handler));
    before.unwrap_or_else(|| state::handler_of_process(FLAVOR))
}

#[unsafe(no_mangle)]
extern "C" fn omx_strerror(code: u32) -> *const c_char {
    codes::text(FLAVOR, code).as_ptr()
}
