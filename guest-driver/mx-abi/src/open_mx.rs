//! The functions of `open-mx.h`, under their names and with their arguments.

use std::ffi::{c_char, c_void};

use omx::Segment;

use crate::{
    boundary::c_functions,
    calls::{self, Send, on, quietly_on},
    codes, contexts,
    fault::{Fault, returned},
    info,
    slots::{CRequest, Handle},
    state,
    types::{
        CAddress, CParam, CStatus, ErrorHandler,
        Flavor::{self, OpenMx},
        List, Out, Text, UnexpectedHandler,
    },
};

const FLAVOR: Flavor = OpenMx;

c_functions! {
    fn omx__init_api(api: i32) -> u32 {
        returned(FLAVOR, None, "omx_init", state::init(api).map_err(Fault::new))
    }

    fn omx_finalize() -> u32 {
        returned(FLAVOR, None, "omx_finalize", calls::finalize())
    }

    fn omx_open_endpoint(
        board: u32,
        number: u32,
        key: u32,
        params: List<CParam>,
        count: u32,
        endpoint: Out<Handle>,
    ) -> u32 {
        let opened = calls::open((board, number, key), params, count, endpoint);
        returned(FLAVOR, None, "omx_open_endpoint", opened)
    }

    fn omx_close_endpoint(endpoint: Handle) -> u32 {
        on(FLAVOR, endpoint, "omx_close_endpoint", |_| calls::close(endpoint))
    }

    fn omx_wakeup(endpoint: Handle) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            opened.endpoint.wakeup();
            Ok(())
        })
    }

    fn omx_disable_progression(endpoint: Handle) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            opened.endpoint.disable_progression();
            Ok(())
        })
    }

    fn omx_reenable_progression(endpoint: Handle) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            opened.endpoint.reenable_progression();
            Ok(())
        })
    }

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

    fn omx_isendv(
        endpoint: Handle,
        segments: List<Segment>,
        count: u32,
        to: CAddress,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_isendv", |opened| {
            let send = Send { to, match_info, context: context.bits(), synchronous: false };
            calls::isend(opened, &calls::segments(FLAVOR, segments, count)?, &send, request)
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

    fn omx_issendv(
        endpoint: Handle,
        segments: List<Segment>,
        count: u32,
        to: CAddress,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_issendv", |opened| {
            let send = Send { to, match_info, context: context.bits(), synchronous: true };
            calls::isend(opened, &calls::segments(FLAVOR, segments, count)?, &send, request)
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

    fn omx_irecvv(
        endpoint: Handle,
        segments: List<Segment>,
        count: u32,
        match_info: u64,
        match_mask: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_irecvv", |opened| {
            let segments = calls::segments(FLAVOR, segments, count)?;
            calls::irecv(opened, &segments, (match_info, match_mask), context.bits(), request)
        })
    }

    fn omx_cancel(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) -> u32 {
        on(FLAVOR, endpoint, "omx_cancel", |opened| calls::cancel(opened, request, false, result))
    }

    fn omx_cancel_notest(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) -> u32 {
        on(FLAVOR, endpoint, "omx_cancel_notest", |opened| calls::cancel(opened, request, true, result))
    }

    fn omx_test(endpoint: Handle, request: Out<CRequest>, status: Out<CStatus>, result: Out<u32>) -> u32 {
        on(FLAVOR, endpoint, "omx_test", |opened| {
            calls::complete(FLAVOR, opened, request, None, (status, result))
        })
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

    fn omx_test_any(
        endpoint: Handle,
        match_info: u64,
        match_mask: u64,
        status: Out<CStatus>,
        result: Out<u32>,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_test_any", |opened| {
            calls::complete_any(FLAVOR, opened, (match_info, match_mask), None, (status, result))
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

    fn omx_ipeek(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) -> u32 {
        on(FLAVOR, endpoint, "omx_ipeek", |opened| calls::peek(opened, None, request, result))
    }

    fn omx_peek(endpoint: Handle, request: Out<CRequest>, result: Out<u32>, timeout_ms: u32) -> u32 {
        on(FLAVOR, endpoint, "omx_peek", |opened| {
            calls::peek(opened, Some(FLAVOR.limit(timeout_ms)), request, result)
        })
    }

    fn omx_iprobe(
        endpoint: Handle,
        match_info: u64,
        match_mask: u64,
        status: Out<CStatus>,
        result: Out<u32>,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_iprobe", |opened| {
            calls::probe(opened, (match_info, match_mask), None, (status, result))
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

    fn omx_ibuffered(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| calls::is_buffered(opened, request, result))
    }

    fn omx_context(request: Out<CRequest>, context: Out<u64>) -> u32 {
        match calls::context(request, context) {
            Ok(()) => codes::SUCCESS,
            Err(fault) => fault.code,
        }
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

    fn omx_hostname_to_nic_id(name: Text, nic_id: Out<u64>) -> u32 {
        returned(FLAVOR, None, "omx_hostname_to_nic_id", info::find_host(name, nic_id))
    }

    fn omx_nic_id_to_hostname(nic_id: u64, name: Out<c_void>) -> u32 {
        returned(FLAVOR, None, "omx_nic_id_to_hostname", info::name_of(nic_id, name.bytes()))
    }

    fn omx_board_number_to_nic_id(board: u32, nic_id: Out<u64>) -> u32 {
        returned(FLAVOR, None, "omx_board_number_to_nic_id", info::nic_of_board(board, nic_id))
    }

    fn omx_nic_id_to_board_number(nic_id: u64, board: Out<u32>) -> u32 {
        returned(FLAVOR, None, "omx_nic_id_to_board_number", info::board_of_nic(nic_id, board))
    }

    fn omx_connect(
        endpoint: Handle,
        nic_id: u64,
        number: u32,
        key: u32,
        timeout_ms: u32,
        address: Out<CAddress>,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_connect", |opened| {
            calls::connect(opened, (nic_id, number, key), FLAVOR.limit(timeout_ms), address)
        })
    }

    fn omx_decompose_endpoint_addr(address: CAddress, nic_id: Out<u64>, number: Out<u32>) -> u32 {
        calls::decompose(address, nic_id, number, None);
        codes::SUCCESS
    }

    fn omx_get_endpoint_addr(endpoint: Handle, address: Out<CAddress>) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            address.put(opened.endpoint.address().into());
            Ok(())
        })
    }

    fn omx_iconnect(
        endpoint: Handle,
        nic_id: u64,
        number: u32,
        key: u32,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "omx_iconnect", |opened| {
            calls::iconnect(opened, (nic_id, number, key), match_info, context.bits(), request)
        })
    }

    fn omx_disconnect(endpoint: Handle, address: CAddress) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| calls::disconnect(opened, address))
    }

    fn omx_register_unexp_handler(
        endpoint: Handle,
        handler: Option<UnexpectedHandler>,
        context: Out<c_void>,
    ) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            calls::set_unexpected_handler(opened, handler, context.bits());
            Ok(())
        })
    }

    fn omx_forget(endpoint: Handle, request: Out<CRequest>) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| calls::forget(opened, request))
    }

    fn omx_progress(endpoint: Handle) -> u32 {
        on(FLAVOR, endpoint, "omx_progress", |opened| {
            opened.endpoint.progress();
            Ok(())
        })
    }

    fn omx_set_endpoint_addr_context(address: CAddress, context: Out<c_void>) -> u32 {
        contexts::set(address, context.bits());
        codes::SUCCESS
    }

    fn omx_get_endpoint_addr_context(address: CAddress, context: Out<u64>) -> u32 {
        context.put(contexts::get(address));
        codes::SUCCESS
    }

    fn omx_set_request_timeout(endpoint: Handle, request: CRequest, timeout_ms: u32) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| calls::set_request_timeout(opened, request, timeout_ms))
    }

    fn omx_decompose_endpoint_addr_with_session(
        address: CAddress,
        nic_id: Out<u64>,
        number: Out<u32>,
        session: Out<u32>,
    ) -> u32 {
        calls::decompose(address, nic_id, number, Some(session));
        codes::SUCCESS
    }

}

/// The handler of an endpoint, or of the process for NULL; the one before. Allowed before init.
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
