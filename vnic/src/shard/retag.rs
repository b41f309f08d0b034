//! Frames whose VLAN tag is changed on their way out of a switch, and those that go several ways with what each wants.
//!
//! A tag is changed in private memory; what a guest asked of its card (checksum, segmentation) goes along, moved by the tag's
//! four bytes. Which ways these are is the switch's answer.

use ether::Time;
use fabric::{Egress, TagChange, Target};
use firmware::multicast::is_card_frame;

use super::Inner;
use super::crossing::Hop;
use super::drops::RxDrop;
use super::forward::{FRAME_LEN_MAX, LINK_OVERHEAD};
use super::frame::FrameRef;
use super::transmit::TxOrigin;
use super::way::Way;
use crate::memory::Piece;

impl Inner {
    /// Sends a frame the ways that `switch` just listed.
    #[cold]
    #[inline(never)]
    pub(super) fn carry_several(&mut self, switch: usize, origin: TxOrigin, frame: &FrameRef<'_>, now: Time) {
        // Behind a trunk, another switch may put its targets on top of these.
        let first = self.tagged_targets.len();
        self.tagged_targets
            .extend_from_slice(self.switches[switch].switch.targets());
        for number in first..self.tagged_targets.len() {
            let Target { egress, tag } = self.tagged_targets[number];
            match (tag, egress) {
                (TagChange::Keep, Egress::Trunk(trunk)) => {
                    self.carry_over_trunk(switch, trunk, origin, frame, now, false);
                }
                (TagChange::Keep, Egress::Local(port)) => {
                    let port = self.switches[switch].ports[usize::from(port.0)];
                    self.carry_to_port(port, origin, frame, now, false);
                }
                _ => self.carry_retagged(switch, egress, tag, origin, frame, now),
            }
        }
        self.tagged_targets.truncate(first);
        // As after a flood: each was reached straight, perhaps, and the next frame must reach all of them, too, with the
        // changes that this one had.
        self.last_straight = None;
    }

    /// Sends a frame with its tag changed.
    fn carry_retagged(
        &mut self,
        switch: usize,
        egress: Egress,
        tag: TagChange,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        now: Time,
    ) {
        let mut memory = std::mem::take(&mut self.retagged);
        memory.resize(FRAME_LEN_MAX, 0);
        if let Some(len) = retag(frame, tag, &mut memory) {
            let header = frame.header.moved_by(tag.growth() as i16);
            let mut rest = [Piece::EMPTY];
            let retagged = FrameRef::of_bytes(&memory[..len], &mut rest, header);
            match egress {
                Egress::Local(port) => {
                    let port = self.switches[switch].ports[usize::from(port.0)];
                    if is_card_frame(retagged.inline) {
                        // What cards keep of it until the round ends must not lie in memory that is used again.
                        self.carry_apart(Hop::ToGuest(port), origin, &retagged, now);
                    } else {
                        self.carry_to_port(port, origin, &retagged, now, true);
                    }
                }
                Egress::Trunk(trunk) => {
                    // Not straight: the next switch may change the tag again, in the same memory.
                    let hop = self.hop_over_trunk(switch, trunk);
                    self.carry_apart(hop, origin, &retagged, now);
                }
            }
        }
        self.retagged = memory;
    }

    /// Sends a frame over a link by way of the pool, even where it could pass straight.
    pub(super) fn carry_apart(&mut self, hop: Hop, origin: TxOrigin, frame: &FrameRef<'_>, now: Time) {
        let Some(wire) = frame.on_wire() else {
            self.lose_uncut(hop, now);
            return;
        };
        let origin = match hop {
            Hop::Trunk { trunk, from } => self.cross_trunk(trunk, from, origin, wire.frames),
            Hop::ToGuest(index) if wire.longest > self.ports[index].settings.mtu + LINK_OVERHEAD => {
                self.ports[index].drop_rx_all(RxDrop::TooLong, wire.frames, now);
                None
            }
            Hop::FromGuest(_) | Hop::ToGuest(_) => Some(origin),
        };
        let Some(origin) = origin else { return };
        let way = match self.way_over_hop(hop, wire.longest, now) {
            Way::Straight => Way::Whole,
            other => other,
        };
        self.cross(hop, origin, frame, &wire, way, now);
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
    left.gather(tail);
    Some(len)
}
