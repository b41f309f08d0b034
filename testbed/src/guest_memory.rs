//! The least memory of a guest, which a lab file is checked against and QEMU is started with.

/// Least memory of a guest in MiB. Debian's kernel 6.1.0-57 unpacks the recipe `minimal` with 132 MiB and panics with 130; the kernel of
/// the day has room to grow.
pub const MEMORY_MIB_MIN: u32 = 144;
