//! GET_COPY_ENGINE: the report about a self-connected card, and its layout.

use super::wire::{Reader, Writer};
use crate::copy_engine::{CopyCounters, CopyEngine, CopyError};

/// A card's copy engine: what it was made with and what it counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEngineReport {
    /// Longest frame in bytes.
    pub mtu: u32,
    /// Copies that may be in flight.
    pub queue_max: u16,
    /// Copies that are in flight now.
    pub queued: u16,
    /// Modelled cost of submitting one frame, in nanoseconds.
    pub submit_ns: u32,
    /// What was counted.
    pub counters: CopyCounters,
}

impl CopyEngineReport {
    /// What a card says of its copy engine.
    pub(crate) fn of(engine: &CopyEngine) -> Self {
        let config = engine.config();
        Self {
            mtu: config.mtu,
            queue_max: config.queue_max,
            // Both are bounded far below the field's greatest value.
            queued: engine.queued() as u16,
            submit_ns: config.submit_ns as u32,
            counters: *engine.counters(),
        }
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.mtu);
        writer.u16(self.queue_max);
        writer.u16(self.queued);
        writer.u32(self.submit_ns);
        writer.u32(0);
        let counters = &self.counters;
        for value in [
            counters.submitted,
            counters.submitted_bytes,
            counters.frames,
            counters.moved_bytes,
            counters.notifications,
            counters.completed,
            counters.failed,
            counters.cancelled,
            counters.host_ns,
            counters.queue_peak,
        ] {
            writer.u64(value);
        }
        counters.refused.iter().for_each(|&value| writer.u64(value));
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (mtu, queue_max, queued) = (reader.u32()?, reader.u16()?, reader.u16()?);
        let (submit_ns, _) = (reader.u32()?, reader.u32()?);
        let mut counters = CopyCounters {
            submitted: reader.u64()?,
            submitted_bytes: reader.u64()?,
            frames: reader.u64()?,
            moved_bytes: reader.u64()?,
            notifications: reader.u64()?,
            completed: reader.u64()?,
            failed: reader.u64()?,
            cancelled: reader.u64()?,
            host_ns: reader.u64()?,
            queue_peak: reader.u64()?,
            refused: [0; CopyError::COUNT],
        };
        for refused in &mut counters.refused {
            *refused = reader.u64()?;
        }
        Some(Self {
            mtu,
            queue_max,
            queued,
            submit_ns,
            counters,
        })
    }
}
