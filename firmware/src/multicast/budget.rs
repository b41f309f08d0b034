//! How many forwarding buffers each tree of a card may have.

use super::{BUFFERS_MAX, entry::Entry};

/// Forwarding buffers as counts: who may have how many.
///
/// One buffer is reserved for trees that have not wrapped and one for those that have; the rest is common.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Budget {
    buffers: u16,
    pub(super) common_used: u16,
    pub(super) reserve_used: [bool; 2],
    /// The most of the common buffers that one tree may have.
    pub(super) window: u16,
}

impl Budget {
    pub(super) fn new(buffers: u16) -> Self {
        Self {
            buffers: buffers.min(BUFFERS_MAX),
            common_used: 0,
            reserve_used: [false; 2],
            window: 0,
        }
    }

    pub(super) const fn buffers(&self) -> u16 {
        self.buffers
    }

    /// Buffers that are in no reserve.
    pub(super) const fn common(&self) -> u16 {
        self.buffers.saturating_sub(2)
    }

    /// The reserve of a class; a card with a single buffer has one for both.
    pub(super) fn reserve(&mut self, wrapped: bool) -> Option<&mut bool> {
        match self.buffers {
            0 => None,
            1 => Some(&mut self.reserve_used[0]),
            _ => Some(&mut self.reserve_used[usize::from(wrapped)]),
        }
    }

    /// Common buffers that `entry` may have besides those it has.
    #[inline]
    pub(super) fn room(&self, entry: &Entry) -> u16 {
        let own = self.window.saturating_sub(entry.common());
        own.min(self.common() - self.common_used)
    }
}
