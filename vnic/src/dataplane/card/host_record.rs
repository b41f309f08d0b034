//! The record in which a guest's library says how far it is, read when the watchdog or a clock asks (M-BV8 to M-BV10 in
//! `docs/spec/papers.md`): exact, in place of what rings tell ([`driver_progress`](super::driver_progress)).
//!
//! The card reads it and never writes there. Its place is a guest address that is looked up at each fetch, so nothing of it outlives a
//! memory table or a translation. A record that is not there, or not any more, is counted, and the rings are asked instead.

use std::sync::atomic::{AtomicU64, Ordering};

use ether::Time;
use firmware::clock::ClockState;
use firmware::control::{HostRecordRefusal, HostRecordReport};
use firmware::{HOST_RECORD_LEN, HostRecord, HostRecordCounters, HostRecordPlace, RxPipeline};

use super::Card;
use super::driver_progress::LastPoll;
use super::receive_ring::ReceiveRing;
use crate::memory::MemoryMap;

/// Why there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absent {
    /// The card does not reach the memory.
    Unreachable,
    /// Something else is there.
    Replaced,
}

fn read(map: Option<&MemoryMap>, place: HostRecordPlace) -> Result<HostRecord, Absent> {
    let len = HOST_RECORD_LEN as u32;
    let from = map.and_then(|map| map.look_up(place.address, len));
    // Guest addresses and the mappings of their pages are aligned alike; a frontend that maps otherwise is not followed.
    let from = from.map(<*mut u8>::cast::<u64>).filter(|from| from.is_aligned());
    let from = from.ok_or(Absent::Unreachable)?;
    let words = std::array::from_fn(|at| {
        // SAFETY: the record's bytes are mapped as long as the map lives, and aligned; shared words are only accessed atomically.
        let word = unsafe { AtomicU64::from_ptr(from.add(at)) };
        u64::from_le(word.load(Ordering::Acquire))
    });
    HostRecord::of_words(words, place.key).ok_or(Absent::Replaced)
}

/// Reads the record of one queue and counts what came of it.
fn fetch(
    map: Option<&MemoryMap>,
    place: Option<HostRecordPlace>,
    counters: &mut HostRecordCounters,
) -> Option<HostRecord> {
    let Some(place) = place else {
        counters.inferred += 1;
        return None;
    };
    let found = read(map, place);
    let counter = match found {
        Ok(_) => &mut counters.exact,
        Err(Absent::Unreachable) => &mut counters.unreachable,
        Err(Absent::Replaced) => &mut counters.replaced,
    };
    *counter += 1;
    found.ok()
}

/// Answers the watchdog of one queue, which asks for the state of the host.
#[cold]
#[inline(never)]
pub(super) fn answer(
    pipeline: &mut RxPipeline,
    ring: &mut ReceiveRing,
    map: Option<&MemoryMap>,
    counters: &mut HostRecordCounters,
    now: Time,
) {
    let record = fetch(map, ring.host_record(), counters);
    let state = ring.host_state(pipeline.delivered(), record);
    pipeline.host_state(now, state);
}

/// When a guest last polled by its own account, of which the card knows that it has changed.
#[derive(Clone, Copy, Debug, Default)]
struct PollTime {
    told: u64,
    changed_at: Option<Time>,
}

impl PollTime {
    fn update(&mut self, told: u64, now: Time) -> Option<Time> {
        if std::mem::replace(&mut self.told, told) != told {
            self.changed_at = Some(now);
        }
        self.changed_at
    }
}

/// When a guest last polled, by what it tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Polls {
    /// As far as its receive rings tell.
    pub(super) by_rings: LastPoll,
    /// By its own account.
    by_record: PollTime,
}

impl Card {
    /// Does what the guest wants with its record.
    ///
    /// # Errors
    /// The guest named a place at which there is no record; what was read before is read on.
    pub fn set_host_record(
        &mut self,
        queue: u16,
        place: Option<HostRecordPlace>,
    ) -> Result<HostRecordReport, HostRecordRefusal> {
        let found = place.map(|place| read(self.negotiated.map.as_ref(), place)).transpose();
        let record = found.map_err(|absent| {
            self.counters.host_record.refused += 1;
            match absent {
                Absent::Unreachable => HostRecordRefusal::Unreachable,
                Absent::Replaced => HostRecordRefusal::Key,
            }
        })?;
        if let Some(record) = record {
            self.polls.by_record.told = record.last_poll;
        }
        if let Some(pair) = self.pairs.get_mut(usize::from(queue)) {
            pair.rx.set_host_record(place);
        }
        Ok(HostRecordReport {
            queue,
            is_read: record.is_some(),
            counters: self.counters.host_record,
        })
    }

    /// What the guest's timers and polls are: by its record of queue 0, or else as far as its receive rings tell.
    pub fn clock_state(&mut self, now: Time) -> ClockState {
        let place = self.pairs[0].rx.host_record();
        match fetch(self.negotiated.map.as_ref(), place, &mut self.counters.host_record) {
            Some(record) => ClockState {
                running_timers: record.running_timers,
                last_poll: self.polls.by_record.update(record.last_poll, now),
            },
            None => ClockState {
                // A clock runs on the card only while the guest keeps it armed.
                running_timers: 1,
                last_poll: self.update_last_poll(now),
            },
        }
    }
}
