//! Frames that switches send by themselves, BPDUs and queries, the times at which they do, and frames that they read as a whole.

use ether::Time;
use fabric::{Egress, Forward, PortId};

use super::frame::FrameRef;
use super::transmit::TxOrigin;
use super::{Inner, SwitchState};
use crate::memory::Piece;
use crate::offload::{NetHeader, OnWire};

impl Inner {
    /// Does what switches have to do by now. True if one had something.
    #[cold]
    pub(super) fn serve_switches(&mut self, now: Time) -> bool {
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
    pub(super) fn serve_switch(&mut self, switch: usize, now: Time) {
        self.switches[switch].switch.handle(now);
        while let Some((egress, frame)) = self.switches[switch].switch.poll_transmit(now) {
            let mut rest = [Piece::EMPTY];
            let frame = FrameRef::of_bytes(frame.bytes(), &mut rest, NetHeader::default());
            let origin = TxOrigin::of_switch();
            match egress {
                // By way of the pool: the answer of the switch at the other end, and what follows from it, has its own turn.
                Egress::Trunk(trunk) => {
                    let hop = self.hop_over_trunk(switch, trunk);
                    self.carry_apart(hop, origin, &frame, now);
                }
                Egress::Local(port) => {
                    let port = self.switches[switch].ports[usize::from(port.0)];
                    // A guest that takes nothing is waited for by nobody.
                    self.carry_to_port(port, origin, &frame, now, false);
                }
            }
        }
        // What a guest sends next has nothing to do with where these went.
        self.last_straight = None;
        self.note_switches_due();
    }

    /// Shows a switch a frame as a whole, sends it on as the switch decides then, and sends what the switch has to say.
    #[cold]
    #[inline(never)]
    pub(super) fn inspect(
        &mut self,
        switch: usize,
        ingress: PortId,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        now: Time,
    ) {
        let len = frame.len as usize;
        let mut forward = None;
        // What is still to be cut is no message for switches.
        if !frame.header.is_segmented() {
            self.resolve(frame, |inner, bytes| {
                forward = Some(inner.switches[switch].switch.inspect(now, ingress, bytes, len));
            });
        }
        let state = &mut self.switches[switch];
        let forward = forward.unwrap_or_else(|| state.switch.inspect(now, ingress, frame.inline, len));
        if frame.header.is_segmented() {
            state.count_segments(ingress, forward, frame);
        }
        if forward == Forward::Several {
            self.carry_several(switch, origin, frame, now);
        }
        self.serve_switch(switch, now);
    }

    fn note_switches_due(&mut self) {
        let due = self.switches.iter().filter_map(|state| state.switch.next_event());
        self.switches_due = due.min().unwrap_or(Time::MAX);
    }
}

impl SwitchState {
    /// Counts the frames that `frame`, about which was decided just now, is cut into, all but the first. What the switch has taken is
    /// never cut, and what it still has to read is counted then.
    pub(super) fn count_segments(&mut self, ingress: PortId, forward: Forward, frame: &FrameRef<'_>) {
        if matches!(forward, Forward::Taken | Forward::Inspect) {
            return;
        }
        if let Some(OnWire { frames, bytes, .. }) = frame.on_wire() {
            let more = bytes.saturating_sub(u64::from(frame.len));
            self.switch
                .count_repeated(ingress, frame.inline, u64::from(frames - 1), more);
        }
    }
}
