//! Frames that have arrived at cards whose guests have no buffer for them yet.

use ether::Time;
use firmware::multicast::is_card_frame;

use super::Wiring;
use crate::dataplane::card::receive_ring::Refused;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::pool::Pooled;
use crate::dataplane::route::{self, Loss};
use crate::memory::Piece;

impl Wiring {
    /// Puts a frame behind those that wait for the buffers of the guest at `index`. False if too many wait: then it was dropped
    /// and counted.
    pub fn push_waiting(&mut self, index: usize, frame: Pooled, now: Time) -> bool {
        let waiting = self.cards[index].waiting();
        if !waiting.has_room_for(&frame) && !waiting.is_empty() {
            // Room is made, if that can be, before anything is lost.
            self.deliver_waiting(index, now);
        }
        let card = &mut self.cards[index];
        if !card.waiting().has_room_for(&frame) {
            let frames = frame.frames_on_wire();
            self.lose(
                super::Hop::ToGuest(index),
                Loss::Refused(Refused::NoBuffer),
                frames,
                now,
            );
            self.pool.release(frame);
            return false;
        }
        card.waiting_mut().push_back(frame);
        true
    }

    /// Delivers the frames that wait at a card, in order, as far as there are buffers. True if any left.
    pub fn deliver_waiting(&mut self, index: usize, now: Time) -> bool {
        let mut moved = false;
        while let Some(frame) = self.cards[index].waiting_mut().pop_front() {
            if !self.deliver_waiting_frame(index, &frame, now) {
                self.cards[index].waiting_mut().push_front(frame);
                return moved;
            }
            moved = true;
            self.pool.release(frame);
        }
        moved
    }

    /// Delivers or drops a frame. False if it must go on waiting.
    fn deliver_waiting_frame(&mut self, index: usize, pooled: &Pooled, now: Time) -> bool {
        let card = &mut self.cards[index];
        let mut rest = [Piece::EMPTY];
        let frame = FrameRef::of_bytes(pooled.bytes(), &mut rest, pooled.header, pooled.transit);
        let queue = card.receive_queue(frame.inline).ok_or(Refused::NotReady);
        if queue.is_err() && card.keeps_for_return(frame.inline) {
            return false;
        }
        if !frame.header.suits(card.receiver_offloads()) {
            // Another driver has the rings than when it was sent.
            self.lose_at_card(index, &frame, Loss::BadOffload, pooled.frames_on_wire(), now);
            return true;
        }
        if queue.is_ok_and(|queue| card.is_still_stalled(queue, now)) {
            return false;
        }
        // A panic must not take the frame along, whose buffer is the pool's.
        let deliver = |wiring: &mut Self| wiring.deliver_from_memory(index, queue?, &frame, now);
        let Some(outcome) = self.contained(index, now, deliver) else {
            return true;
        };
        let card = &mut self.cards[index];
        if let (Ok(queue), Err(refused)) = (queue, outcome)
            && route::is_worth_keeping(refused, card, queue, now)
        {
            return false;
        }
        if is_card_frame(frame.inline) {
            card.note_multicast(frame.inline, outcome.is_ok());
        }
        if let Err(refused) = outcome {
            self.lose_at_card(index, &frame, Loss::Refused(refused), pooled.frames_on_wire(), now);
        }
        true
    }
}
