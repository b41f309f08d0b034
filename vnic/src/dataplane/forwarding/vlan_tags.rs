//! Frames whose VLAN tag is changed as they leave a switch, and those that leave by several ports with a tag for each.
//!
//! A tag is changed in private memory; what a guest asked of its card (checksum, segmentation) goes along, moved by the tag's
//! four bytes. Which ports these are is the switch's answer.

use ether::Time;
use fabric::{Egress, TagChange, Target};
use firmware::multicast::is_card_frame;

use super::Forwarding;
use crate::dataplane::frames::FRAME_LEN_MAX;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::wiring::link_crossing::Hop;
use crate::memory::Piece;

impl Forwarding {
    /// Sends a frame to the targets that `switch` just listed.
    #[cold]
    #[inline(never)]
    pub(super) fn send_to_several(&mut self, switch: usize, frame: &FrameRef<'_>, now: Time) {
        let copy = frame.with_transit(frame.transit.without_waiting());
        // Behind a trunk, another switch may put its targets on top of these.
        let first = self.tagged_targets.len();
        self.tagged_targets
            .extend_from_slice(self.switches[switch].switch.targets());
        for number in first..self.tagged_targets.len() {
            match self.tagged_targets[number] {
                Target {
                    egress,
                    tag: TagChange::Keep,
                } => {
                    self.send_out(switch, egress, &copy, now);
                }
                Target { egress, tag } => self.send_retagged(switch, egress, tag, frame, now),
            }
        }
        self.tagged_targets.truncate(first);
    }

    /// Sends a frame with its tag changed. It lies in private memory, so it may wait at its receiver.
    fn send_retagged(&mut self, switch: usize, egress: Egress, tag: TagChange, frame: &FrameRef<'_>, now: Time) {
        self.retagged.resize(FRAME_LEN_MAX, 0);
        let Some(len) = retag(frame, tag, &mut self.retagged) else {
            return;
        };
        let header = frame.header.moved_by(tag.growth() as i16);
        let hop = match egress {
            Egress::Local(port) => Hop::ToGuest(self.switches[switch].card_at(port)),
            Egress::Trunk(trunk) => self.hop_over_trunk(switch, trunk),
        };
        let mut rest = [Piece::EMPTY];
        let transit = frame.transit.waiting();
        let retagged = FrameRef::of_bytes(&self.retagged[..len], &mut rest, header, transit);
        match hop {
            Hop::ToGuest(card) if !is_card_frame(retagged.inline) => {
                self.wiring.send_to_card(card, &retagged, &mut self.segments, now);
            }
            // Not directly: what cards keep of a frame until the round ends must not lie in memory that is used again, and
            // the next switch may change the tag again, in the same memory.
            _ => self.wiring.cross_by_pool(hop, &retagged, &mut self.segments, now),
        }
    }
}

/// Writes `frame` with its tag changed into `out` and returns its length; `None` if it is too short for that, which the switch
/// has ruled out.
fn retag(frame: &FrameRef<'_>, tag: TagChange, out: &mut [u8]) -> Option<usize> {
    let head = tag.head(frame.inline)?;
    let len = (frame.len as usize).checked_add_signed(tag.growth())?;
    let (first, tail) = out.get_mut(..len)?.split_at_mut_checked(head.bytes().len())?;
    first.copy_from_slice(head.bytes());
    let left = FrameRef {
        inline: &frame.inline[head.replaces..],
        len: tail.len() as u32,
        ..*frame
    };
    left.copy_into(tail);
    Some(len)
}
