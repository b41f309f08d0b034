//! Frames into a card's receive rings, packets announced to its guest, and transmit chains given back.
//!
//! Interrupts are decided by the firmware and carried out here. While a card's rings are worked on, the card is marked as at
//! work, so that a panic is blamed on the right guest.

use ether::Time;
use firmware::{Event, Mark, PacketInfo};

use super::host_record;
use super::lifecycle::signal;
use super::receive_ring::{Meeting, Refused};
use super::transmit_batch::{CompactFrame, TransmitBatch};
use super::transmit_ring::TransmitRing;
use super::{Card, QueuePair};
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::ring::{Halt, Rule};

/// Frames that are taken at once from a guest whose card copies them back to it: all other rings wait for as many long ones.
const COPIES_BATCH: u16 = 16;

/// Frames of a burst that were delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// How many.
    pub frames: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Card {
    /// Whether the next frame of receive queue 0 would go into buffer `index` of the available ring, modulo 2¹⁶.
    pub fn meet_buffer(&self, index: u16) -> Meeting {
        let ahead = self.pairs[0].rx.next_buffer().map(|next| index.wrapping_sub(next));
        match ahead {
            Some(0) => Meeting::Next,
            Some(ahead) if ahead > u16::MAX / 2 => Meeting::Past,
            _ => Meeting::Missing,
        }
    }

    /// Puts `frame` into receive queue `queue` and tells the firmware. It is counted by
    /// [`count_delivered`](Self::count_delivered).
    ///
    /// # Errors
    /// See [`Refused`]; the caller decides what follows.
    #[inline]
    pub fn deliver(&mut self, queue: usize, frame: &FrameRef<'_>, now: Time) -> Result<(), Refused> {
        let Some(map) = &self.negotiated.map else {
            return Err(Refused::NoBuffer);
        };
        self.lifecycle.at_work = true;
        let ring = &mut self.pairs[queue].rx;
        let outcome = ring.deliver(map, frame, self.negotiated.mergeable);
        if outcome.is_ok() {
            if ring.stalled_since().is_some() {
                self.end_stall(queue, now);
            }
            let pipeline = self.firmware.rx(queue as u16);
            let packet = pipeline.classify(frame.inline, frame.len);
            // A receive ring has no more packets in hand than the pipeline takes.
            let arrived = pipeline.arrive(now, packet);
            debug_assert!(arrived.is_ok());
            if let Some(capture) = &mut self.capture {
                capture.delivered(queue, frame, now);
            }
        }
        self.lifecycle.at_work = false;
        outcome
    }

    /// Puts frames of a burst into receive queue 0 and tells the firmware, until one does not fit into a buffer. They are `frames` of
    /// `batch`, from number `first` on, and `header` is the Ethernet header that all have in common.
    #[inline(always)]
    pub fn deliver_burst<'a>(
        &mut self,
        batch: &'a TransmitBatch,
        first: usize,
        frames: impl Iterator<Item = CompactFrame<'a>>,
        header: &[u8],
        now: Time,
    ) -> Delivered {
        let Some(map) = &self.negotiated.map else {
            return Delivered::default();
        };
        self.lifecycle.at_work = true;
        let ring = &mut self.pairs[0].rx;
        let frames = ring.deliver_burst(map, batch.len() - first, frames);
        let mut bytes = 0;
        if frames > 0 {
            let pipeline = self.firmware.rx(0);
            // A ring holds no more packets than the pipeline.
            let arrived = if let Some(mark) = Mark::of(header, pipeline.coalescing().marks) {
                let packets = batch.beginnings(first, frames).map(|(len, inline)| {
                    bytes += u64::from(len);
                    let marked = mark.is_in(inline);
                    PacketInfo { len, marked }
                });
                pipeline.arrive_together(now, packets)
            } else {
                let packets = batch.lengths(first, frames).map(|len| {
                    bytes += u64::from(len);
                    PacketInfo { len, marked: false }
                });
                pipeline.arrive_together(now, packets)
            };
            debug_assert!(arrived.is_ok());
            ring.add_to_batch(frames as u64, bytes);
        }
        self.lifecycle.at_work = false;
        Delivered { frames, bytes }
    }

    /// Counts frames of a burst that left the card directly over an ideal link.
    #[inline]
    pub fn count_sent_burst(&mut self, frames: u64, bytes: u64, now: Time) {
        self.counters.tx_frames += frames;
        self.counters.tx_bytes += bytes;
        self.cable.from_guest.count_passed(frames, bytes);
        self.firmware.note_forwarded(now, frames as u32, bytes);
    }

    /// Counts what was delivered to `queue` since the last call; `over_ideal_link` if it came over the ideal link to the
    /// guest, which has not counted it yet.
    #[inline]
    pub fn count_delivered(&mut self, queue: usize, over_ideal_link: bool) {
        let (frames, bytes) = self.pairs[queue].rx.take_batch_counts();
        self.counters.rx_frames += frames;
        self.counters.rx_bytes += bytes;
        self.counters.copied_bytes += bytes;
        if over_ideal_link {
            self.cable.to_guest.count_passed(frames, bytes);
        }
    }

    /// Notes that receive queue `queue` has something to announce. True if that was not known yet.
    #[inline]
    pub fn touch(&mut self, queue: usize) -> bool {
        self.pairs[queue].rx.touch()
    }

    /// Counts and announces what a batch put into receive queue `queue`.
    #[inline]
    pub fn announce_touched(&mut self, queue: usize, now: Time) {
        self.count_delivered(queue, true);
        self.pairs[queue].rx.untouch();
        self.announce(queue, now);
    }

    /// No receive queue has anything to announce: a panic took it along.
    pub fn forget_touched(&mut self) {
        self.pairs.iter_mut().for_each(|pair| pair.rx.untouch());
    }

    /// Announces what is due on all receive queues, for instance by settings that were just changed.
    pub fn announce_all(&mut self, now: Time) {
        (0..self.pairs.len()).for_each(|queue| self.announce(queue, now));
    }

    /// Publishes what the firmware completed on `queue` and carries out its decisions.
    #[inline]
    pub fn announce(&mut self, queue: usize, now: Time) {
        self.lifecycle.at_work = true;
        let pipeline = self.firmware.rx(queue as u16);
        let ring = &mut self.pairs[queue].rx;
        ring.follow_driver(pipeline.watchdog().is_on(), pipeline.waiting());
        while let Some(event) = pipeline.poll(now) {
            let interrupt = match event {
                Event::Completed { count, interrupt } => {
                    ring.publish_packets(count);
                    interrupt
                }
                Event::Interrupt(interrupt) => Some(interrupt),
                Event::FetchHostState => {
                    let counters = &mut self.counters.host_record;
                    host_record::answer(pipeline, ring, self.negotiated.map.as_ref(), counters, now);
                    None
                }
            };
            let Some(interrupt) = interrupt else { continue };
            if !ring.is_started() {
                continue;
            }
            if ring.driver_wants_call(interrupt.reason)
                && let Some(vring) = ring.vring()
            {
                signal(vring);
                pipeline.note_signalled();
            } else {
                pipeline.note_suppressed();
            }
            if let Some(capture) = &mut self.capture {
                capture.announced(queue, &interrupt, pipeline.coalescing().strategy);
            }
        }
        self.lifecycle.at_work = false;
    }

    /// Takes a batch from transmit ring `pair`, if that is started: why a chain could not be taken, which ends the batch
    /// before it.
    #[inline]
    pub fn take_batch(&mut self, pair: usize, batch: &mut TransmitBatch) -> Option<Result<(), Halt>> {
        let map = self.negotiated.map.as_ref()?;
        let limit = if self.settings.loopback { COPIES_BATCH } else { u16::MAX };
        self.pairs[pair].tx.take_batch(map, batch, limit)
    }

    /// Transmit ring `pair`.
    #[inline]
    pub fn transmit_ring(&self, pair: usize) -> &TransmitRing {
        &self.pairs[pair].tx
    }

    /// Transmit ring `pair`, to take frames from it and complete them.
    #[inline]
    pub fn transmit_ring_mut(&mut self, pair: usize) -> &mut TransmitRing {
        &mut self.pairs[pair].tx
    }

    /// When a frame that is being sent has left the card, for the earliest such frame of each transmit ring.
    pub fn next_departures(&self) -> impl Iterator<Item = Time> {
        self.pairs.iter().filter_map(|pair| pair.tx.next_left())
    }

    /// Publishes completed transmit chains of `pair` and tells the driver if it wants to know.
    #[inline(always)]
    pub fn publish_transmitted(&mut self, pair: usize, now: Time) {
        if self.pairs[pair].tx.may_publish() {
            self.publish_completed(pair, now);
        }
    }

    #[inline(never)]
    fn publish_completed(&mut self, pair: usize, now: Time) {
        let Some(signalled) = self.pairs[pair].tx.publish_completed(now) else {
            return;
        };
        self.counters.tx_decided += 1;
        if signalled {
            self.counters.tx_signalled += 1;
        } else {
            self.counters.tx_suppressed += 1;
        }
    }

    /// Asks the driver to kick when it fills transmit ring `pair`, and receive ring `pair` if frames wait for its buffers.
    /// True if there is work already. A transmit ring whose head frame is `blocked` is not checked again before its receiver
    /// has buffers.
    ///
    /// # Errors
    /// The rule that the ring breaks.
    pub fn ask_for_kicks(&mut self, pair: usize, blocked: bool, now: Time) -> Result<bool, Rule> {
        // For packets of reliable groups there is no end to it.
        let refill = self.is_awaited() && (self.wait_ends(now).is_some() || self.firmware.multicast().has_for_host());
        // What cannot be looked at for want of a translation is looked at when that has come.
        let is_there = |found: Result<u16, Halt>| match found {
            Ok(entries) => Ok(entries > 0),
            Err(Halt::Untranslated) => Ok(false),
            Err(Halt::Broken(rule)) => Err(rule),
        };
        let QueuePair { rx, tx } = &mut self.pairs[pair];
        let frames = is_there(tx.ask_for_kicks())? && !blocked;
        let buffers = refill && is_there(rx.ask_for_kicks())?;
        Ok(frames || buffers)
    }

    /// When the guest last polled, as far as its receive rings tell.
    pub(super) fn update_last_poll(&mut self, now: Time) -> Option<Time> {
        let words = self.pairs.iter().filter_map(|pair| pair.rx.driver_words());
        self.polls.by_rings.update(now, words)
    }

    /// A timer's frame was put into receive queue 0: its being taken says nothing about polling.
    pub fn note_timer_frame(&mut self) {
        self.polls.by_rings.note_doorbell();
    }
}
