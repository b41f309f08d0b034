//! The user's terminal while another program uses it: raw mode that is always undone, its size, and changes of the
//! size.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::guest_channel::WindowSize;

/// Settings of the terminal before raw mode, which a thread that ends the process needs as well.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Raw mode, in which every key is passed on unchanged, including Ctrl-C. It is undone when dropped.
pub(in crate::cli) struct RawMode(());

impl RawMode {
    /// Puts standard input into raw mode if it is a terminal.
    pub(in crate::cli) fn enter() -> Result<Option<Self>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin()).context("standard input is not a terminal")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw).context("cannot change the terminal")?;
        *BEFORE.lock() = Some(before);
        Ok(Some(Self(())))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

/// Undoes raw mode, if it is on.
pub(in crate::cli) fn restore() {
    if let Some(before) = BEFORE.lock().take() {
        // A terminal that is gone needs no settings.
        _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Returns the size of the terminal that standard input is; `None` if it is no terminal.
pub(in crate::cli) fn size_if_any() -> Option<WindowSize> {
    io::stdin().is_terminal().then(size)
}

/// Returns the size of the terminal, or 80 columns and 24 rows if it is unknown.
pub(in crate::cli) fn size() -> WindowSize {
    match tcgetwinsize(io::stdin()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => WindowSize {
            columns: size.ws_col,
            rows: size.ws_row,
        },
        _ => WindowSize { columns: 80, rows: 24 },
    }
}
