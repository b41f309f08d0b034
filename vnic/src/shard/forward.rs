//! From one port to another: the way of a frame through links, switch and pool.
//!
//! The straight way (ideal links, nothing to cut) copies once, from the sender's memory into the receiver's. Everything else
//! goes through private memory (`crossing`). Which way a frame may take is decided in `way`; rings, interrupts and threads are
//! handled elsewhere.

use ether::Time;
use fabric::{Egress, Forward, PortId};
use firmware::multicast::is_card_frame;
use firmware::{CONTROL_FRAME_MAX, Coalescing, Firmware, INLINE_HEADER_LEN};

use super::Inner;
use super::crossing::Hop;
use super::drops::{RxDrop, TxDrop};
use super::fabric_handle::QUEUE_PAIRS_MAX;
use super::frame::FrameRef;
use super::pool::{Pooled, Stage};
use super::port::Port;
use super::receive::Refused;
use super::transmit::{Held, TxOrigin};
use super::watch::Subject;
use super::way::{Way, way_over};
use crate::memory::Piece;
use crate::offload::{NetHeader, OnWire, Segments, complete_checksum};

/// Bytes of Ethernet header and two VLAN tags, which an MTU does not count.
pub(super) const LINK_OVERHEAD: u32 = fabric::FRAME_OVERHEAD_BYTES;

/// Longest frame a guest may hand over for segmentation: 64 KiB of network layer.
pub const SEGMENTED_FRAME_MAX: u32 = 65_535 + LINK_OVERHEAD;

/// Longest frame inside: a switch may put one tag in front of what a guest handed over, and never a second one, since it reads the
/// first as the frame's own from then on.
pub const FRAME_LEN_MAX: usize = SEGMENTED_FRAME_MAX as usize + fabric::VLAN_TAG_LEN;

/// Private memory for frames that are cut or completed: the whole and one segment.
pub const GATHER_LEN: usize = 2 * FRAME_LEN_MAX;

/// What became of a frame that was handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was handed over, or waits in the pool, or was dropped and counted: whoever had it is rid of it.
    Taken,
    /// Its receiver has no buffer just now: leave it in its ring.
    Hold,
}

impl Inner {
    /// Takes `frame`, with an unchecked header, from the guest of `port`. Returns when it has left the card, or `None` if it must
    /// stay in its ring.
    #[inline]
    pub(super) fn take_from_guest(&mut self, origin: TxOrigin, frame: &FrameRef<'_>, now: Time) -> Option<Time> {
        let port = &mut self.ports[origin.port()];
        let held = port.pairs[origin.pair()].tx.held.take();
        if frame.inline.len() < ether::ETHERNET_HEADER_LEN {
            port.drop_tx(TxDrop::Runt, now);
            return Some(now);
        }
        let Ok(header) = frame.header.checked(port.sender, frame.len) else {
            port.drop_tx(TxDrop::BadOffload, now);
            return Some(now);
        };
        let mut frame = FrameRef { header, ..*frame };
        let Some(wire) = frame.on_wire() else {
            port.drop_tx(TxDrop::BadOffload, now);
            return Some(now);
        };
        if wire.longest > port.settings.mtu + LINK_OVERHEAD || frame.len > SEGMENTED_FRAME_MAX {
            port.drop_tx(TxDrop::TooLong, now);
            return Some(now);
        }
        if Firmware::is_control(frame.inline) {
            port.count_sent(&wire);
            self.control(origin.port(), &frame, now);
            return Some(now);
        }
        if is_card_frame(frame.inline) {
            self.card_frame_from_guest(origin.port(), &frame, now);
            return Some(now);
        }
        if port.settings.loopback {
            return (self.loop_back(origin, &frame, now, held) == Outcome::Taken).then_some(now);
        }
        let misordered;
        if let Some((at, value)) = port.nic.misorder_mut().sent(frame.inline) {
            misordered = with_byte(frame.inline, at, value);
            frame.inline = &misordered[..frame.inline.len()];
        }
        let way = way_over(&port.from_guest, wire.longest, now, self.shortcuts);
        // What is held has crossed the link already, when it was straight.
        let left_at = if way == Way::Straight || held.is_some() {
            let (switch, switch_port) = (port.switch, port.switch_port);
            if self.switch_frame(switch, switch_port, origin, &frame, now, held) == Outcome::Hold {
                return None;
            }
            let port = &mut self.ports[origin.port()];
            port.from_guest.count_passed(u64::from(wire.frames), wire.bytes);
            now
        } else {
            self.cross(Hop::FromGuest(origin.port()), origin, &frame, &wire, way, now)
        };
        let port = &mut self.ports[origin.port()];
        port.count_sent(&wire);
        port.nic.note_forwarded(now, wire.frames, wire.bytes);
        if port.capture.is_some() {
            self.capture_sent(origin.port(), &frame, now);
        }
        Some(left_at)
    }

    /// Shows whoever captures what the card at `index` sends, as it is on the wire.
    #[cold]
    #[inline(never)]
    pub(super) fn capture_sent(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) {
        self.resolve(frame, |inner, bytes| {
            if let Some(capture) = &mut inner.ports[index].capture {
                capture.sent(bytes, now);
            }
        });
    }

    /// A frame that waited in the pool enters a switch. It is in private memory, so it is never held: it waits at the receiver's
    /// port instead.
    pub(super) fn switch_pooled(&mut self, switch: usize, ingress: PortId, pooled: &Pooled, now: Time) {
        let mut rest = [Piece::EMPTY];
        let frame = FrameRef::of_bytes(pooled.bytes(), &mut rest, pooled.header);
        self.straight_crossings = 0;
        self.switch_frame(switch, ingress, pooled.origin, &frame, now, None);
    }

    /// Lets `switch` decide about a frame and sends it on.
    #[inline]
    pub(super) fn switch_frame(
        &mut self,
        switch: usize,
        ingress: PortId,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        now: Time,
        held: Option<Held>,
    ) -> Outcome {
        if let Some(Held { port, .. }) = held {
            return self.carry_held(port, origin, frame, now);
        }
        self.switch_on(switch, ingress, origin, frame, now, true)
    }

    /// Lets `switch` decide about a frame that comes in at `ingress`, counts it as what it is on the wire, and sends it on.
    #[inline]
    pub(super) fn switch_on(
        &mut self,
        switch: usize,
        ingress: PortId,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        now: Time,
        may_hold: bool,
    ) -> Outcome {
        let state = &mut self.switches[switch];
        let forward = state.switch.forward(now, ingress, frame.inline, frame.len as usize);
        if frame.header.is_segmented() {
            state.count_segments(ingress, forward, frame);
        }
        // Most frames; `follow_decision` would look for the switch again.
        if let Forward::One(Egress::Local(port)) = forward {
            let port = state.ports[usize::from(port.0)];
            return self.carry_to_port(port, origin, frame, now, may_hold);
        }
        self.follow_decision(switch, ingress, forward, origin, frame, now, may_hold)
    }

    /// Sends a frame the way that `switch` decided.
    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "a frame, where it is, and what was decided about it"
    )]
    pub(super) fn follow_decision(
        &mut self,
        switch: usize,
        ingress: PortId,
        forward: Forward,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        now: Time,
        may_hold: bool,
    ) -> Outcome {
        match forward {
            Forward::One(Egress::Local(port)) => {
                let port = self.switches[switch].ports[usize::from(port.0)];
                self.carry_to_port(port, origin, frame, now, may_hold)
            }
            Forward::One(Egress::Trunk(trunk)) => {
                let outcome = self.carry_over_trunk(switch, trunk, origin, frame, now, may_hold);
                // What follows must be counted at each switch.
                self.last_straight = None;
                outcome
            }
            Forward::Drop(_) => Outcome::Taken,
            Forward::Taken => {
                self.serve_switch(switch, now);
                Outcome::Taken
            }
            Forward::Several => {
                self.carry_several(switch, origin, frame, now);
                Outcome::Taken
            }
            Forward::Inspect => {
                self.inspect(switch, ingress, origin, frame, now);
                Outcome::Taken
            }
            Forward::Flood | Forward::Group(_) => {
                // Behind a trunk, another flood may put its targets on top of these.
                let first = self.targets.len();
                let targets = self.switches[switch].switch.flood_targets(ingress, forward);
                self.targets.extend(targets);
                for number in first..self.targets.len() {
                    match self.targets[number] {
                        Egress::Local(port) => {
                            let port = self.switches[switch].ports[usize::from(port.0)];
                            self.carry_to_port(port, origin, frame, now, false);
                        }
                        Egress::Trunk(trunk) => {
                            self.carry_over_trunk(switch, trunk, origin, frame, now, false);
                        }
                    }
                }
                self.targets.truncate(first);
                // Each target was reached straight, perhaps; the frames behind this one must reach all of them too.
                self.last_straight = None;
                Outcome::Taken
            }
        }
    }

    /// Sends a frame to the card at `index`.
    #[inline]
    pub(super) fn carry_to_port(
        &mut self,
        index: usize,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        now: Time,
        may_hold: bool,
    ) -> Outcome {
        const TAKEN: Outcome = Outcome::Taken;
        let port = &mut self.ports[index];
        let Some(wire) = frame.on_wire() else {
            port.drop_rx(RxDrop::BadOffload, now);
            return TAKEN;
        };
        if wire.longest > port.settings.mtu + LINK_OVERHEAD {
            port.drop_rx_all(RxDrop::TooLong, wire.frames, now);
            return TAKEN;
        }
        if is_card_frame(frame.inline) {
            return self.carry_to_card(index, origin, frame, &wire, now);
        }
        let way = way_over(&port.to_guest, wire.longest, now, self.shortcuts);
        let suits = frame.header.suits(port.receiver);
        if way != Way::Straight || !suits || !port.waiting.is_empty() {
            return self.carry_to_busy_port(index, origin, frame, &wire, way, now, may_hold);
        }
        let Some(queue) = port.rx_queue(frame.inline) else {
            port.count_in_vain(&wire);
            self.not_ready(index, origin, wire.frames, now);
            return TAKEN;
        };
        self.working_on = Some(index);
        let delivered = port.deliver(queue, frame, now);
        self.working_on = None;
        match delivered {
            Ok(()) => {
                if port.pairs.len() == 1 {
                    self.last_straight = Some(index);
                }
                self.touch(index, queue);
                TAKEN
            }
            Err(Refused::NoBuffer) if may_hold && port.may_hold(queue, now) => match frame.whole {
                None => self.hold(origin, index, queue, now),
                // It is in private memory already, so it waits at the receiver and not in the sender's ring.
                Some(_) => {
                    port.count_in_vain(&wire);
                    self.wait_at_port(index, origin, frame, now);
                    TAKEN
                }
            },
            Err(refused) => {
                port.count_in_vain(&wire);
                self.refused(index, refused, wire.frames, now);
                TAKEN
            }
        }
    }

    /// Sends a frame to a card whose link it cannot pass straight, or that cannot take it uncut, or where others wait.
    #[inline(never)]
    #[expect(
        clippy::too_many_arguments,
        reason = "a frame, where it goes, and what is known about it"
    )]
    fn carry_to_busy_port(
        &mut self,
        index: usize,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        wire: &OnWire,
        mut way: Way,
        now: Time,
        may_hold: bool,
    ) -> Outcome {
        let port = &mut self.ports[index];
        // Where nothing is modelled, overload waits in the senders' rings and not here.
        if way != Way::Single
            && port.to_guest.is_ideal()
            && may_hold
            && frame.whole.is_none()
            && !port.waiting.is_empty()
            && let Some(queue) = port.rx_queue(frame.inline)
            // Those that wait may do so for another queue, whose buffers say nothing about this one's.
            && port.pairs[queue].rx.stalled_since.is_some()
            && port.may_hold(queue, now)
        {
            return self.hold(origin, index, queue, now);
        }
        if !frame.header.suits(port.receiver) {
            way = Way::Single;
        }
        self.cross(Hop::ToGuest(index), origin, frame, wire, way, now);
        Outcome::Taken
    }

    /// Frames reached a port where no guest is. What a switch tells whoever is there is missed by nobody, and is no loss.
    #[cold]
    pub(super) fn not_ready(&mut self, index: usize, origin: TxOrigin, frames: u32, now: Time) {
        if !origin.is_of_switch() {
            self.ports[index].drop_rx_all(RxDrop::NotReady, frames, now);
        }
    }

    /// Keeps a frame in private memory that found no buffer at its port. False if there is no room for it either: then it was
    /// dropped and counted.
    #[cold]
    pub(super) fn wait_at_port(&mut self, index: usize, origin: TxOrigin, frame: &FrameRef<'_>, now: Time) -> bool {
        let pooled = self.pool.whole(frame, Stage::Card(index), origin);
        let port = &mut self.ports[index];
        let Some(pooled) = pooled else {
            port.drop_rx(RxDrop::PoolShare, now);
            return false;
        };
        port.counters.copied_bytes += u64::from(frame.len);
        self.push_waiting(index, pooled, now)
    }

    pub(super) fn refused(&mut self, index: usize, refused: Refused, frames: u32, now: Time) {
        let port = &mut self.ports[index];
        match refused {
            Refused::NoBuffer => port.drop_rx_all(RxDrop::NoBuffer, frames, now),
            Refused::BufferTooSmall => port.drop_rx_all(RxDrop::BufferTooSmall, frames, now),
            Refused::Rule(rule) => port.fail_rule(rule, now),
        }
    }

    /// Hands the whole plain frames that `frame` stands for to `each`: checksums complete, segments cut. False if its
    /// headers do not allow that.
    pub(super) fn resolve(&mut self, frame: &FrameRef<'_>, mut each: impl FnMut(&mut Self, &[u8])) -> bool {
        if let (Some(bytes), true) = (frame.whole, frame.header.is_plain()) {
            each(self, bytes);
            return true;
        }
        let mut memory = std::mem::take(&mut self.gather);
        memory.resize(GATHER_LEN, 0);
        let (whole, segment) = memory.split_at_mut(FRAME_LEN_MAX);
        let bytes = frame.gather(whole);
        let resolved = if frame.header.is_segmented() {
            match Segments::new(bytes, frame.header) {
                Ok(mut segments) => {
                    while let Some(len) = segments.write_next(segment) {
                        each(self, &segment[..len]);
                    }
                    true
                }
                Err(_) => false,
            }
        } else {
            let complete = !frame.header.needs_checksum() || complete_checksum(bytes, frame.header).is_ok();
            if complete {
                each(self, bytes);
            }
            complete
        };
        self.gather = memory;
        resolved
    }

    /// Answers a control frame of the guest at `index`, on its own receive queue 0.
    fn control(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) {
        let mut request = [0; CONTROL_FRAME_MAX + 1];
        let mut reply = [0; CONTROL_FRAME_MAX];
        // A frame that is longer than any request is refused by the firmware, which needs no more than to see that.
        let kept = (frame.len as usize).min(request.len());
        let mut memory = std::mem::take(&mut self.gather);
        memory.resize(GATHER_LEN, 0);
        request[..kept].copy_from_slice(&frame.gather(&mut memory)[..kept]);
        self.gather = memory;
        let port = &mut self.ports[index];
        if let Some(capture) = &mut port.capture {
            capture.sent(&request[..kept], now);
        }
        let in_force = |nic: &Firmware| -> [Option<(Coalescing, u64)>; QUEUE_PAIRS_MAX as usize] {
            let of = |rx: &firmware::RxPipeline| (rx.coalescing(), rx.watchdog().delay_ns());
            std::array::from_fn(|queue| nic.queues().get(queue).map(of))
        };
        let before = (in_force(&port.nic), *port.nic.steering().settings());
        let mut len = port.nic.handle_control(now, &request[..kept], &mut reply);
        if let Some(wish) = port.nic.take_group_request() {
            let outcome = self.change_group(index, wish.group, wish.join, Some(wish.guest), now);
            len = self.ports[index].nic.answer_group(wish, outcome, &mut reply);
        }
        let port = &mut self.ports[index];
        for queue in 0..port.pairs.len() {
            // Settings may have changed: what is due by the new ones is due now.
            port.announce(queue, now);
        }
        if (in_force(&port.nic), *port.nic.steering().settings()) != before {
            // Those who watch hear of it before the guest does.
            self.settings_changed(Subject::Port(index));
        }
        let port = &mut self.ports[index];
        if len == 0 {
            port.drop_tx(TxDrop::CardRefused, now);
            return;
        }
        let mut rest = [Piece::EMPTY];
        let whole = FrameRef::of_bytes(&reply[..len], &mut rest, NetHeader::default());
        if !port.pairs[0].rx.is_ready() {
            port.drop_rx(RxDrop::NotReady, now);
            return;
        }
        if let Err(refused) = self.deliver_apart(index, 0, &whole, now) {
            self.refused(index, refused, 1, now);
        }
    }

    /// Delivers a frame that did not come straight over an ideal link, which its link therefore does not count.
    pub(super) fn deliver_apart(
        &mut self,
        index: usize,
        queue: usize,
        frame: &FrameRef<'_>,
        now: Time,
    ) -> Result<(), Refused> {
        self.count_straight(index, queue);
        let port = &mut self.ports[index];
        port.deliver(queue, frame, now)?;
        port.count_batch(queue);
        self.touch(index, queue);
        Ok(())
    }

    /// Notes that a receive queue has something to announce when the batch is through.
    #[inline]
    pub(super) fn touch(&mut self, index: usize, queue: usize) {
        let side = &mut self.ports[index].pairs[queue].rx;
        if !side.touched {
            side.touched = true;
            self.touched.push((index, queue));
        }
    }
}

impl Port {
    /// Counts what passed the link straight and was not delivered from there: the link has done its part.
    #[cold]
    fn count_in_vain(&mut self, wire: &OnWire) {
        self.to_guest.count_passed(u64::from(wire.frames), wire.bytes);
    }
}

/// The first bytes of a frame with one of them replaced.
#[cold]
fn with_byte(inline: &[u8], at: usize, value: u8) -> [u8; INLINE_HEADER_LEN] {
    let mut bytes = [0; INLINE_HEADER_LEN];
    bytes[..inline.len()].copy_from_slice(inline);
    bytes[at] = value;
    bytes
}
