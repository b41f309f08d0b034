//! The least memory of a guest, which a lab file is checked against and QEMU is started with.

/// Least memory of a guest in MiB, and what one gets that says nothing: the recipe `minimal` boots in it, with 116 MiB Debian's
/// kernel did not unpack it any more.
pub const MEMORY_MIB_MIN: u32 = 128;
