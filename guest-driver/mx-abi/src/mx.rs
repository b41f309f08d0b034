//! The functions of `myriexpress.h`, `mx_extensions.h` and `mx_internals/`, under their names and with their arguments.

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
        Flavor::{self, Mx},
        List, Out, Text, UnexpectedHandler,
    },
};

const FLAVOR: Flavor = Mx;

/// `mx_mapper_state_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MapperState {
    board_number: u32,
    mapper_mac: [u8; 6],
    iport: u16,
    map_version: u32,
    num_hosts: u32,
    network_configured: u32,
    routes_valid: u32,
    level: u32,
    flags: u32,
}

const _: () = assert!(size_of::<MapperState>() == 36);

c_functions! {
    fn mx__init_api(api: i32) -> u32 {
        returned(FLAVOR, None, "mx_init", state::init(api).map_err(Fault::new))
    }

    fn mx_finalize() -> u32 {
        returned(FLAVOR, None, "mx_finalize", calls::finalize())
    }

    fn mx_open_endpoint(
        board: u32,
        number: u32,
        key: u32,
        params: List<CParam>,
        count: u32,
        endpoint: Out<Handle>,
    ) -> u32 {
        let opened = calls::open((board, number, key), params, count, endpoint);
        returned(FLAVOR, None, "mx_open_endpoint", opened)
    }

    fn mx_close_endpoint(endpoint: Handle) -> u32 {
        on(FLAVOR, endpoint, "mx_close_endpoint", |_| calls::close(endpoint))
    }

    fn mx_wakeup(endpoint: Handle) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            opened.endpoint.wakeup();
            Ok(())
        })
    }

    fn mx_disable_progression(endpoint: Handle) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            opened.endpoint.disable_progression();
            Ok(())
        })
    }

    fn mx_reenable_progression(endpoint: Handle) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            opened.endpoint.reenable_progression();
            Ok(())
        })
    }

    fn mx_isend(
        endpoint: Handle,
        segments: List<Segment>,
        count: u32,
        to: CAddress,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "mx_isend", |opened| {
            let send = Send { to, match_info, context: context.bits(), synchronous: false };
            calls::isend(opened, &calls::segments(FLAVOR, segments, count)?, &send, request)
        })
    }

    fn mx_issend(
        endpoint: Handle,
        segments: List<Segment>,
        count: u32,
        to: CAddress,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "mx_issend", |opened| {
            let send = Send { to, match_info, context: context.bits(), synchronous: true };
            calls::isend(opened, &calls::segments(FLAVOR, segments, count)?, &send, request)
        })
    }

    fn mx_irecv(
        endpoint: Handle,
        segments: List<Segment>,
        count: u32,
        match_info: u64,
        match_mask: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "mx_irecv", |opened| {
            let segments = calls::segments(FLAVOR, segments, count)?;
            calls::irecv(opened, &segments, (match_info, match_mask), context.bits(), request)
        })
    }

    fn mx_cancel(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) -> u32 {
        on(FLAVOR, endpoint, "mx_cancel", |opened| calls::cancel(opened, request, false, result))
    }

    fn mx_test(endpoint: Handle, request: Out<CRequest>, status: Out<CStatus>, result: Out<u32>) -> u32 {
        on(FLAVOR, endpoint, "mx_test", |opened| {
            calls::complete(FLAVOR, opened, request, None, (status, result))
        })
    }

    fn mx_wait(
        endpoint: Handle,
        request: Out<CRequest>,
        timeout_ms: u32,
        status: Out<CStatus>,
        result: Out<u32>,
    ) -> u32 {
        on(FLAVOR, endpoint, "mx_wait", |opened| {
            let limit = FLAVOR.limit(timeout_ms);
            calls::complete(FLAVOR, opened, request, Some(limit), (status, result))
        })
    }

    fn mx_test_any(
        endpoint: Handle,
        match_info: u64,
        match_mask: u64,
        status: Out<CStatus>,
        result: Out<u32>,
    ) -> u32 {
        on(FLAVOR, endpoint, "mx_test_any", |opened| {
            calls::complete_any(FLAVOR, opened, (match_info, match_mask), None, (status, result))
        })
    }

    fn mx_wait_any(
        endpoint: Handle,
        timeout_ms: u32,
        match_info: u64,
        match_mask: u64,
        status: Out<CStatus>,
        result: Out<u32>,
    ) -> u32 {
        on(FLAVOR, endpoint, "mx_wait_any", |opened| {
            let limit = FLAVOR.limit(timeout_ms);
            calls::complete_any(FLAVOR, opened, (match_info, match_mask), Some(limit), (status, result))
        })
    }

    fn mx_ipeek(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) -> u32 {
        on(FLAVOR, endpoint, "mx_ipeek", |opened| calls::peek(opened, None, request, result))
    }

    fn mx_peek(endpoint: Handle, timeout_ms: u32, request: Out<CRequest>, result: Out<u32>) -> u32 {
        on(FLAVOR, endpoint, "mx_peek", |opened| {
            calls::peek(opened, Some(FLAVOR.limit(timeout_ms)), request, result)
        })
    }

    fn mx_iprobe(
        endpoint: Handle,
        match_info: u64,
        match_mask: u64,
        status: Out<CStatus>,
        result: Out<u32>,
    ) -> u32 {
        on(FLAVOR, endpoint, "mx_iprobe", |opened| {
            calls::probe(opened, (match_info, match_mask), None, (status, result))
        })
    }

    fn mx_probe(
        endpoint: Handle,
        timeout_ms: u32,
        match_info: u64,
        match_mask: u64,
        status: Out<CStatus>,
        result: Out<u32>,
    ) -> u32 {
        on(FLAVOR, endpoint, "mx_probe", |opened| {
            calls::probe(opened, (match_info, match_mask), Some(FLAVOR.limit(timeout_ms)), (status, result))
        })
    }

    fn mx_ibuffered(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| calls::is_buffered(opened, request, result))
    }

    fn mx_buffered(endpoint: Handle, request: Out<CRequest>, timeout_ms: u32, result: Out<u32>) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            calls::wait_buffered(opened, request, FLAVOR.limit(timeout_ms), result)
        })
    }

    fn mx_context(request: Out<CRequest>, context: Out<u64>) -> u32 {
        match calls::context(request, context) {
            Ok(()) => codes::SUCCESS,
            Err(fault) => fault.code,
        }
    }

    fn mx_get_info(
        endpoint: Handle,
        key: u32,
        input: Out<c_void>,
        input_len: u32,
        output: Out<c_void>,
        output_len: u32,
    ) -> u32 {
        info::answer(FLAVOR, endpoint, "mx_get_info", (input, input_len), (output, output_len), |call| call.mx(key))
    }

    fn mx_hostname_to_nic_id(name: Text, nic_id: Out<u64>) -> u32 {
        returned(FLAVOR, None, "mx_hostname_to_nic_id", info::find_host(name, nic_id))
    }

    fn mx_nic_id_to_hostname(nic_id: u64, name: Out<c_void>) -> u32 {
        returned(FLAVOR, None, "mx_nic_id_to_hostname", info::name_of(nic_id, name.bytes()))
    }

    fn mx_board_number_to_nic_id(board: u32, nic_id: Out<u64>) -> u32 {
        returned(FLAVOR, None, "mx_board_number_to_nic_id", info::nic_of_board(board, nic_id))
    }

    fn mx_nic_id_to_board_number(nic_id: u64, board: Out<u32>) -> u32 {
        returned(FLAVOR, None, "mx_nic_id_to_board_number", info::board_of_nic(nic_id, board))
    }

    fn mx_connect(
        endpoint: Handle,
        nic_id: u64,
        number: u32,
        key: u32,
        timeout_ms: u32,
        address: Out<CAddress>,
    ) -> u32 {
        on(FLAVOR, endpoint, "mx_connect", |opened| {
            calls::connect(opened, (nic_id, number, key), FLAVOR.limit(timeout_ms), address)
        })
    }

    fn mx_decompose_endpoint_addr(address: CAddress, nic_id: Out<u64>, number: Out<u32>) -> u32 {
        calls::decompose(address, nic_id, number, None);
        codes::SUCCESS
    }

    fn mx_get_endpoint_addr(endpoint: Handle, address: Out<CAddress>) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            address.put(opened.endpoint.address().into());
            Ok(())
        })
    }

    /// Never implemented by anybody.
    fn mx_register_unexp_callback(_endpoint: Handle, _callback: Out<c_void>, _context: Out<c_void>) -> u32 {
        codes::MX_FAILURE
    }

    /// Never implemented by anybody.
    fn mx_iput(
        _endpoint: Handle,
        _buffer: Out<c_void>,
        _length: u32,
        _to: CAddress,
        _remote: u64,
        _context: Out<c_void>,
        _request: Out<CRequest>,
    ) -> u32 {
        codes::MX_FAILURE
    }

    /// Never implemented by anybody.
    fn mx_iget(
        _endpoint: Handle,
        _buffer: Out<c_void>,
        _length: u32,
        _from: CAddress,
        _remote: u64,
        _context: Out<c_void>,
        _request: Out<CRequest>,
    ) -> u32 {
        codes::MX_FAILURE
    }

    fn mx_iconnect(
        endpoint: Handle,
        nic_id: u64,
        number: u32,
        key: u32,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) -> u32 {
        on(FLAVOR, endpoint, "mx_iconnect", |opened| {
            calls::iconnect(opened, (nic_id, number, key), match_info, context.bits(), request)
        })
    }

    fn mx_disconnect(endpoint: Handle, address: CAddress) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| calls::disconnect(opened, address))
    }

    fn mx_register_unexp_handler(
        endpoint: Handle,
        handler: Option<UnexpectedHandler>,
        context: Out<c_void>,
    ) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| {
            calls::set_unexpected_handler(opened, handler, context.bits());
            Ok(())
        })
    }

    fn mx_forget(endpoint: Handle, request: Out<CRequest>) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| calls::forget(opened, request))
    }

    fn mx_progress(endpoint: Handle) -> u32 {
        on(FLAVOR, endpoint, "mx_progress", |opened| {
            opened.endpoint.progress();
            Ok(())
        })
    }

    fn mx_set_endpoint_addr_context(address: CAddress, context: Out<c_void>) -> u32 {
        contexts::set(address, context.bits());
        codes::SUCCESS
    }

    fn mx_get_endpoint_addr_context(address: CAddress, context: Out<u64>) -> u32 {
        context.put(contexts::get(address));
        codes::SUCCESS
    }

    fn mx_set_request_timeout(endpoint: Handle, request: CRequest, timeout_ms: u32) -> u32 {
        quietly_on(FLAVOR, endpoint, |opened| calls::set_request_timeout(opened, request, timeout_ms))
    }

    fn mx_decompose_endpoint_addr2(
        address: CAddress,
        nic_id: Out<u64>,
        number: Out<u32>,
        session: Out<u32>,
    ) -> u32 {
        calls::decompose(address, nic_id, number, Some(session));
        codes::SUCCESS
    }

    /// Succeeds and does nothing: some programs call it before they look at the mapper's state.
    fn mx_open_board(board: i32, handle: Out<i32>) -> u32 {
        handle.put(board);
        codes::SUCCESS
    }

    fn mx__get_mapper_state(_handle: i32, out: Out<MapperState>) -> u32 {
        let Some(asked) = out.get() else {
            return codes::BAD_INFO_ADDRESS;
        };
        match info::mapper(asked.board_number) {
            Ok((mapper_mac, num_hosts)) => {
                out.put(MapperState {
                    board_number: asked.board_number,
                    mapper_mac,
                    iport: 0,
                    // The table grows while it is used: there is one map.
                    map_version: 1,
                    num_hosts,
                    network_configured: 1,
                    routes_valid: 1,
                    level: 0,
                    flags: 0,
                });
                codes::SUCCESS
            }
            Err(fault) => codes::return_code(FLAVOR, fault.code),
        }
    }

    /// Nothing is registered with a card, so there is nothing to drop.
    fn mx__regcache_clean(_ptr: Out<c_void>, _len: usize) -> i32 {
        0
    }
}

/// The handler of the process; allowed before init.
#[unsafe(no_mangle)]
extern "C" fn mx_set_error_handler(handler: Option<ErrorHandler>) -> ErrorHandler {
    state::set_handler(FLAVOR, handler)
}

#[unsafe(no_mangle)]
extern "C" fn mx_strerror(code: u32) -> *const c_char {
    codes::text(FLAVOR, code).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn mx_strstatus(code: u32) -> *const c_char {
    codes::mx_status_text(code).as_ptr()
}
