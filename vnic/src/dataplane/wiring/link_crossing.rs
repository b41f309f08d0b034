//! Frames over a link that they do not pass directly: copied into the pool, judged by the link, kept until they arrive.
//!
//! A sender is rid of its frame when the frame's last bit is on the wire, however long that is. What happens when a frame has
//! arrived is in `waiting` and in the data plane's rounds.

use ether::Time;
use fabric::{Admission, Link};

use super::Wiring;
use crate::dataplane::card::receive_ring::Refused;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::pool::Stage;
use crate::dataplane::frames::segments::SegmentBuffer;
use crate::dataplane::frames::transit::Transit;
use crate::dataplane::route::{Copying, Loss, Route};
use crate::offload::OnWire;

/// A link in the direction in which a frame crosses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// From the card with this index to its switch.
    FromGuest(usize),
    /// Over a trunk, away from its end with this number (0 or 1).
    Trunk {
        /// Index of the trunk.
        trunk: usize,
        /// The end.
        from: usize,
    },
    /// From a switch to the card with this index.
    ToGuest(usize),
}

impl Wiring {
    /// Sends a frame over a link through the pool. Returns when it has left the card or switch that sends it.
    #[inline(never)]
    pub fn cross(
        &mut self,
        hop: Hop,
        frame: &FrameRef<'_>,
        wire: &OnWire,
        copying: Copying,
        segments: &mut SegmentBuffer,
        now: Time,
    ) -> Time {
        if copying == Copying::Whole {
            self.cross_whole(hop, frame, wire, now);
            return now;
        }
        let mut left_at = now;
        let resolved = segments.resolve(frame, |bytes| {
            left_at = left_at.max(self.cross_alone(hop, frame.transit, bytes, now));
        });
        if !resolved {
            self.lose(hop, Loss::BadOffload, 1, now);
        }
        left_at
    }

    /// Sends a frame over a link through the pool, even where it could pass directly.
    pub fn cross_by_pool(&mut self, hop: Hop, frame: &FrameRef<'_>, segments: &mut SegmentBuffer, now: Time) {
        let Some(wire) = frame.on_wire() else {
            // Its sender changed the headers after its card had checked them.
            return self.lose(hop, Loss::BadOffload, 1, now);
        };
        let mut frame = *frame;
        match hop {
            Hop::Trunk { trunk, from } => match self.set_out(trunk, from, &frame, wire.frames) {
                Some(transit) => frame.transit = transit,
                None => return,
            },
            Hop::FromGuest(_) | Hop::ToGuest(_) => {}
        }
        let shortcuts = self.shortcuts;
        let route = match hop {
            Hop::ToGuest(index) => shortcuts.to_card(&self.cards[index], wire.longest, now),
            _ => shortcuts.over_link(self.stage_and_link(hop).1, wire.longest, now),
        };
        let copying = match route {
            Route::Drop(loss) => return self.lose(hop, loss, wire.frames, now),
            Route::Copied(copying) => copying,
            _ => Copying::Whole,
        };
        self.cross(hop, &frame, &wire, copying, segments, now);
    }

    /// Sends a frame as it is, with all that it becomes on the wire.
    fn cross_whole(&mut self, hop: Hop, frame: &FrameRef<'_>, wire: &OnWire, now: Time) {
        let (stage, link) = self.stage_and_link(hop);
        let at = link.admit_together(now, u64::from(wire.frames), wire.bytes);
        self.count_copied(hop, u64::from(frame.len));
        match self.pool.whole(frame, stage) {
            Some(pooled) => self.pool.wait(pooled, at),
            None => self.lose(hop, Loss::PoolShare, wire.frames, now),
        }
    }

    /// Sends one frame that is on the wire. Returns when it has left its sender.
    fn cross_alone(&mut self, hop: Hop, transit: Transit, bytes: &[u8], now: Time) -> Time {
        let (stage, link) = self.stage_and_link(hop);
        let admission = link.admit(now, bytes.len());
        let (at, duplicate_at, corrupt_bit, mark_ecn) = match admission {
            Admission::Drop { reason, .. } => {
                self.lose(hop, Loss::Link(reason), 1, now);
                return admission.sent_at();
            }
            Admission::Deliver {
                at,
                duplicate_at,
                corrupt_bit,
                mark_ecn,
                ..
            } => (at, duplicate_at, corrupt_bit, mark_ecn),
        };
        self.count_copied(hop, bytes.len() as u64);
        for (at, is_duplicate) in [(Some(at), false), (duplicate_at, true)] {
            let Some(at) = at else { continue };
            let Some(mut pooled) = self.pool.copy_of(bytes, stage, transit) else {
                // A duplicate is the link's doing: no room for it is no loss.
                if !is_duplicate {
                    self.lose(hop, Loss::PoolShare, 1, now);
                }
                continue;
            };
            if mark_ecn && pooled.mark_ecn() && !is_duplicate {
                self.stage_and_link(hop).1.count_marked();
            }
            if let Some(bit) = corrupt_bit {
                pooled.flip_bit(bit);
            }
            self.pool.wait(pooled, at);
        }
        admission.sent_at()
    }

    /// Where a frame gets to over a link, and the link.
    pub fn stage_and_link(&mut self, hop: Hop) -> (Stage, &mut Link) {
        match hop {
            Hop::FromGuest(index) => {
                let card = &mut self.cards[index];
                let at = card.attachment();
                let stage = Stage::Switch {
                    switch: at.switch,
                    port: at.port,
                };
                (stage, &mut card.cable_mut().from_guest)
            }
            Hop::Trunk { trunk, from } => self.trunks[trunk].out_of(from),
            Hop::ToGuest(index) => (Stage::Card(index), &mut self.cards[index].cable_mut().to_guest),
        }
    }

    fn count_copied(&mut self, hop: Hop, bytes: u64) {
        if let Hop::ToGuest(index) = hop {
            self.cards[index].counters_mut().copied_bytes += bytes;
        }
    }

    /// Counts frames that do not arrive where the table of their card or trunk shows it.
    #[cold]
    pub fn lose(&mut self, hop: Hop, loss: Loss, frames: u32, now: Time) {
        match hop {
            Hop::FromGuest(index) => self.cards[index].drop_tx(loss.at_sender(), frames, now),
            Hop::ToGuest(index) => match loss {
                Loss::Refused(Refused::Rule(rule)) => self.cards[index].fail_rule(rule, now),
                loss => self.cards[index].drop_rx(loss.at_receiver(), frames, now),
            },
            Hop::Trunk { trunk, from } => self.trunks[trunk].lost[from].count(loss, frames),
        }
    }
}
