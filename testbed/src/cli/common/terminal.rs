//! The user's terminal while something else uses it: raw mode that is undone whatever happens, its size, its changes.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::guest_channel::WindowSize;

/// What the terminal was before raw mode: also for a thread that ends the process.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Raw mode: every key goes on as it is, Ctrl-C included. Undone when dropped.
pub(in crate::cli) struct RawMode(());

impl RawMode {
    /// Takes the terminal on standard input.
    pub(in crate::cli) fn enter() -> Result<Self> {
        let before = tcgetattr(io::stdin()).context("standard input is not a terminal")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw).context("cannot change the terminal")?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        Ok(Self(()))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

/// Undoes raw mode, if it is on.
pub(in crate::cli) fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // A terminal that is gone needs no settings.
        _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Size of the terminal, or what a terminal had when they were made of glass.
pub(in crate::cli) fn size() -> WindowSize {
    match tcgetwinsize(io::stdin()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => WindowSize {
            columns: size.ws_col,
            rows: size.ws_row,
        },
        _ => WindowSize { columns: 80, rows: 24 },
    }
}
