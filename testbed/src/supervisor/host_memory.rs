//! Whether a lab fits into the memory that is free. Reserves nothing.

use anyhow::{Context, Result, ensure};

use crate::lab::{Lab, Node};

/// Memory that could be used without swapping, in MiB.
///
/// # Errors
/// When the kernel does not say.
pub fn memory_available_mib() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = available
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok())
        .context("/proc/meminfo does not say how much memory is available")?;
    Ok(kib >> 10)
}

/// Free memory must be enough for all guests; a machine that swaps or kills is worse than a sentence.
pub(super) fn check_memory(lab: &Lab) -> Result<()> {
    check_memory_for(&lab.name, lab.nodes.iter())
}

/// The same for `nodes` of that lab that are to be started.
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

/// Memory that QEMU needs beside a guest's own, measured with QEMU 7.2 and 10 under TCG.
const QEMU_MEMORY_MIB: u64 = 72;
/// Memory that `vnicd` needs.
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
        let sentence = check_memory(&lab).expect_err("nobody has 3.8 TiB").to_string();
        assert!(
            sentence.starts_with("the lab huge needs about 3936544 MiB of memory for 60 guests and "),
            "{sentence}"
        );
    }
}
