//! The flight recorder that a queue or a card has: a ring that is there only while the recorder is on.

use alloc::{boxed::Box, vec::Vec};

use ether::Time;

use super::{RECORD_LEN, RecordKind, Recorder, what};
use crate::{Interrupt, ReasonOf, StrategyKind};

/// A flight recorder that may be off.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlightRecorder {
    ring: Option<Box<Recorder>>,
    /// The receive queue whose events these are.
    queue: u16,
}

impl FlightRecorder {
    /// Starts with an empty ring; one that runs already is emptied.
    pub(crate) fn start(&mut self, queue: u16, events: usize) {
        *self = Self {
            ring: Some(Box::new(Recorder::new(events))),
            queue,
        };
    }

    pub(crate) fn stop(&mut self) {
        self.ring = None;
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.ring.is_some()
    }

    /// Notes `count` packets of `bytes` in all.
    #[inline]
    pub(crate) fn note(&mut self, at: Time, kind: RecordKind, count: u32, bytes: u64) {
        if let Some(ring) = &mut self.ring {
            ring.join(at, what(kind, 0, self.queue, count), bytes);
        }
    }

    /// Notes an interrupt that was decided while `strategy` was configured.
    #[inline]
    pub(crate) fn note_raise(&mut self, strategy: StrategyKind, interrupt: &Interrupt) {
        if let Some(ring) = &mut self.ring {
            let Interrupt {
                reason,
                packets,
                sequence,
                decided_at,
            } = *interrupt;
            let code = ReasonOf::new(reason, strategy).code();
            ring.put(decided_at, what(RecordKind::Raise, code, self.queue, packets), sequence);
        }
    }

    /// Notes a dropped frame.
    pub(crate) fn note_drop(&mut self, at: Time, code: u8) {
        if let Some(ring) = &mut self.ring {
            ring.join(at, what(RecordKind::Drop, code, self.queue, 1), 0);
        }
    }

    /// Appends the bytes of all records to `out` and empties the ring.
    pub(crate) fn drain_to(&mut self, out: &mut Vec<u8>) {
        if let Some(ring) = &mut self.ring {
            out.reserve(ring.len() * RECORD_LEN);
            ring.drain(|record| out.extend_from_slice(&record.to_bytes()));
        }
    }
}
