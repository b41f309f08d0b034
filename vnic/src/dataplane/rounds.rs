//! The rounds of the data plane: everything that can be done now, ring by ring, and what to wait for when there is nothing.

use ether::Time;

use super::DataPlane;
use super::card::Card;
use super::card::transmit_batch::TransmitBatch;
use super::card::transmit_ring::Blocked;
use super::containment::contain;
use super::forwarding::burst::Burst;
use super::frames::frame_ref::FrameRef;
use super::frames::pool::Stage;
use super::frames::transit::Transit;
use super::observers::capture::CardCapture;
use super::route::{self, Route};
use super::wiring::Outcome;
use super::wiring::link_crossing::Hop;
use crate::ring::{Halt, Rule};
use firmware::INLINE_HEADER_LEN;
use firmware::multicast::is_card_frame;

impl DataPlane {
    /// One round over everything that can be done now. True if anything was. `batch` is memory for the frames that are taken from
    /// one ring.
    pub(super) fn pass(&mut self, batch: &mut TransmitBatch, now: Time) -> bool {
        self.update_reconnect_grace(now);
        self.follow_carriers(now);
        let mut worked = self.contained(None, now, |plane| plane.move_due(now));
        if self.forwarding.switches_due.is_some_and(|due| now >= due) {
            worked |= self.contained(None, now, |plane| plane.forwarding.serve_switches(now));
        }
        for card in 0..self.cards().len() {
            for pair in 0..self.cards()[card].queue_pairs() {
                if self.cards()[card].transmit_ring(pair).is_ready() {
                    worked |= self.contained(Some(card), now, |plane| plane.transmit(card, pair, batch, now));
                }
            }
        }
        if worked && self.forwarding.wiring.pool.next_due().is_some_and(|at| at <= now) {
            self.contained(None, now, |plane| plane.move_due(now));
        }
        self.contained(None, now, |plane| {
            plane.forwarding.wiring.announce_touched(now);
            false
        });
        for index in 0..self.cards().len() {
            self.contained(Some(index), now, |plane| {
                plane.tend(index, now);
                false
            });
        }
        if self.has_captures {
            self.settle_captures();
        }
        worked
    }

    /// All that has happened until now was captured.
    #[cold]
    fn settle_captures(&self) {
        self.cards()
            .iter()
            .filter_map(Card::capture)
            .for_each(CardCapture::settle);
    }

    /// Tells switches of carriers that came to or went from cards: what was learned behind a port without one is forgotten, and the
    /// spanning tree hears of it.
    #[inline(always)]
    pub(super) fn follow_carriers(&mut self, now: Time) {
        if self.forwarding.wiring.take_carrier_news() {
            self.contained(None, now, |plane| plane.tell_carriers(now));
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_carriers(&mut self, now: Time) -> bool {
        let forwarding = &mut self.forwarding;
        for index in 0..forwarding.wiring.cards.len() {
            let card = &forwarding.wiring.cards[index];
            let (at, is_up) = (card.attachment(), card.has_carrier());
            let switch = &mut forwarding.switches[at.switch].switch;
            if switch.is_port_up(at.port) != is_up {
                // What follows from it begins now, and not when the switch was asked last.
                switch.handle(now);
                switch.set_port_up(at.port, is_up);
                forwarding.serve_switch(at.switch, now);
            }
        }
        forwarding.wiring.announce_touched(now);
        true
    }

    /// Runs `work` for `card`. If it panics, a card fails and the data plane goes on: that counts as work.
    #[inline]
    fn contained(&mut self, card: Option<usize>, now: Time, work: impl FnOnce(&mut Self) -> bool) -> bool {
        contain(self, work, |plane| plane.forwarding.after_panic(card, now)).unwrap_or(true)
    }

    /// Does what is due at the card with number `index` without a frame: memory faults, timers, completions.
    #[inline]
    fn tend(&mut self, index: usize, now: Time) {
        let card = self.card(index);
        if card.take_memory_fault() {
            card.fail_rule(Rule::MemoryTruncated, now);
            return;
        }
        if card.firmware().is_due(now) {
            self.serve_due(index, now);
        }
        let card = self.card(index);
        (0..card.queue_pairs()).for_each(|pair| card.publish_transmitted(pair, now));
    }

    #[inline(never)]
    fn serve_due(&mut self, index: usize, now: Time) {
        self.serve_timers(index, now);
        if self.card(index).firmware().multicast().is_due(now) {
            self.forwarding.serve_multicast(index, now);
        }
        self.card(index).announce_all(now);
    }

    /// Moves every frame on that is due by `now`. True if there was any.
    fn move_due(&mut self, now: Time) -> bool {
        let mut moved = false;
        while let Some((at, frame)) = self.forwarding.wiring.pool.take_due(now) {
            moved = true;
            match frame.stage {
                Stage::Switch { switch, port } => {
                    // What follows happens at the time the frame was due, not when that was noticed.
                    self.contained(None, now, |plane| {
                        plane.forwarding.switch_pooled(switch, port, &frame, at);
                        plane.forwarding.handle_card_frames(at);
                        true
                    });
                    self.forwarding.wiring.pool.release(frame);
                }
                // A card forwards what is for cards whether its guest has buffers or not.
                Stage::Card(index) if is_card_frame(frame.bytes()) => {
                    self.contained(Some(index), now, |plane| {
                        plane.forwarding.card_frame_arrives(index, frame.bytes(), at);
                        true
                    });
                    self.forwarding.wiring.pool.release(frame);
                }
                Stage::Card(index) => {
                    self.forwarding.wiring.push_waiting(index, frame, now);
                }
            }
        }
        for index in 0..self.cards().len() {
            if !self.cards()[index].waiting().is_empty() {
                self.serve_dma_if_due(index, now);
                moved |= self.forwarding.wiring.deliver_waiting(index, now);
            }
        }
        if self.forwarding.has_reliable_groups && self.packets_wait_for_hosts() {
            moved |= self.contained(None, now, |plane| plane.forwarding.give_to_hosts(now));
        }
        moved
    }

    #[cold]
    fn packets_wait_for_hosts(&self) -> bool {
        let mut cards = self.cards().iter();
        cards.any(|card| card.firmware().multicast().has_for_host())
    }

    /// Takes one batch from a transmit ring and sends it on. True if there was anything to take.
    #[inline]
    fn transmit(&mut self, card: usize, pair: usize, batch: &mut TransmitBatch, now: Time) -> bool {
        if self.must_wait(card, pair, now) {
            return false;
        }
        let Some(taken) = self.card(card).take_batch(pair, batch) else {
            return false;
        };
        if batch.len() == 0 && taken.is_ok() {
            return false;
        }
        let transit = Transit::from_ring(card, pair);
        // Only the first frame may have waited.
        let waited = self.card(card).transmit_ring_mut(pair).take_blocked();
        let mut sent = 0;
        while sent < batch.len() {
            let frame = batch.frame(sent, transit);
            let (outcome, left_at) = self.take_from_guest(frame, waited.as_ref().filter(|_| sent == 0), now);
            if outcome == Outcome::Wait {
                if let Some(waited) = waited.filter(|_| sent == 0) {
                    // It waits no longer than it would have.
                    self.card(card).transmit_ring_mut(pair).limit_blocked(waited.until);
                }
                break;
            }
            self.card(card)
                .transmit_ring_mut(pair)
                .finish(batch.head(sent), left_at, now);
            sent += 1;
            if let Outcome::Direct { card: to } = outcome
                && let Some(next) = batch.ethernet_header(sent)
                && let Some(burst) = Burst::behind(&self.forwarding.wiring, &frame, to as usize, next)
            {
                sent += self.forwarding.send_burst(&burst, batch, sent, transit, now);
            } else if !self.card(card).transmit_ring(pair).is_started() {
                // A frame of the batch made the card itself fail: what is left of it came with the ring that stopped.
                return true;
            }
        }
        self.forwarding.wiring.announce_touched(now);
        let card = self.card(card);
        let is_blocked = sent < batch.len();
        if is_blocked || taken == Err(Halt::Untranslated) {
            // The blocked frame and all behind it will be read anew, one that broke a rule included.
            card.transmit_ring_mut(pair).give_back(batch.entries() - sent as u16);
        }
        card.publish_transmitted(pair, now);
        match taken {
            Err(Halt::Broken(rule)) if !is_blocked => {
                card.fail_rule(rule, now);
                return true;
            }
            Err(Halt::Untranslated) if !is_blocked => card.transmit_ring_mut(pair).await_translation(),
            _ => {}
        }
        sent > 0
    }

    /// Takes `frame`, with an unchecked header, from its guest; it may have been `blocked` before. Returns what became of it, and
    /// when it has left the card.
    #[inline]
    fn take_from_guest(&mut self, frame: FrameRef<'_>, blocked: Option<&Blocked>, now: Time) -> (Outcome, Time) {
        let misordered;
        let mut frame = frame;
        let index = frame.transit.card();
        let card = &mut self.forwarding.wiring.cards[index];
        let wire = match route::accept(card, &mut frame) {
            Ok(wire) => wire,
            Err(loss) => {
                card.drop_tx(loss.at_sender(), 1, now);
                return (Outcome::Taken, now);
            }
        };
        let shortcuts = self.forwarding.wiring.shortcuts;
        let route = route::from_guest(card, &frame, &wire, blocked.is_some(), shortcuts, now);
        if let Route::ToCard(service) = route {
            return (self.serve(service, &frame, &wire, blocked, now), now);
        }
        if let Some((at, value)) = card.firmware_mut().misorder_mut().sent(frame.inline) {
            misordered = with_byte(frame.inline, at, value);
            frame.inline = &misordered[..frame.inline.len()];
        }
        let (mut outcome, mut left_at) = (Outcome::Taken, now);
        if let Route::Copied(copying) = route {
            let hop = Hop::FromGuest(index);
            let forwarding = &mut self.forwarding;
            left_at = forwarding
                .wiring
                .cross(hop, &frame, &wire, copying, &mut forwarding.segments, now);
        } else {
            outcome = match blocked {
                Some(blocked) => self.forwarding.retry_blocked(blocked, &frame, now),
                None => {
                    let at = card.attachment();
                    self.forwarding.switch_frame(at.switch, at.port, &frame, now)
                }
            };
            if outcome == Outcome::Wait {
                return (outcome, now);
            }
            let cable = self.card(index).cable_mut();
            cable.from_guest.count_passed(u64::from(wire.frames), wire.bytes);
        }
        let card = self.card(index);
        card.count_sent(&wire);
        card.firmware_mut().note_forwarded(now, wire.frames, wire.bytes);
        if card.capture().is_some() {
            let forwarding = &mut self.forwarding;
            forwarding
                .wiring
                .capture_sent(index, &frame, &mut forwarding.segments, now);
        }
        (outcome, left_at)
    }

    /// True if the frames of a transmit ring wait for a receiver, and trying again now would be in vain.
    #[inline]
    fn must_wait(&mut self, index: usize, pair: usize, now: Time) -> bool {
        let card = &self.cards()[index];
        if self.drains != 0 && card.transmit_ring(pair).kicked_for() == 0 {
            return true;
        }
        match card.transmit_ring(pair).blocked() {
            None => card.transmit_ring(pair).awaits_translation(),
            Some(blocked) => {
                let blocked = *blocked;
                self.is_still_blocked(index, blocked, now)
            }
        }
    }

    /// Whether what the head frame of a ring of the card at `index` waits for is still not there.
    #[cold]
    fn is_still_blocked(&mut self, index: usize, blocked: Blocked, now: Time) -> bool {
        let Blocked { card, queue, until } = blocked;
        self.serve_dma_if_due(card, now);
        // Nobody else waits where a guest does for its own translations.
        card == index && self.card(card).awaits_translation(queue)
            || now < until && self.card(card).is_still_stalled(queue, now)
    }

    /// Where frames wait for the modelled DMA of a card: what it has completed makes room, however late that is noticed.
    #[cold]
    fn serve_dma_if_due(&mut self, index: usize, now: Time) {
        let card = self.card(index);
        if card.is_in_flight() && card.firmware().is_due(now) {
            self.serve_due(index, now);
        }
    }

    /// When something is due without a kick.
    pub(super) fn next_due(&self, now: Time) -> Option<Time> {
        let cards = self.cards().iter();
        let of_cards = cards.flat_map(|card| {
            let blocked = (0..card.queue_pairs()).filter_map(|pair| card.transmit_ring(pair).blocked());
            let waits = blocked.map(|blocked| blocked.until).filter(|at| *at > now);
            let own = [card.wait_ends(now), card.firmware().next_event()];
            own.into_iter().flatten().chain(waits).chain(card.next_departures())
        });
        let others = [
            self.forwarding.wiring.pool.next_due(),
            self.reconnect_grace_ends,
            self.forwarding.switches_due,
        ];
        of_cards.chain(others.into_iter().flatten()).min()
    }

    /// Gives memory back that a burst of frames left behind.
    pub(super) fn trim_pool(&mut self) {
        self.forwarding.wiring.pool.trim();
    }

    /// Notes for which cards' receive buffers frames wait.
    fn mark_awaited(&mut self) {
        let has_groups = self.forwarding.has_reliable_groups;
        let cards = &mut self.forwarding.wiring.cards;
        for card in cards.iter_mut() {
            let for_host = has_groups && card.firmware().multicast().has_for_host();
            card.set_awaited(!card.waiting().is_empty() || for_host);
        }
        for index in 0..cards.len() {
            for pair in 0..cards[index].queue_pairs() {
                if let Some(card) = cards[index].transmit_ring(pair).blocked().map(|blocked| blocked.card) {
                    cards[card].set_awaited(true);
                }
            }
        }
    }

    /// Asks every driver to kick from now on. True if there is work already, or a card failed.
    pub(super) fn ask_for_kicks(&mut self, now: Time) -> bool {
        let mut work = false;
        self.mark_awaited();
        for index in 0..self.cards().len() {
            for pair in 0..self.cards()[index].queue_pairs() {
                let blocked = self.must_wait(index, pair, now);
                let card = self.card(index);
                match card.ask_for_kicks(pair, blocked, now) {
                    Ok(available) => work |= available,
                    Err(rule) => {
                        card.fail_rule(rule, now);
                        work = true;
                    }
                }
            }
        }
        work
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
