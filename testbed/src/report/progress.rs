//! The progress of long operations: a moving line on a terminal, plain lines elsewhere. It is always on standard error,
//! so that results can be piped.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

/// Interval at which the moving line moves.
const TICK: Duration = Duration::from_millis(120);

/// The progress of one operation.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    last: Mutex<String>,
}

impl Progress {
    /// Starts the display for `steps` steps, or 0 when their number is not known.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self {
                bar: None,
                last: Mutex::default(),
            };
        }
        let (bar, template) = match steps {
            0 => (ProgressBar::new_spinner(), "{spinner} {msg}"),
            steps => (ProgressBar::new(steps), "{bar:24} {pos:>3}/{len} {msg} ({eta} left)"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self {
            bar: Some(bar),
            last: Mutex::default(),
        }
    }

    /// Shows the current step; repeating a message has no effect.
    pub fn say(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(message.to_owned()),
            None => {
                let mut last = self.last.lock();
                if *last != message {
                    // Standard error may be closed; then the message has no reader.
                    _ = writeln!(std::io::stderr(), "{message}");
                    message.clone_into(&mut last);
                }
            }
        }
    }

    /// Advances by one step.
    pub fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Writes a line that stays.
    pub fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| _ = writeln!(std::io::stderr(), "{line}")),
            None => _ = writeln!(std::io::stderr(), "{line}"),
        }
    }

    /// Runs something that writes to standard error itself.
    pub fn suspend<T>(&self, run: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(run),
            None => run(),
        }
    }

    /// Removes the moving line.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
