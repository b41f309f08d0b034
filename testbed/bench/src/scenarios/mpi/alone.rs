//! Whether the comparison has the processors to itself.

use std::{fs, time::Instant};

use anyhow::{Context, Result};

use testbed::harness::processor_time::{TICK_NS, machine_ns};

/// Watches how much other programs compute while a turn is measured.
pub struct Watch {
    begin: Instant,
    machine_ns: u64,
    own_ns: u64,
}

impl Watch {
    /// Begins a turn.
    pub fn begin() -> Result<Self> {
        Ok(Self {
            begin: Instant::now(),
            machine_ns: machine_ns()?,
            own_ns: own_ns()?,
        })
    }

    /// Returns the number of cores that other programs have used since the beginning. All that was started must have ended.
    pub fn cores_of_others(&self) -> Result<f64> {
        let machine_ns = machine_ns()?.saturating_sub(self.machine_ns);
        let own_ns = own_ns()?.saturating_sub(self.own_ns);
        let elapsed_ns = self.begin.elapsed().as_nanos() as f64;
        Ok(machine_ns.saturating_sub(own_ns) as f64 / elapsed_ns)
    }
}

/// Returns the processor time of all processes of the comparison, which are those of its process namespace: this one, what it has started,
/// and the daemons of `mpirun`, for which no process waits.
fn own_ns() -> Result<u64> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").context("cannot read /proc")? {
        // What ends between the two calls was waited for, and counts with who did.
        if let Ok(text) = fs::read_to_string(entry?.path().join("stat")) {
            ticks += own_ticks(&text).unwrap_or(0);
        }
    }
    Ok(ticks * TICK_NS)
}

/// Adds up user and system time, each of the process and of its children that were waited for.
fn own_ticks(text: &str) -> Option<u64> {
    // The name before the bracket may hold blanks.
    let (_, fields) = text.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4);
    let times: Vec<u64> = times.map_while(|word| word.parse().ok()).collect();
    (times.len() == 4).then(|| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_process_and_its_children() {
        let text = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 100 20 3000 400 20 0 1 0 99";
        assert_eq!(own_ticks(text), Some(3520));
        assert_eq!(own_ticks("7 (a) S 1 2"), None);
    }
}
