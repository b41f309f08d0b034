//! The names that the two levels of a queue have in JSON, flat beside the other settings of a link: `queue_bytes`, `ecn_ns`, …
//!
//! In a change, the three names of a level are one setting: if one of them is given, those that are not are lifted.

use super::QueueLevel;

/// The names of the limit of a queue.
pub(super) type Queue = Names<false>;

/// The names of the threshold above which frames are marked.
pub(super) type Ecn = Names<true>;

/// The values of the three names: bytes, frames and nanoseconds.
type Parts = (Option<u64>, Option<u32>, Option<u64>);

/// Reads and writes a level. If `ZERO_IS_NONE`, a level of 0 in a change stands for none, which could not be told from no change
/// otherwise.
pub(super) struct Names<const ZERO_IS_NONE: bool>;

impl<const ZERO_IS_NONE: bool> Names<ZERO_IS_NONE> {
    pub(super) fn parts(level: &QueueLevel) -> Parts {
        (level.bytes, level.frames, level.ns)
    }

    pub(super) fn change_parts(change: Option<QueueLevel>) -> Parts {
        match change {
            Some(QueueLevel::NONE) if ZERO_IS_NONE => Self::parts(&QueueLevel::bytes(0)),
            level => Self::parts(&level.unwrap_or_default()),
        }
    }

    pub(super) fn change((bytes, frames, ns): Parts) -> Option<QueueLevel> {
        let counts = QueueLevel {
            bytes: bytes.filter(|bytes| !ZERO_IS_NONE || *bytes > 0),
            frames: frames.filter(|frames| !ZERO_IS_NONE || *frames > 0),
            ns: ns.filter(|ns| !ZERO_IS_NONE || *ns > 0),
        };
        let is_given = bytes.is_some() || frames.is_some() || ns.is_some();
        is_given.then_some(counts)
    }
}
