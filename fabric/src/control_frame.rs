//! Frames that a switch sends by itself: BPDUs, LACPDUs and queries.

use crate::vlan_tag::{TagChange, VLAN_TAG_LEN};

/// Shortest Ethernet frame, without check sequence: shorter ones are padded to it.
pub const CONTROL_FRAME_LEN_MIN: usize = 60;

/// Longest frame that a switch sends by itself, without a tag: an LACPDU.
pub(crate) const CONTROL_FRAME_LEN_MAX: usize = crate::lacp::LACPDU_LEN;

/// A frame that a switch sends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFrame {
    bytes: [u8; CONTROL_FRAME_LEN_MAX + VLAN_TAG_LEN],
    len: usize,
}

impl ControlFrame {
    /// A frame of zeros, so long, which the caller writes; cut to what fits.
    pub(crate) const fn zeroed(len: usize) -> Self {
        let len = if len > CONTROL_FRAME_LEN_MAX {
            CONTROL_FRAME_LEN_MAX
        } else {
            len
        };
        Self {
            bytes: [0; CONTROL_FRAME_LEN_MAX + VLAN_TAG_LEN],
            len,
        }
    }

    /// Its bytes, from the Ethernet header on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// The frame with a tag behind its addresses.
    pub(crate) fn tagged(&self, tci: u16) -> Self {
        let mut tagged = *self;
        if let Some(head) = TagChange::Push(tci).head(self.bytes()) {
            tagged.len = self.len + VLAN_TAG_LEN;
            let (first, rest) = tagged.bytes.split_at_mut(head.bytes().len());
            first.copy_from_slice(head.bytes());
            let tail = &self.bytes()[head.replaces..];
            rest[..tail.len()].copy_from_slice(tail);
        }
        tagged
    }
}
