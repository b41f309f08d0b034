//! A card: its rings, its firmware, the ends of its cable and its counters, and what the guest negotiated with it.
//!
//! Other parts of the data plane reach all of that through the card's methods. Which frames come to a card is decided by
//! `route` and by the switches; how frames get from one card to another is the business of `wiring`.

pub mod backpressure;
mod buffer_writes;
pub mod counters;
mod delivery;
mod driver_progress;
mod fifo;
pub mod forwarding_buffers;
mod host_record;
mod lifecycle;
pub mod receive_ring;
pub mod ring_activity;
pub mod translation;
pub mod transmit_batch;
pub mod transmit_ring;
pub mod waiting_frames;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ether::Time;
use fabric::{Link, PortId};
use firmware::timers::ArmedTimer;
use virtio_bindings::{virtio_config, virtio_net};

use self::backpressure::Backpressure;
use self::counters::CardCounters;
use self::forwarding_buffers::ForwardingBuffers;
use self::host_record::Polls;
use self::lifecycle::Lifecycle;
use self::receive_ring::ReceiveRing;
use self::ring_activity::RingActivity;
use self::translation::BehindIommu;
use self::transmit_ring::TransmitRing;
use self::waiting_frames::WaitingFrames;
use super::frames::mtu;
use super::observers::capture::CardCapture;
use crate::memory::{MemoryMap, Misses};
use crate::offload::{Offloads, OnWire};
use vnicd_protocol::PortSettings;
use vnicd_protocol::drops::{RxDrop, TRACED_TX_DROP, TxDrop};

/// One receive and one transmit ring.
#[derive(Default)]
struct QueuePair {
    rx: ReceiveRing,
    tx: TransmitRing,
}

/// Where a card's cable ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Index of the switch.
    pub switch: usize,
    /// The switch's port.
    pub port: PortId,
}

/// The two directions of the cable between a card and its switch.
pub struct Cable {
    /// From the switch to the card.
    pub to_guest: Link,
    /// From the card to the switch.
    pub from_guest: Link,
}

/// What the guest's driver negotiated, and the guest's memory.
#[derive(Default)]
struct Negotiated {
    /// Guest memory while a frontend has set it.
    map: Option<MemoryMap>,
    /// What is known of rings behind the guest's IOMMU, if the guest is behind one.
    iommu: Option<BehindIommu>,
    /// Virtio feature bits.
    features: u64,
    /// What the guest may ask of the card.
    sender: Offloads,
    /// What the card may hand to the guest.
    receiver: Offloads,
    /// MRG_RXBUF is on: a frame may take several receive buffers.
    mergeable: bool,
    /// Neither that nor VERSION_1: the header before a frame is that of legacy virtio-net, which has no num_buffers.
    has_legacy_header: bool,
}

/// A card.
pub struct Card {
    settings: PortSettings,
    attachment: Attachment,
    firmware: firmware::Card,
    cable: Cable,
    pairs: Vec<QueuePair>,
    negotiated: Negotiated,
    backpressure: Backpressure,
    polls: Polls,
    /// Timers of a guest that stopped, in this process or an earlier one, until that guest is back.
    timers_set_aside: Vec<ArmedTimer>,
    waiting: WaitingFrames,
    forwarding_buffers: ForwardingBuffers,
    capture: Option<CardCapture>,
    counters: CardCounters,
    /// What is missing of translations, if the guest may be behind an IOMMU.
    misses: Option<Arc<Misses>>,
    lifecycle: Lifecycle,
}

impl Card {
    /// A card without a guest.
    pub fn new(settings: PortSettings, attachment: Attachment, firmware: firmware::Card, cable: Cable) -> Self {
        let pairs = usize::from(settings.queue_pairs);
        Self {
            settings,
            attachment,
            firmware,
            cable,
            pairs: (0..pairs).map(|_| QueuePair::default()).collect(),
            negotiated: Negotiated::default(),
            backpressure: Backpressure::default(),
            polls: Polls::default(),
            timers_set_aside: Vec::new(),
            waiting: WaitingFrames::default(),
            forwarding_buffers: ForwardingBuffers::default(),
            capture: None,
            counters: CardCounters::default(),
            misses: None,
            lifecycle: Lifecycle::new(2 * pairs),
        }
    }

    /// The settings that it was made from. Link, groups and VLANs are kept current; coalescing and DMA are the firmware's.
    #[inline]
    pub fn settings(&self) -> &PortSettings {
        &self.settings
    }

    /// The settings, to note a change that is in force.
    pub fn settings_mut(&mut self) -> &mut PortSettings {
        &mut self.settings
    }

    /// The name of the card's port.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Where its cable ends.
    #[inline]
    pub fn attachment(&self) -> Attachment {
        self.attachment
    }

    /// What decides on its interrupts, queues, timers and multicast.
    #[inline]
    pub fn firmware(&self) -> &firmware::Card {
        &self.firmware
    }

    /// The firmware, to hand events and settings to.
    #[inline]
    pub fn firmware_mut(&mut self) -> &mut firmware::Card {
        &mut self.firmware
    }

    /// Its cable.
    #[inline]
    pub fn cable(&self) -> &Cable {
        &self.cable
    }

    /// Its cable, for frames that cross it and for settings.
    #[inline]
    pub fn cable_mut(&mut self) -> &mut Cable {
        &mut self.cable
    }

    /// Number of queue pairs.
    #[inline]
    pub fn queue_pairs(&self) -> usize {
        self.pairs.len()
    }

    /// What it counts itself.
    pub fn counters(&self) -> &CardCounters {
        &self.counters
    }

    /// What it counts itself, to add to.
    #[inline]
    pub fn counters_mut(&mut self) -> &mut CardCounters {
        &mut self.counters
    }

    /// Negotiated virtio feature bits.
    pub fn features(&self) -> u64 {
        let translated = u64::from(self.negotiated.iommu.is_some());
        self.negotiated.features | translated << virtio_config::VIRTIO_F_ACCESS_PLATFORM
    }

    /// The driver's choice of features.
    pub fn set_features(&mut self, features: u64) {
        self.negotiated.features = features;
        self.negotiated.sender = Offloads::of_sender(features);
        self.negotiated.receiver = Offloads::of_receiver(features);
        self.negotiated.mergeable = features & 1 << virtio_net::VIRTIO_NET_F_MRG_RXBUF != 0;
        let is_modern = features & 1 << virtio_config::VIRTIO_F_VERSION_1 != 0;
        self.negotiated.has_legacy_header = !is_modern && !self.negotiated.mergeable;
    }

    /// What the guest may ask of the card.
    #[inline]
    pub fn sender_offloads(&self) -> Offloads {
        self.negotiated.sender
    }

    /// What the card may hand to the guest.
    #[inline]
    pub fn receiver_offloads(&self) -> Offloads {
        self.negotiated.receiver
    }

    /// Shares the state of the rings with the threads that take kicks.
    pub fn share_activity(&mut self, activity: Arc<RingActivity>) {
        self.lifecycle.activity = activity;
    }

    /// Shares the flag that says that a card's carrier may have changed, and sets it.
    pub fn share_carrier_news(&mut self, news: Arc<AtomicBool>) {
        self.lifecycle.carrier_news = news;
        self.note_carrier();
    }

    /// Kicks of all rings.
    pub fn kicks(&self) -> u64 {
        self.lifecycle.activity.kicks()
    }

    /// Whether a frame that is up to `longest` bytes on the wire fits the card's MTU.
    #[inline(always)]
    pub fn fits_mtu(&self, longest: u32) -> bool {
        mtu::fits(longest, self.settings.mtu)
    }

    /// The capture that observes this card.
    #[inline]
    pub fn capture(&self) -> Option<&CardCapture> {
        self.capture.as_ref()
    }

    /// The capture, to write to.
    #[inline]
    pub fn capture_mut(&mut self) -> Option<&mut CardCapture> {
        self.capture.as_mut()
    }

    /// Begins or ends a capture.
    pub fn set_capture(&mut self, capture: Option<CardCapture>) {
        self.capture = capture;
    }

    /// Frames that have arrived and find no buffer.
    #[inline]
    pub fn waiting(&self) -> &WaitingFrames {
        &self.waiting
    }

    /// These frames, to add to and take from.
    #[inline]
    pub fn waiting_mut(&mut self) -> &mut WaitingFrames {
        &mut self.waiting
    }

    /// Packets that the card keeps until it may send them on.
    pub fn forwarding_buffers(&self) -> &ForwardingBuffers {
        &self.forwarding_buffers
    }

    /// These packets, to add to and take from.
    pub fn forwarding_buffers_mut(&mut self) -> &mut ForwardingBuffers {
        &mut self.forwarding_buffers
    }

    /// Counts frames on the wire that were dropped together towards the guest.
    pub fn drop_rx(&mut self, reason: RxDrop, frames: u32, now: Time) {
        self.counters.rx_drops[reason as usize] += u64::from(frames);
        self.firmware.note_dropped(now, reason as u8);
    }

    /// Counts frames on the wire that the guest sent and that were dropped together.
    pub fn drop_tx(&mut self, reason: TxDrop, frames: u32, now: Time) {
        self.counters.tx_drops[reason as usize] += u64::from(frames);
        self.firmware.note_dropped(now, reason as u8 | TRACED_TX_DROP);
    }

    /// Counts a frame that was taken from the guest, as what it is on the wire.
    #[inline]
    pub fn count_sent(&mut self, wire: &OnWire) {
        self.counters.tx_frames += u64::from(wire.frames);
        self.counters.tx_bytes += wire.bytes;
    }

    /// Counts what passed the ideal link to the guest and was not delivered: the link has done its part.
    #[cold]
    pub fn count_passed_undelivered(&mut self, wire: &OnWire) {
        self.cable.to_guest.count_passed(u64::from(wire.frames), wire.bytes);
    }

    /// Counts what became of a multicast packet at its guest: each one that the card accepted is either delivered or not.
    pub fn note_multicast(&mut self, inline: &[u8], delivered: bool) {
        let group = group_of(inline);
        let multicast = self.firmware.multicast_mut();
        if delivered {
            multicast.note_delivered(group);
        } else {
            multicast.note_no_buffer(group);
        }
    }

    /// The receive queue to which the card steers a frame, or `None` if no receive ring is ready.
    #[inline(always)]
    pub fn receive_queue(&mut self, inline: &[u8]) -> Option<usize> {
        match &self.pairs[..] {
            [only] => only.rx.is_ready().then_some(0),
            _ => self.steered_queue(inline),
        }
    }

    #[inline(never)]
    fn steered_queue(&mut self, inline: &[u8]) -> Option<usize> {
        self.firmware.steering_mut().queue(inline).map(usize::from)
    }
}

/// Number of the group in the first bytes of a frame between cards.
fn group_of(inline: &[u8]) -> u16 {
    inline
        .get(18..20)
        .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}
