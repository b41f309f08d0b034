//! How a card's rings start, stop and fail, and what the frontend sets before: memory, and which rings are enabled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ether::{MacAddr, Time};
use firmware::timers::ArmedTimer;
use virtio_bindings::virtio_ring;
use virtio_queue::QueueT;

use vhost_user_backend::VringT;

use super::Card;
use super::ring_activity::RingActivity;
use crate::memory::MemoryMap;
use crate::offload::{LEGACY_NET_HEADER_LEN, NET_HEADER_LEN};
use crate::ring::{Halt, RingAddresses, Rule, SplitRing};
use crate::session::SessionVring;

/// At most one line of a kind is logged in this time for each card; the others are counted.
const LOG_INTERVAL_NS: u64 = 1_000_000_000;

/// Log lines of one kind that a guest or frontend can cause as often as it likes.
#[derive(Clone, Copy, Debug, Default)]
struct LogLimit {
    logged_at: Option<Time>,
    unlogged: u64,
}

impl LogLimit {
    /// Counts a line: if it may be logged, how many were not since the last one.
    fn admit(&mut self, now: Time) -> Option<u64> {
        if self.logged_at.is_some_and(|at| now.nanos_since(at) < LOG_INTERVAL_NS) {
            self.unlogged += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

/// What happened to a ring before it could be started or stopped.
#[derive(Clone, Copy, Debug, Default)]
struct RingPast {
    /// The card failed while the ring was started: it must be stopped before it may start again.
    poisoned: bool,
    /// Next available index when it last stopped.
    stopped_at: Option<u16>,
}

/// Whether a card works, and what became of its rings.
pub(super) struct Lifecycle {
    /// Why the card does not work.
    pub failed: Option<String>,
    /// A frontend is connected.
    pub connected: bool,
    /// The guest was there in an earlier process, and its first receive ring is waited for.
    returning: bool,
    /// A ring was started that had run before.
    resumed: bool,
    /// What the threads that take kicks know and count.
    pub activity: Arc<RingActivity>,
    /// The card's rings are being worked on: a panic now is its guest's fault.
    pub at_work: bool,
    /// Set when the switch may not know whether there is a carrier; one for all cards.
    pub carrier_news: Arc<AtomicBool>,
    memory_fault: Arc<AtomicBool>,
    past: Vec<RingPast>,
    failure_lines: LogLimit,
    base_lines: LogLimit,
}

impl Lifecycle {
    /// The state of a card with so many rings that no guest has used.
    pub fn new(rings: usize) -> Self {
        Self {
            failed: None,
            connected: false,
            returning: false,
            resumed: false,
            activity: Arc::default(),
            at_work: false,
            carrier_news: Arc::default(),
            memory_fault: Arc::default(),
            past: vec![RingPast::default(); rings],
            failure_lines: LogLimit::default(),
            base_lines: LogLimit::default(),
        }
    }
}

impl Card {
    /// Why the card does not work.
    pub fn failed(&self) -> Option<&str> {
        self.lifecycle.failed.as_deref()
    }

    /// Whether a frontend is connected.
    pub fn is_connected(&self) -> bool {
        self.lifecycle.connected
    }

    /// Whether a frame that begins with `inline` is kept for a guest that was there in an earlier process and is not back: it is for
    /// that guest, as far as can be known.
    pub fn keeps_for_return(&self, inline: &[u8]) -> bool {
        let is_for_it = |to: MacAddr| to.is_multicast() || self.settings.mac.is_none_or(|own| own == to);
        self.lifecycle.returning && MacAddr::from_slice(inline).is_some_and(is_for_it)
    }

    /// The guest may have been there in an earlier process and is waited for, if it is not back, or no longer.
    pub fn set_returning(&mut self, returning: bool) {
        let is_away = !self.pairs.iter().any(|pair| pair.rx.is_ready());
        self.lifecycle.returning = returning && is_away && self.settings.returns;
        self.note_carrier();
    }

    /// Whether a ring was started here that had run in an earlier process.
    pub fn is_resumed(&self) -> bool {
        self.lifecycle.resumed
    }

    /// A frontend connected; what an earlier one set is forgotten.
    pub fn connect(&mut self) {
        self.disconnect();
        self.lifecycle.connected = true;
    }

    /// A new memory table: started rings move to it. A ring that has no place in it fails the card; the new table is in
    /// force all the same. A table that cannot be guarded is not served at all: the card fails and has no memory.
    pub fn set_memory(&mut self, table: Arc<vm_memory::GuestMemoryMmap>, now: Time) {
        let fault = Arc::new(AtomicBool::new(false));
        // Behind an IOMMU, the translations so far go with the memory that they lead to.
        let map = match &self.negotiated.iommu {
            Some(iommu) => MemoryMap::translated(table, fault.clone(), iommu.misses()),
            None => MemoryMap::new(table, fault.clone()),
        };
        let map = match map {
            Ok(map) => map,
            Err(error) => {
                self.fail(format!("its memory is refused: {error}"), now);
                self.negotiated.map = None;
                return;
            }
        };
        let mut broken = None;
        for pair in &mut self.pairs {
            for moved in [pair.rx.move_to(&map), pair.tx.move_to(&map)] {
                // A ring behind an IOMMU has its place when the frontend says so.
                if let Err(Halt::Broken(rule)) = moved {
                    broken = Some(rule);
                }
            }
        }
        self.lifecycle.memory_fault = fault;
        let old = self.negotiated.map.replace(map);
        if let Some(rule) = broken {
            self.fail_rule(rule, now);
        }
        // Until here a ring that did not move was still in it.
        drop(old);
        self.start_pending(now);
    }

    /// Starts ring `index` as `vring` describes it. It is enabled if the crate or the session says so: of the two, one may
    /// not have heard of it yet. A ring that was in use before (its used index is not 0) is signalled
    /// once, since the process that served it may have died before telling the guest (reason `restart`).
    ///
    /// Behind an IOMMU, a ring that is not translated yet starts when it is.
    ///
    /// # Errors
    /// The rule that the ring's place breaks.
    pub fn start_ring(&mut self, index: usize, vring: &SessionVring, now: Time) -> Result<(), Rule> {
        if self.lifecycle.past.get(index).is_none_or(|past| past.poisoned) {
            return Ok(());
        }
        let (ring, enabled) = match self.ring_of(index, vring) {
            Ok(Some(parts)) => parts,
            Ok(None) => return Ok(()),
            Err(Halt::Broken(rule)) => return Err(rule),
            Err(Halt::Untranslated) => {
                self.start_later(index, vring);
                return Ok(());
            }
        };
        let used = ring.next_used();
        tracing::debug!(port = %self.settings.name, ring = index, size = ring.size(), used, "ring started");
        self.compare_base(index, vring.queue_next_avail(), used, now);
        let resumed = used != 0;
        self.lifecycle.resumed |= resumed;
        let queue = index / 2;
        let header_len = if self.negotiated.has_legacy_header {
            LEGACY_NET_HEADER_LEN
        } else {
            NET_HEADER_LEN
        };
        let Some(pair) = self.pairs.get_mut(queue) else {
            return Ok(());
        };
        if index.is_multiple_of(2) {
            pair.rx.start(ring, vring.clone(), enabled, header_len);
            if let Some(map) = self.negotiated.map.as_ref().filter(|map| map.translation().is_some()) {
                pair.rx.translations_changed(map);
            }
            if resumed {
                let pipeline = self.firmware.rx(queue as u16);
                pipeline.restart(now);
                pipeline.note_signalled();
            }
            self.note_ready();
            if index == 0 {
                self.resume_timers(resumed, now);
            }
        } else {
            pair.tx.start(ring, vring.clone(), enabled, header_len);
            if resumed {
                self.counters.tx_decided += 1;
                self.counters.tx_signalled += 1;
            }
        }
        self.note_carrier();
        self.lifecycle.activity.set_settled(index, true);
        if resumed {
            signal(vring);
        }
        Ok(())
    }

    /// Says that ring `index` goes on at its `used` index, if the frontend gave another one as its `base`.
    fn compare_base(&mut self, index: usize, base: u16, used: u16, now: Time) {
        if base != used
            && let Some(unlogged) = self.lifecycle.base_lines.admit(now)
        {
            tracing::warn!(
                port = %self.settings.name,
                ring = index,
                unlogged,
                "the frontend gave {base} as the base of a ring whose used index is {used}: it goes on from the used index"
            );
        }
    }

    /// The ring that `vring` describes, in the guest's memory as it is now, and whether the session has it enabled; `None`
    /// while there is no memory.
    fn ring_of(&self, index: usize, vring: &SessionVring) -> Result<Option<(SplitRing, bool)>, Halt> {
        let Some(map) = &self.negotiated.map else {
            return Ok(None);
        };
        let state = vring.get_ref();
        let queue = state.get_queue();
        let addresses = match &self.negotiated.iommu {
            None => RingAddresses {
                descriptors: queue.desc_table(),
                available: queue.avail_ring(),
                used: queue.used_ring(),
            },
            Some(iommu) => match iommu.place(index) {
                Some(place) => place,
                None => return Ok(None),
            },
        };
        let has = |bit: u32| self.negotiated.features & 1 << bit != 0;
        let event_idx = has(virtio_ring::VIRTIO_RING_F_EVENT_IDX);
        let indirect = has(virtio_ring::VIRTIO_RING_F_INDIRECT_DESC);
        let ring = SplitRing::new(map, queue.size(), addresses, event_idx, indirect)?;
        Ok(Some((ring, state.is_enabled())))
    }

    /// The guest's first receive ring runs. If it is the guest that armed them (it `is_back`), its timers go on.
    pub fn resume_timers(&mut self, is_back: bool, now: Time) {
        let left = std::mem::take(&mut self.timers_set_aside);
        let timers = self.firmware.timers_mut();
        if !is_back {
            return timers.forget(left.len());
        }
        for timer in left {
            if let Err(error) = timers.resume(now, &timer) {
                tracing::warn!(port = %self.settings.name, timer = timer.timer, %error, "a guest's timer is lost");
                timers.note_lost();
            }
        }
    }

    /// Timers of a guest that stopped and may come back.
    pub fn timers_set_aside(&self) -> &[ArmedTimer] {
        &self.timers_set_aside
    }

    /// Sets timers aside for a guest that is not there yet.
    pub fn set_timers_aside(&mut self, timers: Vec<ArmedTimer>) {
        self.timers_set_aside = timers;
    }

    /// Stops ring `index` and returns its next available index, if it was ever started.
    pub fn stop_ring(&mut self, index: usize) -> Option<u16> {
        self.forget_start(index);
        let stopped = self.take_ring(index);
        let past = self.lifecycle.past.get_mut(index)?;
        let stopped_at = stopped.or(past.stopped_at);
        *past = RingPast::default();
        self.forget_questions();
        self.lifecycle.activity.set_settled(index, false);
        // Without memory no ring can start, and the card goes on having failed.
        if self.negotiated.map.is_some() && self.lifecycle.past.iter().all(|past| !past.poisoned) {
            self.lifecycle.failed = None;
        }
        stopped_at
    }

    /// Stops ring `index` in memory only.
    fn take_ring(&mut self, index: usize) -> Option<u16> {
        self.note_carrier();
        let pair = self.pairs.get_mut(index / 2)?;
        if !index.is_multiple_of(2) {
            return pair.tx.stop();
        }
        let stopped = pair.rx.stop();
        if index == 0 && stopped.is_some() {
            // A guest that is only paused goes on with its ring; one that comes with an empty ring armed none of them.
            self.timers_set_aside = self.firmware.timers_mut().set_aside();
        }
        if stopped.is_some() {
            self.firmware.rx((index / 2) as u16).reset();
            if let Some(capture) = &mut self.capture {
                capture.stopped(index / 2);
            }
        }
        self.note_ready();
        stopped
    }

    /// The frontend enabled or disabled ring `index`.
    pub fn enable_ring(&mut self, index: usize, enabled: bool) {
        self.note_carrier();
        let Some(pair) = self.pairs.get_mut(index / 2) else {
            return;
        };
        if index.is_multiple_of(2) {
            pair.rx.enable(enabled);
            self.note_ready();
        } else {
            pair.tx.enable(enabled);
        }
    }

    /// Tells the firmware which receive queues are ready; after every change of that.
    fn note_ready(&mut self) {
        let ready = self.pairs.iter().zip(0..).filter(|(pair, _)| pair.rx.is_ready());
        let queues = ready.fold(0, |queues, (_, queue)| queues | 1 << queue);
        self.lifecycle.returning &= queues == 0;
        self.firmware.steering_mut().set_ready(queues);
    }

    /// Takes the kicks that are there for transmit rings: none is left for the frontend to take.
    pub fn take_kicks(&self) {
        self.pairs.iter().for_each(|pair| pair.tx.take_kicks());
    }

    /// The frontend is gone: nothing of its memory is kept.
    pub fn disconnect(&mut self) {
        for index in 0..self.lifecycle.past.len() {
            self.stop_ring(index);
            self.enable_ring(index, false);
        }
        self.negotiated.map = None;
        self.negotiated.iommu = None;
        self.lifecycle.connected = false;
        self.lifecycle.failed = None;
        self.set_features(0);
    }

    /// The guest broke `rule`: the card stops until its driver or frontend starts anew.
    pub fn fail_rule(&mut self, rule: Rule, now: Time) {
        // Zero pages in place of truncated ones can break any rule.
        let rule = if self.take_memory_fault() {
            Rule::MemoryTruncated
        } else {
            rule
        };
        self.counters.rules.count(rule);
        self.fail(format!("the guest {rule} (rule {})", rule.name()), now);
    }

    /// The card stops until its driver or frontend starts anew; `why` is logged unless it was logged just now.
    pub fn fail(&mut self, why: String, now: Time) {
        for index in 0..self.lifecycle.past.len() {
            self.forget_start(index);
            if let Some(stopped_at) = self.take_ring(index) {
                self.lifecycle.past[index] = RingPast {
                    poisoned: true,
                    stopped_at: Some(stopped_at),
                };
            }
        }
        self.forget_questions();
        if let Some(unlogged) = self.lifecycle.failure_lines.admit(now) {
            tracing::warn!(port = %self.settings.name, unlogged, "port stopped: {why}");
        }
        self.lifecycle.failed = Some(why);
    }

    /// True once after a page of the guest's memory turned out not to be there any more.
    #[inline]
    pub fn take_memory_fault(&self) -> bool {
        let fault = &self.lifecycle.memory_fault;
        fault.load(Ordering::Relaxed) && fault.swap(false, Ordering::AcqRel)
    }

    /// Whether its rings were being worked on when a panic was caught; they are not any more.
    pub fn take_at_work(&mut self) -> bool {
        std::mem::take(&mut self.lifecycle.at_work)
    }

    /// A panic unwound past the card's work: frames of a batch that were not handed over are still in their ring.
    pub fn give_back_unfinished(&mut self) {
        self.pairs.iter_mut().for_each(|pair| pair.tx.give_back_unfinished());
    }

    /// A panic follows so many deliveries, in tests of what follows from that.
    #[cfg(test)]
    pub fn panic_after(&mut self, deliveries: u32) {
        self.pairs[0].rx.panic_after(deliveries);
    }

    /// Announcing packets panics, in tests of what follows from that.
    #[cfg(test)]
    pub fn panic_at_publication(&mut self) {
        self.pairs[0].rx.panic_at_publication();
    }

    /// Receive and transmit rings that are started and enabled.
    pub fn rings_ready(&self) -> u32 {
        let pairs = self.pairs.iter();
        pairs
            .map(|pair| u32::from(pair.rx.is_ready()) + u32::from(pair.tx.is_ready()))
            .sum()
    }

    /// Whether the switch sees a carrier at its end of the cable: as on a cable with one broken wire, there is none if one direction
    /// is down, and none without a guest whose rings work. A guest on its return is waited for: what the switch knows of it stays. A card in a
    /// multicast group goes on forwarding while its guest is stopped.
    pub fn has_carrier(&self) -> bool {
        let forwards = || self.lifecycle.connected && self.firmware.multicast().groups().next().is_some();
        self.is_cable_whole() && (self.rings_ready() != 0 || self.lifecycle.returning || forwards())
    }

    /// Whether both directions of the cable are up.
    pub fn is_cable_whole(&self) -> bool {
        self.cable.to_guest.config().up && self.cable.from_guest.config().up
    }

    /// Something that [`has_carrier`](Self::has_carrier) depends on may have changed: the switch is to be told.
    pub fn note_carrier(&self) {
        self.lifecycle.carrier_news.store(true, Ordering::Relaxed);
    }

    /// Whether frames can be put into receive queue `queue`.
    #[inline]
    pub fn is_receiving(&self, queue: usize) -> bool {
        self.pairs[queue].rx.is_ready()
    }
}

/// Signals the ring's call eventfd, which never waits, whatever the frontend does to it. A full counter (the guest has 2⁶⁴
/// signals to read) or a missing fd means that nothing listens, which is the frontend's choice.
pub(super) fn signal(vring: &SessionVring) {
    if let Err(error) = vring.signal_used_queue() {
        tracing::debug!(%error, "call eventfd not signalled");
    }
}
