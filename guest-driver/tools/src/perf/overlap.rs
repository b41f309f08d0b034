//! The overlap measurement: how much of a transfer is hidden behind computation. It times the transfer alone,
//! computation that takes as long, and both at once. While the program computes it makes no call: the library's helper
//! thread moves the data.

use std::{
    fmt,
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{
    parameters::Parameters,
    pingpong::TIME_NS_MAX,
    side::{Buffer, Side},
    window::Window,
};

/// Rounds of computation whose duration is taken as that of any round.
const CALIBRATION_ROUNDS: u64 = 10_000_000;

/// One length; times are medians.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    length: usize,
    us_transfer: f64,
    us_compute: f64,
    us_both: f64,
    /// Part of the shorter one that was hidden behind the longer one, 0 … 1.
    overlap: f64,
}

impl Measured {
    fn new(length: usize, [us_transfer, us_compute, us_both]: [f64; 3]) -> Self {
        let hidden = (us_transfer + us_compute - us_both) / us_transfer.min(us_compute);
        Self {
            length,
            us_transfer,
            us_compute,
            us_both,
            overlap: hidden.clamp(0.0, 1.0),
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "length {:8}:\ttransfer {:.1} us, computation {:.1} us, both {:.1} us: overlap {:.1} %",
            self.length,
            self.us_transfer,
            self.us_compute,
            self.us_both,
            100.0 * self.overlap
        )
    }
}

/// Stands for a program's work. It touches no memory, so that it does not compete with the copies of the transfer.
pub(super) fn compute(rounds: u64) {
    let mut value = 1_u64;
    for round in 0..rounds {
        value = black_box(value.rotate_left(7) ^ round);
    }
}

pub(super) fn ns_per_round() -> f64 {
    let begin = Instant::now();
    compute(CALIBRATION_ROUNDS);
    begin.elapsed().as_nanos() as f64 / CALIBRATION_ROUNDS as f64
}

/// Runs the receiver's side.
pub(super) fn receive(side: &Side<'_>, parameters: Parameters) -> anyhow::Result<()> {
    for length in parameters.lengths() {
        let mut buffer = Buffer::new(length, parameters.aligned)?;
        for _ in 0..u64::from(parameters.warm_up) + 2 * u64::from(parameters.iterations) {
            side.receive(buffer.bytes_mut())?;
        }
    }
    Ok(())
}

/// Runs the sender's side. A synchronous message is over when the receiver has it.
pub(super) fn send(
    side: &Side<'_>,
    parameters: Parameters,
    pause: Duration,
    mut show: impl FnMut(&Measured) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let synchronous = Side {
        synchronous: true,
        ..*side
    };
    let ns_per_round = ns_per_round();
    for length in parameters.lengths() {
        thread::sleep(pause);
        let mut window = Window::new(&synchronous, length, parameters.aligned)?;
        let mut transfer_us = |count: u32, rounds: Option<u64>| -> anyhow::Result<f64> {
            median_us(count, || {
                window.send(0)?;
                if let Some(rounds) = rounds {
                    compute(rounds);
                }
                window.free(0).map(drop)
            })
        };
        transfer_us(parameters.warm_up, None)?;
        let transfer = transfer_us(parameters.iterations, None)?;
        let rounds = (transfer * 1000.0 / ns_per_round) as u64;
        let alone = median_us(parameters.iterations, || {
            compute(rounds);
            Ok(())
        })?;
        let both = transfer_us(parameters.iterations, Some(rounds))?;
        show(&Measured::new(length, [transfer, alone, both]))?;
    }
    Ok(())
}

fn median_us(count: u32, mut what: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut times_ns = Histogram::<u64>::new_with_bounds(1, TIME_NS_MAX, 3)?;
    for _ in 0..count {
        let begin = Instant::now();
        what()?;
        times_ns.saturating_record(begin.elapsed().as_nanos() as u64);
    }
    Ok(times_ns.value_at_quantile(0.5) as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_the_part_of_the_shorter_one_that_cost_nothing() {
        let overlap = |times| Measured::new(1, times).overlap;
        assert_eq!(overlap([100.0, 100.0, 100.0]), 1.0);
        assert_eq!(overlap([100.0, 100.0, 200.0]), 0.0);
        assert_eq!(overlap([100.0, 200.0, 225.0]), 0.75);
        assert_eq!(overlap([100.0, 100.0, 250.0]), 0.0, "worse than one after the other");
    }
}
