//! The message rate: as many messages in flight as fit, until the receiver has them all.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{parameters::Parameters, side::Side, window::Window};

/// One length.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    length: usize,
    messages: u32,
    messages_per_s: f64,
    mb_per_s: f64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "length {:8}:\t{:.0} messages/s\t{:.2} MB/s",
            self.length, self.messages_per_s, self.mb_per_s
        )
    }
}

/// Runs the receiver's side.
pub(super) fn receive(side: &Side<'_>, parameters: Parameters) -> anyhow::Result<()> {
    for length in parameters.lengths() {
        let mut window = Window::new(side, length, parameters.aligned)?;
        let first = window.len() as u64;
        for count in [parameters.warm_up, parameters.iterations].map(u64::from) {
            for number in 0..count.min(first) {
                window.receive(number)?;
            }
            // All that may come at once has a place.
            side.send(&[])?;
            for number in first..count {
                window.receive(number)?;
            }
            for number in count.saturating_sub(first)..count {
                window.free(number)?;
            }
            side.send(&[])?;
        }
    }
    Ok(())
}

/// Runs the sender's side.
pub(super) fn send(
    side: &Side<'_>,
    parameters: Parameters,
    pause: Duration,
    mut show: impl FnMut(&Measured) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for length in parameters.lengths() {
        thread::sleep(pause);
        let mut window = Window::new(side, length, parameters.aligned)?;
        let mut seconds = 0.0;
        for count in [parameters.warm_up, parameters.iterations].map(u64::from) {
            side.receive(&mut [])?;
            let begin = Instant::now();
            for number in 0..count {
                window.send(number)?;
            }
            for number in count.saturating_sub(window.len() as u64)..count {
                window.free(number)?;
            }
            side.receive(&mut [])?;
            seconds = begin.elapsed().as_secs_f64();
        }
        let messages_per_s = f64::from(parameters.iterations) / seconds;
        show(&Measured {
            length,
            messages: parameters.iterations,
            messages_per_s,
            mb_per_s: messages_per_s * length as f64 / 1e6,
        })?;
    }
    Ok(())
}
