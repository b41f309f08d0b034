//! The calls of both interfaces in one form; `mx` and `open_mx` give them their names and the order of their arguments.

use std::{ffi::c_void, sync::Arc, time::Duration};

use ether::MacAddr;
use omx::{Action, Board, Endpoint, EndpointOptions, Request, Segment, Status, Unexpected};

use crate::{
    codes, contexts,
    fault::{Fault, Outcome, report_status, returned},
    slots::{CRequest, Handle, Opened},
    state,
    types::{CAddress, CParam, CStatus, ErrorHandler, Flavor, List, Out, UnexpectedHandler, pointer},
};

/// `…_ANY_NIC`, `…_ANY_ENDPOINT`.
const ANY: u32 = u32::MAX;
/// Keys of parameters.
const PARAM_ERROR_HANDLER: u32 = 0;
const PARAM_UNEXP_QUEUE_MAX: u32 = 1;
const PARAM_CONTEXT_ID: u32 = 2;
/// What an unexpected handler returns.
const HANDLER_CONTINUE: u32 = 0;
const HANDLER_FINISHED: u32 = 1;

/// Runs a call on an endpoint; its errors go through the handler.
#[inline]
pub(crate) fn on(flavor: Flavor, handle: Handle, what: &str, body: impl FnOnce(&Opened) -> Outcome) -> u32 {
    match handle.opened() {
        Ok(opened) => {
            let outcome = body(&opened);
            returned(flavor, Some(&opened), what, outcome)
        }
        Err(fault) => returned(flavor, None, what, Err(fault)),
    }
}

/// As [`on`], but errors are only returned.
pub(crate) fn quietly_on(flavor: Flavor, handle: Handle, body: impl FnOnce(&Opened) -> Outcome) -> u32 {
    match handle.opened().and_then(|opened| body(&opened)) {
        Ok(()) => 0,
        Err(fault) => codes::return_code(flavor, fault.code),
    }
}

/// As [`quietly_on`], for what cannot fail.
pub(crate) fn tell(flavor: Flavor, handle: Handle, body: impl FnOnce(&Opened)) -> u32 {
    quietly_on(flavor, handle, |opened| {
        body(opened);
        Ok(())
    })
}

pub(crate) fn initialized() -> Outcome {
    if state::is_initialized() {
        Ok(())
    } else {
        Err(Fault::new(codes::NOT_INITIALIZED))
    }
}

pub(crate) fn nic_id(mac: MacAddr) -> u64 {
    mac.to_u64()
}

/// Returns the address that a number stands for.
pub(crate) fn mac_of(nic_id: u64) -> Option<MacAddr> {
    let bytes = nic_id.to_be_bytes();
    let [0, 0, a, b, c, d, e, f] = bytes else { return None };
    Some(MacAddr([a, b, c, d, e, f]))
}

/// Finds a board by its number.
pub(crate) fn board(number: u32) -> Outcome<Board> {
    Ok(Board::number(number)?)
}

struct Wanted {
    options: EndpointOptions,
    handler: Option<ErrorHandler>,
}

fn parameters(params: List<CParam>, count: u32) -> Outcome<Wanted> {
    let mut wanted = Wanted {
        options: EndpointOptions::default(),
        handler: None,
    };
    if params.is_null() && count > 0 {
        return Err(Fault::new(codes::ENDPOINT_PARAMS_BAD_LIST));
    }
    for param in params.to_vec(count) {
        match param.key {
            PARAM_ERROR_HANDLER => wanted.handler = param.handler(),
            // Accepted and ignored: bytes are limited, not messages.
            PARAM_UNEXP_QUEUE_MAX => {}
            PARAM_CONTEXT_ID => {
                let [bits, shift, ..] = param.value.to_le_bytes();
                wanted.options.context_id = (bits, shift);
            }
            _ => return Err(Fault::new(codes::ENDPOINT_PARAM_BAD_KEY)),
        }
    }
    Ok(wanted)
}

/// Opens an endpoint.
pub(crate) fn open(
    flavor: Flavor,
    (board_number, number, key): (u32, u32, u32),
    params: List<CParam>,
    count: u32,
    out: Out<Handle>,
) -> Outcome {
    initialized()?;
    let Wanted { mut options, handler } = parameters(params, count)?;
    options.key = key;
    let number = match number {
        // The environment may name one.
        ANY => options.endpoint,
        number => Some(u8::try_from(number).map_err(|_| Fault::new(codes::BAD_ENDPOINT))?),
    };
    let try_open = |board: &Board, endpoint: Option<u8>| {
        Endpoint::open(&EndpointOptions {
            interface: Some(board.interface().name.clone()),
            endpoint,
            ..options.clone()
        })
        .map_err(|error| Fault::of_board(board, error))
    };
    let endpoint = if board_number == ANY {
        open_anywhere(number, try_open)?
    } else {
        try_open(&board(board_number)?, number)?
    };
    let handle = Handle::keep(endpoint.clone(), handler);
    // A failure after the completion could be taken reaches the program only through this handler, also while it
    // blocks.
    endpoint.set_failure_handler(Some(Arc::new(move |_: &Endpoint, code| {
        if let Ok(opened) = handle.opened() {
            report_status(flavor, &opened, "a message whose request is over", code);
        }
    })));
    out.put(handle);
    Ok(())
}

/// Tries number 0 on every board, then number 1, and so on; or only the number that is wanted.
fn open_anywhere(number: Option<u8>, try_open: impl Fn(&Board, Option<u8>) -> Outcome<Endpoint>) -> Outcome<Endpoint> {
    let mut boards = Board::all()?;
    boards.retain(|board| board.interface().up);
    let numbers = number.map_or(0..=weft_authority::ENDPOINTS - 1, |number| number..=number);
    let mut last = Fault::new(codes::BOARD_NOT_FOUND);
    for number in numbers {
        // A board with another fault than a taken number is not tried again.
        let mut usable = Vec::new();
        for board in boards {
            match try_open(&board, Some(number)) {
                Ok(endpoint) => return Ok(endpoint),
                // Beyond what its authority lets be opened: it had none free before.
                Err(fault) if fault.code == codes::BAD_ENDPOINT && last.code == codes::BUSY => {}
                Err(fault) => {
                    if fault.code == codes::BUSY {
                        usable.push(board);
                    }
                    last = fault;
                }
            }
        }
        boards = usable;
    }
    Err(last)
}

/// Closes an endpoint.
pub(crate) fn close(handle: Handle) -> Outcome {
    let opened = handle.opened()?;
    opened.endpoint.clone().close()?;
    handle.forget();
    let opened_by = opened.endpoint.address().opened_by();
    contexts::forget(opened_by);
    Ok(())
}

/// Ends the library: endpoints that are still open are closed. Inside an unexpected handler nothing happens.
pub(crate) fn finalize() -> Outcome {
    initialized()?;
    if Handle::all().any(|(_, opened)| opened.endpoint.is_in_handler()) {
        return Err(omx::Error::InHandler.into());
    }
    for (handle, _) in Handle::all() {
        match close(handle) {
            // Another thread was faster.
            Err(fault) if fault.code == codes::BAD_ENDPOINT => {}
            closed => closed?,
        }
    }
    if state::finalize() {
        Ok(())
    } else {
        Err(Fault::new(codes::NOT_INITIALIZED))
    }
}

/// Gives a request to the program; without a place for it, its completion is not taken.
pub(crate) fn hand_out(opened: &Opened, request: Request, out: Out<CRequest>) -> Outcome {
    if out.is_null() {
        opened.endpoint.forget(request)?;
    } else {
        out.put(CRequest::new(&opened.endpoint, request));
    }
    Ok(())
}

/// Reads the segments of a message.
pub(crate) fn segments(flavor: Flavor, list: List<Segment>, count: u32) -> Outcome<Vec<Segment>> {
    if count as usize > omx::SEGMENTS_MAX {
        return Err(Fault::new(codes::SEGMENTS_BAD_COUNT));
    }
    if list.is_null() && count > 0 {
        // Only MX has a number of its own for this.
        return Err(Fault::new(match flavor {
            Flavor::Mx => codes::MX_BAD_SEG_LIST,
            Flavor::OpenMx => codes::SEGMENTS_BAD_COUNT,
        }));
    }
    let segments = list.to_vec(count);
    if segments.iter().any(without_memory) {
        return Err(Fault::new(match flavor {
            Flavor::Mx => codes::MX_BAD_SEG_MEM,
            Flavor::OpenMx => codes::SEGMENTS_BAD_COUNT,
        }));
    }
    Ok(segments)
}

/// Whether a segment has bytes but no memory, as NULL. (The program promises that other addresses are its own.)
fn without_memory(segment: &Segment) -> bool {
    segment.ptr.is_null() && segment.len > 0
}

/// Makes segments of one buffer.
pub(crate) fn buffer(ptr: Out<c_void>, len: usize) -> Outcome<[Segment; 1]> {
    let len = u32::try_from(len).map_err(|_| Fault::new(codes::SEGMENTS_BAD_COUNT))?;
    let segment = Segment { ptr: ptr.ptr(), len };
    if without_memory(&segment) {
        return Err(Fault::new(codes::SEGMENTS_BAD_COUNT));
    }
    Ok([segment])
}

/// The parameters of a send besides its bytes.
pub(crate) struct Send {
    pub(crate) to: CAddress,
    pub(crate) match_info: u64,
    pub(crate) context: u64,
    pub(crate) synchronous: bool,
}

/// Posts a message.
#[inline]
pub(crate) fn isend(opened: &Opened, segments: &[Segment], send: &Send, out: Out<CRequest>) -> Outcome {
    let endpoint = &opened.endpoint;
    let to = send.to.address();
    // SAFETY: the C program promises that the memory stays until the request is over.
    let request = unsafe { endpoint.isend(segments, to, send.match_info, send.context, send.synchronous) }?;
    hand_out(opened, request, out)
}

/// Posts a receive.
#[inline]
pub(crate) fn irecv(
    opened: &Opened,
    segments: &[Segment],
    (match_info, match_mask): (u64, u64),
    context: u64,
    out: Out<CRequest>,
) -> Outcome {
    // SAFETY: as for a send, and that the memory is not used elsewhere.
    let request = unsafe { opened.endpoint.irecv(segments, match_info, match_mask, context) }?;
    hand_out(opened, request, out)
}

/// Reads the request that a pointer of the program points to.
fn request(opened: &Opened, at: Out<CRequest>) -> Outcome<Request> {
    at.get()
        .ok_or_else(|| Fault::new(codes::BAD_REQUEST))?
        .of(&opened.endpoint)
}

/// Cancels a request; it is freed, or kept to complete as *cancelled*.
pub(crate) fn cancel(opened: &Opened, at: Out<CRequest>, keep: bool, result: Out<u32>) -> Outcome {
    let request = request(opened, at)?;
    let cancelled = if keep {
        opened.endpoint.cancel_and_keep(request)?
    } else {
        opened.endpoint.cancel(request)?
    };
    if cancelled && !keep {
        at.put(CRequest::NULL);
    }
    result.put(cancelled.into());
    Ok(())
}

/// Forgets a request: its completion will not be taken.
pub(crate) fn forget(opened: &Opened, at: Out<CRequest>) -> Outcome {
    opened.endpoint.forget(request(opened, at)?)?;
    at.put(CRequest::NULL);
    Ok(())
}

/// Returns the context given at posting.
pub(crate) fn context(at: Out<CRequest>, out: Out<u64>) -> Outcome {
    let named = at.get().ok_or_else(|| Fault::new(codes::BAD_REQUEST))?;
    let opened = named.opened()?;
    out.put(opened.endpoint.context(named.of(&opened.endpoint)?)?);
    Ok(())
}

fn to_c(code: u32, status: &Status) -> CStatus {
    CStatus {
        code,
        address: status.address.map_or(CAddress::NONE, CAddress::from),
        match_info: status.match_info,
        msg_length: status.length,
        xfer_length: status.transferred,
        context: status.context,
    }
}

/// Gives the end of a request to the program; a failure is shown to the handler first.
#[inline]
fn deliver(flavor: Flavor, opened: &Opened, status: &Status, out: Out<CStatus>) {
    let code = if status.code.is_failure() {
        report_status(flavor, opened, "a request failed", status.code)
    } else {
        codes::status_code(flavor, status.code)
    };
    out.put(to_c(code, status));
}

/// Serves `test` without a time limit, which does not wait at all, and `wait` with one.
#[inline]
pub(crate) fn complete(
    flavor: Flavor,
    opened: &Opened,
    at: Out<CRequest>,
    wait: Option<Option<Duration>>,
    (status, result): (Out<CStatus>, Out<u32>),
) -> Outcome {
    let request = request(opened, at)?;
    let found = match wait {
        None => opened.endpoint.test(request)?,
        Some(limit) => opened.endpoint.wait(request, limit)?,
    };
    if let Some(found) = &found {
        at.put(CRequest::NULL);
        deliver(flavor, opened, found, status);
    }
    result.put(found.is_some().into());
    Ok(())
}

/// `test_any`, `wait_any`.
pub(crate) fn complete_any(
    flavor: Flavor,
    opened: &Opened,
    (match_info, match_mask): (u64, u64),
    wait: Option<Option<Duration>>,
    (status, result): (Out<CStatus>, Out<u32>),
) -> Outcome {
    let found = match wait {
        None => opened.endpoint.test_any(match_info, match_mask)?,
        Some(limit) => opened.endpoint.wait_any(match_info, match_mask, limit)?,
    };
    if let Some((_, found)) = &found {
        deliver(flavor, opened, found, status);
    }
    result.put(found.is_some().into());
    Ok(())
}

/// `iprobe`, `probe`.
pub(crate) fn probe(
    opened: &Opened,
    (match_info, match_mask): (u64, u64),
    wait: Option<Option<Duration>>,
    (status, result): (Out<CStatus>, Out<u32>),
) -> Outcome {
    let found = match wait {
        None => opened.endpoint.iprobe(match_info, match_mask)?,
        Some(limit) => opened.endpoint.probe(match_info, match_mask, limit)?,
    };
    if let Some(found) = &found {
        status.put(to_c(codes::SUCCESS, found));
    }
    result.put(found.is_some().into());
    Ok(())
}

/// `ipeek`, `peek`.
pub(crate) fn peek(opened: &Opened, wait: Option<Option<Duration>>, out: Out<CRequest>, result: Out<u32>) -> Outcome {
    let found = match wait {
        None => opened.endpoint.ipeek()?,
        Some(limit) => opened.endpoint.peek(limit)?,
    };
    if let Some(found) = found {
        out.put(CRequest::new(&opened.endpoint, found));
    }
    result.put(found.is_some().into());
    Ok(())
}

/// `ibuffered`.
pub(crate) fn is_buffered(opened: &Opened, at: Out<CRequest>, result: Out<u32>) -> Outcome {
    let buffered = opened.endpoint.is_buffered(request(opened, at)?)?;
    result.put(buffered.into());
    Ok(())
}

/// Serves `mx_buffered`: waits until the send is buffered or over, since its buffer is free in both cases.
pub(crate) fn wait_buffered(opened: &Opened, at: Out<CRequest>, limit: Option<Duration>, result: Out<u32>) -> Outcome {
    let buffered = opened.endpoint.wait_buffered(request(opened, at)?, limit)?;
    result.put(buffered.into());
    Ok(())
}

/// Registers an unexpected handler.
pub(crate) fn set_unexpected_handler(opened: &Opened, handler: Option<UnexpectedHandler>, context: u64) {
    let Some(handler) = handler else {
        return opened.endpoint.set_unexpected_handler(None);
    };
    opened
        .endpoint
        .set_unexpected_handler(Some(Box::new(move |_: &Endpoint, message: Unexpected<'_>| {
            let data = message
                .data
                .map_or(std::ptr::null_mut(), |data| data.as_ptr().cast_mut().cast());
            let source = message.source.into();
            match handler(pointer(context), source, message.match_info, message.length, data) {
                HANDLER_CONTINUE => Action::Continue,
                HANDLER_FINISHED => Action::Finished,
                other => {
                    omx::say(
                        None,
                        &format!("an unexpected handler returned {other}, which means nothing"),
                    );
                    std::process::abort()
                }
            }
        })));
}

/// Sets how long requests, or this one, may take.
pub(crate) fn set_request_timeout(opened: &Opened, named: CRequest, timeout_ms: u32) -> Outcome {
    let request = if named.is_null() {
        None
    } else {
        Some(named.of(&opened.endpoint)?)
    };
    let limit = Duration::from_millis(timeout_ms.into());
    Ok(opened.endpoint.set_request_timeout(request, limit)?)
}
