//! Processor time as the kernel accounts it, of single processes and of the whole machine. This module reads only /proc.

use std::fs;

use anyhow::{Context, Result};

/// Unit of /proc/stat in nanoseconds: USER_HZ is 100 on every architecture that QEMU's q35 machine is emulated on here.
pub const TICK_NS: u64 = 10_000_000;

/// Adds up the times of all threads of a process that are alive.
///
/// # Errors
/// Fails when the process has ended.
pub fn process_ns(pid: u32) -> Result<u64> {
    let folder = format!("/proc/{pid}/task");
    let mut sum = 0;
    for task in fs::read_dir(&folder).with_context(|| format!("process {pid} has ended"))? {
        // A thread that ends between the two calls is not counted.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        sum += text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(sum)
}

/// Returns the processor time of everything on the machine.
///
/// # Errors
/// Fails when /proc cannot be read.
pub fn machine_ns() -> Result<u64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let ticks = busy_ticks(&text).context("/proc/stat has no line for all processors")?;
    Ok(ticks * TICK_NS)
}

/// Adds up user, nice, system, interrupts and soft interrupts; idle and waiting for disks are left out.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(ticks.get(..3)?.iter().sum::<u64>() + ticks.get(5..7)?.iter().sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_time_stolen_by_a_hypervisor_are_not_work() {
        let text = "cpu  1 2 4 1000 2000 8 16 4000 0 0\ncpu0 1 2 4 1000 2000 8 16 4000 0 0\n";
        assert_eq!(busy_ticks(text), Some(31));
        assert_eq!(busy_ticks("intr 5\n"), None);
    }
}
