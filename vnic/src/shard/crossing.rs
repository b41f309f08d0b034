//! Frames over a link that they do not pass straight: copied into private memory, asked about, kept until they arrive.
//!
//! Whoever sent a frame is rid of it when its last bit is on the wire, however long that is. Which way a frame takes is
//! decided in `way`, what happens when it has arrived is in `due`.

use ether::Time;
use fabric::{Admission, Link, LinkDrop};

use super::Inner;
use super::drops::{RxDrop, TxDrop};
use super::frame::FrameRef;
use super::pool::Stage;
use super::transmit::TxOrigin;
use super::way::{Way, way_over};
use crate::offload::OnWire;

/// A link in the direction in which a frame crosses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// From the card at this port (index) to its switch.
    FromGuest(usize),
    /// Over a trunk, away from its end with this number (0 or 1).
    Trunk {
        /// Index of the trunk.
        trunk: usize,
        /// The end.
        from: usize,
    },
    /// From a switch to the card at this port (index).
    ToGuest(usize),
}

/// Why a frame does not arrive.
#[derive(Clone, Copy)]
enum Lost {
    Link(LinkDrop),
    PoolShare,
    BadOffload,
}

impl Inner {
    /// Sends a frame over a link. Returns when it has left whoever sends it there.
    #[inline(never)]
    pub(super) fn cross(
        &mut self,
        hop: Hop,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        wire: &OnWire,
        way: Way,
        now: Time,
    ) -> Time {
        if way != Way::Single {
            self.cross_whole(hop, origin, frame, wire, now);
            return now;
        }
        let mut left_at = now;
        let resolved = self.resolve(frame, |inner, bytes| {
            left_at = left_at.max(inner.cross_singly(hop, origin, bytes, now));
        });
        if !resolved {
            self.lose(hop, Lost::BadOffload, 1, now);
        }
        left_at
    }

    /// A frame as it is, with all that it becomes on the wire.
    fn cross_whole(&mut self, hop: Hop, origin: TxOrigin, frame: &FrameRef<'_>, wire: &OnWire, now: Time) {
        let (stage, link) = self.stage_and_link(hop);
        let at = link.admit_together(now, u64::from(wire.frames), wire.bytes);
        self.count_copied(hop, u64::from(frame.len));
        match self.pool.whole(frame, stage, origin) {
            Some(pooled) => self.pool.wait(pooled, at),
            None => self.lose(hop, Lost::PoolShare, wire.frames, now),
        }
    }

    /// One frame that is on the wire, in private memory. Returns when it has left its sender.
    fn cross_singly(&mut self, hop: Hop, origin: TxOrigin, bytes: &[u8], now: Time) -> Time {
        let (stage, link) = self.stage_and_link(hop);
        let admission = link.admit(now, bytes.len());
        let (at, duplicate_at, corrupt_bit, mark_ecn) = match admission {
            Admission::Drop { reason, .. } => {
                self.lose(hop, Lost::Link(reason), 1, now);
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
            let Some(mut pooled) = self.pool.copy_of(bytes, stage, origin) else {
                // A duplicate is the link's own: no room for it is no loss.
                if !is_duplicate {
                    self.lose(hop, Lost::PoolShare, 1, now);
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

    /// How frames that are up to `longest` bytes on the wire cross a link at `now`.
    pub(super) fn way_over_hop(&mut self, hop: Hop, longest: u32, now: Time) -> Way {
        let shortcuts = self.shortcuts;
        way_over(self.stage_and_link(hop).1, longest, now, shortcuts)
    }

    fn stage_and_link(&mut self, hop: Hop) -> (Stage, &mut Link) {
        match hop {
            Hop::FromGuest(index) => {
                let port = &mut self.ports[index];
                let stage = Stage::Switch {
                    switch: port.switch,
                    port: port.switch_port,
                };
                (stage, &mut port.from_guest)
            }
            Hop::Trunk { trunk, from } => self.trunks[trunk].out_of(from),
            Hop::ToGuest(index) => (Stage::Card(index), &mut self.ports[index].to_guest),
        }
    }

    fn count_copied(&mut self, hop: Hop, bytes: u64) {
        if let Hop::ToGuest(index) = hop {
            self.ports[index].counters.copied_bytes += bytes;
        }
    }

    /// Counts a frame whose headers do not allow the cut that it asks for any more: its sender changed them after its card had looked.
    #[cold]
    pub(super) fn lose_uncut(&mut self, hop: Hop, now: Time) {
        self.lose(hop, Lost::BadOffload, 1, now);
    }

    /// Counts frames that do not arrive where the table of their port or trunk shows it.
    fn lose(&mut self, hop: Hop, why: Lost, frames: u32, now: Time) {
        match hop {
            Hop::FromGuest(index) => {
                let reason = match why {
                    Lost::Link(LinkDrop::Mtu) => TxDrop::TooLong,
                    Lost::Link(_) => TxDrop::Link,
                    Lost::PoolShare => TxDrop::PoolShare,
                    Lost::BadOffload => TxDrop::BadOffload,
                };
                self.ports[index].drop_tx_all(reason, frames, now);
            }
            Hop::ToGuest(index) => {
                let reason = match why {
                    Lost::Link(LinkDrop::Mtu) => RxDrop::TooLong,
                    Lost::Link(_) => RxDrop::Link,
                    Lost::PoolShare => RxDrop::PoolShare,
                    Lost::BadOffload => RxDrop::BadOffload,
                };
                self.ports[index].drop_rx_all(reason, frames, now);
            }
            Hop::Trunk { trunk, from } => {
                let losses = &mut self.trunks[trunk].losses[from];
                match why {
                    // The link counts it.
                    Lost::Link(_) => {}
                    Lost::PoolShare => losses.pool_share += u64::from(frames),
                    Lost::BadOffload => losses.bad_offload += u64::from(frames),
                }
            }
        }
    }
}
