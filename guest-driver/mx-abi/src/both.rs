//! The functions that both interfaces have with equal arguments: MX's name, Open-MX's name, and the body. Functions
//! with different arguments, or of one interface only, are in `mx` and `open_mx`. (`open-mx.h` has no second name for
//! two of MX: with the translating headers they, too, use Open-MX's numbers and handlers.)

use std::ffi::c_void;

use omx::Segment;

use crate::{
    boundary::both_interfaces,
    calls::{self, Send, on, quietly_on, tell},
    codes, connections, contexts,
    fault::{Fault, returned},
    info,
    slots::{CRequest, Handle},
    state,
    types::{CAddress, CParam, CStatus, List, Out, Text, UnexpectedHandler},
};

both_interfaces! {
    fn (mx__init_api, omx__init_api)(api: i32) |flavor, name| {
        returned(flavor, None, name, state::init(api).map_err(Fault::new))
    }

    fn (mx_finalize, omx_finalize)() |flavor, name| {
        returned(flavor, None, name, calls::finalize())
    }

    fn (mx_open_endpoint, omx_open_endpoint)(
        board: u32,
        number: u32,
        key: u32,
        params: List<CParam>,
        count: u32,
        endpoint: Out<Handle>,
    ) |flavor, name| {
        let opened = calls::open(flavor, (board, number, key), params, count, endpoint);
        returned(flavor, None, name, opened)
    }

    fn (mx_close_endpoint, omx_close_endpoint)(endpoint: Handle) |flavor, name| {
        on(flavor, endpoint, name, |_| calls::close(endpoint))
    }

    fn (mx_wakeup, omx_wakeup)(endpoint: Handle) |flavor, _name| {
        tell(flavor, endpoint, |opened| opened.endpoint.wakeup())
    }

    fn (mx_disable_progression, omx_disable_progression)(endpoint: Handle) |flavor, _name| {
        tell(flavor, endpoint, |opened| opened.endpoint.disable_progression())
    }

    fn (mx_reenable_progression, omx_reenable_progression)(endpoint: Handle) |flavor, _name| {
        tell(flavor, endpoint, |opened| opened.endpoint.reenable_progression())
    }

    fn (mx_isend, omx_isendv)(
        endpoint: Handle,
        segments: List<Segment>,
        count: u32,
        to: CAddress,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) |flavor, name| {
        on(flavor, endpoint, name, |opened| {
            let send = Send { to, match_info, context: context.bits(), synchronous: false };
            calls::isend(opened, &calls::segments(flavor, segments, count)?, &send, request)
        })
    }

    fn (mx_issend, omx_issendv)(
        endpoint: Handle,
        segments: List<Segment>,
        count: u32,
        to: CAddress,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) |flavor, name| {
        on(flavor, endpoint, name, |opened| {
            let send = Send { to, match_info, context: context.bits(), synchronous: true };
            calls::isend(opened, &calls::segments(flavor, segments, count)?, &send, request)
        })
    }

    fn (mx_irecv, omx_irecvv)(
        endpoint: Handle,
        segments: List<Segment>,
        count: u32,
        match_info: u64,
        match_mask: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) |flavor, name| {
        on(flavor, endpoint, name, |opened| {
            let segments = calls::segments(flavor, segments, count)?;
            calls::irecv(opened, &segments, (match_info, match_mask), context.bits(), request)
        })
    }

    fn (mx_cancel, omx_cancel)(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) |flavor, name| {
        on(flavor, endpoint, name, |opened| calls::cancel(opened, request, false, result))
    }

    fn (mx_test, omx_test)(endpoint: Handle, request: Out<CRequest>, status: Out<CStatus>, result: Out<u32>) |flavor, name| {
        on(flavor, endpoint, name, |opened| {
            calls::complete(flavor, opened, request, None, (status, result))
        })
    }

    fn (mx_test_any, omx_test_any)(
        endpoint: Handle,
        match_info: u64,
        match_mask: u64,
        status: Out<CStatus>,
        result: Out<u32>,
    ) |flavor, name| {
        on(flavor, endpoint, name, |opened| {
            calls::complete_any(flavor, opened, (match_info, match_mask), None, (status, result))
        })
    }

    fn (mx_ipeek, omx_ipeek)(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) |flavor, name| {
        on(flavor, endpoint, name, |opened| calls::peek(opened, None, request, result))
    }

    fn (mx_iprobe, omx_iprobe)(
        endpoint: Handle,
        match_info: u64,
        match_mask: u64,
        status: Out<CStatus>,
        result: Out<u32>,
    ) |flavor, name| {
        on(flavor, endpoint, name, |opened| {
            calls::probe(opened, (match_info, match_mask), None, (status, result))
        })
    }

    fn (mx_ibuffered, omx_ibuffered)(endpoint: Handle, request: Out<CRequest>, result: Out<u32>) |flavor, _name| {
        quietly_on(flavor, endpoint, |opened| calls::is_buffered(opened, request, result))
    }

    fn (mx_context, omx_context)(request: Out<CRequest>, context: Out<u64>) |_flavor, _name| {
        match calls::context(request, context) {
            Ok(()) => codes::SUCCESS,
            Err(fault) => fault.code,
        }
    }

    fn (mx_hostname_to_nic_id, omx_hostname_to_nic_id)(host: Text, nic_id: Out<u64>) |flavor, name| {
        returned(flavor, None, name, info::find_host(host, nic_id))
    }

    fn (mx_nic_id_to_hostname, omx_nic_id_to_hostname)(nic_id: u64, host: Out<c_void>) |flavor, name| {
        returned(flavor, None, name, info::name_of(nic_id, host.bytes()))
    }

    fn (mx_board_number_to_nic_id, omx_board_number_to_nic_id)(board: u32, nic_id: Out<u64>) |flavor, name| {
        returned(flavor, None, name, info::nic_of_board(board, nic_id))
    }

    fn (mx_nic_id_to_board_number, omx_nic_id_to_board_number)(nic_id: u64, board: Out<u32>) |flavor, name| {
        returned(flavor, None, name, info::board_of_nic(nic_id, board))
    }

    fn (mx_connect, omx_connect)(
        endpoint: Handle,
        nic_id: u64,
        number: u32,
        key: u32,
        timeout_ms: u32,
        address: Out<CAddress>,
    ) |flavor, name| {
        on(flavor, endpoint, name, |opened| {
            connections::connect(opened, (nic_id, number, key), flavor.limit(timeout_ms), address)
        })
    }

    fn (mx_decompose_endpoint_addr, omx_decompose_endpoint_addr)(address: CAddress, nic_id: Out<u64>, number: Out<u32>) |_flavor, _name| {
        connections::decompose(address, nic_id, number, None);
        codes::SUCCESS
    }

    fn (mx_get_endpoint_addr, omx_get_endpoint_addr)(endpoint: Handle, address: Out<CAddress>) |flavor, _name| {
        tell(flavor, endpoint, |opened| address.put(opened.endpoint.address().into()))
    }

    fn (mx_iconnect, omx_iconnect)(
        endpoint: Handle,
        nic_id: u64,
        number: u32,
        key: u32,
        match_info: u64,
        context: Out<c_void>,
        request: Out<CRequest>,
    ) |flavor, name| {
        on(flavor, endpoint, name, |opened| {
            connections::iconnect(opened, (nic_id, number, key), match_info, context.bits(), request)
        })
    }

    fn (mx_disconnect, omx_disconnect)(endpoint: Handle, address: CAddress) |flavor, _name| {
        quietly_on(flavor, endpoint, |opened| connections::disconnect(opened, address))
    }

    fn (mx_register_unexp_handler, omx_register_unexp_handler)(
        endpoint: Handle,
        handler: Option<UnexpectedHandler>,
        context: Out<c_void>,
    ) |flavor, _name| {
        tell(flavor, endpoint, |opened| calls::set_unexpected_handler(opened, handler, context.bits()))
    }

    fn (mx_forget, omx_forget)(endpoint: Handle, request: Out<CRequest>) |flavor, _name| {
        quietly_on(flavor, endpoint, |opened| calls::forget(opened, request))
    }

    fn (mx_progress, omx_progress)(endpoint: Handle) |flavor, name| {
        on(flavor, endpoint, name, |opened| {
            opened.endpoint.progress();
            Ok(())
        })
    }

    fn (mx_set_endpoint_addr_context, omx_set_endpoint_addr_context)(address: CAddress, context: Out<c_void>) |_flavor, _name| {
        contexts::set(address, context.bits());
        codes::SUCCESS
    }

    fn (mx_get_endpoint_addr_context, omx_get_endpoint_addr_context)(address: CAddress, context: Out<u64>) |_flavor, _name| {
        context.put(contexts::get(address));
        codes::SUCCESS
    }

    fn (mx_set_request_timeout, omx_set_request_timeout)(endpoint: Handle, request: CRequest, timeout_ms: u32) |flavor, _name| {
        quietly_on(flavor, endpoint, |opened| calls::set_request_timeout(opened, request, timeout_ms))
    }

    // The second names of these two are only for the translating headers.
    fn (mx_get_info, omx__mx_get_info)(
        endpoint: Handle,
        key: u32,
        input: Out<c_void>,
        input_len: u32,
        output: Out<c_void>,
        output_len: u32,
    ) |flavor, _name| {
        info::answer(flavor, endpoint, "mx_get_info", (input, input_len), (output, output_len), |call| call.mx(key))
    }

    fn (mx_buffered, omx__mx_buffered)(
        endpoint: Handle,
        request: Out<CRequest>,
        timeout_ms: u32,
        result: Out<u32>,
    ) |flavor, _name| {
        quietly_on(flavor, endpoint, |opened| {
            calls::wait_buffered(opened, request, flavor.limit(timeout_ms), result)
        })
    }

    fn (mx_decompose_endpoint_addr2, omx_decompose_endpoint_addr_with_session)(
        address: CAddress,
        nic_id: Out<u64>,
        number: Out<u32>,
        session: Out<u32>,
    ) |_flavor, _name| {
        connections::decompose(address, nic_id, number, Some(session));
        codes::SUCCESS
    }
}
