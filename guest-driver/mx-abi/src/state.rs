//! The settings of the process: whether it called init, and its error handlers.

use std::{
    ffi::{CStr, CString, c_char},
    process,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    codes,
    types::{ErrorHandler, Flavor},
};

struct State {
    initialized: bool,
    /// The program's own handlers, of MX and Open-MX.
    handlers: [Option<ErrorHandler>; 2],
    /// Errors end the process unless the program said otherwise.
    fatal: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    initialized: false,
    handlers: [None; 2],
    fatal: true,
});

/// Major version of the interface: programs of 0x300 … 0x3ff are accepted.
const API_MAJOR: i32 = 3;

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves `mx__init_api` and `omx__init_api`. The error is the code of what is wrong with the version.
pub(crate) fn init(api: i32) -> Result<(), u32> {
    if api >> 8 != API_MAJOR {
        return Err(codes::BAD_LIB_ABI);
    }
    let mut state = state();
    if state.initialized {
        return Err(codes::ALREADY_INITIALIZED);
    }
    state.initialized = true;
    omx::show_warnings();
    state.fatal = omx::flag(&["OMX_FATAL_ERRORS", "MX_ERRORS_ARE_FATAL"], true);
    Ok(())
}

/// Undoes init. False: there was nothing to undo.
pub(crate) fn finalize() -> bool {
    std::mem::take(&mut state().initialized)
}

pub(crate) fn is_initialized() -> bool {
    state().initialized
}

/// Sets the handler of the process, and returns the former one.
pub(crate) fn set_handler(flavor: Flavor, handler: Option<ErrorHandler>) -> ErrorHandler {
    let before = handler_of_process(flavor);
    state().handlers[flavor as usize] = handler;
    before
}

/// Returns the handler of the process.
pub(crate) fn handler_of_process(flavor: Flavor) -> ErrorHandler {
    let state = state();
    let default = if state.fatal { errors_are_fatal } else { errors_return };
    state.handlers[flavor as usize].unwrap_or(default)
}

/// Calls a handler.
pub(crate) fn call_handler(handler: ErrorHandler, text: &str, code: u32) -> u32 {
    let text = CString::new(text).unwrap_or_default();
    // The interface has no `const`; a handler that writes to the text finds its own copy.
    let text = text.into_raw();
    let returned = handler(text, code);
    // SAFETY: exactly the pointer that `into_raw` gave.
    drop(unsafe { CString::from_raw(text) });
    returned
}

/// `…_ERRORS_ARE_FATAL`.
pub(crate) extern "C" fn errors_are_fatal(text: *mut c_char, code: u32) -> u32 {
    let said = if text.is_null() {
        c""
    } else {
        // SAFETY: the caller of an error handler gives it a text that ends with a zero.
        unsafe { CStr::from_ptr(text) }
    };
    omx::say(None, &format!("fatal error {code}: {}", said.to_string_lossy()));
    let seconds = std::env::var("OMX_ABORT_SLEEPS")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    if let Some(seconds) = seconds {
        thread::sleep(Duration::from_secs(seconds));
    }
    process::exit(-1)
}

/// `…_ERRORS_RETURN`.
pub(crate) extern "C" fn errors_return(_text: *mut c_char, code: u32) -> u32 {
    code
}

/// Constants of the interface, which programs compare and pass.
#[unsafe(no_mangle)]
static MX_ERRORS_ARE_FATAL: ErrorHandler = errors_are_fatal;
#[unsafe(no_mangle)]
static MX_ERRORS_RETURN: ErrorHandler = errors_return;
#[unsafe(no_mangle)]
static OMX_ERRORS_ARE_FATAL: ErrorHandler = errors_are_fatal;
#[unsafe(no_mangle)]
static OMX_ERRORS_RETURN: ErrorHandler = errors_return;
