//! Frames that leave a switch over a trunk.
//!
//! That trunks make no loop is checked where they are added.

use ether::Time;

use super::Forwarding;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::pool::Stage;
use crate::dataplane::route::{Loss, Route};
use crate::dataplane::wiring::Outcome;
use crate::dataplane::wiring::link_crossing::Hop;

impl Forwarding {
    /// The trunk in the direction in which a frame leaves `switch` over it.
    pub fn hop_over_trunk(&self, switch: usize, trunk: fabric::TrunkId) -> Hop {
        let trunk = usize::from(trunk.0);
        let from = self.wiring.trunks[trunk].end_at(switch);
        Hop::Trunk { trunk, from }
    }

    /// Sends a frame that leaves `switch` over a trunk.
    #[inline(never)]
    pub fn send_over_trunk(
        &mut self,
        switch: usize,
        trunk: fabric::TrunkId,
        frame: &FrameRef<'_>,
        now: Time,
    ) -> Outcome {
        let number = usize::from(trunk.0);
        let Some(trunk) = self.wiring.trunks.get(number) else {
            return Outcome::Taken;
        };
        let from = trunk.end_at(switch);
        let hop = Hop::Trunk { trunk: number, from };
        let Some(wire) = frame.on_wire() else {
            self.wiring.lose(hop, Loss::BadOffload, 1, now);
            return Outcome::Taken;
        };
        let crossed = frame.transit.trunks_crossed();
        let Some(transit) = self.wiring.set_out(number, from, frame, wire.frames) else {
            return Outcome::Taken;
        };
        if crossed == 0 {
            self.direct_crossings = 0;
        }
        let frame = frame.with_transit(transit);
        let shortcuts = self.wiring.shortcuts;
        let (stage, link) = self.wiring.trunks[number].out_of(from);
        match (
            shortcuts.over_trunk(link, wire.longest, crossed, self.direct_crossings, now),
            stage,
        ) {
            (Route::Copied(copying), _) => {
                self.wiring.cross(hop, &frame, &wire, copying, &mut self.segments, now);
            }
            (_, Stage::Switch { switch, port }) => {
                link.count_passed(u64::from(wire.frames), wire.bytes);
                self.direct_crossings += 1;
                // Frames behind this one are counted at each switch that it passed: they do not follow it unseen.
                return self.switch_frame(switch, port, &frame, now).alone();
            }
            _ => {}
        }
        Outcome::Taken
    }
}
