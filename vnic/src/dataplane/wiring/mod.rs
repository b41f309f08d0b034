//! Everything that a frame finds on one hop: cards with their cables, trunks, and the pool of frames in flight.
//!
//! Switches are not here: `forwarding` carries out what they decide. Whether a frame goes directly, through the pool or not
//! at all is decided in `route`.

pub mod card_frames;
pub mod link_crossing;
pub mod trunk;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ether::Time;

use self::card_frames::{CardFrame, CardFrames};
use self::link_crossing::Hop;
use self::trunk::Trunk;
use super::card::Card;
use super::card::backpressure::WAIT_NS_MAX;
use super::card::receive_ring::Refused;
use super::card::transmit_ring::Blocked;
use super::containment::contain;
use super::frames::frame_ref::FrameRef;
use super::frames::pool::{Pool, Stage};
use super::frames::segments::SegmentBuffer;
use super::route::{self, Loss, Route, Shortcuts};
use crate::offload::OnWire;

/// What became of a frame that was handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was put directly into the only receive queue of this card: others like it may follow.
    Direct {
        /// The card's index; there are never more than switch ports.
        card: u32,
    },
    /// It was handed over, or is in flight in the pool, or was dropped and counted: its sender is rid of it.
    Taken,
    /// It stays in its sender's ring until its receiver has a buffer.
    Wait,
}

impl Outcome {
    /// This outcome for a frame that no others may follow without a decision of their own.
    pub fn alone(self) -> Self {
        match self {
            Self::Direct { .. } => Self::Taken,
            other => other,
        }
    }
}

/// Cards, trunks and the frames between them.
#[derive(Default)]
pub struct Wiring {
    /// The cards, by index; none is ever removed.
    pub cards: Vec<Card>,
    /// The trunks, by number.
    pub trunks: Vec<Trunk>,
    /// Frames in flight.
    pub pool: Pool,
    /// Frames between cards that have arrived.
    pub card_frames: CardFrames,
    /// Whether short paths are open.
    pub shortcuts: Shortcuts,
    /// A card's carrier may have changed since switches were told.
    carrier_news: Arc<AtomicBool>,
    /// Receive queues that got something in the batch in work: card, queue.
    touched: Vec<(usize, usize)>,
}

impl Wiring {
    /// Adds a card; its index is the number of those before it.
    pub fn add_card(&mut self, mut card: Card) {
        card.share_carrier_news(Arc::clone(&self.carrier_news));
        self.cards.push(card);
    }

    /// Whether a card's carrier may have changed since this was asked last.
    #[inline(always)]
    pub fn take_carrier_news(&self) -> bool {
        // All of it happens under the lock of the data plane.
        self.carrier_news.load(Ordering::Relaxed) && self.carrier_news.swap(false, Ordering::Relaxed)
    }

    /// Sends a frame from a switch to the card at `index`.
    #[inline]
    pub fn send_to_card(
        &mut self,
        index: usize,
        frame: &FrameRef<'_>,
        segments: &mut SegmentBuffer,
        now: Time,
    ) -> Outcome {
        let wire = frame.on_wire();
        let card = &mut self.cards[index];
        let route = route::to_guest(card, frame, wire.as_ref(), self.shortcuts, now);
        if route != Route::Direct {
            return self.send_indirectly(index, route, frame, wire, segments, now);
        }
        let Some(queue) = card.receive_queue(frame.inline) else {
            return self.send_without_guest(index, frame, wire, now);
        };
        if let Err(refused) = card.deliver(queue, frame, now) {
            return self.send_refused((index, queue), refused, frame, wire, now);
        }
        if card.touch(queue) {
            self.touched.push((index, queue));
        }
        if card.queue_pairs() == 1 {
            Outcome::Direct { card: index as u32 }
        } else {
            Outcome::Taken
        }
    }

    /// Carries out what follows when no receive ring of the card at `index` is ready for a frame from its ideal link.
    #[cold]
    #[inline(never)]
    fn send_without_guest(&mut self, index: usize, frame: &FrameRef<'_>, wire: Option<OnWire>, now: Time) -> Outcome {
        match route::without_guest(frame, &self.cards[index]) {
            Route::Drop(loss) => self.lose_behind_link(index, frame, wire, loss, now),
            _ => {
                self.count_passed_undelivered(index, wire);
                self.wait_at_card(index, frame, now);
                Outcome::Taken
            }
        }
    }

    /// Carries out what follows when receive queue `queue` of the card at `index` refuses a frame from its ideal link.
    #[cold]
    #[inline(never)]
    fn send_refused(
        &mut self,
        (index, queue): (usize, usize),
        refused: Refused,
        frame: &FrameRef<'_>,
        wire: Option<OnWire>,
        now: Time,
    ) -> Outcome {
        let card = &mut self.cards[index];
        match route::after_refusal(refused, frame, card, queue, now) {
            Route::Drop(loss) => self.lose_behind_link(index, frame, wire, loss, now),
            Route::Wait { queue } => self.block(frame, index, queue, now),
            _ => {
                self.count_passed_undelivered(index, wire);
                self.wait_at_card(index, frame, now);
                Outcome::Taken
            }
        }
    }

    /// Carries out the route of a frame to the card at `index` if it is not the direct one.
    #[cold]
    #[inline(never)]
    fn send_indirectly(
        &mut self,
        index: usize,
        route: Route,
        frame: &FrameRef<'_>,
        wire: Option<OnWire>,
        segments: &mut SegmentBuffer,
        now: Time,
    ) -> Outcome {
        let frames = wire.map_or(1, |wire| wire.frames);
        match (route, wire) {
            (Route::Drop(loss), _) => self.lose(Hop::ToGuest(index), loss, frames, now),
            (Route::Wait { queue }, _) => return self.block(frame, index, queue, now),
            (Route::ToCard(_), _) => self.card_frames.push(index, CardFrame::direct(frame)),
            (Route::Copied(copying), Some(wire)) => {
                self.cross(Hop::ToGuest(index), frame, &wire, copying, segments, now);
            }
            (Route::Copied(_) | Route::Direct | Route::WaitAtCard, _) => {}
        }
        Outcome::Taken
    }

    /// A frame passed the ideal link to the card at `index` and is lost there. It counts as what it was on the wire when its route
    /// was decided: its sender may have changed the headers since.
    #[cold]
    fn lose_behind_link(
        &mut self,
        index: usize,
        frame: &FrameRef<'_>,
        wire: Option<OnWire>,
        loss: Loss,
        now: Time,
    ) -> Outcome {
        self.count_passed_undelivered(index, wire);
        self.lose_at_card(index, frame, loss, wire.map_or(1, |wire| wire.frames), now);
        Outcome::Taken
    }

    #[cold]
    fn count_passed_undelivered(&mut self, index: usize, wire: Option<OnWire>) {
        if let Some(wire) = wire {
            self.cards[index].count_passed_undelivered(&wire);
        }
    }

    /// Counts frames on the wire that are lost at the card at `index`. What a switch tells to a port without a guest is missed
    /// there by no one, and is no loss.
    pub fn lose_at_card(&mut self, index: usize, frame: &FrameRef<'_>, loss: Loss, frames: u32, now: Time) {
        if loss != Loss::Refused(Refused::NotReady) || !frame.transit.is_from_switch() {
            self.lose(Hop::ToGuest(index), loss, frames, now);
        }
    }

    /// Leaves a frame at the head of its sender's ring until receive queue `queue` of the card at `card` has buffers.
    #[cold]
    #[inline(never)]
    pub fn block(&mut self, frame: &FrameRef<'_>, card: usize, queue: usize, now: Time) -> Outcome {
        let until = now.plus_nanos(WAIT_NS_MAX);
        let blocked = Blocked { card, queue, until };
        let ring = self.cards[frame.transit.card()].transmit_ring_mut(frame.transit.pair());
        ring.block(blocked);
        Outcome::Wait
    }

    /// Delivers a frame that did not come directly over an ideal link, so that its link has counted it already.
    ///
    /// # Errors
    /// See [`Refused`]; the caller decides what follows.
    pub fn deliver_from_memory(
        &mut self,
        index: usize,
        queue: usize,
        frame: &FrameRef<'_>,
        now: Time,
    ) -> Result<(), Refused> {
        let card = &mut self.cards[index];
        if !card.is_receiving(queue) {
            return Err(Refused::NotReady);
        }
        // What was delivered before came over the link.
        card.count_delivered(queue, true);
        card.deliver(queue, frame, now)?;
        card.count_delivered(queue, false);
        self.touch(index, queue);
        Ok(())
    }

    /// Notes that a receive queue has something to announce when the batch is through.
    #[inline]
    pub fn touch(&mut self, index: usize, queue: usize) {
        if self.cards[index].touch(queue) {
            self.touched.push((index, queue));
        }
    }

    /// Announces what the batch put into receive queues.
    #[inline]
    pub fn announce_touched(&mut self, now: Time) {
        while let Some((card, queue)) = self.touched.pop() {
            self.cards[card].announce_touched(queue, now);
        }
    }

    /// Shows the capture of the card at `index`, if there is one, what the card sends, as it is on the wire.
    #[inline]
    pub fn capture_sent(&mut self, index: usize, frame: &FrameRef<'_>, segments: &mut SegmentBuffer, now: Time) {
        if let Some(capture) = self.cards[index].capture_mut() {
            segments.resolve(frame, |bytes| capture.sent(bytes, now));
        }
    }

    /// Runs `work` for the card at `index`. If it panics (`None`), a card fails, and no other one loses anything by it.
    fn contained<T>(&mut self, index: usize, now: Time, work: impl FnOnce(&mut Self) -> T) -> Option<T> {
        contain(self, work, |wiring| wiring.after_panic(Some(index), now))
    }

    /// A panic unwound through work for `card`: the card whose rings were being worked on fails, or else `card`.
    #[cold]
    pub fn after_panic(&mut self, card: Option<usize>, now: Time) {
        if let Some(sender) = card {
            self.cards[sender].give_back_unfinished();
        }
        let at_work = self.cards.iter_mut().position(Card::take_at_work);
        let Some(blamed) = at_work.or(card) else {
            tracing::error!("an internal error (a panic) outside any port; frames in flight may be lost");
            return;
        };
        self.touched.retain(|(touched, _)| *touched != blamed);
        let card = &mut self.cards[blamed];
        card.forget_touched();
        card.fail("an internal error (a panic) in its data path".to_owned(), now);
    }

    /// Keeps a frame in the pool that found no buffer at its card. False if there is no room for it either: then it was
    /// dropped and counted.
    #[cold]
    pub fn wait_at_card(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) -> bool {
        let Some(pooled) = self.pool.whole(frame, Stage::Card(index)) else {
            self.lose(Hop::ToGuest(index), Loss::PoolShare, 1, now);
            return false;
        };
        self.cards[index].counters_mut().copied_bytes += u64::from(frame.len);
        self.push_waiting(index, pooled, now)
    }
}
