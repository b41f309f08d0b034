//! One card on the shard: its rings, firmware, link ends and counters, and how rings start, stop and fail.
//!
//! How frames cross from one port to another is not here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ether::Time;
use fabric::{Link, PortId};
use firmware::timers::ArmedTimer;
use firmware::{Event, Firmware, Interrupt, StrategyKind};
use vhost_user_backend::VringT;
use virtio_bindings::{virtio_net, virtio_ring};
use virtio_queue::QueueT;

use super::capture::PortCapture;
use super::counters::PortCounters;
use super::drops::{RxDrop, TRACED_TX_DROP, TxDrop};
use super::due::Waiting;
use super::frame::FrameRef;
use super::hold::Patience;
use super::host_state::LastPoll;
use super::pool::Pooled;
use super::receive::{Refused, RxSide};
use super::transmit::TxSide;
use crate::device::RingActivity;
use crate::memory::MemoryMap;
use crate::offload::{Offloads, OnWire};
use crate::report::PortSettings;
use crate::ring::{RING_SIZE_MAX, RingAddresses, Rule, SplitRing};
use crate::session::SessionVring;

/// At most one line about a broken rule in this time and port; the others are counted.
const LOG_INTERVAL_NS: u64 = 1_000_000_000;

// A pending packet holds a descriptor: the pipeline takes whatever a ring can hold.
const _: () = assert!(RING_SIZE_MAX as usize <= firmware::PENDING_MAX);

/// One receive and one transmit ring.
#[derive(Default)]
pub struct QueuePair {
    /// Towards the guest.
    pub rx: RxSide,
    /// From the guest.
    pub tx: TxSide,
}

/// What happened to a ring before it could be started or stopped.
#[derive(Clone, Copy, Debug, Default)]
struct RingPast {
    /// The port failed while the ring was started: it must be stopped before it may start again.
    poisoned: bool,
    /// Next available index when it last stopped.
    stopped_at: Option<u16>,
}

/// A port of the shard.
pub struct Port {
    /// Settings it was made from; the link is kept current, coalescing and DMA are the firmware's.
    pub settings: PortSettings,
    /// Index of its switch.
    pub switch: usize,
    /// Its port there.
    pub switch_port: PortId,
    /// The card.
    pub nic: Firmware,
    /// Link from the switch to the guest.
    pub to_guest: Link,
    /// Link from the guest to the switch.
    pub from_guest: Link,
    /// Queue pairs, as many as offered.
    pub pairs: Vec<QueuePair>,
    /// Guest memory while a frontend has set it.
    pub map: Option<MemoryMap>,
    /// Negotiated virtio features.
    pub features: u64,
    /// What the guest may ask of the card.
    pub sender: Offloads,
    /// What the card may hand to the guest.
    pub receiver: Offloads,
    /// MRG_RXBUF was negotiated.
    pub mergeable: bool,
    /// How long others still wait for this guest's receive buffers.
    pub patience: Patience,
    /// Frames of anybody wait for this guest's receive buffers; right while the shard prepares to sleep.
    pub awaited: bool,
    /// What the card's clocks ask for.
    pub last_poll: LastPoll,
    /// Timers of before a stop, in this process or one before it, until the guest that armed them is back.
    pub timers_left: Vec<ArmedTimer>,
    /// Frames that are due but find no buffer.
    pub waiting: Waiting,
    /// The forwarding buffers of the card, by number; made when the first is used.
    pub kept: Vec<Option<Pooled>>,
    /// The capture that looks at this port.
    pub capture: Option<PortCapture>,
    /// Counters.
    pub counters: PortCounters,
    /// Why the port does not work.
    pub failed: Option<String>,
    /// A frontend is connected.
    pub connected: bool,
    /// Shared with the kicks' threads.
    pub activity: Arc<RingActivity>,
    memory_fault: Arc<AtomicBool>,
    past: Vec<RingPast>,
    logged_at: Option<Time>,
    unlogged: u64,
}

impl Port {
    /// A port without a guest.
    pub fn new(
        settings: PortSettings,
        switch: usize,
        switch_port: PortId,
        nic: Firmware,
        to_guest: Link,
        from_guest: Link,
    ) -> Self {
        let pairs = usize::from(settings.queue_pairs);
        Self {
            settings,
            switch,
            switch_port,
            nic,
            to_guest,
            from_guest,
            pairs: (0..pairs).map(|_| QueuePair::default()).collect(),
            map: None,
            features: 0,
            sender: Offloads::default(),
            receiver: Offloads::default(),
            mergeable: false,
            patience: Patience::default(),
            awaited: false,
            last_poll: LastPoll::default(),
            timers_left: Vec::new(),
            waiting: Waiting::default(),
            kept: Vec::new(),
            capture: None,
            counters: PortCounters::default(),
            failed: None,
            connected: false,
            activity: Arc::default(),
            memory_fault: Arc::default(),
            past: vec![RingPast::default(); 2 * pairs],
            logged_at: None,
            unlogged: 0,
        }
    }

    /// The driver's choice of features.
    pub fn set_features(&mut self, features: u64) {
        self.features = features;
        self.sender = Offloads::of_sender(features);
        self.receiver = Offloads::of_receiver(features);
        self.mergeable = features & 1 << virtio_net::VIRTIO_NET_F_MRG_RXBUF != 0;
    }

    /// A new memory table: started rings move to it. A ring that has no place in it fails the port; the new table is in
    /// force all the same. A table that cannot be guarded is not served at all: the port fails and has no memory.
    pub fn set_memory(&mut self, table: Arc<vm_memory::GuestMemoryMmap>, now: Time) {
        let fault = Arc::new(AtomicBool::new(false));
        let map = match MemoryMap::new(table, fault.clone()) {
            Ok(map) => map,
            Err(error) => {
                self.fail(format!("its memory is refused: {error}"), now);
                self.map = None;
                return;
            }
        };
        let mut broken = None;
        for pair in &mut self.pairs {
            pair.rx.forget_read_ahead();
            for ring in [&mut pair.rx.ring, &mut pair.tx.ring].into_iter().flatten() {
                match ring.moved_to(&map) {
                    Ok(moved) => *ring = moved,
                    Err(rule) => broken = Some(rule),
                }
            }
        }
        self.memory_fault = fault;
        let old = self.map.replace(map);
        if let Some(rule) = broken {
            self.fail_rule(rule, now);
        }
        // Until here a ring that did not move was still in it.
        drop(old);
    }

    /// Starts ring `index` as `vring` describes it. It is enabled if the crate or the session says so: of the two, one may
    /// not have heard of it yet. A ring that was in use before (its used index is not 0) is signalled
    /// once, since whoever served it may have died before telling the guest (reason `restart`).
    ///
    /// # Errors
    /// The rule that the ring's place breaks.
    pub fn start_ring(&mut self, index: usize, vring: &SessionVring, now: Time) -> Result<(), Rule> {
        let Some(map) = &self.map else { return Ok(()) };
        if self.past.get(index).is_none_or(|past| past.poisoned) {
            return Ok(());
        }
        let (size, addresses, next_avail, enabled) = {
            let state = vring.get_ref();
            let queue = state.get_queue();
            let addresses = RingAddresses {
                descriptors: queue.desc_table(),
                available: queue.avail_ring(),
                used: queue.used_ring(),
            };
            (queue.size(), addresses, queue.next_avail(), state.is_enabled())
        };
        let has = |bit: u32| self.features & 1 << bit != 0;
        let event_idx = has(virtio_ring::VIRTIO_RING_F_EVENT_IDX);
        let indirect = has(virtio_ring::VIRTIO_RING_F_INDIRECT_DESC);
        let ring = SplitRing::new(map, size, addresses, next_avail, event_idx, indirect)?;
        tracing::debug!(port = %self.settings.name, ring = index, size, next_avail, "ring started");
        let resumed = ring.next_used() != 0;
        let queue = index / 2;
        let Some(pair) = self.pairs.get_mut(queue) else {
            return Ok(());
        };
        if index.is_multiple_of(2) {
            pair.rx.start(ring, vring.clone());
            pair.rx.enabled |= enabled;
            if resumed {
                let pipeline = self.nic.rx(queue as u16);
                pipeline.restart(now);
                pipeline.note_signalled();
            }
            self.note_ready();
            if index == 0 {
                self.resume_timers(resumed, now);
            }
        } else {
            pair.tx.start(ring, vring.clone());
            pair.tx.enabled |= enabled;
            if resumed {
                self.counters.tx_decided += 1;
                self.counters.tx_signalled += 1;
            }
        }
        self.activity.set_settled(index, true);
        if resumed {
            signal(vring);
        }
        Ok(())
    }

    /// Stops ring `index` and returns its next available index, if it was ever started.
    pub fn stop_ring(&mut self, index: usize) -> Option<u16> {
        let stopped = self.take_ring(index);
        let past = self.past.get_mut(index)?;
        let stopped_at = stopped.or(past.stopped_at);
        *past = RingPast::default();
        self.activity.set_settled(index, false);
        // Without memory no ring can start, and the port goes on having failed.
        if self.map.is_some() && self.past.iter().all(|past| !past.poisoned) {
            self.failed = None;
        }
        stopped_at
    }

    /// Stops ring `index` in memory only.
    fn take_ring(&mut self, index: usize) -> Option<u16> {
        let pair = self.pairs.get_mut(index / 2)?;
        if index.is_multiple_of(2) {
            pair.rx.vring = None;
            let stopped = pair.rx.stop();
            if index == 0 && stopped.is_some() {
                // A guest that is only paused goes on with the same ring; whoever comes with an empty one armed none of them.
                self.timers_left = self.nic.timers_mut().set_aside();
            }
            if stopped.is_some() {
                self.nic.rx((index / 2) as u16).reset();
                if let Some(capture) = &mut self.capture {
                    capture.stopped(index / 2);
                }
            }
            self.note_ready();
            stopped
        } else {
            pair.tx.vring = None;
            pair.tx.stop()
        }
    }

    /// The frontend enabled or disabled ring `index`.
    pub fn enable_ring(&mut self, index: usize, enabled: bool) {
        let Some(pair) = self.pairs.get_mut(index / 2) else {
            return;
        };
        if index.is_multiple_of(2) {
            pair.rx.enabled = enabled;
            self.note_ready();
        } else {
            pair.tx.enabled = enabled;
        }
    }

    /// The frontend is gone: nothing of its memory is kept.
    pub fn disconnect(&mut self) {
        for index in 0..self.past.len() {
            self.stop_ring(index);
            self.enable_ring(index, false);
        }
        self.map = None;
        self.connected = false;
        self.failed = None;
        self.set_features(0);
    }

    /// The port broke `rule`: it stops until its driver or frontend starts anew.
    pub fn fail_rule(&mut self, rule: Rule, now: Time) {
        // Zero pages in place of truncated ones look like all kinds of broken rules.
        let rule = if self.take_memory_fault() {
            Rule::MemoryTruncated
        } else {
            rule
        };
        self.counters.rules.count(rule);
        self.fail(format!("the guest {rule} (rule {})", rule.name()), now);
    }

    /// The port stops until its driver or frontend starts anew; `why` is logged unless it was logged just now.
    pub fn fail(&mut self, why: String, now: Time) {
        for index in 0..self.past.len() {
            if let Some(stopped_at) = self.take_ring(index) {
                self.past[index] = RingPast {
                    poisoned: true,
                    stopped_at: Some(stopped_at),
                };
            }
        }
        if self.logged_at.is_none_or(|at| now.nanos_since(at) >= LOG_INTERVAL_NS) {
            tracing::warn!(port = %self.settings.name, unlogged = self.unlogged, "port stopped: {why}");
            self.logged_at = Some(now);
            self.unlogged = 0;
        } else {
            self.unlogged += 1;
        }
        self.failed = Some(why);
    }

    /// True once after a page of the guest's memory turned out not to be there any more.
    pub fn take_memory_fault(&self) -> bool {
        self.memory_fault.load(Ordering::Relaxed) && self.memory_fault.swap(false, Ordering::AcqRel)
    }

    /// Counts a drop towards the guest.
    pub fn drop_rx(&mut self, reason: RxDrop, now: Time) {
        self.drop_rx_all(reason, 1, now);
    }

    /// Counts so many frames on the wire that were dropped together on their way to the guest.
    pub fn drop_rx_all(&mut self, reason: RxDrop, frames: u32, now: Time) {
        self.counters.rx_drops[reason as usize] += u64::from(frames);
        self.nic.note_dropped(now, reason as u8);
    }

    /// Counts a drop of what the guest sent.
    pub fn drop_tx(&mut self, reason: TxDrop, now: Time) {
        self.drop_tx_all(reason, 1, now);
    }

    /// Counts so many frames on the wire that were dropped together.
    pub fn drop_tx_all(&mut self, reason: TxDrop, frames: u32, now: Time) {
        self.counters.tx_drops[reason as usize] += u64::from(frames);
        self.nic.note_dropped(now, reason as u8 | TRACED_TX_DROP);
    }

    /// Counts a frame that was taken from the guest, as what it is on the wire.
    #[inline]
    pub fn count_sent(&mut self, wire: &OnWire) {
        self.counters.tx_frames += u64::from(wire.frames);
        self.counters.tx_bytes += wire.bytes;
    }

    /// The receive queue for a frame, as the card steers it, or `None` if no receive ring is ready.
    #[inline]
    pub fn rx_queue(&mut self, inline: &[u8]) -> Option<usize> {
        if self.pairs.len() == 1 {
            return self.pairs[0].rx.is_ready().then_some(0);
        }
        self.nic.steering_mut().queue(inline).map(usize::from)
    }

    /// Tells the card which receive queues are ready; after every change of that.
    fn note_ready(&mut self) {
        let ready = self.pairs.iter().zip(0..).filter(|(pair, _)| pair.rx.is_ready());
        let queues = ready.fold(0, |queues, (_, queue)| queues | 1 << queue);
        self.nic.steering_mut().set_ready(queues);
    }

    /// Puts `frame` into receive queue `queue` and tells the firmware. It is counted by
    /// [`count_batch`](Self::count_batch).
    ///
    /// # Errors
    /// See [`Refused`]; the caller decides what follows.
    #[inline]
    pub fn deliver(&mut self, queue: usize, frame: &FrameRef<'_>, now: Time) -> Result<(), Refused> {
        let Some(map) = &self.map else {
            return Err(Refused::NoBuffer);
        };
        let side = &mut self.pairs[queue].rx;
        side.deliver(map, frame, self.mergeable)?;
        let (frames, bytes) = frame.on_wire().map_or((1, 0), |wire| (wire.frames, wire.bytes));
        side.batch_frames += u64::from(frames);
        side.batch_bytes += bytes;
        if side.stalled_since.is_some() {
            self.end_stall(queue, now);
        }
        let pipeline = self.nic.rx(queue as u16);
        let packet = pipeline.classify(frame.inline, frame.len);
        // Every pending packet holds at least one descriptor and a ring is no larger than the pipeline.
        let arrived = pipeline.arrive(now, packet);
        debug_assert!(arrived.is_ok());
        if let Some(capture) = &mut self.capture {
            capture.delivered(queue, frame, now);
        }
        Ok(())
    }

    /// Counts what was delivered to `queue` since the last time; returns the frames and bytes.
    #[inline]
    pub fn count_batch(&mut self, queue: usize) -> (u64, u64) {
        let side = &mut self.pairs[queue].rx;
        let frames = std::mem::take(&mut side.batch_frames);
        let bytes = std::mem::take(&mut side.batch_bytes);
        self.counters.rx_frames += frames;
        self.counters.rx_bytes += bytes;
        self.counters.copied_bytes += bytes;
        (frames, bytes)
    }

    /// Publishes what the firmware completed on `queue` and carries out its decisions.
    #[inline]
    pub fn announce(&mut self, queue: usize, now: Time) {
        let pipeline = self.nic.rx(queue as u16);
        let side = &mut self.pairs[queue].rx;
        if let Some(ring) = &side.ring {
            let watched = pipeline.watchdog().is_on();
            side.progress.watch(watched, pipeline.waiting(), || ring.driver_words());
        }
        while let Some(event) = pipeline.poll(now) {
            let side = &mut self.pairs[queue].rx;
            let interrupt = match event {
                Event::Completed { count, interrupt } => {
                    side.publish_packets(count);
                    interrupt
                }
                Event::Interrupt(interrupt) => Some(interrupt),
                Event::FetchHostState => {
                    let state = side.host_state(pipeline.delivered());
                    pipeline.host_state(now, state);
                    None
                }
            };
            let Some(interrupt) = interrupt else { continue };
            if side.ring.is_none() {
                continue;
            }
            if side.driver_wants_call(interrupt.reason)
                && let Some(vring) = &side.vring
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
    }

    /// Publishes completed transmit chains of `pair` and tells the driver if it wants to know.
    #[inline]
    pub fn publish_transmitted(&mut self, pair: usize, now: Time) {
        let side = &mut self.pairs[pair].tx;
        side.complete_left(now);
        if !std::mem::take(&mut side.completed) {
            return;
        }
        let Some(ring) = &mut side.ring else { return };
        ring.publish();
        self.counters.tx_decided += 1;
        if ring.driver_wants_notification() {
            if let Some(vring) = &side.vring {
                signal(vring);
            }
            self.counters.tx_signalled += 1;
        } else {
            self.counters.tx_suppressed += 1;
        }
    }
}

/// Signals the ring's call eventfd, which never waits, whatever the frontend does to it. A full counter (the guest has 2⁶⁴
/// signals to read) or a missing fd means that nobody listens, which is the frontend's choice.
fn signal(vring: &SessionVring) {
    if let Err(error) = vring.signal_used_queue() {
        tracing::debug!(%error, "call eventfd not signalled");
    }
}

/// The bits of an interrupt, decided while `strategy` was configured, that a capture shows.
pub fn interrupt_comment(interrupt: &Interrupt, strategy: StrategyKind) -> String {
    let packets = interrupt.packets;
    let plural = if packets == 1 { "" } else { "s" };
    format!(
        "irq {}: {}, {packets} packet{plural}",
        interrupt.sequence,
        interrupt.reason.of(strategy)
    )
}
