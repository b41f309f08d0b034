//! From one port to another: the way of a frame through links, switch and pool.
//!
//! The straight way (ideal links, nothing to cut, nobody captures) copies once, from the sender's memory into the
//! receiver's. Everything else goes through private memory. Rings, interrupts and threads are handled elsewhere.

use ether::Time;
use fabric::{Admission, Egress, Forward, Link, PortId};
use firmware::multicast::is_card_frame;
use firmware::{CONTROL_FRAME_MAX, Coalescing, Firmware, INLINE_HEADER_LEN};

use super::Inner;
use super::drops::{RxDrop, TxDrop};
use super::fabric_handle::QUEUE_PAIRS_MAX;
use super::frame::FrameRef;
use super::pool::Stage;
use super::receive::Refused;
use super::transmit::{Held, TxOrigin};
use super::watch::Subject;
use crate::memory::Piece;
use crate::offload::{NetHeader, Segments, complete_checksum};

/// Bytes of Ethernet header and two VLAN tags, which an MTU does not count.
pub(super) const LINK_OVERHEAD: u32 = 14 + 8;

/// Longest frame a guest may hand over for segmentation: 64 KiB of network layer.
pub const SEGMENTED_FRAME_MAX: u32 = 65_535 + LINK_OVERHEAD;

/// Private memory for frames that are cut or completed: the whole and one segment.
pub const GATHER_LEN: usize = 2 * SEGMENTED_FRAME_MAX as usize;

/// What became of a frame from a transmit ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was handed over (or dropped and counted), but so many copies wait in the pool.
    Taken {
        /// Copies that complete the chain when they leave.
        copies: u32,
    },
    /// Its receiver has no buffer just now: leave it in the ring.
    Hold,
}

impl Inner {
    /// Takes `frame`, with an unchecked header, from the guest of `port`.
    #[inline]
    pub(super) fn take_from_guest(&mut self, origin: TxOrigin, frame: &FrameRef<'_>, now: Time) -> Outcome {
        const DROPPED: Outcome = Outcome::Taken { copies: 0 };
        let port = &mut self.ports[origin.port()];
        let held = port.pairs[origin.pair()].tx.held.take();
        if frame.inline.len() < ether::ETHERNET_HEADER_LEN {
            port.drop_tx(TxDrop::Runt, now);
            return DROPPED;
        }
        let Ok(header) = frame.header.checked(port.sender, frame.len) else {
            port.drop_tx(TxDrop::BadOffload, now);
            return DROPPED;
        };
        let longest = if header.is_segmented() {
            SEGMENTED_FRAME_MAX
        } else {
            port.settings.mtu + LINK_OVERHEAD
        };
        if frame.len > longest {
            port.drop_tx(TxDrop::TooLong, now);
            return DROPPED;
        }
        let mut frame = FrameRef { header, ..*frame };
        if Firmware::is_control(frame.inline) {
            port.counters.tx_frames += 1;
            port.counters.tx_bytes += u64::from(frame.len);
            self.control(origin.port(), &frame, now);
            return DROPPED;
        }
        if is_card_frame(frame.inline) {
            self.card_frame_from_guest(origin.port(), &frame, now);
            return DROPPED;
        }
        if port.settings.loopback {
            return self.loop_back(origin, &frame, now, held);
        }
        let misordered;
        if let Some((at, value)) = port.nic.misorder_mut().sent(frame.inline) {
            misordered = with_byte(frame.inline, at, value);
            frame.inline = &misordered[..frame.inline.len()];
        }
        if !port.from_guest.is_ideal() || port.capture.is_some() || !port.from_guest.is_drained(now) {
            return Outcome::Taken {
                copies: self.over_link_from_guest(origin, &frame, now),
            };
        }
        if wire_len(&frame) > port.from_guest.config().mtu + LINK_OVERHEAD {
            port.drop_tx(TxDrop::TooLong, now);
            return DROPPED;
        }
        let (switch, switch_port) = (port.switch, port.switch_port);
        let outcome = self.switch_frame(switch, switch_port, origin, &frame, now, held);
        if outcome != Outcome::Hold {
            let port = &mut self.ports[origin.port()];
            port.counters.tx_frames += 1;
            port.counters.tx_bytes += u64::from(frame.len);
            port.from_guest.count_passed(1, u64::from(frame.len));
            port.nic.note_forwarded(now, 1, u64::from(frame.len));
        }
        outcome
    }

    /// The slow way from a guest to its switch: whole frames, captured and modelled. Returns the copies in the pool.
    fn over_link_from_guest(&mut self, origin: TxOrigin, frame: &FrameRef<'_>, now: Time) -> u32 {
        let mut copies = 0;
        let resolved = self.resolve(frame, |inner, bytes| {
            let port = &mut inner.ports[origin.port()];
            port.counters.tx_frames += 1;
            port.counters.tx_bytes += bytes.len() as u64;
            port.nic.note_forwarded(now, 1, bytes.len() as u64);
            if let Some(capture) = &mut port.capture {
                capture.sent(bytes, now);
            }
            let stage = Stage::Switch {
                switch: port.switch,
                port: port.switch_port,
            };
            let admission = port.from_guest.admit(now, bytes.len());
            if let Admission::Deliver {
                at,
                duplicate_at: None,
                corrupt_bit: None,
                mark_ecn: false,
                ..
            } = admission
                && at <= now
            {
                let (switch, switch_port) = (port.switch, port.switch_port);
                copies += inner.switch_whole(switch, switch_port, origin, bytes, now);
                return;
            }
            match inner.pool_admitted(bytes, stage, origin, admission) {
                Ok(admitted) => copies += admitted.counted_by(&mut inner.ports[origin.port()].from_guest),
                Err(Dropped::PoolShare) => inner.ports[origin.port()].drop_tx(TxDrop::PoolShare, now),
                Err(Dropped::Link) => inner.ports[origin.port()].drop_tx(TxDrop::Link, now),
            }
        });
        if !resolved {
            self.ports[origin.port()].drop_tx(TxDrop::BadOffload, now);
        }
        copies
    }

    /// A whole plain frame in private memory enters a switch; returns the copies in the pool that complete `origin`.
    pub(super) fn switch_whole(
        &mut self,
        switch: usize,
        ingress: PortId,
        origin: TxOrigin,
        bytes: &[u8],
        now: Time,
    ) -> u32 {
        let mut rest = [Piece::EMPTY];
        let frame = FrameRef::of_bytes(bytes, &mut rest, NetHeader::default());
        match self.switch_frame(switch, ingress, origin, &frame, now, None) {
            Outcome::Taken { copies } => copies,
            // Frames in private memory are never held: they wait at the receiver's port instead.
            Outcome::Hold => 0,
        }
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
        let forward = self.switches[switch]
            .switch
            .forward(now, ingress, frame.inline, frame.len as usize);
        self.follow_decision(switch, ingress, forward, origin, frame, now, true)
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
            Forward::One(Egress::Trunk(trunk)) => Outcome::Taken {
                copies: self.carry_over_trunk(switch, trunk, origin, frame, now),
            },
            Forward::Drop(_) => Outcome::Taken { copies: 0 },
            Forward::Flood | Forward::Group(_) => {
                let mut targets = std::mem::take(&mut self.targets);
                targets.clear();
                targets.extend(self.switches[switch].switch.flood_targets(ingress, forward));
                let mut copies = 0;
                for target in &targets {
                    copies += match target {
                        Egress::Local(port) => {
                            let port = self.switches[switch].ports[usize::from(port.0)];
                            match self.carry_to_port(port, origin, frame, now, false) {
                                Outcome::Taken { copies } => copies,
                                Outcome::Hold => 0,
                            }
                        }
                        Egress::Trunk(trunk) => self.carry_over_trunk(switch, *trunk, origin, frame, now),
                    };
                }
                self.targets = targets;
                // Each target was reached straight, perhaps; the frames behind this one must reach all of them too.
                self.last_straight = None;
                Outcome::Taken { copies }
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
        const TAKEN: Outcome = Outcome::Taken { copies: 0 };
        if is_card_frame(frame.inline) {
            return self.carry_to_card(index, origin, frame, now);
        }
        let port = &mut self.ports[index];
        let straight = port.to_guest.is_ideal()
            && port.capture.is_none()
            && frame.header.suits(port.receiver)
            && port.waiting.is_empty()
            && port.to_guest.is_drained(now);
        if !straight {
            return Outcome::Taken {
                copies: self.over_link_to_guest(index, origin, frame, now),
            };
        }
        if wire_len(frame) > port.settings.mtu.min(port.to_guest.config().mtu) + LINK_OVERHEAD {
            port.drop_rx(RxDrop::TooLong, now);
            return TAKEN;
        }
        let Some(queue) = port.rx_queue(frame.inline) else {
            port.drop_rx(RxDrop::NotReady, now);
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
                Some(bytes) => Outcome::Taken {
                    copies: self.wait_at_port(index, origin, bytes, now),
                },
            },
            Err(refused) => {
                self.refused(index, refused, now);
                TAKEN
            }
        }
    }

    /// Keeps a whole frame that found no buffer at its port; returns the copies in the pool.
    #[cold]
    pub(super) fn wait_at_port(&mut self, index: usize, origin: TxOrigin, bytes: &[u8], now: Time) -> u32 {
        let pooled = self.pool.copy_of(bytes, Stage::Card(index), origin);
        let port = &mut self.ports[index];
        match pooled {
            Some(pooled) => {
                port.counters.copied_bytes += bytes.len() as u64;
                port.waiting.push_back(pooled);
                u32::from(origin.is_awaited())
            }
            None => {
                port.drop_rx(RxDrop::PoolShare, now);
                0
            }
        }
    }

    pub(super) fn refused(&mut self, index: usize, refused: Refused, now: Time) {
        let port = &mut self.ports[index];
        match refused {
            Refused::NoBuffer => port.drop_rx(RxDrop::NoBuffer, now),
            Refused::BufferTooSmall => port.drop_rx(RxDrop::BufferTooSmall, now),
            Refused::Rule(rule) => port.fail_rule(rule, now),
        }
    }

    /// The slow way from a switch to a guest: whole frames, modelled, waiting for buffers at the port. Returns the
    /// copies in the pool.
    pub(super) fn over_link_to_guest(
        &mut self,
        index: usize,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        now: Time,
    ) -> u32 {
        let mut copies = 0;
        let resolved = self.resolve(frame, |inner, bytes| {
            let port = &mut inner.ports[index];
            if bytes.len() as u32 > port.settings.mtu + LINK_OVERHEAD {
                port.drop_rx(RxDrop::TooLong, now);
                return;
            }
            port.counters.copied_bytes += bytes.len() as u64;
            let admission = port.to_guest.admit(now, bytes.len());
            match inner.pool_admitted(bytes, Stage::Card(index), origin, admission) {
                Ok(admitted) => copies += admitted.counted_by(&mut inner.ports[index].to_guest),
                Err(Dropped::PoolShare) => inner.ports[index].drop_rx(RxDrop::PoolShare, now),
                Err(Dropped::Link) => inner.ports[index].drop_rx(RxDrop::Link, now),
            }
        });
        if !resolved {
            self.ports[index].drop_rx(RxDrop::BadOffload, now);
        }
        copies
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
        let (whole, segment) = memory.split_at_mut(SEGMENTED_FRAME_MAX as usize);
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

    /// Puts an admitted frame (and its duplicate) into the pool, changed as the link says.
    pub(super) fn pool_admitted(
        &mut self,
        bytes: &[u8],
        stage: Stage,
        origin: TxOrigin,
        admission: Admission,
    ) -> Result<Admitted, Dropped> {
        let Admission::Deliver {
            at,
            duplicate_at,
            corrupt_bit,
            mark_ecn,
            ..
        } = admission
        else {
            return Err(Dropped::Link);
        };
        let mut put = |at, origin| -> Option<bool> {
            let mut pooled = self.pool.copy_of(bytes, stage, origin)?;
            let marked = mark_ecn && pooled.mark_ecn();
            if let Some(bit) = corrupt_bit {
                pooled.flip_bit(bit);
            }
            self.pool.wait(pooled, at);
            Some(marked)
        };
        let marked = put(at, origin).ok_or(Dropped::PoolShare)?;
        if let Some(at) = duplicate_at {
            // A duplicate is the link's own: no chain waits for it, and no room for it is no loss.
            let _ = put(at, origin.duplicate());
        }
        Ok(Admitted {
            copies: u32::from(origin.is_awaited()),
            marked,
        })
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
            return;
        }
        let mut rest = [Piece::EMPTY];
        let whole = FrameRef::of_bytes(&reply[..len], &mut rest, NetHeader::default());
        if !port.pairs[0].rx.is_ready() {
            port.drop_rx(RxDrop::NotReady, now);
            return;
        }
        if let Err(refused) = self.deliver_apart(index, 0, &whole, now) {
            self.refused(index, refused, now);
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

/// The first bytes of a frame with one of them replaced.
#[cold]
fn with_byte(inline: &[u8], at: usize, value: u8) -> [u8; INLINE_HEADER_LEN] {
    let mut bytes = [0; INLINE_HEADER_LEN];
    bytes[..inline.len()].copy_from_slice(inline);
    bytes[at] = value;
    bytes
}

/// The length of the longest frame on the wire that `frame` becomes.
#[inline]
fn wire_len(frame: &FrameRef<'_>) -> u32 {
    if frame.header.is_segmented() {
        // The least that a TCP header has: what is cut in earnest is measured again then.
        frame.header.checksum_place().0 as u32 + 20 + u32::from(frame.header.segment_len())
    } else {
        frame.len
    }
}

/// What became of a frame in the pool.
pub(super) struct Admitted {
    /// Copies that complete the transmit chain it came from.
    copies: u32,
    /// Whether it was marked as having met congestion.
    marked: bool,
}

impl Admitted {
    /// The copies; a mark is counted by the `link` that asked for it.
    pub(super) fn counted_by(self, link: &mut Link) -> u32 {
        if self.marked {
            link.count_marked();
        }
        self.copies
    }
}

/// Why a frame did not get into the pool.
pub(super) enum Dropped {
    Link,
    PoolShare,
}
