//! Frames between cards (multicast in the card, `docs/spec/card-multicast.md`) on their way through the shard: a packet of a guest
//! spreads from card to card in one go, straight from the sender's memory, where links are ideal.
//!
//! The firmware says where a packet goes, the switch by which way. Trees and tables are written in `groups`.

use std::collections::VecDeque;

use ether::{MacAddr, Time};
use fabric::{Egress, Forward};
use firmware::INLINE_HEADER_LEN;
use firmware::multicast::{Accepted, Action, BufferId, CARD_FRAME_MIN, CHILDREN_MAX, Received, TAG_END};

use super::Inner;
use super::crossing::Hop;
use super::drops::{RxDrop, TxDrop};
use super::forward::{GATHER_LEN, LINK_OVERHEAD, Outcome};
use super::frame::FrameRef;
use super::pool::{Pooled, Stage};
use super::port::Port;
use super::receive::Refused;
use super::transmit::TxOrigin;
use super::way::{Shortcuts, Way, way_over};
use crate::memory::Piece;
use crate::offload::{NetHeader, OnWire};

/// A frame between cards: its first bytes, which every card writes anew, and the rest where it lies.
#[derive(Clone, Copy)]
struct CardFrame {
    head: [u8; INLINE_HEADER_LEN],
    /// What follows them, in one piece.
    tail: Piece,
    len: u32,
    /// It came straight over an ideal link, which counts it with what the card delivers, or here.
    straight: bool,
}

impl CardFrame {
    fn of(inline: &[u8], tail: Piece, len: u32) -> Self {
        let mut head = [0; INLINE_HEADER_LEN];
        let known = inline.len().min(INLINE_HEADER_LEN);
        head[..known].copy_from_slice(&inline[..known]);
        Self {
            head,
            tail,
            len,
            straight: false,
        }
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let (inline, tail) = bytes.split_at(bytes.len().min(INLINE_HEADER_LEN));
        let tail = Piece {
            ptr: tail.as_ptr().cast_mut(),
            len: tail.len() as u32,
        };
        Self::of(inline, tail, bytes.len() as u32)
    }

    fn inline(&self) -> &[u8] {
        &self.head[..INLINE_HEADER_LEN.min(self.len as usize)]
    }

    fn as_ref(&self) -> FrameRef<'_> {
        FrameRef {
            header: NetHeader::default(),
            inline: self.inline(),
            rest: if self.tail.len == 0 {
                &[]
            } else {
                std::slice::from_ref(&self.tail)
            },
            len: self.len,
            whole: None,
        }
    }

    fn set_destination(&mut self, to: MacAddr) {
        self.head[..6].copy_from_slice(&to.0);
    }
}

/// Frames that reached a card and are not handled yet. All are handled before whoever sent the first goes on: their
/// bytes lie in memory that is in use for no longer.
#[derive(Default)]
pub(super) struct CardQueue {
    arrivals: VecDeque<(usize, CardFrame)>,
    /// Buffers whose frames are among them.
    spent: Vec<Pooled>,
}

/// The origin of what the card at `index` sends by itself.
fn of_card(index: usize) -> TxOrigin {
    TxOrigin::new(index, 0)
}

/// Number of the group in the first bytes of a frame between cards.
fn group_of(head: &[u8]) -> u16 {
    head.get(18..20)
        .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

impl Inner {
    /// Takes a frame with the EtherType of cards from the guest of `port`.
    #[cold]
    #[inline(never)]
    pub(super) fn card_frame_from_guest(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) {
        let port = &mut self.ports[index];
        if !frame.header.is_plain() {
            port.drop_tx(TxDrop::BadOffload, now);
            return;
        }
        port.counters.tx_frames += 1;
        port.counters.tx_bytes += u64::from(frame.len);
        let Ok(accepted) = port.nic.multicast_mut().send(now, frame.inline, frame.len) else {
            port.drop_tx(TxDrop::CardRefused, now);
            return;
        };
        self.forget_card_frames();
        // A frame in several pieces is put together once for all hops.
        let mut memory = Vec::new();
        let packet = match frame.rest {
            [] => CardFrame::of(frame.inline, Piece::EMPTY, frame.len),
            [tail] => CardFrame::of(frame.inline, *tail, frame.len),
            _ => {
                memory = std::mem::take(&mut self.gather);
                memory.resize(GATHER_LEN, 0);
                CardFrame::of_bytes(frame.gather(&mut memory))
            }
        };
        self.spread(index, &accepted, &packet, now);
        self.tend_card(index, now);
        self.handle_card_frames(now);
        if !memory.is_empty() {
            self.gather = memory;
        }
    }

    /// A frame between cards that waited in the pool reaches the card at `index`.
    pub(super) fn card_frame_arrives(&mut self, index: usize, bytes: &[u8], now: Time) {
        self.forget_card_frames();
        self.cards.arrivals.push_back((index, CardFrame::of_bytes(bytes)));
        self.handle_card_frames(now);
    }

    /// What is due at the card at `index` without a frame.
    pub(super) fn tend_multicast(&mut self, index: usize, now: Time) {
        self.forget_card_frames();
        self.tend_card(index, now);
        self.handle_card_frames(now);
        self.announce_touched(now);
    }

    /// A frame between cards that the switch sends to the card at `index`.
    #[cold]
    #[inline(never)]
    pub(super) fn carry_to_card(
        &mut self,
        index: usize,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        wire: &OnWire,
        now: Time,
    ) -> Outcome {
        let port = &mut self.ports[index];
        let tail = match frame.rest {
            [] => Some(Piece::EMPTY),
            [tail] => Some(*tail),
            _ => None,
        };
        let way = way_over(&port.to_guest, wire.longest, now, self.shortcuts);
        let Some(tail) = tail.filter(|_| way == Way::Straight) else {
            self.cross(Hop::ToGuest(index), origin, frame, wire, way, now);
            return Outcome::Taken;
        };
        let frame = CardFrame {
            straight: true,
            ..CardFrame::of(frame.inline, tail, frame.len)
        };
        self.cards.arrivals.push_back((index, frame));
        Outcome::Taken
    }

    /// What is left of a round that panicked is in memory that may be gone.
    fn forget_card_frames(&mut self) {
        self.cards.arrivals.clear();
        while let Some(pooled) = self.cards.spent.pop() {
            self.pool.release(pooled);
        }
    }

    /// Handles frames that reached cards, and those that these send on, until there are no more.
    pub(super) fn handle_card_frames(&mut self, now: Time) {
        while let Some((index, frame)) = self.cards.arrivals.pop_front() {
            let port = &mut self.ports[index];
            match port.nic.multicast_mut().receive(now, frame.inline(), frame.len) {
                Received::Data(accepted) => {
                    if accepted.is_for_others() {
                        self.spread(index, &accepted, &frame, now);
                    }
                    self.deliver_card_frame(index, &frame, now);
                }
                ended @ (Received::Consumed | Received::Refused) => {
                    if ended == Received::Refused {
                        port.drop_rx(RxDrop::CardRefused, now);
                    }
                    if let Some(capture) = &mut port.capture {
                        capture.kept(&frame.as_ref(), now);
                    }
                    port.count_card_frame(&frame);
                }
            }
            if !self.ports[index].nic.multicast().is_idle(now) {
                self.tend_card(index, now);
            }
        }
        while let Some(pooled) = self.cards.spent.pop() {
            self.pool.release(pooled);
        }
    }

    /// Sends a packet to the children that get it now and keeps it for those that wait.
    fn spread(&mut self, index: usize, accepted: &Accepted, packet: &CardFrame, now: Time) {
        let multicast = self.ports[index].nic.multicast();
        let mut targets = [MacAddr::default(); CHILDREN_MAX];
        let mut count = 0;
        for (place, to) in targets.iter_mut().zip(multicast.targets(accepted)) {
            *place = to;
            count += 1;
        }
        let mut packet = *packet;
        if let Some(head) = packet.head.first_chunk_mut::<TAG_END>() {
            multicast.prepare(accepted, head);
        }
        if count > 0 {
            let bytes = count as u64 * u64::from(packet.len);
            self.ports[index].nic.note_forwarded(now, count as u32, bytes);
        }
        for to in &targets[..count] {
            packet.set_destination(*to);
            self.send_from_card(index, &packet, now);
        }
        if let Some(buffer) = accepted.keep {
            let pooled = self.pool.whole(&packet.as_ref(), Stage::Card(index), of_card(index));
            let port = &mut self.ports[index];
            if pooled.is_none() {
                port.drop_tx(TxDrop::PoolShare, now);
            }
            port.keep(buffer, pooled);
        }
    }

    /// Does what the multicast of a card wants done.
    fn tend_card(&mut self, index: usize, now: Time) {
        while let Some(action) = self.ports[index].nic.multicast_mut().poll(now) {
            match action {
                Action::Emit(frame) => {
                    let frame: [u8; CARD_FRAME_MIN] = frame;
                    let signal = CardFrame::of(&frame, Piece::EMPTY, CARD_FRAME_MIN as u32);
                    self.send_from_card(index, &signal, now);
                }
                Action::Forward { buffer, to, last } => {
                    let Some(mut packet) = self.ports[index]
                        .kept(buffer)
                        .map(|kept| CardFrame::of_bytes(kept.bytes()))
                    else {
                        continue;
                    };
                    packet.set_destination(to);
                    let len = u64::from(packet.len);
                    self.ports[index].nic.note_forwarded(now, 1, len);
                    if last {
                        let kept = self.ports[index].take_kept(buffer);
                        self.cards.spent.extend(kept);
                    }
                    self.send_from_card(index, &packet, now);
                }
                Action::Discard(buffer) => {
                    if let Some(kept) = self.ports[index].take_kept(buffer) {
                        self.pool.release(kept);
                    }
                }
            }
        }
    }

    /// Sends a frame of the card at `index` over its link and on.
    fn send_from_card(&mut self, index: usize, packet: &CardFrame, now: Time) {
        let port = &mut self.ports[index];
        if port.capture.is_some() {
            self.capture_sent(index, &packet.as_ref(), now);
        }
        let port = &mut self.ports[index];
        let (switch, switch_port) = (port.switch, port.switch_port);
        let way = way_over(&port.from_guest, packet.len, now, self.shortcuts);
        if way != Way::Straight {
            let frame = packet.as_ref();
            let wire = OnWire {
                frames: 1,
                bytes: u64::from(packet.len),
                longest: packet.len,
            };
            self.cross(Hop::FromGuest(index), of_card(index), &frame, &wire, way, now);
            return;
        }
        port.from_guest.count_passed(1, u64::from(packet.len));
        let state = &mut self.switches[switch];
        let forward = state
            .switch
            .forward(now, switch_port, packet.inline(), packet.len as usize);
        if let Forward::One(Egress::Local(to)) = forward {
            let to = state.ports[usize::from(to.0)];
            if self.ports[to].takes_straight(packet.len, now, self.shortcuts) {
                let packet = CardFrame {
                    straight: true,
                    ..*packet
                };
                self.cards.arrivals.push_back((to, packet));
                return;
            }
        }
        self.follow_decision(
            switch,
            switch_port,
            forward,
            of_card(index),
            &packet.as_ref(),
            now,
            false,
        );
    }

    /// Hands a packet to the guest of the card that it reached; the card has forwarded it by now.
    fn deliver_card_frame(&mut self, index: usize, packet: &CardFrame, now: Time) {
        let frame = packet.as_ref();
        let port = &mut self.ports[index];
        let Some(queue) = port.rx_queue(frame.inline) else {
            port.drop_rx(RxDrop::NotReady, now);
            port.note_card_frame(frame.inline, false);
            port.count_card_frame(packet);
            return;
        };
        let mut outcome = Err(Refused::NoBuffer);
        let in_order = port.waiting.is_empty();
        if in_order {
            self.working_on = Some(index);
            outcome = if packet.straight {
                port.deliver(queue, &frame, now)
            } else {
                self.deliver_apart(index, queue, &frame, now)
            };
            self.working_on = None;
        }
        match outcome {
            Ok(()) => {
                self.ports[index].note_card_frame(frame.inline, true);
                self.touch(index, queue);
                return;
            }
            Err(Refused::NoBuffer) if !in_order || self.ports[index].may_hold(queue, now) => {
                if !self.wait_at_port(index, of_card(index), &frame, now) {
                    self.ports[index].note_card_frame(frame.inline, false);
                }
            }
            Err(refused) => {
                self.ports[index].note_card_frame(frame.inline, false);
                self.refused(index, refused, 1, now);
            }
        }
        self.ports[index].count_card_frame(packet);
    }
}

impl Port {
    /// True if a frame between cards of this length may be handled at once: an ideal link, and short enough.
    #[inline]
    fn takes_straight(&self, len: u32, now: Time, shortcuts: Shortcuts) -> bool {
        len <= self.settings.mtu + LINK_OVERHEAD && way_over(&self.to_guest, len, now, shortcuts) == Way::Straight
    }

    /// Counts a frame that passed the link and was not delivered from there.
    fn count_card_frame(&mut self, frame: &CardFrame) {
        if frame.straight {
            self.to_guest.count_passed(1, u64::from(frame.len));
        }
    }

    fn keep(&mut self, buffer: BufferId, frame: Option<Pooled>) {
        if self.kept.len() <= buffer.index() {
            self.kept.resize_with(self.nic.multicast().buffers_total(), || None);
        }
        self.kept[buffer.index()] = frame;
    }

    fn kept(&self, buffer: BufferId) -> Option<&Pooled> {
        self.kept.get(buffer.index())?.as_ref()
    }

    fn take_kept(&mut self, buffer: BufferId) -> Option<Pooled> {
        self.kept.get_mut(buffer.index())?.take()
    }

    /// Counts what became of a multicast packet at its guest: each one that the card accepted is either delivered or not.
    pub(super) fn note_card_frame(&mut self, head: &[u8], delivered: bool) {
        let multicast = self.nic.multicast_mut();
        if delivered {
            multicast.note_delivered(group_of(head));
        } else {
            multicast.note_no_buffer(group_of(head));
        }
    }
}
