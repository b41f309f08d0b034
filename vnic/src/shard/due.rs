//! Frames that waited in the pool: what happens when they are due, and at ports that have no buffer for them yet.

use ether::Time;
use firmware::multicast::is_card_frame;

use super::Inner;
use super::drops::RxDrop;
use super::frame::FrameRef;
use super::pool::{Pooled, Stage};
use super::receive::Refused;
use crate::memory::Piece;
use crate::offload::NetHeader;

impl Inner {
    /// Moves every frame on that is due by `now`. True if there was any.
    pub(super) fn move_due(&mut self, now: Time) -> bool {
        let mut moved = false;
        while let Some((at, frame)) = self.pool.take_due(now) {
            moved = true;
            match frame.stage {
                Stage::Switch { switch, port } => {
                    // What follows happens at the time the frame was due, not when somebody looked.
                    let copies = self
                        .contained(None, now, |inner| {
                            let copies = inner.switch_whole(switch, port, frame.origin, frame.bytes(), at);
                            inner.handle_card_frames(at);
                            copies
                        })
                        .unwrap_or(0);
                    let origin = frame.origin;
                    self.ports[origin.port()].pairs[origin.pair()]
                        .tx
                        .add_copies(origin, copies);
                    self.leave_pool(frame);
                }
                // A card forwards what is for cards whether its guest has buffers or not.
                Stage::Card(index) if is_card_frame(frame.bytes()) => {
                    let arrives = |inner: &mut Self| inner.card_frame_arrives(index, frame.bytes(), at);
                    self.contained(Some(index), now, arrives);
                    self.leave_pool(frame);
                }
                Stage::Card(index) => self.ports[index].waiting.push_back(frame),
            }
        }
        for index in 0..self.ports.len() {
            moved |= !self.ports[index].waiting.is_empty() && self.deliver_waiting(index, now);
        }
        moved
    }

    fn leave_pool(&mut self, frame: Pooled) {
        let origin = frame.origin;
        self.ports[origin.port()].pairs[origin.pair()].tx.copy_left(origin);
        self.pool.release(frame);
    }

    /// Delivers the frames that wait at a port, in order, as far as there are buffers. True if any left.
    fn deliver_waiting(&mut self, index: usize, now: Time) -> bool {
        let mut moved = false;
        while let Some(frame) = self.ports[index].waiting.pop_front() {
            let port = &mut self.ports[index];
            let mut rest = [Piece::EMPTY];
            let whole = FrameRef::of_bytes(frame.bytes(), &mut rest, NetHeader::default());
            match port.rx_queue(whole.inline) {
                None => {
                    port.drop_rx(RxDrop::NotReady, now);
                    if is_card_frame(whole.inline) {
                        port.note_card_frame(whole.inline, false);
                    }
                }
                Some(queue) => {
                    if self.ports[index].still_stalled(queue, now) {
                        self.ports[index].waiting.push_front(frame);
                        return moved;
                    }
                    // A panic must not take the frame along, which its sender waits for.
                    let delivered =
                        self.contained(Some(index), now, |inner| inner.deliver_apart(index, queue, &whole, now));
                    match delivered {
                        Some(Ok(())) if is_card_frame(whole.inline) => {
                            self.ports[index].note_card_frame(whole.inline, true);
                        }
                        None | Some(Ok(())) => {}
                        Some(Err(Refused::NoBuffer)) if self.ports[index].may_hold(queue, now) => {
                            self.ports[index].waiting.push_front(frame);
                            return moved;
                        }
                        Some(Err(refused)) => {
                            if is_card_frame(whole.inline) {
                                self.ports[index].note_card_frame(whole.inline, false);
                            }
                            self.refused(index, refused, now);
                        }
                    }
                }
            }
            moved = true;
            self.leave_pool(frame);
        }
        moved
    }
}
