//! A learning Ethernet switch: told the first bytes of a frame and where it came from, it says where it goes.
//!
//! It learns and ages addresses, floods what it does not know, serves multicast groups and counts. It holds no frames:
//! queues belong to links and rings. Where it takes part in a spanning tree (`stp`, `spanning`), that opens and closes its ports.
//! Unless a port is given VLANs, tags are carried and not read; VLANs, link aggregation and snooping are decided on another
//! path (`managed`), which costs nothing where none of them is used.

mod aggregate;
mod bundles;
mod cable;
mod config;
mod decision;
mod flood_targets;
mod groups;
mod managed;
mod snooping;
mod spanning;
mod table;
mod types;
mod vlan;

use alloc::{boxed::Box, vec::Vec};

use ether::{ETHERNET_HEADER_LEN, EtherType, MacAddr, Time};

pub use aggregate::{AGGREGATE_MEMBERS_MAX, AggregateError};
pub use config::{SwitchConfig, SwitchFull};
pub use flood_targets::FloodTargets;
pub use groups::{GROUPS_MAX, GroupError};
pub use types::{DropReason, Egress, Forward, GroupId, PortCounters, TableEntry, Target, TrunkId};
pub use vlan::{PortVlans, VlanSet};

use crate::ports::{PORTS_MAX, PortId, PortSet, take_lowest};
use crate::snooping::Snooping;
use crate::stp::{BRIDGE_GROUP, PortState, SpanningTree};
use crate::vlan_tag::VlanId;
use aggregate::Aggregates;
use decision::{DECISIONS_PER_PORT, Decision, PairKey};
use groups::Groups;
use table::{Found, MacTable, SlotIndex};

/// Slots checked for expired entries when an address is learned: more than one, so that the table is cleaned faster
/// than it fills.
const SWEEP_SLOTS: usize = 4;

/// Slots checked before an address is refused for want of room, once per [`SWEEP_GAP_NS`]: so a table of the default
/// size is gone through in 32 ms, and a guest that invents an address for each frame costs a thousandth of a core by it.
const SWEEP_SLOTS_FULL: usize = 256;

/// Least time between sweeps for want of room.
const SWEEP_GAP_NS: u64 = 1_000_000;

/// An address that found no room is tried again this much later. In between its frames may take the fast path.
const LEARN_RETRY_NS: u64 = 10_000_000;

/// What frames that are counted together with the one before them need to know of it.
#[derive(Default)]
struct LastAnswer {
    /// Why it was dropped before it was decided about; in a managed switch, why it was dropped at all.
    dropped: Option<DropReason>,
    /// In a managed switch: the ports that it left by, and by how many bytes it was longer there.
    outs: Vec<(PortId, i8)>,
    /// In a managed switch: its destination, if it went wherever its VLAN goes.
    flooded: Option<MacAddr>,
}

/// How much like a cable a switch is.
#[derive(Default)]
struct Transparency {
    /// It is a cable between two cards.
    is_cable: bool,
    /// 01:80:c2:00:00:0x is forwarded.
    forwards_reserved: bool,
}

struct Port {
    decisions: [Decision; DECISIONS_PER_PORT],
    egress: Egress,
    present: bool,
    /// It has a carrier.
    up: bool,
    /// It takes frames and gets them.
    open: bool,
    /// Its partner by LACP is not ready: it carries nothing.
    waits: bool,
    /// What the port carries, if that was set.
    vlans: Option<PortVlans>,
    /// Entries of the table that name this port.
    entries: usize,
    entries_max: usize,
    counters: PortCounters,
}

static NO_COUNTERS: PortCounters = PortCounters::ZERO;

/// One switch with its ports.
///
/// # Promises
/// - A frame never goes back to the port it came from.
/// - [`Switch::forward`] allocates nothing, and its work is bounded whatever a guest sends.
/// - Decisions depend only on the calls made and the times given.
pub struct Switch {
    config: SwitchConfig,
    ports: Vec<Port>,
    /// Ports that get frames. Of an aggregate it is the first member alone, for all of them.
    open: PortSet,
    /// Whether frames take the path of `managed`.
    is_managed: bool,
    /// Whether the switch has VLANs: one of its ports was given some.
    has_vlans: bool,
    transparency: Transparency,
    aggregates: Aggregates,
    /// The spanning tree, if the switch takes part in one.
    tree: Option<Box<SpanningTree>>,
    /// What it knows of multicast groups, if it snoops.
    snooping: Option<Box<Snooping>>,
    /// The ports that [`Forward::Several`] stands for.
    targets: Vec<Target>,
    /// What was answered last, as far as a port's decisions do not say it.
    last: LastAnswer,
    table: MacTable,
    groups: Groups,
    /// No sweep for want of room before this.
    next_sweep_at: Time,
    /// Rises with every change that may make a cached decision wrong; never 0.
    generation: u64,
}

impl Switch {
    /// A switch without ports.
    pub fn new(config: SwitchConfig) -> Self {
        let entries_max = config.entries_max();
        Self {
            config,
            ports: Vec::new(),
            open: PortSet::EMPTY,
            is_managed: false,
            has_vlans: false,
            transparency: Transparency::default(),
            aggregates: Aggregates::default(),
            tree: None,
            snooping: None,
            targets: Vec::new(),
            last: LastAnswer::default(),
            table: MacTable::new(entries_max, config.hash_seed, false),
            groups: Groups::default(),
            next_sweep_at: Time::ZERO,
            generation: 1,
        }
    }

    /// The settings it was made with.
    pub fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// Adds a port for a card. It is up.
    ///
    /// # Panics
    /// When there are [`PORTS_MAX`] ports; callers that add as many as a user asks for use [`Switch::try_add_port`].
    pub fn add_port(&mut self) -> PortId {
        self.try_add_port().expect("fewer than PORTS_MAX ports")
    }

    /// Adds a port for a card, or says that there are too many. The port is up.
    pub fn try_add_port(&mut self) -> Result<PortId, SwitchFull> {
        self.add(None)
    }

    /// Adds a port that leads over a trunk to another switch. It behaves as every port does, but may learn as many
    /// addresses as the table holds. The port is up; frames that arrive over the trunk have it as their ingress.
    pub fn add_trunk(&mut self, trunk: TrunkId) -> Result<PortId, SwitchFull> {
        self.add(Some(trunk))
    }

    fn add(&mut self, trunk: Option<TrunkId>) -> Result<PortId, SwitchFull> {
        let free = self
            .ports
            .iter()
            .position(|port| !port.present)
            .unwrap_or(self.ports.len());
        if free >= PORTS_MAX {
            return Err(SwitchFull);
        }
        let id = PortId(free as u16);
        let port = Port {
            decisions: [Decision::NONE; DECISIONS_PER_PORT],
            egress: trunk.map_or(Egress::Local(id), Egress::Trunk),
            present: true,
            up: true,
            open: true,
            waits: false,
            vlans: None,
            entries: 0,
            entries_max: if trunk.is_some() {
                usize::MAX
            } else {
                self.config.port_entries_max
            },
            counters: PortCounters::ZERO,
        };
        if free == self.ports.len() {
            self.ports.push(port);
        } else {
            self.ports[free] = port;
        }
        self.open.insert(id);
        // So that nothing is allocated for a frame.
        self.targets.reserve(self.ports.len());
        self.last.outs.reserve(self.ports.len());
        self.generation += 1;
        self.add_to_snooping(id);
        if trunk.is_some() {
            self.note_topology_change();
        }
        self.join_tree(id);
        self.set_open(id);
        Ok(id)
    }

    /// Removes a port with everything learned on it and its group memberships. Its number may be given out again.
    /// Nothing happens if there is no such port.
    pub fn remove_port(&mut self, port: PortId) {
        self.set_port_up(port, false);
        self.leave_lacp(port);
        self.leave_aggregate(port);
        if let Some(state) = self.ports.get_mut(usize::from(port.0)) {
            state.present = false;
            state.vlans = None;
            self.groups.leave_all(port);
            self.generation += 1;
            self.refresh_vlans();
            self.leave_tree(port);
            self.apply_tree();
        }
    }

    /// Takes a port into service or out of it. A port that goes down forgets the stations behind it, so that frames to
    /// them are flooded until they are heard elsewhere, and what snooping heard there; it keeps the groups that it
    /// [joined](Self::join), and its counters. One that comes into service at a switch that snoops gets the frames of all groups
    /// until hosts there were asked. Takes time proportional to the table. Nothing happens if there is no such port.
    pub fn set_port_up(&mut self, port: PortId, up: bool) {
        let Some(state) = self.ports.get_mut(usize::from(port.0)).filter(|state| state.present) else {
            return;
        };
        if state.up == up {
            return;
        }
        state.up = up;
        self.refresh_open(port);
        self.tell_lacp(port, up);
    }

    /// The state of a port, or of a member of an aggregate, changed: opens or closes what has to be.
    fn refresh_open(&mut self, port: PortId) {
        let logical = self.aggregates.logical(port);
        self.generation += 1;
        self.join_tree(logical);
        if self.tree.is_some() {
            self.apply_tree();
        } else {
            self.set_open(logical);
        }
    }

    /// Whether a port, or one member of the aggregate that it stands for, has a carrier.
    fn has_carrier(&self, logical: PortId) -> bool {
        match self.aggregates.members(logical) {
            Some(members) => members.iter().any(|member| self.carries(*member)),
            None => self.carries(logical),
        }
    }

    /// Whether a port has a carrier, and its partner by LACP, if it has one, is ready.
    fn carries(&self, port: PortId) -> bool {
        self.is_port_up(port) && !self.ports[usize::from(port.0)].waits
    }

    /// Opens or closes a port as its carrier and the spanning tree say.
    fn set_open(&mut self, logical: PortId) {
        let open = self.has_carrier(logical) && self.tree_state(logical) == PortState::Forwarding;
        let Some(state) = self.ports.get_mut(usize::from(logical.0)) else {
            return;
        };
        if state.open == open {
            return;
        }
        state.open = open;
        let is_trunk = matches!(state.egress, Egress::Trunk(_));
        self.generation += 1;
        if open {
            self.open.insert(logical);
            if let Some(snooping) = self.snooping.as_mut().filter(|_| !is_trunk) {
                snooping.port_opened(logical);
            }
        } else {
            self.open.remove(logical);
            self.forget_stations(logical);
            if let Some(snooping) = &mut self.snooping {
                snooping.forget_port(logical);
            }
        }
        if is_trunk {
            self.note_topology_change();
        }
    }

    /// Forgets everything learned on a port.
    fn forget_stations(&mut self, port: PortId) {
        self.table.remove_port(port);
        if let Some(state) = self.ports.get_mut(usize::from(port.0)) {
            state.entries = 0;
        }
        self.generation += 1;
    }

    /// Whether the port exists and is up.
    pub fn is_port_up(&self, port: PortId) -> bool {
        self.ports
            .get(usize::from(port.0))
            .is_some_and(|state| state.present && state.up)
    }

    /// Whether frames to 01:80:c2:00:00:00 to 01:80:c2:00:00:0f, which end at the first bridge by IEEE 802.1D (LLDP, LACP,
    /// 802.1X, spanning tree, pause), are forwarded as to any other group address: then the switch is to the stations behind
    /// it like a cable. Off at first.
    pub fn set_forwards_reserved(&mut self, forwards: bool) {
        self.transparency.forwards_reserved = forwards;
        self.generation += 1;
    }

    /// Its ports, in rising order.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        let present = self.ports.iter().enumerate().filter(|(_, port)| port.present);
        present.map(|(number, _)| PortId(number as u16))
    }

    /// What is behind a port; `None` if there is no such port.
    #[inline]
    pub fn egress(&self, port: PortId) -> Option<Egress> {
        self.ports
            .get(usize::from(port.0))
            .filter(|state| state.present)
            .map(|state| state.egress)
    }

    /// Learns where the frame came from, decides where it goes, and counts both.
    ///
    /// `header` holds the first bytes of the frame, 14 at least; `frame_len` is the length of the whole frame in bytes, without
    /// frame check sequence. A switch with VLANs, aggregates or snooping also reads the tag, the IP header and the ports behind it, as
    /// far as `header` has them, and one with a spanning tree reads BPDUs: 64 bytes are enough. `now` must not go backwards from call
    /// to call.
    ///
    /// Where a frame came from is learned if it was let in, so frames that are dropped teach the switch nothing, except with
    /// [`DropReason::SamePort`], [`DropReason::NoWay`], [`DropReason::NoMember`], and [`DropReason::Discarding`] at a port that the
    /// spanning tree lets learn.
    #[inline]
    pub fn forward(&mut self, now: Time, ingress: PortId, header: &[u8], frame_len: usize) -> Forward {
        if let Some(port) = self.ports.get_mut(usize::from(ingress.0))
            && let Some(bytes) = header.first_chunk::<ETHERNET_HEADER_LEN>()
            && let key = PairKey::new(bytes)
            && let decision = &port.decisions[key.place()]
            && decision.generation == self.generation
            && decision.key == key
            && now <= decision.valid_until
            && let Forward::One(egress) = decision.forward
        {
            let (src_slot, out) = (decision.src_slot, decision.out);
            port.counters.in_frames += 1;
            port.counters.in_bytes += frame_len as u64;
            self.table.touch(src_slot, now);
            if let Some(out) = self.ports.get_mut(usize::from(out.0)) {
                out.counters.out_frames += 1;
                out.counters.out_bytes += frame_len as u64;
            }
            return Forward::One(egress);
        }
        self.forward_other(now, ingress, header, frame_len)
    }

    /// Counts `frames` more frames of together `bytes` bytes, with equal 14 header bytes, that the caller sent as
    /// [`forward`](Self::forward) just answered for the first of them: so a batch between two stations is looked up once.
    ///
    /// Call it directly after that, with its `ingress`, `header` and time.
    pub fn count_repeated(&mut self, ingress: PortId, header: &[u8], frames: u64, bytes: u64) {
        let Some(port) = self.ports.get_mut(usize::from(ingress.0)) else {
            return;
        };
        port.counters.in_frames += frames;
        port.counters.in_bytes += bytes;
        if self.is_managed {
            return self.count_repeated_managed(ingress, frames, bytes);
        }
        let Some(header) = header.first_chunk::<ETHERNET_HEADER_LEN>() else {
            return;
        };
        let key = PairKey::new(header);
        let decision = port.decisions[key.place()];
        if decision.generation != self.generation || decision.key != key {
            if let Some(reason) = self.last.dropped {
                port.counters.dropped[reason as usize] += frames;
            }
            return;
        }
        if let Forward::One(_) = decision.forward {
            if let Some(out) = self.ports.get_mut(usize::from(decision.out.0)) {
                out.counters.out_frames += frames;
                out.counters.out_bytes += bytes;
            }
        } else {
            let [d0, d1, d2, d3, d4, d5, ..] = *header;
            self.count(ingress, &decision, MacAddr([d0, d1, d2, d3, d4, d5]), frames, bytes);
        }
    }

    /// Frames between stations that did not talk just before, and all that do not go to one station.
    #[inline(never)]
    fn forward_other(&mut self, now: Time, ingress: PortId, header: &[u8], frame_len: usize) -> Forward {
        self.last.dropped = None;
        let Some(port) = self.ports.get_mut(usize::from(ingress.0)).filter(|port| port.present) else {
            return Forward::Drop(DropReason::PortDown);
        };
        let bytes = frame_len as u64;
        port.counters.in_frames += 1;
        port.counters.in_bytes += bytes;
        if self.is_managed {
            return self.forward_managed(now, ingress, header, bytes);
        }
        if self.transparency.is_cable {
            return self.forward_through(ingress, header, bytes);
        }
        let (header, dst, src) = match check(port.open, header) {
            Ok(checked) => checked,
            Err(DropReason::ReservedAddress)
                if self.transparency.forwards_reserved && !self.is_for_itself(ingress, header) =>
            {
                return self.flood_reserved(now, ingress, header, bytes);
            }
            Err(reason) => return self.refuse(now, ingress, header, reason),
        };
        let key = PairKey::new(header);
        let decision = port.decisions[key.place()];
        if decision.generation == self.generation && decision.key == key && now <= decision.valid_until {
            self.table.touch(decision.src_slot, now);
            self.count(ingress, &decision, dst, 1, bytes);
            return decision.forward;
        }
        self.learn_and_decide(now, ingress, key, (dst, src), bytes)
    }

    /// Whether a frame to 01:80:c2:00:00:0x is for the switch itself.
    #[cold]
    fn is_for_itself(&self, ingress: PortId, header: &[u8]) -> bool {
        self.tree.is_some() && is_bridge_group(header) || self.is_lacpdu(ingress, header)
    }

    /// Floods a frame to 01:80:c2:00:00:0x.
    #[cold]
    #[inline(never)]
    fn flood_reserved(&mut self, now: Time, ingress: PortId, header: &[u8], bytes: u64) -> Forward {
        let (dst, src) = (
            MacAddr::from_slice(header),
            header.get(6..).and_then(MacAddr::from_slice),
        );
        self.learn(now, ingress, src.unwrap_or_default(), 0);
        let flood = Decision {
            forward: Forward::Flood,
            ..Decision::NONE
        };
        self.count_apart(ingress, &flood, dst.unwrap_or_default(), bytes);
        Forward::Flood
    }

    /// Decides about a frame, remembers that, and counts it. Apart, so that a frame whose decision is remembered pays nothing
    /// for it.
    #[inline(never)]
    fn learn_and_decide(
        &mut self,
        now: Time,
        ingress: PortId,
        key: PairKey,
        (dst, src): (MacAddr, MacAddr),
        bytes: u64,
    ) -> Forward {
        let src_slot = self.learn(now, ingress, src, 0);
        let generation = self.generation;
        let (forward, out, mut valid_until) = self.decide(now, ingress, dst);
        if src_slot == SlotIndex::NONE {
            valid_until = valid_until.min(now.plus_nanos(LEARN_RETRY_NS));
        }
        // `src_slot` is of the table as it was before `decide`: where that changed the table, the old generation keeps
        // the decision from being used again.
        let decision = Decision {
            key,
            src_slot,
            forward,
            out,
            generation,
            valid_until,
        };
        self.ports[usize::from(ingress.0)].decisions[key.place()] = decision;
        if let Forward::One(_) = forward {
            let out = &mut self.ports[usize::from(out.0)].counters;
            out.out_frames += 1;
            out.out_bytes += bytes;
        } else {
            self.count_apart(ingress, &decision, dst, bytes);
        }
        forward
    }

    /// Does what [`count`](Self::count) does, for one frame.
    #[inline(never)]
    fn count_apart(&mut self, ingress: PortId, decision: &Decision, dst: MacAddr, bytes: u64) {
        self.count(ingress, decision, dst, 1, bytes);
    }

    #[inline(always)]
    fn learn(&mut self, now: Time, ingress: PortId, src: MacAddr, vlan: u16) -> SlotIndex {
        if let Some(found) = self.table.find(src, vlan) {
            if found.port == ingress {
                self.table.touch(found.index, now);
                return found.index;
            }
            self.table.remove(found.index);
            self.generation += 1;
            self.ports[usize::from(found.port.0)].entries -= 1;
            if !self.is_expired(now, found.last_seen) {
                self.ports[usize::from(ingress.0)].counters.moved += 1;
            }
        }
        self.sweep(now, SWEEP_SLOTS);
        if !self.has_room(ingress) && now >= self.next_sweep_at {
            self.next_sweep_at = now.plus_nanos(SWEEP_GAP_NS);
            self.sweep(now, SWEEP_SLOTS_FULL);
        }
        let slot = if self.has_room(ingress) {
            self.table.insert(src, vlan, ingress, now)
        } else {
            None
        };
        let port = &mut self.ports[usize::from(ingress.0)];
        if let Some(slot) = slot {
            port.entries += 1;
            port.counters.learned += 1;
            self.generation += 1;
            slot
        } else {
            port.counters.not_learned += 1;
            SlotIndex::NONE
        }
    }

    fn has_room(&self, port: PortId) -> bool {
        let port = &self.ports[usize::from(port.0)];
        port.entries < port.entries_max && !self.table.is_full()
    }

    fn is_expired(&self, now: Time, last_seen: Time) -> bool {
        now.nanos_since(last_seen) > self.config.ageing_ns
    }

    fn sweep(&mut self, now: Time, slots: usize) {
        let (ageing_ns, before) = (self.config.ageing_ns, self.table.len());
        let ports = &mut self.ports;
        self.table.sweep(
            slots,
            |last_seen| now.nanos_since(last_seen) > ageing_ns,
            |port| ports[usize::from(port.0)].entries -= 1,
        );
        if self.table.len() != before {
            self.generation += 1;
        }
    }

    /// The decision, the port that counts it if it is one, and how long it holds while the table stays as it is.
    ///
    /// An expired entry is removed here, not stepped over: so a cached flood means that the station is not in the
    /// table, and the entry that is made when it speaks again ends that flood through the generation.
    fn decide(&mut self, now: Time, ingress: PortId, dst: MacAddr) -> (Forward, PortId, Time) {
        if dst.is_multicast() {
            let forward = self.groups.find(dst).map_or(Forward::Flood, Forward::Group);
            return (forward, ingress, Time::MAX);
        }
        let Some(found) = self.find_station(now, dst, 0) else {
            return (Forward::Flood, ingress, Time::MAX);
        };
        let forward = if found.port == ingress {
            Forward::Drop(DropReason::SamePort)
        } else {
            Forward::One(self.ports[usize::from(found.port.0)].egress)
        };
        (forward, found.port, found.last_seen.plus_nanos(self.config.ageing_ns))
    }

    /// What the table knows of a station now. An expired entry is removed.
    #[inline(always)]
    fn find_station(&mut self, now: Time, mac: MacAddr, vlan: u16) -> Option<Found> {
        let found = self.table.find(mac, vlan)?;
        if self.is_expired(now, found.last_seen) {
            self.table.remove(found.index);
            self.ports[usize::from(found.port.0)].entries -= 1;
            self.generation += 1;
            return None;
        }
        Some(found)
    }

    /// Counts a decision about so many frames at the port they came from and at those they go to.
    #[inline(always)]
    fn count(&mut self, ingress: PortId, decision: &Decision, dst: MacAddr, frames: u64, bytes: u64) {
        let counters = &mut self.ports[usize::from(ingress.0)].counters;
        match decision.forward {
            Forward::Drop(reason) => counters.dropped[reason as usize] += frames,
            // Not of a plain switch.
            Forward::Several | Forward::Taken | Forward::Inspect => {}
            Forward::One(_) => {
                let out = &mut self.ports[usize::from(decision.out.0)].counters;
                out.out_frames += frames;
                out.out_bytes += bytes;
            }
            Forward::Flood | Forward::Group(_) => {
                counters.note_flooded(dst, frames);
                for word in 0..self.words() {
                    let mut targets = self.target_word(ingress, decision.forward, word);
                    while let Some(target) = take_lowest(&mut targets, word) {
                        let out = &mut self.ports[usize::from(target.0)].counters;
                        out.out_frames += frames;
                        out.out_bytes += bytes;
                        out.out_flooded += frames;
                    }
                }
            }
        }
    }

    /// Words of a set that hold the switch's ports.
    #[inline]
    fn words(&self) -> usize {
        self.ports.len().div_ceil(64)
    }

    /// One word of the set of ports that a flood or a group goes to: those that are up, without `ingress`.
    #[inline]
    fn target_word(&self, ingress: PortId, forward: Forward, word: usize) -> u64 {
        let ports = match forward {
            Forward::Flood => self.open.word(word),
            Forward::Group(id) => self
                .groups
                .members(id)
                .map_or(0, |members| self.open.word(word) & members.word(word)),
            Forward::One(_) | Forward::Several | Forward::Taken | Forward::Inspect | Forward::Drop(_) => 0,
        };
        if usize::from(ingress.0) / 64 == word {
            ports & !(1 << (ingress.0 % 64))
        } else {
            ports
        }
    }

    /// Every port that the decision stands for, in rising order: one, several, or none. The decision must
    /// be of the switch's present state.
    #[inline]
    pub fn flood_targets(&self, ingress: PortId, forward: Forward) -> FloodTargets<'_> {
        FloodTargets::new(self, ingress, forward)
    }

    /// What the port counted since it was added; zeros if there is no such port.
    pub fn counters(&self, port: PortId) -> &PortCounters {
        self.ports
            .get(usize::from(port.0))
            .map_or(&NO_COUNTERS, |state| &state.counters)
    }

    /// Makes a port a member of a multicast group. From the first member on, frames to the group go to members only;
    /// who sends need not be one.
    pub fn join(&mut self, group: MacAddr, port: PortId) -> Result<(), GroupError> {
        if !group.is_multicast() || group.is_broadcast() || is_reserved(group) {
            return Err(GroupError::NotAGroup(group));
        }
        if self.egress(port).is_none() {
            return Err(GroupError::NoSuchPort(port));
        }
        self.groups.join(group, port)?;
        self.generation += 1;
        Ok(())
    }

    /// Ends a membership, and says whether there was one. A group without members is flooded again.
    pub fn leave(&mut self, group: MacAddr, port: PortId) -> bool {
        self.generation += 1;
        self.groups.leave(group, port)
    }

    /// The groups with their members, in rising order of addresses and ports.
    pub fn groups(&self) -> impl Iterator<Item = (MacAddr, impl Iterator<Item = PortId>)> + '_ {
        self.groups.iter().map(|(mac, members)| (mac, members.iter()))
    }

    /// The stations known at `now`, in no particular order.
    pub fn table(&self, now: Time) -> impl Iterator<Item = TableEntry> + '_ {
        self.table
            .iter()
            .map(move |(mac, vlan, port, last_seen)| TableEntry {
                mac,
                vlan: VlanId::new(vlan),
                port,
                age_ns: now.nanos_since(last_seen),
            })
            .filter(|entry| entry.age_ns <= self.config.ageing_ns)
    }
}

#[cold]
fn is_bridge_group(header: &[u8]) -> bool {
    MacAddr::from_slice(header) == Some(BRIDGE_GROUP)
}

/// 01:80:c2:00:00:00 to 01:80:c2:00:00:0f.
fn is_reserved(mac: MacAddr) -> bool {
    mac.to_u64() & !0xf == 0x0180_c200_0000
}

/// The header of a frame that may be forwarded with its destination and source, or why it may not.
#[inline(always)]
fn check(open: bool, header: &[u8]) -> Result<(&[u8; ETHERNET_HEADER_LEN], MacAddr, MacAddr), DropReason> {
    if !open {
        return Err(DropReason::PortDown);
    }
    let Some(header) = header.first_chunk::<ETHERNET_HEADER_LEN>() else {
        return Err(DropReason::TooShort);
    };
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
    let (dst, src) = (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
    if dst == MacAddr::CARD && [t0, t1] == EtherType::CARD_CONTROL.0.to_be_bytes() {
        return Err(DropReason::CardControl);
    }
    if src.is_multicast() || src == MacAddr::default() || src == MacAddr::CARD {
        return Err(DropReason::InvalidSource);
    }
    if is_reserved(dst) {
        return Err(DropReason::ReservedAddress);
    }
    Ok((header, dst, src))
}
