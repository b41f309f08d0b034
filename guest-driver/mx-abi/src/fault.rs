//! Errors of calls, and how the program learns of them: through the error handler where the interface says so.

use ether::ETHERNET_HEADER_LEN;
use mxoe::wire::Preset;
use netif::Interface;
use omx::Board;

use crate::{
    codes,
    slots::Opened,
    state,
    types::{ErrorHandler, Flavor},
};

/// Why a call did nothing, with Open-MX's number, or MX's where only MX has one.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: u32,
    /// A sentence that says more than the text of the number.
    sentence: Option<String>,
}

impl Fault {
    pub(crate) fn new(code: u32) -> Self {
        Self { code, sentence: None }
    }

    /// Makes the fault for a board that could not be used. A daemon does not start for a board that is switched off or
    /// whose MTU is too small: that is the board's fault, and no daemon would help.
    pub(crate) fn of_board(board: &Board, error: omx::Error) -> Self {
        let mut fault = Self::from(error);
        if fault.code == codes::NO_DRIVER && !is_usable(board) {
            fault.code = codes::BOARD_NOT_FOUND;
        }
        fault
    }
}

/// Whether the board could carry messages now, with the sizes on the wire that a daemon would choose.
fn is_usable(board: &Board) -> bool {
    let Ok(now) = Interface::find_by_index(board.interface().index) else {
        return false;
    };
    let wanted = std::env::var("OMX_PRESET").ok().and_then(|name| name.parse().ok());
    let preset = wanted.unwrap_or(Preset::Native1500);
    now.up && preset.sizes().frame_len_max() as usize <= now.mtu + ETHERNET_HEADER_LEN
}

impl From<omx::Error> for Fault {
    fn from(error: omx::Error) -> Self {
        Self {
            code: error.code(),
            sentence: Some(error.to_string()),
        }
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Fault>;

fn handler(flavor: Flavor, opened: Option<&Opened>) -> ErrorHandler {
    opened
        .and_then(Opened::handler)
        .unwrap_or_else(|| state::handler_of_process(flavor))
}

/// Shows an error to the handler, and returns what the call returns.
pub(crate) fn report(flavor: Flavor, opened: Option<&Opened>, what: &str, fault: &Fault) -> u32 {
    let code = codes::return_code(flavor, fault.code);
    let text = match &fault.sentence {
        Some(sentence) => format!("{what}: {sentence}"),
        None => format!("{what}: {}", codes::text(flavor, code).to_string_lossy()),
    };
    state::call_handler(handler(flavor, opened), &text, code)
}

/// As [`report`], for a status that says that a request failed; returns the status for the program.
pub(crate) fn report_status(flavor: Flavor, opened: &Opened, what: &str, code: omx::StatusCode) -> u32 {
    let text = format!("{what}: {code}");
    state::call_handler(handler(flavor, Some(opened)), &text, codes::status_code(flavor, code))
}

/// Returns the code of a call whose errors go through the handler.
pub(crate) fn returned(flavor: Flavor, opened: Option<&Opened>, what: &str, outcome: Outcome) -> u32 {
    match outcome {
        Ok(()) => 0,
        Err(fault) => report(flavor, opened, what, &fault),
    }
}
