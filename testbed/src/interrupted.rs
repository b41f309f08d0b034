//! The error of what Ctrl-C or SIGTERM ended, by which a program tells its exit code from that of a failure.

/// Something was ended by Ctrl-C or SIGTERM.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;
