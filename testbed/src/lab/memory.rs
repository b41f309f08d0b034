//! The memory of a node: as the file says, within the needs of its image and the limits of QEMU.

use super::{
    Boot,
    file::{DefaultsFile, NodeFile},
    problems::Problems,
};
use crate::guest_memory::MEMORY_MIB_MIN;

/// Largest guest memory in MiB.
pub(super) const MEMORY_MIB_MAX: u64 = 64 << 10;

/// Default memory of a node in MiB: the least is for guests that run little beside the agent, while here the tools, an authority and
/// a program over ESP run together.
const DEFAULT_MIB: u32 = 192;

/// Default memory in MiB of a node with the larger kernel.
const FULL_KERNEL_DEFAULT_MIB: u32 = 256;

/// Default memory in MiB of a node that has its root file system on a disk.
const ON_DISK_DEFAULT_MIB: u32 = 256;

/// Least memory in MiB of a node whose root file system is on a disk: the guest's writes are kept in memory, and larger
/// programs run in it.
const ON_DISK_MIB_MIN: u64 = 192;

/// Least memory in MiB of a node with the larger kernel, which has drivers for everything.
const FULL_KERNEL_MIB_MIN: u64 = 160;

/// Returns the memory of a node, in MiB.
pub(super) fn memory_mib(defaults: &DefaultsFile, node: &NodeFile, boot: &Boot, problems: &mut Problems) -> u32 {
    let (min, default, why) = match boot {
        Boot::Recipe { image, .. } if image.root_is_on_disk() => (
            ON_DISK_MIB_MIN,
            ON_DISK_DEFAULT_MIB,
            " (with `packages`, or an `image` other than \"minimal\")",
        ),
        Boot::Recipe { image, .. } if image.has_full_kernel() => (
            FULL_KERNEL_MIB_MIN,
            FULL_KERNEL_DEFAULT_MIB,
            " (with `mount` or a list of `modules`)",
        ),
        _ => (u64::from(MEMORY_MIB_MIN), DEFAULT_MIB, ""),
    };
    let Some(memory) = node.memory.as_ref().or(defaults.memory.as_ref()) else {
        return default;
    };
    let size = *memory.get_ref();
    let mib = size.0 >> 20;
    if !(min..=MEMORY_MIB_MAX).contains(&mib) || size.0 % (1 << 20) != 0 {
        let help = format!("whole MiB from {min}M{why} to {}G", MEMORY_MIB_MAX >> 10);
        problems.add(memory.span(), format!("a guest cannot have {size} of memory"), help);
    }
    u32::try_from(mib).unwrap_or(u32::MAX)
}
