//! How much an engine takes.

/// Bytes of one copy, at most.
pub const COPY_LEN_MAX: usize = 1 << 30;
/// Copies that wait until the card has room for their frames, at most.
pub const COPIES_MAX: usize = 1024;
/// Parts of memory that are registered at once, at most.
pub const REGISTRATIONS_MAX: usize = 256;
