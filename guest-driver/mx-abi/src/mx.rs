//! What only MX has, or has with its own order of arguments: the rest of `myriexpress.h`, and `mx_internals/`.

use std::ffi::{c_char, c_void};

use crate::{
    boundary::c_functions,
    calls::{self, on},
    codes, info,
    slots::{CRequest, Handle},
    state,
    types::{
        CAddress, CStatus, ErrorHandler,
        Flavor::{self, Mx},
        Out,
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

    fn mx_peek(endpoint: Handle, timeout_ms: u32, request: Out<CRequest>, result: Out<u32>) -> u32 {
        on(FLAVOR, endpoint, "mx_peek", |opened| {
            calls::peek(opened, Some(FLAVOR.limit(timeout_ms)), request, result)
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

    /// The program gives memory back.
    fn mx__regcache_clean(ptr: Out<c_void>, len: usize) -> i32 {
        for (_, opened) in Handle::all() {
            opened.endpoint.clean_registrations(ptr.ptr(), len);
        }
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
