//! The report of a copy engine, as text and as JSON.

use std::{collections::BTreeMap, fmt};

use firmware::{control::CopyEngineReport, copy_engine::CopyError};
use serde::Serialize;

/// `nicctl copy-engine`; names as those of `vnicd`'s control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyEngineOutput {
    /// Longest frame in bytes.
    pub mtu: u32,
    /// Copies that may be in progress.
    pub queue_max: u16,
    /// Copies that are in progress now.
    pub queued: u16,
    /// Modelled cost of submitting one frame, in nanoseconds.
    pub submit_ns: u32,
    /// Copies that were accepted.
    pub submitted: u64,
    /// Their bytes.
    pub submitted_bytes: u64,
    /// Frames they were cut into.
    pub frames: u64,
    /// Bytes that were moved.
    pub moved_bytes: u64,
    /// Notification values that were stored.
    pub notifications: u64,
    /// Copies that are done.
    pub completed: u64,
    /// Copies that were given up: the guest posted no receive buffer, say.
    pub failed: u64,
    /// Copies that were forgotten because their ring went away.
    pub cancelled: u64,
    /// Copies that were refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

impl From<CopyEngineReport> for CopyEngineOutput {
    fn from(report: CopyEngineReport) -> Self {
        let counters = report.counters;
        Self {
            mtu: report.mtu,
            queue_max: report.queue_max,
            queued: report.queued,
            submit_ns: report.submit_ns,
            submitted: counters.submitted,
            submitted_bytes: counters.submitted_bytes,
            frames: counters.frames,
            moved_bytes: counters.moved_bytes,
            notifications: counters.notifications,
            completed: counters.completed,
            failed: counters.failed,
            cancelled: counters.cancelled,
            refused: CopyError::ALL
                .into_iter()
                .map(|error| (error.name(), counters.refused_for(error)))
                .collect(),
        }
    }
}

impl fmt::Display for CopyEngineOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "copies      {} submitted ({} bytes), {} completed, {} in progress, at most {} at once",
            self.submitted, self.submitted_bytes, self.completed, self.queued, self.queue_max
        )?;
        write!(
            f,
            "moved       {} bytes in {} frames of at most {} bytes, {} notifications",
            self.moved_bytes, self.frames, self.mtu, self.notifications
        )?;
        if self.failed + self.cancelled > 0 {
            write!(
                f,
                "\nlost        {} given up, {} forgotten with their ring",
                self.failed, self.cancelled
            )?;
        }
        for (reason, count) in self.refused.iter().filter(|(_, count)| **count > 0) {
            write!(f, "\nrefused     {reason}: {count}")?;
        }
        Ok(())
    }
}
