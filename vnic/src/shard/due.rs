//! Frames that waited in the pool: what happens when they are due, and at ports that have no buffer for them yet.

use std::collections::VecDeque;

use ether::Time;
use firmware::multicast::is_card_frame;

use super::Inner;
use super::drops::RxDrop;
use super::frame::FrameRef;
use super::pool::{Pooled, Stage};
use super::receive::Refused;
use crate::memory::Piece;

/// Bytes of buffers that frames may take which wait for the receive buffers of one guest, beyond what is in its rings: an emulated
/// guest at 1 Gbit/s may be away from its processor for 30 ms.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Frames that arrived at a card whose guest has no buffer for them just now, oldest first.
#[derive(Debug, Default)]
pub struct Waiting {
    frames: VecDeque<Pooled>,
    bytes: usize,
}

impl Waiting {
    /// True if no frame waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Frames of guests and cards that wait.
    pub fn under_way(&self) -> usize {
        self.frames.iter().filter(|frame| !frame.origin.is_of_switch()).count()
    }

    /// Bytes of their buffers.
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn push_back(&mut self, frame: Pooled) {
        self.bytes += frame.buffer_len();
        self.frames.push_back(frame);
    }

    fn push_front(&mut self, frame: Pooled) {
        self.bytes += frame.buffer_len();
        self.frames.push_front(frame);
    }

    fn pop_front(&mut self) -> Option<Pooled> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.buffer_len();
        Some(frame)
    }
}

impl Inner {
    /// Moves every frame on that is due by `now`. True if there was any.
    pub(super) fn move_due(&mut self, now: Time) -> bool {
        let mut moved = false;
        while let Some((at, frame)) = self.pool.take_due(now) {
            moved = true;
            match frame.stage {
                Stage::Switch { switch, port } => {
                    // What follows happens at the time the frame was due, not when somebody looked.
                    self.contained(None, now, |inner| {
                        inner.switch_pooled(switch, port, &frame, at);
                        inner.handle_card_frames(at);
                    });
                    self.pool.release(frame);
                }
                // A card forwards what is for cards whether its guest has buffers or not.
                Stage::Card(index) if is_card_frame(frame.bytes()) => {
                    let arrives = |inner: &mut Self| inner.card_frame_arrives(index, frame.bytes(), at);
                    self.contained(Some(index), now, arrives);
                    self.pool.release(frame);
                }
                Stage::Card(index) => {
                    self.push_waiting(index, frame, now);
                }
            }
        }
        for index in 0..self.ports.len() {
            moved |= !self.ports[index].waiting.is_empty() && self.deliver_waiting(index, now);
        }
        moved
    }

    /// Puts a frame behind those that wait for the buffers of the guest at `index`. False if too many wait: then it was dropped
    /// and counted.
    pub(super) fn push_waiting(&mut self, index: usize, frame: Pooled, now: Time) -> bool {
        let port = &mut self.ports[index];
        if port.waiting.bytes() + frame.buffer_len() > WAITING_BYTES_MAX && !port.waiting.is_empty() {
            // Room is made, if that can be, before anything is lost.
            self.deliver_waiting(index, now);
        }
        let port = &mut self.ports[index];
        if port.waiting.bytes() + frame.buffer_len() > WAITING_BYTES_MAX {
            port.drop_rx_all(RxDrop::NoBuffer, frame.frames_on_wire(), now);
            self.pool.release(frame);
            return false;
        }
        port.waiting.push_back(frame);
        true
    }

    /// Delivers the frames that wait at a port, in order, as far as there are buffers. True if any left.
    fn deliver_waiting(&mut self, index: usize, now: Time) -> bool {
        let mut moved = false;
        while let Some(frame) = self.ports[index].waiting.pop_front() {
            if !self.deliver_waiting_frame(index, &frame, now) {
                self.ports[index].waiting.push_front(frame);
                return moved;
            }
            moved = true;
            self.pool.release(frame);
        }
        moved
    }

    /// Delivers or drops a frame. False if it must go on waiting.
    fn deliver_waiting_frame(&mut self, index: usize, frame: &Pooled, now: Time) -> bool {
        let port = &mut self.ports[index];
        let mut rest = [Piece::EMPTY];
        let whole = FrameRef::of_bytes(frame.bytes(), &mut rest, frame.header);
        if !frame.header.suits(port.receiver) {
            // Another driver has the rings than when it was sent.
            port.drop_rx_all(RxDrop::BadOffload, frame.frames_on_wire(), now);
            return true;
        }
        let for_cards = is_card_frame(whole.inline);
        let Some(queue) = port.rx_queue(whole.inline) else {
            self.not_ready(index, frame.origin, frame.frames_on_wire(), now);
            if for_cards {
                self.ports[index].note_card_frame(whole.inline, false);
            }
            return true;
        };
        if port.still_stalled(queue, now) {
            return false;
        }
        // A panic must not take the frame along, whose buffer is the pool's.
        let delivered = self.contained(Some(index), now, |inner| inner.deliver_apart(index, queue, &whole, now));
        match delivered {
            None => {}
            Some(Err(Refused::NoBuffer)) if self.ports[index].may_hold(queue, now) => return false,
            Some(outcome) => {
                if for_cards {
                    self.ports[index].note_card_frame(whole.inline, outcome.is_ok());
                }
                if let Err(refused) = outcome {
                    self.refused(index, refused, frame.frames_on_wire(), now);
                }
            }
        }
        true
    }
}
