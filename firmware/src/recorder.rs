//! The flight recorder: what a card did lately and when, in rings of fixed size that overwrite their oldest events.
//!
//! While it is off, it costs a test of a pointer here and there; while it is on, one record per event, or per group of packets that
//! have it at one instant. Nothing is allocated while it records. The reader, and the pictures that it makes, are not here.

mod flight_recorder;

use alloc::{boxed::Box, vec};

use ether::Time;

pub(crate) use flight_recorder::FlightRecorder;

/// Most events that a ring keeps: 6 MiB, and at a million packets per second a few hundred milliseconds.
pub const RECORDER_EVENTS_MAX: usize = 1 << 18;
/// Fewest events that a ring keeps: less than a batch of frames says nothing.
pub const RECORDER_EVENTS_MIN: usize = 1 << 8;
/// Length of a record in bytes.
pub const RECORD_LEN: usize = 24;
/// Version of the layout of records ([`Record::to_bytes`]); it changes when a reader of an older one would misread.
pub const RECORD_VERSION: u16 = 1;

weft_settings::named! {
    /// What happened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum RecordKind {
        /// So many (`number`) older events of this ring were overwritten before they were read.
        Lost = "lost",
        /// Packets arrived for a receive queue: `count` of them, `bytes` in all.
        Arrive = "arrive",
        /// The DMA of a packet began; without a modelled time it begins with the arrival, and there is no such record.
        DmaStart = "dma-start",
        /// The DMAs of `count` packets completed.
        DmaEnd = "dma-end",
        /// Of the packets that arrived at this instant, `count` carry the latency-sensitive mark.
        Mark = "mark",
        /// The strategy put off the interrupt of a marked packet, since others are in flight (M-GF5).
        Defer = "defer",
        /// An interrupt was decided: `detail` is its reason ([`ReasonOf::code`](crate::ReasonOf::code)), `count` the packets it announces, `number` which of the queue it is.
        Raise = "raise",
        /// The guest's driver did not want that interrupt.
        Suppress = "suppress",
        /// That interrupt was signalled to the guest.
        Signal = "signal",
        /// The card sent `count` frames of its guest on, `bytes` in all.
        Forward = "forward",
        /// A frame was dropped at this card; `detail` says why, in codes of the driver.
        Drop = "drop",
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time of the event. Records of a ring are in the order in which they were written, which for a late driver is not that of time.
    pub at: Time,
    /// The kind of the event.
    pub kind: RecordKind,
    /// A code that depends on the kind; 0 otherwise.
    pub detail: u8,
    /// The receive queue; 0 for what concerns the whole card.
    pub queue: u16,
    /// How many packets or frames the event is about.
    pub count: u32,
    /// The bytes of these packets, or a number that depends on the kind; 0 otherwise.
    pub number: u64,
}

impl Record {
    /// A record about one packet.
    pub const fn new(at: Time, kind: RecordKind) -> Self {
        Self {
            at,
            kind,
            detail: 0,
            queue: 0,
            count: 1,
            number: 0,
        }
    }

    /// Its bytes, little-endian: time in nanoseconds (8), kind (1), detail (1), queue (2), count (4), number (8).
    pub fn to_bytes(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..8].copy_from_slice(&self.at.as_nanos().to_le_bytes());
        bytes[8] = self.kind as u8;
        bytes[9] = self.detail;
        bytes[10..12].copy_from_slice(&self.queue.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Reads them again; `None` for a kind that is not known.
    pub fn from_bytes(bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let (time, rest) = bytes.split_first_chunk::<8>()?;
        let (&[kind, detail], rest) = rest.split_first_chunk::<2>()?;
        let (queue, rest) = rest.split_first_chunk::<2>()?;
        let (count, number) = rest.split_first_chunk::<4>()?;
        Some(Self {
            at: Time::from_nanos(u64::from_le_bytes(*time)),
            kind: *RecordKind::ALL.get(usize::from(kind))?,
            detail,
            queue: u16::from_le_bytes(*queue),
            count: u32::from_le_bytes(*count),
            number: u64::from_le_bytes(*number.first_chunk::<8>()?),
        })
    }
}

/// A record as a ring keeps it, in three words: it is written, and compared, in a few instructions.
#[derive(Clone, Copy, Debug)]
struct Packed {
    at: Time,
    /// Kind, detail, queue and count; 8, 8, 16 and 32 bits from the lowest.
    what: u64,
    number: u64,
}

/// The bits of [`Packed::what`] above which the count is.
const COUNT_SHIFT: u32 = 32;

/// The word of a [`Packed`] record that says what happened.
#[inline(always)]
const fn what(kind: RecordKind, detail: u8, queue: u16, count: u32) -> u64 {
    kind as u64 | (detail as u64) << 8 | (queue as u64) << 16 | (count as u64) << COUNT_SHIFT
}

impl Packed {
    const EMPTY: Self = Self {
        at: Time::ZERO,
        what: 0,
        number: 0,
    };

    fn unpack(&self) -> Record {
        let kind = RecordKind::ALL.get(usize::from(self.what as u8)).copied();
        Record {
            at: self.at,
            kind: kind.unwrap_or(RecordKind::Lost),
            detail: (self.what >> 8) as u8,
            queue: (self.what >> 16) as u16,
            count: (self.what >> COUNT_SHIFT) as u32,
            number: self.number,
        }
    }
}

/// A ring of records.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// A power of two of them.
    ring: Box<[Packed]>,
    /// Records written since the ring was last emptied.
    written: u64,
    /// Records that were overwritten before they were read, since the recorder was made.
    overwritten: u64,
}

impl Recorder {
    /// An empty ring for at least `events` events, within the limits [`RECORDER_EVENTS_MIN`] and [`RECORDER_EVENTS_MAX`].
    pub fn new(events: usize) -> Self {
        let events = events
            .clamp(RECORDER_EVENTS_MIN, RECORDER_EVENTS_MAX)
            .next_power_of_two();
        Self {
            ring: vec![Packed::EMPTY; events].into_boxed_slice(),
            written: 0,
            overwritten: 0,
        }
    }

    /// Notes an event. One that is like the last, at one instant with it, adds to it; interrupts never do.
    pub fn note(&mut self, record: Record) {
        let Record {
            at,
            kind,
            detail,
            queue,
            count,
            number,
        } = record;
        let what = what(kind, detail, queue, count);
        match kind {
            RecordKind::Raise | RecordKind::Lost => self.put(at, what, number),
            _ => self.join(at, what, number),
        }
    }

    // In line: with an interrupt for each packet, calls cost several times what they store.
    #[inline(always)]
    fn join(&mut self, at: Time, what: u64, number: u64) {
        if self.written != 0 {
            let mask = self.ring.len() - 1;
            let last = &mut self.ring[(self.written - 1) as usize & mask];
            // A count that is full stays as it is, and another record goes on.
            if last.what as u32 == what as u32
                && last.at == at
                && let Some(sum) = last.what.checked_add(what >> COUNT_SHIFT << COUNT_SHIFT)
            {
                last.what = sum;
                last.number = last.number.saturating_add(number);
                return;
            }
        }
        self.put(at, what, number);
    }

    #[inline(always)]
    fn put(&mut self, at: Time, what: u64, number: u64) {
        let mask = self.ring.len() - 1;
        self.ring[self.written as usize & mask] = Packed { at, what, number };
        self.written += 1;
    }

    /// Records that are kept now.
    pub fn len(&self) -> usize {
        self.written.min(self.ring.len() as u64) as usize
    }

    /// True if nothing was noted since the ring was last emptied.
    pub fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Records that were overwritten, since the recorder was made.
    pub fn overwritten(&self) -> u64 {
        self.overwritten + self.missing()
    }

    fn missing(&self) -> u64 {
        self.written.saturating_sub(self.ring.len() as u64)
    }

    /// Hands what is kept to `each`, oldest first, and empties the ring. Overwritten events are told first, as one record of
    /// kind [`RecordKind::Lost`] with the time of the oldest that is left.
    pub fn drain(&mut self, mut each: impl FnMut(&Record)) {
        let mask = self.ring.len() - 1;
        let (kept, missing) = (self.len() as u64, self.missing());
        let first = self.written - kept;
        if missing != 0 {
            let oldest = self.ring[first as usize & mask].unpack();
            each(&Record {
                queue: oldest.queue,
                count: 0,
                number: missing,
                ..Record::new(oldest.at, RecordKind::Lost)
            });
        }
        for position in first..self.written {
            each(&self.ring[position as usize & mask].unpack());
        }
        self.overwritten += missing;
        self.written = 0;
    }
}
