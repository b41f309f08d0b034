//! Draining before an orderly end: nothing more is taken from guests, and what is in flight arrives. Frames that guests queue
//! meanwhile stay in their rings, for the process that serves these next.
//!
//! QEMU throws the frames in a ring away at a kick that no process takes. So drivers are not to kick from now on; the frames for which
//! they may have decided to kick before they could know that are still taken, and kicks are taken until the connection ends
//! ([`SessionDevice::connection_ends`](crate::session::SessionDevice::connection_ends)).

use std::sync::Arc;
use std::time::{Duration, Instant};

use vnicd_protocol::{ArmedTimer, PacketsGiven, PortPacketsGiven};

use super::Fabric;
use crate::dataplane::timers::PortTimer;
use crate::dataplane::{Card, DataPlane, Runner};

/// How long frames in flight are waited for. A link that delays by more than this keeps the rest, which is counted.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// How often to ask a drain whether all have arrived: they are moved by the runner's own timers, and the path of a frame should not
/// bear the cost of a notification that is wanted once in a process's life.
pub const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Frames in flight. Those that switches send by themselves are not among them: there are always some, and none is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// On modelled links, in a card that waits for credits of the next one, or before a card that has no buffer for them.
    pub on_links: u64,
    /// In flight into host memory.
    pub in_dma: u64,
}

/// Nothing is taken from guests as long as this lives.
#[must_use = "dropping it lets guests send again"]
pub struct Drain {
    runner: Arc<Runner>,
    began: Instant,
    /// Timers that were taken from the cards.
    timers: Vec<PortTimer>,
}

impl Drain {
    /// What is still in flight, and how long it was waited for, once that is nothing or has taken too long.
    pub fn outcome(&self) -> Option<(UnderWay, Duration)> {
        let waited = self.began.elapsed();
        self.runner.with(|plane, _| {
            let left = plane.under_way();
            let is_over = left.on_links + left.in_dma == 0 && plane.kicked_for() == 0 || waited >= DRAIN_TIMEOUT;
            is_over.then(|| {
                plane.leave_the_rest();
                (left, waited)
            })
        })
    }

    /// Takes the timers from all cards, so that none rings here and in the next process; they are armed again when this is
    /// dropped.
    pub fn take_timers(&mut self) -> Vec<(String, ArmedTimer)> {
        let (told, taken) = self.runner.with(|plane, _| plane.take_timers());
        self.timers.extend(taken);
        told
    }

    /// The packets that guests gave to reliable groups, with the names of their ports.
    pub fn packets_given(&self) -> Vec<PortPacketsGiven> {
        let of_card = |card: &Card| {
            let port = card.name().to_owned();
            let given = card.firmware().multicast().packets_given();
            let told = move |(group, count)| PortPacketsGiven {
                port: port.clone(),
                given: PacketsGiven { group, count },
            };
            given.map(told).collect::<Vec<_>>()
        };
        self.runner
            .with(|plane, _| plane.cards().iter().flat_map(of_card).collect())
    }

    /// Leaves it so: the process ends.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        let timers = std::mem::take(&mut self.timers);
        self.runner.with(|plane, now| {
            plane.drains -= 1;
            plane.set_quiet(plane.drains != 0);
            plane.put_timers_back(&timers, now);
        });
    }
}

impl Fabric {
    /// Takes nothing more from any guest.
    pub fn drain(&self) -> Drain {
        self.runner.with(|plane, _| {
            plane.drains += 1;
            plane.set_quiet(true);
        });
        Drain {
            runner: Arc::clone(&self.runner),
            began: Instant::now(),
            timers: Vec::new(),
        }
    }
}

impl DataPlane {
    /// Asks no driver to kick, or (not `quiet`) all of them again before the data plane sleeps next.
    pub(in crate::dataplane) fn set_quiet(&mut self, quiet: bool) {
        for index in 0..self.cards().len() {
            let card = self.card(index);
            for pair in 0..card.queue_pairs() {
                card.transmit_ring_mut(pair).set_quiet(quiet);
            }
        }
    }

    /// Entries of transmit rings that drivers may kick for yet.
    pub(in crate::dataplane) fn kicked_for(&self) -> usize {
        let of_card = |card: &Card| -> usize {
            let pairs = 0..card.queue_pairs();
            pairs
                .map(|pair| usize::from(card.transmit_ring(pair).kicked_for()))
                .sum()
        };
        self.cards().iter().map(of_card).sum()
    }

    /// Takes nothing more from any guest, whatever it may kick for: by now, it has.
    fn leave_the_rest(&mut self) {
        for index in 0..self.cards().len() {
            let card = self.card(index);
            for pair in 0..card.queue_pairs() {
                card.transmit_ring_mut(pair).leave_the_rest();
            }
        }
    }

    pub(in crate::dataplane) fn under_way(&self) -> UnderWay {
        let cards = self.cards().iter();
        let waiting = cards.map(|card| card.waiting().under_way() + card.firmware().multicast().buffers_in_use());
        let queues = self.cards().iter().flat_map(|card| card.firmware().queues());
        UnderWay {
            on_links: (self.forwarding.wiring.pool.under_way() + waiting.sum::<usize>()) as u64,
            in_dma: queues.map(|queue| queue.pending() as u64).sum(),
        }
    }
}
