//! What a copy engine counts.

use super::CopyError;

/// Counters of a copy engine; all start at 0 and only grow.
///
/// Accepted copies add up: `submitted` = `completed` + `failed` + `cancelled` + those in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CopyCounters {
    /// Copies that were accepted.
    pub submitted: u64,
    /// Their bytes, without notification values.
    pub submitted_bytes: u64,
    /// Frames that went over the wire: a copy longer than the MTU takes several.
    pub frames: u64,
    /// Bytes that were handed to the driver to move, without those of copies that were given up; equal to `submitted_bytes` when
    /// nothing failed and the queue is empty.
    pub moved_bytes: u64,
    /// Notification values that were stored behind their data.
    pub notifications: u64,
    /// Copies all of whose frames arrived.
    pub completed: u64,
    /// Copies that the driver gave up because it could not move their bytes.
    pub failed: u64,
    /// Copies that were forgotten because their memory went away.
    pub cancelled: u64,
    /// Copies that were refused, by reason; index = [`CopyError::index`].
    #[cfg_attr(feature = "serde", serde(skip))]
    pub refused: [u64; CopyError::COUNT],
    /// Time that the host's processor spent on submissions in the model, in nanoseconds.
    pub host_ns: u64,
    /// The most copies that were ever in the queue at once.
    pub queue_peak: u64,
}

impl CopyCounters {
    /// Copies refused for this reason.
    pub const fn refused_for(&self, error: CopyError) -> u64 {
        self.refused[error.index()]
    }

    /// Copies refused for any reason.
    pub fn refused_total(&self) -> u64 {
        self.refused.iter().sum()
    }
}
