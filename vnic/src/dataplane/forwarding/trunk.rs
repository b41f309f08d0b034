//! Frames that leave a switch over a trunk.
//!
//! That trunks make no loop is checked where they are added.

use ether::Time;

use super::Forwarding;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::pool::Stage;
use crate::dataplane::route::{Copying, Loss, Route};
use crate::dataplane::wiring::Outcome;
use crate::dataplane::wiring::link_crossing::Hop;

/// Trunks that a frame crosses directly one after the other; behind so many it waits for its turn in the pool, since each takes
/// a part of the stack.
const DIRECT_TRUNKS_MAX: u32 = 32;

/// Trunks that one frame and its copies cross directly; further ones are crossed through the pool, which is as right. In a
/// loop, copies could double at every switch, and nothing but this would end that: what is in the pool has a limit.
const DIRECT_CROSSINGS_MAX: u32 = 64;

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
        let mut route = shortcuts.over_link(link, wire.longest, now);
        if route == Route::Direct && (crossed >= DIRECT_TRUNKS_MAX || self.direct_crossings >= DIRECT_CROSSINGS_MAX) {
            route = Route::Copied(Copying::Whole);
        }
        match (route, stage) {
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
