//! The least memory of a guest, which a lab file is checked against and QEMU is started with.

/// Least memory of a guest in MiB: the recipe `minimal` boots in it, while Debian's kernel could not
/// unpack it with 116 MiB.
pub const MEMORY_MIB_MIN: u32 = 128;
