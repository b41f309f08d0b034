//! What is measured now, on standard error: a line that moves on a terminal, plain lines elsewhere. No thread redraws it, which
//! would disturb what is measured.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use testbed::report::say;

/// The progress of a comparison, removed when dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Progress of something with so many steps.
    pub fn new(steps: u64) -> Result<Self> {
        let bar = ProgressBar::new(steps);
        bar.set_style(ProgressStyle::with_template(
            "[{elapsed}] {wide_bar} {pos}/{len} {msg}",
        )?);
        Ok(Self(bar))
    }

    /// Says what is measured now.
    pub fn say(&self, message: &str) {
        if self.0.is_hidden() {
            return say(message);
        }
        self.0.set_message(message.to_owned());
        self.0.tick();
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
