//! What a host writes into its memory for its card: a record with its interrupt flag, its count of processed packets, its running soft
//! timers and the time of its last poll (`papers.md` M-BV8, M-BV9, M-BV10).
//!
//! The card only ever reads it, in one small DMA, when the watchdog or a clock asks. A host that has told its card where the record is has its state known
//! exactly; that of any other is inferred from its rings by the driver of the firmware. The record begins with a key that the host
//! chose, so that memory which has become something else is not taken for it.

/// Bytes of the record, which stands at a multiple of them: so it lies in one page.
pub const HOST_RECORD_LEN: usize = 32;

/// Where the words of the record begin, in bytes. All are little-endian, as the rings of the card are.
pub mod field {
    /// The key, 4 bytes.
    pub const KEY: usize = 0;
    /// The interrupt flag, 4 bytes: 0 = disabled.
    pub const INTERRUPTS: usize = 4;
    /// Entries of the receive ring that were processed since the ring was started, 8 bytes.
    pub const PROCESSED: usize = 8;
    /// Soft timers that run, 4 bytes; 4 reserved ones follow.
    pub const RUNNING_TIMERS: usize = 16;
    /// The time of the last poll of the clock, 8 bytes: any number that is another one after each poll. The clocks of host and card
    /// are not the same, so the card looks only whether it has changed.
    pub const LAST_POLL: usize = 24;
}

/// Where a record is, as a host says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRecordPlace {
    /// The card's address of it: that of descriptors, too. A multiple of [`HOST_RECORD_LEN`].
    pub address: u64,
    /// What it begins with, not 0.
    pub key: u32,
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRecord {
    /// The host lets itself be interrupted.
    pub interrupts_enabled: bool,
    /// Entries of the receive ring that it has processed; the low 16 bits are a used index.
    pub processed: u64,
    /// Soft timers that run.
    pub running_timers: u32,
    /// The time of its last poll.
    pub last_poll: u64,
}

impl HostRecord {
    /// Makes a record of the four words that stand there; `None` if they do not begin with `key`.
    pub fn of_words(words: [u64; HOST_RECORD_LEN / 8], key: u32) -> Option<Self> {
        let [first, processed, timers, last_poll] = words;
        (first as u32 == key).then_some(Self {
            interrupts_enabled: first >> 32 != 0,
            processed,
            running_timers: timers as u32,
            last_poll,
        })
    }
}

/// What became of the fetches of a host's records, and of what the host said about their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HostRecordCounters {
    /// Records read: the host's state was known exactly.
    pub exact: u64,
    /// Fetches without a record: the host has named none, and its state was inferred from its rings.
    pub inferred: u64,
    /// Fetches of a record that was not in memory which the card reaches; inferred then.
    pub unreachable: u64,
    /// Fetches of memory that did not begin with the record's key: something else is there now. Inferred then.
    pub replaced: u64,
    /// Places that the card did not take.
    pub refused: u64,
}

impl HostRecordCounters {
    /// All counters with their names, in the order of control frames.
    pub const fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("exact", self.exact),
            ("inferred", self.inferred),
            ("unreachable", self.unreachable),
            ("replaced", self.replaced),
            ("refused", self.refused),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_bv8_a_record_is_read_by_its_key_and_by_no_other() {
        let mut bytes = [0; HOST_RECORD_LEN];
        bytes[field::KEY..][..4].copy_from_slice(&7u32.to_le_bytes());
        bytes[field::INTERRUPTS..][..4].copy_from_slice(&1u32.to_le_bytes());
        bytes[field::PROCESSED..][..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        bytes[field::RUNNING_TIMERS..][..4].copy_from_slice(&3u32.to_le_bytes());
        bytes[field::LAST_POLL..][..8].copy_from_slice(&99u64.to_le_bytes());
        let words = core::array::from_fn(|at| {
            let word: [u8; 8] = bytes[8 * at..][..8].try_into().expect("8 bytes");
            u64::from_le_bytes(word)
        });
        let expected = HostRecord {
            interrupts_enabled: true,
            processed: 1 << 40,
            running_timers: 3,
            last_poll: 99,
        };
        assert_eq!(HostRecord::of_words(words, 7), Some(expected));
        assert_eq!(HostRecord::of_words(words, 8), None);
        assert_eq!(HostRecord::of_words([0; 4], 7), None);
    }
}
