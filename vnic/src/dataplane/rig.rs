//! A data plane without threads, sockets or clock: guests' memories, rings and call eventfds are in this process, and time is a
//! parameter. It serves tests of the data plane and benchmarks that count its instructions.

use std::sync::Arc;

use ether::Time;
use virtio_bindings::{virtio_config, virtio_net, virtio_ring};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use self::ring::DriverRing;
#[cfg(test)]
use self::ring::address;
use super::card::transmit_batch::TransmitBatch;
use super::card::transmit_ring::Blocked;
use super::card::{Attachment, Cable, Card};
use super::forwarding::switch_state::SwitchState;
use super::handle::flight_recorder::TRACE_EVENTS_DEFAULT;
use super::handle::{SEED_FROM_GUEST, SEED_TO_GUEST, link_from, make_nic};
use super::wiring::trunk::Trunk;
use super::{DataPlane, FabricSettings};
use vnicd_protocol::{LinkSettings, PortSettings, PortStats};

mod driver;
#[cfg(test)]
mod host_record;
#[cfg(test)]
pub mod iommu;
mod ring;

/// Entries of every ring.
pub const RING: u16 = 256;
/// Bytes of every buffer.
pub const BUFFER: usize = 2048;

const MEMORY: usize = 4 << 20;
const RING_SPACE: u64 = 0x8000;
const BUFFERS: u64 = 0x10_0000;

/// All offloads, mergeable buffers, EVENT_IDX and indirect descriptors.
pub const ALL_FEATURES: u64 = 1 << virtio_net::VIRTIO_NET_F_CSUM
    | 1 << virtio_net::VIRTIO_NET_F_GUEST_CSUM
    | 1 << virtio_net::VIRTIO_NET_F_HOST_TSO4
    | 1 << virtio_net::VIRTIO_NET_F_GUEST_TSO4
    | 1 << virtio_net::VIRTIO_NET_F_MRG_RXBUF
    | 1 << virtio_ring::VIRTIO_RING_F_EVENT_IDX
    | 1 << virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

/// A guest of the rig.
pub struct Guest {
    memory: Arc<GuestMemoryMmap>,
    rx: DriverRing,
    tx: DriverRing,
    /// EVENT_IDX is on: receive calls are wanted from the next packet on after each [`Rig::received`].
    event_idx: bool,
}

/// A data plane and its guests, one card each, all at one switch.
pub struct Rig {
    pub(super) plane: DataPlane,
    batch: TransmitBatch,
    /// The guests, by card.
    pub guests: Vec<Guest>,
    /// The time handed to the data plane.
    pub now: Time,
}

impl Rig {
    /// One guest per feature set, each with a full receive ring.
    pub fn new(features: &[u64]) -> Self {
        let mut plane = DataPlane::new(
            0,
            FabricSettings {
                poll_ns: 0,
                copies_poll_ns: 0,
                return_ns: 0,
            },
        );
        let switch = fabric::Switch::new(fabric::SwitchConfig::default());
        plane.forwarding.switches.push(SwitchState::new("s", switch));
        let mut rig = Self {
            plane,
            batch: TransmitBatch::new(),
            guests: Vec::new(),
            now: Time::from_nanos(1_000),
        };
        for &features in features {
            rig.add_guest(0, features);
        }
        rig
    }

    /// Adds another switch, joined to switch 0 by an ideal trunk, and returns its number.
    pub fn add_switch(&mut self) -> usize {
        let number = self.add_switch_alone();
        self.plane.forwarding.switches[number].name = format!("s{number}");
        self.join_switches(0, number, None);
        number
    }

    /// Joins two switches by an ideal trunk, which may be in an aggregate.
    pub fn join_switches(&mut self, a: usize, b: usize, aggregate: Option<&str>) {
        let id = fabric::TrunkId(self.plane.forwarding.wiring.trunks.len() as u16);
        let ends = [a, b].map(|switch| {
            (
                switch,
                self.plane.forwarding.switches[switch]
                    .switch
                    .add_trunk(id)
                    .expect("a port"),
            )
        });
        let links = [(); 2].map(|()| fabric::Link::new(fabric::LinkConfig::default()));
        self.plane.forwarding.wiring.trunks.push(Trunk {
            ends,
            links,
            settings: Default::default(),
            options: super::TrunkOptions {
                aggregate: aggregate.map(str::to_owned),
                ..Default::default()
            },
            lost: Default::default(),
        });
        let added = self.plane.trunk_added(usize::from(id.0), self.now);
        added.expect("a trunk that may be in the aggregate");
    }

    /// Adds another switch that nothing joins to the others and returns its number.
    pub fn add_switch_alone(&mut self) -> usize {
        self.plane.forwarding.add_switch_of_one()
    }

    /// Adds a guest at `switch` and returns its number.
    pub fn add_guest(&mut self, switch: usize, features: u64) -> usize {
        self.add_guest_with(switch, features, |_| ())
    }

    /// Adds a guest whose card is connected to itself and returns its number.
    pub fn add_loopback_guest(&mut self, features: u64) -> usize {
        let switch = self.plane.forwarding.add_switch_of_one();
        self.add_guest_with(switch, features, |settings| settings.loopback = true)
    }

    /// Adds a guest at `switch` with VERSION_1 and these features, whose card's settings are the default ones but for what `change` changes.
    pub fn add_guest_with(&mut self, switch: usize, features: u64, change: impl FnOnce(&mut PortSettings)) -> usize {
        let mut card = self.card_at(switch, change);
        let memory = Arc::new(GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)]).expect("memory"));
        card.set_features(features | 1 << virtio_config::VIRTIO_F_VERSION_1);
        card.set_memory(memory.clone(), self.now);
        self.add_driver(card, memory, features)
    }

    /// A card at `switch` for the next guest.
    fn card_at(&mut self, switch: usize, change: impl FnOnce(&mut PortSettings)) -> Card {
        let number = self.guests.len();
        let mut settings = PortSettings {
            name: format!("g{number}"),
            ..PortSettings::default()
        };
        change(&mut settings);
        let state = &mut self.plane.forwarding.switches[switch];
        let switch_port = state.switch.add_port();
        state.bind(switch_port, number);
        let nic = make_nic(&settings).expect("default settings are in range");
        let link = || fabric::Link::new(fabric::LinkConfig::default());
        let attachment = Attachment {
            switch,
            port: switch_port,
        };
        let cable = Cable {
            to_guest: link(),
            from_guest: link(),
        };
        Card::new(settings, attachment, nic, cable)
    }

    /// Starts the rings of `card`, whose guest sees `memory`, and posts all receive buffers.
    fn add_driver(&mut self, mut card: Card, memory: Arc<GuestMemoryMmap>, features: u64) -> usize {
        let number = self.guests.len();
        let buffers = u64::from(RING) * BUFFER as u64;
        let rx = DriverRing::new(&memory, 0, BUFFERS);
        let tx = DriverRing::new(&memory, RING_SPACE, BUFFERS + buffers);
        card.start_ring(0, &rx.vring, self.now).expect("a good ring");
        card.start_ring(1, &tx.vring, self.now).expect("a good ring");
        self.plane.forwarding.wiring.add_card(card);
        let event_idx = features & 1 << virtio_ring::VIRTIO_RING_F_EVENT_IDX != 0;
        self.guests.push(Guest {
            memory,
            rx,
            tx,
            event_idx,
        });
        for index in 0..RING {
            self.post(number, index);
        }
        number
    }

    /// Takes a batch from the transmit ring of `guest`, sends nothing, and gives it back: the first stage alone. Returns
    /// how many frames it had.
    pub fn take_only(&mut self, guest: usize) -> usize {
        let card = self.plane.card(guest);
        let outcome = card.take_batch(0, &mut self.batch);
        assert_eq!(outcome, Some(Ok(())));
        card.transmit_ring_mut(0).give_back(self.batch.entries());
        self.batch.len()
    }

    /// One round of the data plane. True if it did anything.
    pub fn pass(&mut self) -> bool {
        self.plane.pass(&mut self.batch, self.now)
    }

    /// Rounds at the present time until nothing is left to do.
    pub fn settle(&mut self) {
        while self.pass() {}
    }

    /// Asks for kicks as the data plane does before it sleeps. True if it finds work instead, and does not sleep.
    pub fn finds_work_before_sleep(&mut self) -> bool {
        self.plane.ask_for_kicks(self.now)
    }

    /// When the data plane wants to run next without a kick.
    pub fn next_due(&self) -> Option<Time> {
        self.plane.next_due(self.now)
    }

    /// Everything the port of `guest` counts.
    pub fn stats(&self, guest: usize) -> PortStats {
        self.plane.stats(guest)
    }

    /// Why the port of `guest` does not work.
    pub fn failed(&self, guest: usize) -> Option<&str> {
        self.plane.cards()[guest].failed()
    }

    /// Changes the coalescing of `guest`'s card.
    pub fn set_coalescing(&mut self, guest: usize, strategy: firmware::StrategyKind, delay_ns: u64) {
        let coalescing = firmware::Coalescing {
            strategy,
            delay_ns,
            frames_max: 0,
            marks: true,
        };
        self.plane
            .card(guest)
            .firmware_mut()
            .set_coalescing(self.now, None, coalescing)
            .expect("all queues exist");
    }

    /// Changes the watchdog of `guest`'s card; 0 = off.
    pub fn set_watchdog(&mut self, guest: usize, delay_ns: u64) {
        let card = self.plane.card(guest);
        card.firmware_mut()
            .set_watchdog(self.now, None, delay_ns)
            .expect("in range");
        card.announce(0, self.now);
    }

    /// Changes both directions of `guest`'s link.
    pub fn set_link(&mut self, guest: usize, to_guest: &LinkSettings, from_guest: &LinkSettings) {
        let card = self.plane.card(guest);
        let cable = card.cable_mut();
        cable
            .to_guest
            .set_config(link_from(to_guest, SEED_TO_GUEST).expect("good settings"));
        cable
            .from_guest
            .set_config(link_from(from_guest, SEED_FROM_GUEST).expect("good settings"));
        card.note_carrier();
    }

    /// Changes the links of the first trunk: away from switch 0, and towards it.
    pub fn set_trunk(&mut self, there: &LinkSettings, back: &LinkSettings) {
        let [a, b] = &mut self.plane.forwarding.wiring.trunks[0].links;
        a.set_config(link_from(there, SEED_FROM_GUEST).expect("good settings"));
        b.set_config(link_from(back, SEED_TO_GUEST).expect("good settings"));
    }

    /// What the link of the first trunk counted that leads away from switch 0.
    pub fn trunk_counters(&self) -> fabric::LinkCounters {
        *self.plane.forwarding.wiring.trunks[0].links[0].counters()
    }

    /// Closes the short paths: each frame goes the plain path, by itself.
    #[cfg(test)]
    pub fn close_shortcuts(&mut self) {
        self.plane.forwarding.wiring.shortcuts.closed = true;
    }

    /// Lets short paths be taken where one condition for them does not hold.
    #[cfg(test)]
    pub fn forget(&mut self, condition: super::route::Condition) {
        self.plane.forwarding.wiring.shortcuts.forgotten = Some(condition);
    }

    /// Whether the card of `guest` is captured.
    #[cfg(test)]
    pub fn is_captured(&self, guest: usize) -> bool {
        self.plane.cards()[guest].capture().is_some()
    }

    /// What the data plane does when a reader of captures has gone.
    #[cfg(test)]
    pub fn end_captures(&mut self) {
        self.plane.end_captures();
    }

    /// Sets the degree of the misordering injector of `guest`'s card.
    pub fn misorder(&mut self, guest: usize, degree: u8) {
        let nic = self.plane.card(guest).firmware_mut();
        nic.misorder_mut()
            .set(firmware::MisorderSettings::of_degree(degree))
            .expect("a degree in range");
    }

    /// Makes the card of `guest` a member of a multicast group, as its guest would.
    pub fn join(&mut self, guest: usize, group: u16) {
        self.join_as(guest, guest, group).expect("room in the group");
    }

    /// Makes it none any more.
    pub fn leave(&mut self, guest: usize, group: u16) {
        self.plane
            .change_group(guest, group, false, None, self.now)
            .expect("always");
    }

    /// The guest joins under the address that frames from `name` have.
    ///
    /// # Errors
    /// As the card refuses it.
    pub fn join_as(&mut self, guest: usize, name: usize, group: u16) -> Result<(), firmware::control::GroupRefusal> {
        let address = ether::MacAddr([2, 0, 0, 0, 0, name as u8]);
        self.plane.change_group(guest, group, true, Some(address), self.now)
    }

    /// The address of `guest` is configured.
    #[cfg(test)]
    pub fn configure_address(&mut self, guest: usize) {
        self.plane.card(guest).settings_mut().mac = Some(ether::MacAddr([2, 0, 0, 0, 0, guest as u8]));
    }

    /// What the flight recorder of `guest`'s card holds.
    #[cfg(test)]
    pub fn recorded(&mut self, guest: usize) -> Vec<firmware::recorder::Record> {
        let mut bytes = Vec::new();
        self.plane.card(guest).firmware_mut().drain_recorder(&mut bytes);
        let (records, _) = bytes.as_chunks::<{ firmware::recorder::RECORD_LEN }>();
        records
            .iter()
            .filter_map(firmware::recorder::Record::from_bytes)
            .collect()
    }

    /// Switches the flight recorder of `guest`'s card on.
    pub fn record(&mut self, guest: usize) {
        self.plane
            .card(guest)
            .firmware_mut()
            .start_recorder(TRACE_EVENTS_DEFAULT);
    }

    /// Captures `guest`'s port.
    pub fn capture(&mut self, guest: usize) -> super::CaptureReader {
        self.capture_together(&[guest])
    }

    /// Captures the ports of these guests into one file.
    pub fn capture_together(&mut self, guests: &[usize]) -> super::CaptureReader {
        let names: Vec<_> = guests.iter().map(|guest| (format!("g{guest}"), None)).collect();
        let (reader, writers) = super::observers::capture::begin(&names, 0, 0);
        for (guest, writer) in guests.iter().zip(writers) {
            self.plane.card(*guest).set_capture(Some(writer));
        }
        self.plane.has_captures = true;
        reader
    }

    /// Fills what the port of `guest` may have of the pool with frames that are never due; returns how many.
    #[cfg(test)]
    pub fn fill_pool(&mut self, guest: usize) -> usize {
        let origin = super::frames::transit::Transit::from_ring(guest, 0);
        let stage = super::frames::pool::Stage::Card(guest);
        let mut frames = 0;
        while let Some(frame) = self.plane.forwarding.wiring.pool.copy_of(&[0; 60], stage, origin) {
            self.plane
                .forwarding
                .wiring
                .pool
                .wait(frame, Time::from_nanos(u64::MAX));
            frames += 1;
        }
        frames
    }

    /// Gives the port of `guest` a memory table of so many regions more.
    #[cfg(test)]
    pub fn add_regions(&mut self, guest: usize, count: u64) {
        let pages = (0..count).map(|page| (GuestAddress(1 << 40 | page << 12), 4096));
        let ranges: Vec<_> = [(GuestAddress(0), MEMORY)].into_iter().chain(pages).collect();
        let table = GuestMemoryMmap::from_ranges(&ranges).expect("memory");
        self.plane.card(guest).set_memory(Arc::new(table), self.now);
    }

    /// Bytes that frames in the pool occupy.
    #[cfg(test)]
    pub fn pooled_bytes(&self) -> usize {
        self.plane.forwarding.wiring.pool.bytes_out()
    }

    /// Makes the receive ring of `guest`'s card panic after so many deliveries.
    #[cfg(test)]
    pub fn break_receiver(&mut self, guest: usize, deliveries: u32) {
        self.plane.card(guest).panic_after(deliveries);
    }

    /// Makes the receive ring of `guest`'s card panic when packets are to be announced.
    #[cfg(test)]
    pub fn break_announcing(&mut self, guest: usize) {
        self.plane.card(guest).panic_at_publication();
    }

    /// Makes the data path of `guest`'s port panic in its next round.
    pub fn break_port(&mut self, guest: usize) {
        let blocked = Blocked {
            card: usize::MAX,
            queue: 0,
            until: Time::MAX,
        };
        self.plane.card(guest).transmit_ring_mut(0).block(blocked);
    }
}

/// A frame of `len` bytes whose payload is counted up from `seed`.
pub fn frame(destination: u8, source: u8, len: usize, seed: u8) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, destination]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, source]);
    frame[12..14].copy_from_slice(&[0x90, 0x00]);
    for (number, byte) in frame[14..].iter_mut().enumerate() {
        *byte = seed.wrapping_add(number as u8);
    }
    frame
}

/// An MXoE frame of `len` bytes, type SMALL, marked or not.
pub fn mxoe_frame(destination: u8, source: u8, len: usize, marked: bool) -> Vec<u8> {
    let mut bytes = frame(destination, source, len, 0);
    bytes[12..14].copy_from_slice(&[0x86, 0xdf]);
    bytes[16] = 38 | if marked { 0x80 } else { 0 };
    bytes
}

/// The frame of `len` bytes in which guest `source` asks its card to multicast, with a payload as in [`frame`].
pub fn multicast_frame(source: u8, group: u16, len: usize, seed: u8) -> Vec<u8> {
    use firmware::multicast::{TAG_END, Tag};
    let mut bytes = frame(0, source, len, seed);
    let payload = (len - TAG_END) as u16;
    let tag = Tag::send(ether::MacAddr([2, 0, 0, 0, 0, source]), group, payload);
    tag.write(bytes.first_chunk_mut().expect("longer than a tag"));
    bytes
}
