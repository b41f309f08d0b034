//! The user's terminal while something else uses it: raw mode that is undone whatever happens, its size, its changes.

use std::io;

use anyhow::{Context, Result};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::guest_channel::WindowSize;

/// Raw mode: every key goes on as it is, Ctrl-C included. Undone when dropped.
pub(super) struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Takes the terminal on standard input.
    pub(super) fn enter() -> Result<Self> {
        let before = tcgetattr(io::stdin()).context("standard input is not a terminal")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw).context("cannot change the terminal")?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone needs no settings.
        _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Size of the terminal, or what a terminal had when they were made of glass.
pub(super) fn size() -> WindowSize {
    match tcgetwinsize(io::stdin()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => WindowSize {
            columns: size.ws_col,
            rows: size.ws_row,
        },
        _ => WindowSize { columns: 80, rows: 24 },
    }
}
