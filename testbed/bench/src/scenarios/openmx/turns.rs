//! Rivals that take turns within milliseconds. The processors of a virtual machine are moved: round trips take half as long again,
//! and then less, for seconds. Rivals measured one after the other would each meet another machine.

use super::work::{BANDWIDTH_LENGTH, Task, now_ns};
use crate::harness::stats::median;

/// How often each way has its turn in a measurement, and transfers there and back of a turn: first those that are not counted, since
/// another way was in the caches.
struct Plan {
    turns: u32,
    warm_up: u32,
    counted: u32,
}

impl Plan {
    /// Turns last a few milliseconds at most, or a few transfers.
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

/// One end of one way.
pub trait End {
    /// A transfer there and back, or the other end's part of it.
    fn trip(&mut self) -> anyhow::Result<()>;
    /// After the last one.
    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Transfers of each way.
pub const fn trips(task: Task) -> u32 {
    let plan = Plan::of(task);
    plan.turns * (plan.warm_up + plan.counted)
}

/// The side that answers.
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

/// The side that measures: for each way, the figure of each turn's median transfer.
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

/// See [`Task`].
fn figure(task: Task, time_ns: f64) -> f64 {
    match task {
        Task::Bandwidth => BANDWIDTH_LENGTH as f64 * 1e9 / time_ns,
        _ => time_ns / 2.0,
    }
}
