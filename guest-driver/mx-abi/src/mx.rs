//! The functions that only MX has, or has with its own order of arguments: the remaining ones of `myriexpress.h`, and
//! `mx_internals/`.

use std::ffi::{c_char, c_void};

use omx::Board;

use crate::{
    boundary::c_functions,
    calls::{self, on},
    codes,
    fault::Outcome,
    info, raw_endpoint,
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

/// The handle of board 0. Handles of raw endpoints are descriptors, whose numbers are far below, also when a program
/// closes what it was given.
const BOARD_HANDLES: i32 = 0x4d58_0000;

/// Returns the board that a handle stands for.
fn board_of(handle: i32) -> Outcome<Board> {
    match raw_endpoint::board_of_handle(handle) {
        Some(board) => Ok(board),
        // Other numbers stand for no board.
        None => calls::board(handle.wrapping_sub(BOARD_HANDLES).cast_unsigned()),
    }
}

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

    /// No MX library has ever implemented this function.
    fn mx_register_unexp_callback(_endpoint: Handle, _callback: Out<c_void>, _context: Out<c_void>) -> u32 {
        codes::MX_FAILURE
    }

    /// No MX library has ever implemented this function.
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

    /// No MX library has ever implemented this function.
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

    /// Succeeds and opens nothing: some programs call it before they read the mapper's state.
    fn mx_open_board(board: i32, handle: Out<i32>) -> u32 {
        handle.put(board.wrapping_add(BOARD_HANDLES));
        codes::SUCCESS
    }

    fn mx__get_mapper_state(handle: i32, out: Out<MapperState>) -> u32 {
        let state = board_of(handle).and_then(|board| Ok((board.board_number(), info::map(&board)?)));
        let (board_number, map) = match state {
            Ok(found) if !out.is_null() => found,
            Ok(_) => return codes::BAD_INFO_ADDRESS,
            Err(fault) => return codes::return_code(FLAVOR, fault.code),
        };
        out.put(MapperState {
            board_number,
            mapper_mac: map.mapper.0,
            iport: 0,
            map_version: map.version,
            num_hosts: map.hosts,
            network_configured: map.complete.into(),
            routes_valid: map.complete.into(),
            level: 0,
            flags: 0,
        });
        codes::SUCCESS
    }

    /// The program frees memory. That of receives that are over is not registered, so there is nothing to forget.
    fn mx__regcache_clean(_ptr: Out<c_void>, _len: usize) -> i32 {
        0
    }
}

/// Sets the handler of the process; allowed before init.
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
