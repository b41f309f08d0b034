//! Frames that switches send by themselves (BPDUs and queries), the times at which they do, and frames that they read whole.

use ether::Time;
use fabric::{Egress, Forward, PortId};

use super::Forwarding;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::transit::Transit;
use crate::memory::Piece;
use crate::offload::NetHeader;

impl Forwarding {
    /// Does what switches have to do by now. True if one had something.
    #[cold]
    pub fn serve_switches(&mut self, now: Time) -> bool {
        let mut served = false;
        for switch in 0..self.switches.len() {
            let due = self.switches[switch].switch.next_event();
            if due.is_some_and(|at| at <= now) {
                self.serve_switch(switch, now);
                served = true;
            }
        }
        // A switch that went with its trunks may have been the one that was waited for.
        self.note_switches_due();
        served
    }

    /// Does what a switch has to do by now, and sends what it has to say.
    #[cold]
    #[inline(never)]
    pub fn serve_switch(&mut self, switch: usize, now: Time) {
        self.switches[switch].switch.handle(now);
        while let Some((egress, frame)) = self.switches[switch].switch.poll_transmit(now) {
            let mut rest = [Piece::EMPTY];
            // A guest that takes nothing is not waited for.
            let transit = Transit::from_switch();
            let frame = FrameRef::of_bytes(frame.bytes(), &mut rest, NetHeader::default(), transit);
            match egress {
                // Through the pool: the answer of the switch at the other end, and what follows from it, has its own turn.
                Egress::Trunk(trunk) => {
                    let hop = self.hop_over_trunk(switch, trunk);
                    self.wiring.cross_by_pool(hop, &frame, &mut self.segments, now);
                }
                Egress::Local(port) => {
                    let card = self.switches[switch].card_at(port);
                    self.wiring.send_to_card(card, &frame, &mut self.segments, now);
                }
            }
        }
        self.note_switches_due();
    }

    /// Shows a switch a frame as a whole, sends it on as the switch decides then, and sends what the switch has to say.
    #[cold]
    #[inline(never)]
    pub(super) fn inspect(&mut self, switch: usize, ingress: PortId, frame: &FrameRef<'_>, now: Time) {
        let len = frame.len as usize;
        let mut forward = None;
        let state = &mut self.switches[switch];
        // What is still to be cut is no message for switches.
        if !frame.header.is_segmented() {
            self.segments.resolve(frame, |bytes| {
                forward = Some(state.switch.inspect(now, ingress, bytes, len));
            });
        }
        let forward = forward.unwrap_or_else(|| state.switch.inspect(now, ingress, frame.inline, len));
        if frame.header.is_segmented() {
            state.count_segments(ingress, forward, frame);
        }
        if forward == Forward::Several {
            self.send_to_several(switch, frame, now);
        }
        self.serve_switch(switch, now);
    }

    fn note_switches_due(&mut self) {
        let due = self.switches.iter().filter_map(|state| state.switch.next_event());
        self.switches_due = due.min();
    }
}
