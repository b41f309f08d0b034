//! The check whether a lab fits into the free memory. Nothing is reserved.

use anyhow::{Context, Result, ensure};

use crate::lab::{Lab, Node};

/// Returns the memory that could be used without swapping, in MiB.
///
/// # Errors
/// Fails when the kernel does not report it.
pub fn memory_available_mib() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = available
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok())
        .context("/proc/meminfo does not say how much memory is available")?;
    Ok(kib >> 10)
}

/// Checks that the free memory is enough for all guests; a machine that swaps or kills is worse than an error message.
pub(super) fn check_memory(lab: &Lab) -> Result<()> {
    check_memory_for(&lab.name, lab.nodes.iter())
}

/// Checks that the free memory is enough for those `nodes` of the lab that are to be started.
pub(super) fn check_memory_for<'a>(lab: &str, nodes: impl Iterator<Item = &'a Node>) -> Result<()> {
    let (guests, needed) = nodes.fold((0, 0), |(count, sum), node| {
        (count + 1, sum + u64::from(node.memory_mib) + QEMU_MEMORY_MIB)
    });
    let (needed, available) = (needed + VNICD_MEMORY_MIB, memory_available_mib()?);
    let plural = if guests == 1 { "guest" } else { "guests" };
    ensure!(
        guests == 0 || needed <= available,
        "the lab {lab} needs about {needed} MiB of memory for {guests} {plural} and {available} MiB are available: give its \
         nodes less `memory`, or end another lab"
    );
    Ok(())
}

/// Memory in MiB that QEMU needs in addition to a guest's memory, measured with QEMU 7.2 and 10 under TCG.
const QEMU_MEMORY_MIB: u64 = 72;
/// Memory in MiB that `vnicd` needs.
const VNICD_MEMORY_MIB: u64 = 64;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_lab_that_does_not_fit_into_memory_is_refused_with_one_sentence() {
        let nodes: String = (0..60)
            .map(|n| format!("[[node]]\nname = \"n{n}\"\nmemory = \"64G\"\n"))
            .collect();
        let lab = Lab::parse(&nodes, "lab.toml", "huge", Path::new("/")).expect("valid");
        let sentence = check_memory(&lab).expect_err("no machine has 3.8 TiB").to_string();
        assert!(
            sentence.starts_with("the lab huge needs about 3936544 MiB of memory for 60 guests and "),
            "{sentence}"
        );
    }
}
