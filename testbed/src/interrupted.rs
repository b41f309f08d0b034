//! The error after Ctrl-C or SIGTERM, by which a program distinguishes its exit code from that of a failure.

/// The error of an operation that Ctrl-C or SIGTERM ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;
