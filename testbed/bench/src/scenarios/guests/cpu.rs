//! Processor time as the kernel accounts it: of the processes that carry frames, of the kernel threads that help them,
//! and of the whole machine. This module reads only /proc.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use serde::Serialize;
use testbed::harness::processor_time::{machine_ns, process_ns};

/// Processor time since some moment, or between two moments, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Cpu {
    /// Time of all QEMU processes: guests, device emulation, and what the host's kernel does on their behalf.
    pub qemu_ns: u64,
    /// Time of `vnicd`, with the kernel's work for it.
    pub vnicd_ns: u64,
    /// Time of the kernel threads for soft interrupts (`ksoftirqd`), for any process they work for.
    pub kernel_ns: u64,
    /// Time of everything on the machine, including other programs. It is counted in ticks, so it is coarse.
    pub machine_ns: u64,
}

impl Cpu {
    /// Reads the current times.
    pub(super) fn now(qemus: &[u32], vnicd: u32) -> Result<Self> {
        let mut qemu_ns = 0;
        for qemu in qemus {
            qemu_ns += process_ns(*qemu)?;
        }
        let mut kernel_ns = 0;
        for thread in soft_interrupt_threads()? {
            kernel_ns += process_ns(thread)?;
        }
        Ok(Self {
            qemu_ns,
            vnicd_ns: process_ns(vnicd)?,
            kernel_ns,
            machine_ns: machine_ns()?,
        })
    }

    /// Returns the time used since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            qemu_ns: self.qemu_ns.saturating_sub(before.qemu_ns),
            vnicd_ns: self.vnicd_ns.saturating_sub(before.vnicd_ns),
            kernel_ns: self.kernel_ns.saturating_sub(before.kernel_ns),
            machine_ns: self.machine_ns.saturating_sub(before.machine_ns),
        }
    }

    /// Returns the time of everything that carries frames.
    pub(super) fn total_ns(self) -> u64 {
        self.qemu_ns + self.vnicd_ns + self.kernel_ns
    }

    /// Returns the number of cores that other programs used in `elapsed`.
    pub(super) fn cores_of_others(self, elapsed: Duration) -> f64 {
        self.machine_ns.saturating_sub(self.total_ns()) as f64 / elapsed.as_nanos().max(1) as f64
    }
}

fn soft_interrupt_threads() -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc")? {
        let entry = entry.context("cannot read /proc")?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process that ends between the two calls is not a kernel thread.
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.starts_with("ksoftirqd/")) {
            found.push(pid);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_is_seen_to_work() {
        // The test does not measure this process: times of other tests' threads vanish from the sum when they end.
        let busy = ["-c", "while :; do :; done"];
        let mut busy = std::process::Command::new("sh").args(busy).spawn().unwrap();
        let before = Cpu::now(&[busy.id()], busy.id()).unwrap();
        let mut used = Cpu::default();
        while used.qemu_ns.min(used.vnicd_ns) < 1_000_000 {
            used = Cpu::now(&[busy.id()], busy.id()).unwrap().since(before);
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(used.total_ns() >= 2_000_000, "it is counted as both here: {used:?}");
    }
}
