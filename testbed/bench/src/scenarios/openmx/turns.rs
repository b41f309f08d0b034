//! Rivals that take turns within milliseconds. The processors of a virtual machine are moved, so that round trips take
//! half as long again for seconds at a time. Rivals measured one after the other would each run on a different machine.

use super::work::{BANDWIDTH_LENGTH, Task, now_ns};
use testbed::harness::stats::median;

/// How many turns each path has in a measurement, and how many transfers there and back a turn has. The first ones of a
/// turn are not counted, since the caches are filled for another path.
struct Plan {
    turns: u32,
    warm_up: u32,
    counted: u32,
}

impl Plan {
    /// Returns turns that last a few milliseconds or a few transfers at most.
    const fn of(task: Task) -> Self {
        let (turns, warm_up, counted) = match task {
            Task::PingPong { blocking: false, .. } => (200, 20, 100),
            Task::PingPong { blocking: true, .. } => (40, 20, 100),
            _ => (24, 1, 2),
        };
        Self {
            turns,
            warm_up,
            counted,
        }
    }
}

/// One end of one path.
pub trait End {
    /// Makes a transfer there and back, or the answering end's part of it.
    fn trip(&mut self) -> anyhow::Result<()>;
    /// Ends the transfers after the last one.
    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Returns the number of transfers of each path.
pub const fn trips(task: Task) -> u32 {
    let plan = Plan::of(task);
    plan.turns * (plan.warm_up + plan.counted)
}

/// Serves the turns on the side that answers.
pub fn serve(task: Task, mut ends: Vec<Box<dyn End>>) -> anyhow::Result<()> {
    let plan = Plan::of(task);
    for _ in 0..plan.turns {
        for end in &mut ends {
            for _ in 0..plan.warm_up + plan.counted {
                end.trip()?;
            }
        }
    }
    ends.into_iter().try_for_each(End::finish)
}

/// Measures the turns, and returns for each path the figure of each turn's median transfer.
pub fn measure(task: Task, mut ends: Vec<Box<dyn End>>) -> anyhow::Result<Vec<Vec<f64>>> {
    let plan = Plan::of(task);
    let mut figures = vec![Vec::new(); ends.len()];
    let mut times_ns = Vec::new();
    for _ in 0..plan.turns {
        for (end, figures) in ends.iter_mut().zip(&mut figures) {
            for _ in 0..plan.warm_up {
                end.trip()?;
            }
            times_ns.clear();
            for _ in 0..plan.counted {
                let begin = now_ns();
                end.trip()?;
                times_ns.push((now_ns() - begin) as f64);
            }
            figures.extend(median(times_ns.iter().copied()).map(|time_ns| figure(task, time_ns)));
        }
    }
    ends.into_iter().try_for_each(End::finish)?;
    Ok(figures)
}

/// Computes the figure of a [`Task`] from the time of a transfer.
fn figure(task: Task, time_ns: f64) -> f64 {
    match task {
        Task::Bandwidth => BANDWIDTH_LENGTH as f64 * 1e9 / time_ns,
        _ => time_ns / 2.0,
    }
}
