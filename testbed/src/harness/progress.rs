//! The progress on standard error: one line that is updated on a terminal, plain lines elsewhere. No thread redraws it,
//! since that would disturb the measurement.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use crate::report::say;

/// The progress display of a comparison, removed when dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Starts the display for `steps` steps.
    pub fn new(steps: u64) -> Result<Self> {
        let bar = ProgressBar::new(steps);
        bar.set_style(ProgressStyle::with_template(
            "[{elapsed}] {wide_bar} {pos}/{len} {msg}",
        )?);
        Ok(Self(bar))
    }

    /// Shows what is being measured.
    pub fn say(&self, message: &str) {
        if self.0.is_hidden() {
            return say(message);
        }
        self.0.set_message(message.to_owned());
        self.0.tick();
    }

    /// Advances by one step.
    pub fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
