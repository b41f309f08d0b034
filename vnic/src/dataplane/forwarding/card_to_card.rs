//! Multicast between cards (`docs/spec/card-multicast.md`): a packet of a guest spreads from card to card in one go, directly
//! from the sender's memory, where links are ideal.
//!
//! The firmware says which cards a packet goes to, the switch how it gets there. Trees and tables are written in
//! `multicast_groups`.

use ether::{MacAddr, Time};
use fabric::{Egress, Forward};
use firmware::multicast::{Accepted, Action, CARD_FRAME_MIN, CHILDREN_MAX, Multicast, Received, TAG_END};

use super::Forwarding;
use crate::dataplane::card::receive_ring::Refused;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::pool::Stage;
use crate::dataplane::frames::transit::Transit;
use crate::dataplane::route::{self, Loss, Route};
use crate::dataplane::wiring::card_frames::CardFrame;
use crate::dataplane::wiring::link_crossing::Hop;
use crate::memory::Piece;
use crate::offload::OnWire;
use vnicd_protocol::drops::{RxDrop, TxDrop};

impl Forwarding {
    /// Takes a frame with the EtherType of cards from the guest of the card at `index`.
    #[cold]
    #[inline(never)]
    pub fn multicast_from_guest(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) {
        let card = &mut self.wiring.cards[index];
        if !frame.header.is_plain() {
            card.drop_tx(TxDrop::BadOffload, 1, now);
            return;
        }
        card.count_sent(&on_wire(frame.len));
        let multicast = card.firmware_mut().multicast_mut();
        let Ok(accepted) = multicast.send(now, frame.inline, frame.len) else {
            card.drop_tx(TxDrop::CardRefused, 1, now);
            return;
        };
        self.forget_card_frames();
        let packet = self.wiring.card_frames.joined(frame);
        self.spread(index, &accepted, &packet, now);
        self.serve_card_multicast(index, now);
        self.handle_card_frames(now);
    }

    /// A frame between cards that was in flight in the pool reaches the card at `index`.
    pub fn card_frame_arrives(&mut self, index: usize, bytes: &[u8], now: Time) {
        self.forget_card_frames();
        self.wiring.card_frames.push(index, CardFrame::of_bytes(bytes));
        self.handle_card_frames(now);
    }

    /// Does what is due in the multicast of the card at `index` without a frame.
    pub fn serve_multicast(&mut self, index: usize, now: Time) {
        self.forget_card_frames();
        self.serve_card_multicast(index, now);
        self.handle_card_frames(now);
        self.wiring.announce_touched(now);
    }

    /// What is left of a round that panicked is in memory that may be gone.
    pub(super) fn forget_card_frames(&mut self) {
        self.wiring.card_frames.clear();
        self.release_spent_buffers();
    }

    fn release_spent_buffers(&mut self) {
        while let Some(pooled) = self.wiring.card_frames.pop_spent() {
            self.wiring.pool.release(pooled);
        }
    }

    /// Handles frames that reached cards, those that these send on, and what waits for guests, until there is no more.
    pub fn handle_card_frames(&mut self, now: Time) {
        loop {
            self.handle_arrivals(now);
            if !self.has_reliable_groups {
                break;
            }
            let mut moved = false;
            for index in 0..self.wiring.cards.len() {
                if self.wiring.cards[index].firmware().multicast().has_for_host() {
                    moved |= self.give_to_host(index, now);
                }
            }
            if !moved {
                break;
            }
        }
        self.release_spent_buffers();
    }

    fn handle_arrivals(&mut self, now: Time) {
        while let Some((index, frame)) = self.wiring.card_frames.pop() {
            let card = &mut self.wiring.cards[index];
            let multicast = card.firmware_mut().multicast_mut();
            match multicast.receive(now, frame.inline(), frame.len) {
                Received::Data(accepted) => {
                    if accepted.is_for_others() {
                        self.spread(index, &accepted, &frame, now);
                    }
                    if Multicast::is_delivered(&accepted) {
                        self.deliver_card_frame(index, &frame, now);
                    } else {
                        self.count_passed(index, &frame);
                    }
                }
                ended @ (Received::Consumed | Received::Refused) => {
                    if ended == Received::Refused {
                        card.drop_rx(RxDrop::CardRefused, 1, now);
                    }
                    if let Some(capture) = card.capture_mut() {
                        capture.kept(&frame.as_ref(Transit::from_card(index)), now);
                    }
                    self.count_passed(index, &frame);
                }
            }
            if !self.wiring.cards[index].firmware().multicast().is_idle(now) {
                self.serve_card_multicast(index, now);
            }
        }
    }

    /// Counts a frame that passed the link directly and was not delivered from there.
    fn count_passed(&mut self, index: usize, frame: &CardFrame) {
        if frame.is_direct {
            self.wiring.cards[index].count_passed_undelivered(&on_wire(frame.len));
        }
    }

    /// Sends a packet to the children that get it now and keeps it for those that wait.
    fn spread(&mut self, index: usize, accepted: &Accepted, original: &CardFrame, now: Time) {
        let card = &mut self.wiring.cards[index];
        let multicast = card.firmware().multicast();
        let mut targets = [MacAddr::default(); CHILDREN_MAX];
        let mut count = 0;
        for (place, to) in targets.iter_mut().zip(multicast.targets(accepted)) {
            *place = to;
            count += 1;
        }
        let mut packet = *original;
        if let Some(head) = packet.head.first_chunk_mut::<TAG_END>() {
            multicast.prepare(accepted, head);
        }
        if count > 0 {
            let bytes = count as u64 * u64::from(packet.len);
            card.firmware_mut().note_forwarded(now, count as u32, bytes);
        }
        for to in &targets[..count] {
            packet.set_destination(*to);
            self.send_from_card(index, &packet, now);
        }
        if let Some(buffer) = accepted.keep {
            if accepted.is_for_host() && self.give_at_once(index, buffer, original, now) {
                return;
            }
            let frame = packet.as_ref(Transit::from_card(index));
            let pooled = if accepted.is_reliable() {
                // Nothing of a reliable group is lost. Its credits and the length of its packets limit what is kept.
                self.wiring.pool.whole_beyond_share(&frame, Stage::Card(index))
            } else {
                self.wiring.pool.whole(&frame, Stage::Card(index))
            };
            let card = &mut self.wiring.cards[index];
            if pooled.is_none() {
                card.drop_tx(TxDrop::PoolShare, 1, now);
            }
            let total = card.firmware().multicast().buffers_total();
            card.forwarding_buffers_mut().put(buffer, pooled, total);
        }
    }

    /// Does what the multicast of a card wants done.
    pub(super) fn serve_card_multicast(&mut self, index: usize, now: Time) {
        while let Some(action) = self.wiring.cards[index].firmware_mut().multicast_mut().poll(now) {
            let card = &mut self.wiring.cards[index];
            match action {
                Action::Emit(frame) => {
                    let frame: [u8; CARD_FRAME_MIN] = frame;
                    let signal = CardFrame::new(&frame, Piece::EMPTY, CARD_FRAME_MIN as u32);
                    self.send_from_card(index, &signal, now);
                }
                Action::Forward { buffer, to, last } => {
                    let kept = card.forwarding_buffers().get(buffer);
                    let Some(mut packet) = kept.map(|kept| CardFrame::of_bytes(kept.bytes())) else {
                        continue;
                    };
                    packet.set_destination(to);
                    let len = u64::from(packet.len);
                    card.firmware_mut().note_forwarded(now, 1, len);
                    if last {
                        let kept = card.forwarding_buffers_mut().take(buffer);
                        self.wiring.card_frames.keep(kept);
                    }
                    self.send_from_card(index, &packet, now);
                }
                Action::Discard(buffer) => {
                    if let Some(kept) = card.forwarding_buffers_mut().take(buffer) {
                        self.wiring.pool.release(kept);
                    }
                }
            }
        }
    }

    /// Sends a frame of the card at `index` over its link and on.
    fn send_from_card(&mut self, index: usize, packet: &CardFrame, now: Time) {
        let transit = Transit::from_card(index);
        let wiring = &mut self.wiring;
        let shortcuts = wiring.shortcuts;
        if wiring.cards[index].capture().is_some() {
            wiring.capture_sent(index, &packet.as_ref(transit), &mut self.segments, now);
        }
        let card = &mut wiring.cards[index];
        let at = card.attachment();
        let link = &mut card.cable_mut().from_guest;
        if let Route::Copied(copying) = shortcuts.over_link(link, packet.len, now) {
            let (hop, wire) = (Hop::FromGuest(index), on_wire(packet.len));
            let frame = packet.as_ref(transit);
            wiring.cross(hop, &frame, &wire, copying, &mut self.segments, now);
            return;
        }
        link.count_passed(1, u64::from(packet.len));
        let state = &mut self.switches[at.switch];
        let forward = state.switch.forward(now, at.port, packet.inline(), packet.len as usize);
        if let Forward::One(Egress::Local(port)) = forward {
            let to = state.card_at(port);
            if shortcuts.to_card(&wiring.cards[to], packet.len, now) == Route::Direct {
                wiring.card_frames.push_direct(to, packet);
                return;
            }
        }
        self.follow_decision(at.switch, at.port, forward, &packet.as_ref(transit), now);
    }

    /// Hands a packet to the guest of the card that it reached; the card has forwarded it by now.
    fn deliver_card_frame(&mut self, index: usize, packet: &CardFrame, now: Time) {
        let frame = packet.as_ref(Transit::from_card(index));
        let card = &mut self.wiring.cards[index];
        let Some(queue) = card.receive_queue(frame.inline) else {
            let is_kept = match route::without_guest(&frame, card) {
                Route::Drop(loss) => {
                    self.wiring.lose(Hop::ToGuest(index), loss, 1, now);
                    false
                }
                _ => self.wiring.wait_at_card(index, &frame, now),
            };
            if !is_kept {
                self.wiring.cards[index].note_multicast(frame.inline, false);
            }
            return self.count_passed(index, packet);
        };
        // Behind others that wait, it waits, too.
        let in_order = card.waiting().is_empty();
        let outcome = match (in_order, packet.is_direct) {
            (false, _) => Err(Refused::NoBuffer),
            (true, true) => card.deliver(queue, &frame, now),
            (true, false) => self.wiring.deliver_from_memory(index, queue, &frame, now),
        };
        let card = &mut self.wiring.cards[index];
        let is_accepted = match outcome {
            Ok(()) => {
                card.note_multicast(frame.inline, true);
                return self.wiring.touch(index, queue);
            }
            Err(refused) if !in_order || route::is_worth_keeping(refused, card, queue, now) => {
                self.wiring.wait_at_card(index, &frame, now)
            }
            Err(refused) => {
                self.wiring.lose(Hop::ToGuest(index), Loss::Refused(refused), 1, now);
                false
            }
        };
        if !is_accepted {
            self.wiring.cards[index].note_multicast(frame.inline, false);
        }
        self.count_passed(index, packet);
    }
}

/// A plain frame of `len` bytes on the wire.
fn on_wire(len: u32) -> OnWire {
    OnWire {
        frames: 1,
        bytes: u64::from(len),
        longest: len,
    }
}
