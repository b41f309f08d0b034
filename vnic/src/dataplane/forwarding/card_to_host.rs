//! Packets of reliable groups on their last step: from the card to its guest, which may take its time.
//!
//! The firmware says what the guest gets next, and keeps the packet's buffer and its credit until the guest has it.

use ether::Time;
use firmware::multicast::{BufferId, ForHost};

use super::Forwarding;
use crate::dataplane::frames::transit::Transit;
use crate::dataplane::wiring::card_frames::CardFrame;
use crate::memory::Piece;

impl Forwarding {
    /// Gives a packet to the guest without keeping it in `buffer` first, if it is the guest's next one and there is room. True if the
    /// buffer is free by that.
    pub(super) fn give_at_once(&mut self, index: usize, buffer: BufferId, packet: &CardFrame, now: Time) -> bool {
        let multicast = self.wiring.cards[index].firmware().multicast();
        let Some(ForHost::Packet { buffer: next, last, .. }) = multicast.for_host() else {
            return false;
        };
        if next != buffer || !self.give(index, packet, now) {
            return false;
        }
        self.note_taken(index, now);
        last
    }

    /// Gives the guest of the card at `index` what waits for it, as long as it has room. True if it took anything.
    pub(super) fn give_to_host(&mut self, index: usize, now: Time) -> bool {
        let mut moved = false;
        while let Some(next) = self.wiring.cards[index].firmware().multicast().for_host() {
            let card = &self.wiring.cards[index];
            let (packet, spent) = match next {
                ForHost::Note(frame) => (CardFrame::new(&frame, Piece::EMPTY, frame.len() as u32), None),
                ForHost::Packet { buffer, from, to, last } => {
                    let Some(kept) = card.forwarding_buffers().get(buffer) else {
                        // Nothing was kept, because a panic took it along: the guest is not to wait for it for ever.
                        self.note_taken(index, now);
                        continue;
                    };
                    let mut packet = CardFrame::of_bytes(kept.bytes());
                    packet.set_addresses(to, from);
                    (packet, last.then_some(buffer))
                }
            };
            if !self.give(index, &packet, now) {
                break;
            }
            moved = true;
            if let Some(buffer) = spent
                && let Some(kept) = self.wiring.cards[index].forwarding_buffers_mut().take(buffer)
            {
                self.wiring.pool.release(kept);
            }
            self.note_taken(index, now);
        }
        if moved {
            self.serve_card_multicast(index, now);
        }
        moved
    }

    /// Gives all guests what waits for them, as long as they have room.
    #[cold]
    #[inline(never)]
    pub fn give_to_hosts(&mut self, now: Time) -> bool {
        let waiting = |forwarding: &Self| -> usize {
            let cards = forwarding.wiring.cards.iter();
            cards.map(|card| card.firmware().multicast().waiting_for_host()).sum()
        };
        let before = waiting(self);
        self.forget_card_frames();
        self.handle_card_frames(now);
        waiting(self) != before
    }

    /// Puts a frame into the guest's receive queue. False if there is no room.
    fn give(&mut self, index: usize, packet: &CardFrame, now: Time) -> bool {
        let frame = packet.as_ref(Transit::from_card(index));
        let card = &mut self.wiring.cards[index];
        let Some(queue) = card.receive_queue(frame.inline) else {
            return false;
        };
        !card.is_short(queue) && self.wiring.deliver_from_memory(index, queue, &frame, now).is_ok()
    }

    fn note_taken(&mut self, index: usize, now: Time) {
        self.wiring.cards[index].firmware_mut().multicast_mut().host_took(now);
    }
}
