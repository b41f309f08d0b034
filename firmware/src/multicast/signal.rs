//! The frames without payload that cards send each other, until the driver takes them.

use alloc::collections::VecDeque;

use super::Kind;

/// Signals that wait to be taken by the driver, which takes all after each event. Beyond it they are left out, and said
/// again after `RETRY_NS`.
pub(super) const SIGNALS_MAX: usize = 1024;

/// Names a row: group slot and place in the group's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct EntryId {
    pub(super) slot: u8,
    pub(super) row: u16,
}

/// A frame without payload that is to be sent to another card.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Signal {
    pub(super) kind: Kind,
    pub(super) of: EntryId,
    /// Which child, for a STATE; which member is told, for a GONE.
    pub(super) child: u8,
    pub(super) flags: u8,
}

impl Signal {
    /// Tells the parent of a row how much it may send.
    pub(super) const fn credit(of: EntryId) -> Self {
        Self {
            kind: Kind::Credit,
            of,
            child: 0,
            flags: 0,
        }
    }
}

/// Appends a signal; beyond [`SIGNALS_MAX`] it is left out.
pub(super) fn push(signals: &mut VecDeque<Signal>, signal: Signal) {
    if signals.len() < SIGNALS_MAX {
        signals.push_back(signal);
    }
}
