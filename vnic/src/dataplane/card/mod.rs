//! A card: its rings, its firmware, the ends of its cable and its counters, and what the guest negotiated with it.
//!
//! Other parts of the data plane reach the parts directly, and what concerns several of them through methods of the card. Which frames come to a card is decided by
//! `route` and by the switches; how frames get from one card to another is the business of `wiring`.

pub mod backpressure;
pub mod counters;
mod delivery;
mod driver_progress;
mod fifo;
pub mod forwarding_buffers;
mod lifecycle;
pub mod receive_ring;
pub mod ring_activity;
pub mod transmit_batch;
pub mod transmit_ring;
pub mod waiting_frames;

use std::sync::Arc;

use ether::Time;
use fabric::{Link, PortId};
use firmware::timers::ArmedTimer;
use virtio_bindings::virtio_net;

use self::backpressure::Backpressure;
use self::counters::CardCounters;
use self::driver_progress::LastPoll;
use self::forwarding_buffers::ForwardingBuffers;
use self::lifecycle::Lifecycle;
use self::receive_ring::ReceiveRing;
use self::ring_activity::RingActivity;
use self::transmit_ring::TransmitRing;
use self::waiting_frames::WaitingFrames;
use super::frames::mtu;
use super::observers::capture::CardCapture;
use crate::memory::MemoryMap;
use crate::offload::{Offloads, OnWire};
use crate::ring::RING_SIZE_MAX;
use vnicd_protocol::PortSettings;
use vnicd_protocol::drops::{RxDrop, TRACED_TX_DROP, TxDrop};

// A pending packet holds a descriptor: the pipeline takes whatever a ring can hold.
const _: () = assert!(RING_SIZE_MAX as usize <= firmware::PENDING_MAX);

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
pub(super) struct Negotiated {
    /// Guest memory while a frontend has set it.
    map: Option<MemoryMap>,
    /// Virtio feature bits.
    pub features: u64,
    /// The offloads that the guest may ask of the card.
    pub sender: Offloads,
    /// The offloads that the card may leave to the guest.
    pub receiver: Offloads,
    /// MRG_RXBUF is on: a frame may take several receive buffers.
    mergeable: bool,
}

/// A card.
pub struct Card {
    /// The settings that it was made from. Link, groups and VLANs are kept current; coalescing and DMA are the firmware's.
    pub(super) settings: PortSettings,
    /// The end of the cable at the switch.
    pub(super) attachment: Attachment,
    /// The firmware decides on interrupts, queues, timers and multicast.
    pub(crate) firmware: firmware::Card,
    pub(super) cable: Cable,
    pairs: Vec<QueuePair>,
    pub(super) negotiated: Negotiated,
    backpressure: Backpressure,
    last_poll: LastPoll,
    /// Timers of a guest that stopped, in this process or an earlier one, until that guest is back.
    pub(super) timers_set_aside: Vec<ArmedTimer>,
    /// Frames that have arrived and find no buffer.
    pub(super) waiting: WaitingFrames,
    /// Packets that the card keeps until it may send them on.
    pub(super) forwarding_buffers: ForwardingBuffers,
    /// The capture that observes this card.
    pub(super) capture: Option<CardCapture>,
    pub(crate) counters: CardCounters,
    /// The threads that take kicks share the activity of the rings.
    pub(crate) activity: Arc<RingActivity>,
    pub(super) lifecycle: Lifecycle,
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
            last_poll: LastPoll::default(),
            timers_set_aside: Vec::new(),
            waiting: WaitingFrames::default(),
            forwarding_buffers: ForwardingBuffers::default(),
            capture: None,
            counters: CardCounters::default(),
            activity: Arc::default(),
            lifecycle: Lifecycle::new(2 * pairs),
        }
    }

    /// Number of queue pairs.
    #[inline]
    pub fn queue_pairs(&self) -> usize {
        self.pairs.len()
    }

    /// The driver's choice of features.
    pub fn set_features(&mut self, features: u64) {
        self.negotiated.features = features;
        self.negotiated.sender = Offloads::of_sender(features);
        self.negotiated.receiver = Offloads::of_receiver(features);
        self.negotiated.mergeable = features & 1 << virtio_net::VIRTIO_NET_F_MRG_RXBUF != 0;
    }

    /// Whether a frame that is up to `longest` bytes on the wire fits the card's MTU.
    #[inline(always)]
    pub fn fits_mtu(&self, longest: u32) -> bool {
        mtu::fits(longest, self.settings.mtu)
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
    #[inline]
    pub fn receive_queue(&mut self, inline: &[u8]) -> Option<usize> {
        if self.pairs.len() == 1 {
            return self.pairs[0].rx.is_ready().then_some(0);
        }
        self.firmware.steering_mut().queue(inline).map(usize::from)
    }
}

/// Number of the group in the first bytes of a frame between cards.
fn group_of(inline: &[u8]) -> u16 {
    inline
        .get(18..20)
        .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}
