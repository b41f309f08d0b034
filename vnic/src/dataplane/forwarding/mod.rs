//! Switches, and frames that go where they decide.
//!
//! A switch is asked once about a frame; what it answers is carried out here, over the hops of `wiring`.

pub mod burst;
mod card_to_card;
mod card_to_host;
pub mod loopback;
mod switch_frames;
pub mod switch_state;
mod trunk;
mod vlan_tags;

use ether::Time;
use fabric::{Egress, Forward, PortId, Target};

use self::switch_state::SwitchState;
use super::card::transmit_ring::Blocked;
use super::frames::frame_ref::FrameRef;
use super::frames::pool::Pooled;
use super::frames::segments::SegmentBuffer;
use super::wiring::{Outcome, Wiring};
use crate::memory::Piece;

/// Switches with all that their frames pass.
#[derive(Default)]
pub struct Forwarding {
    /// The switches, by index.
    pub switches: Vec<SwitchState>,
    /// Cards, trunks and the frames between them.
    pub wiring: Wiring,
    /// Memory for frames that are segmented.
    pub segments: SegmentBuffer,
    /// When a switch has something to do by itself next; `None`, if none takes part in a spanning tree or snoops.
    pub switches_due: Option<Time>,
    /// A self-connected card has copied.
    pub has_copied: bool,
    /// Some card is in a reliable group, so that packets may wait for guests in cards.
    pub has_reliable_groups: bool,
    /// Where the floods in work go: targets of one behind a trunk lie on top of those of the flood that it belongs to.
    targets: Vec<Egress>,
    /// As `targets`, of a switch that says what becomes of tags.
    tagged_targets: Vec<Target>,
    /// Private memory for a frame whose tag is changed.
    retagged: Vec<u8>,
    /// Trunks that the frame in work and its copies have crossed directly.
    direct_crossings: u32,
}

impl Forwarding {
    /// A panic unwound through work for `card`; see [`Wiring::after_panic`].
    #[cold]
    pub fn after_panic(&mut self, card: Option<usize>, now: Time) {
        self.targets.clear();
        self.tagged_targets.clear();
        self.wiring.after_panic(card, now);
    }

    /// A frame that was in flight in the pool enters a switch. It is in private memory, so it does not wait in a ring: it waits at
    /// its receiver instead.
    pub fn switch_pooled(&mut self, switch: usize, ingress: PortId, pooled: &Pooled, now: Time) {
        let mut rest = [Piece::EMPTY];
        let transit = pooled.transit.waiting();
        let frame = FrameRef::of_bytes(pooled.bytes(), &mut rest, pooled.header, transit);
        self.direct_crossings = 0;
        self.forget_card_frames();
        self.switch_frame(switch, ingress, &frame, now);
    }

    /// Lets `switch` decide about a frame that comes in at `ingress`, counts it as what it is on the wire, and sends it on.
    #[inline]
    pub fn switch_frame(&mut self, switch: usize, ingress: PortId, frame: &FrameRef<'_>, now: Time) -> Outcome {
        let state = &mut self.switches[switch];
        let forward = state.switch.forward(now, ingress, frame.inline, frame.len as usize);
        if frame.header.is_segmented() {
            state.count_segments(ingress, forward, frame);
        }
        // Most frames; `follow_decision` would index the switch again.
        if let Forward::One(Egress::Local(port)) = forward {
            let card = state.card_at(port);
            return self.wiring.send_to_card(card, frame, &mut self.segments, now);
        }
        self.follow_decision(switch, ingress, forward, frame, now)
    }

    /// Sends a frame where `switch` decided.
    pub fn follow_decision(
        &mut self,
        switch: usize,
        ingress: PortId,
        forward: Forward,
        frame: &FrameRef<'_>,
        now: Time,
    ) -> Outcome {
        match forward {
            Forward::One(egress) => return self.send_out(switch, egress, frame, now),
            Forward::Drop(_) => {}
            Forward::Taken => self.serve_switch(switch, now),
            Forward::Several => self.send_to_several(switch, frame, now),
            Forward::Inspect => self.inspect(switch, ingress, frame, now),
            Forward::Flood | Forward::Group(_) => self.flood(switch, ingress, forward, frame, now),
        }
        Outcome::Taken
    }

    /// Tries again to hand a frame to the receiver that it waited for; it was switched, and counted, before it waited.
    #[cold]
    #[inline(never)]
    pub fn retry_blocked(&mut self, blocked: &Blocked, frame: &FrameRef<'_>, now: Time) -> Outcome {
        let frame = frame.with_transit(Blocked::transit_of(Some(blocked), frame.transit, now));
        // Its switches decided about it in an earlier batch, and about others since; a trunk may lie between. No burst may follow
        // it: the next frame is counted, and decided on, wherever it passes.
        let outcome = self.wiring.send_to_card(blocked.card, &frame, &mut self.segments, now);
        outcome.alone()
    }

    /// Sends a frame out of `switch`.
    #[inline(always)]
    fn send_out(&mut self, switch: usize, egress: Egress, frame: &FrameRef<'_>, now: Time) -> Outcome {
        match egress {
            Egress::Local(port) => {
                let card = self.switches[switch].card_at(port);
                self.wiring.send_to_card(card, frame, &mut self.segments, now)
            }
            Egress::Trunk(trunk) => self.send_over_trunk(switch, trunk, frame, now),
        }
    }

    /// Sends copies of a frame out of all ports that `forward` means. None of them waits for its receiver, which would hold up the
    /// others.
    fn flood(&mut self, switch: usize, ingress: PortId, forward: Forward, frame: &FrameRef<'_>, now: Time) {
        let copy = frame.with_transit(frame.transit.without_waiting());
        let first = self.targets.len();
        let targets = self.switches[switch].switch.flood_targets(ingress, forward);
        self.targets.extend(targets);
        for number in first..self.targets.len() {
            self.send_out(switch, self.targets[number], &copy, now);
        }
        self.targets.truncate(first);
    }
}
