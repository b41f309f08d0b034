//! A learning Ethernet switch: told the first bytes of a frame and where it came from, it says where it goes.
//!
//! It learns and ages addresses, floods what it does not know, serves multicast groups and counts. It holds no frames:
//! queues belong to links and rings. It knows no VLANs (tags are carried, not read) and no spanning tree.

mod config;
mod decision;
mod groups;
mod ports;
mod table;
mod types;

use alloc::vec::Vec;

use ether::{ETHERNET_HEADER_LEN, MacAddr, Time};

pub use config::{SwitchConfig, SwitchFull};
pub use groups::{GROUPS_MAX, GroupError};
pub use ports::{FloodTargets, PORTS_MAX};
pub use types::{DropReason, Egress, Forward, GroupId, PortCounters, PortId, TableEntry, TrunkId};

use decision::{DECISIONS_PER_PORT, Decision, PairKey};
use groups::Groups;
use ports::{PortSet, take_lowest};
use table::{MacTable, SlotIndex};

/// Slots looked at for expired entries when an address is learned: more than one, so that the table is cleaned faster
/// than it fills.
const SWEEP_SLOTS: usize = 4;

/// Slots looked at before an address is refused for want of room, once per [`SWEEP_GAP_NS`]: so a table of the default
/// size is gone through in 32 ms, and a guest that invents an address for each frame costs a thousandth of a core by it.
const SWEEP_SLOTS_FULL: usize = 256;

/// Least time between sweeps for want of room.
const SWEEP_GAP_NS: u64 = 1_000_000;

/// An address that found no room is tried again this much later. In between its frames may take the fast path.
const LEARN_RETRY_NS: u64 = 10_000_000;

struct Port {
    decisions: [Decision; DECISIONS_PER_PORT],
    egress: Egress,
    present: bool,
    up: bool,
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
    up: PortSet,
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
        let entries_max = config.table_entries_max.min(config::TABLE_ENTRIES_LIMIT);
        Self {
            config,
            ports: Vec::new(),
            up: PortSet::EMPTY,
            table: MacTable::new(entries_max, config.hash_seed),
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
        self.up.insert(id);
        self.generation += 1;
        Ok(id)
    }

    /// Removes a port with everything learned on it and its group memberships. Its number may be given out again.
    /// Nothing happens if there is no such port.
    pub fn remove_port(&mut self, port: PortId) {
        self.set_port_up(port, false);
        if let Some(state) = self.ports.get_mut(usize::from(port.0)) {
            state.present = false;
            self.groups.leave_all(port);
            self.generation += 1;
        }
    }

    /// Takes a port into service or out of it. A port that goes down forgets the stations behind it, so that frames to
    /// them are flooded until they are heard elsewhere; it keeps its group memberships and counters. Takes time
    /// proportional to the table. Nothing happens if there is no such port.
    pub fn set_port_up(&mut self, port: PortId, up: bool) {
        let Some(state) = self.ports.get_mut(usize::from(port.0)).filter(|state| state.present) else {
            return;
        };
        if state.up == up {
            return;
        }
        state.up = up;
        if up {
            self.up.insert(port);
        } else {
            state.entries = 0;
            self.up.remove(port);
            self.table.remove_port(port);
        }
        self.generation += 1;
    }

    /// Whether the port exists and is up.
    pub fn is_port_up(&self, port: PortId) -> bool {
        self.up.contains(port)
    }

    /// The way out that a port stands for; `None` if there is no such port.
    #[inline]
    pub fn egress(&self, port: PortId) -> Option<Egress> {
        self.ports
            .get(usize::from(port.0))
            .filter(|state| state.present)
            .map(|state| state.egress)
    }

    /// Learns where the frame came from, decides where it goes, and counts both.
    ///
    /// `header` holds at least the first 14 bytes of the frame; `frame_len` is the length of the whole frame in bytes,
    /// without frame check sequence. `now` must not go backwards from call to call. Frames that are dropped teach the
    /// switch nothing, except with [`DropReason::SamePort`].
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

    /// Counts `frames` more frames of together `bytes` bytes, with the same 14 header bytes, that the caller sent the way
    /// [`forward`](Self::forward) just answered for the first of them: so a batch between two stations is looked up once.
    ///
    /// Only at once after it, with the same `ingress` and `header` and at the same time. Where the decision is not kept, which
    /// is so for frames that are dropped before they are looked at, they are counted for the way in alone.
    pub fn count_repeated(&mut self, ingress: PortId, header: &[u8], frames: u64, bytes: u64) {
        let Some(port) = self.ports.get_mut(usize::from(ingress.0)) else {
            return;
        };
        port.counters.in_frames += frames;
        port.counters.in_bytes += bytes;
        let Some(header) = header.first_chunk::<ETHERNET_HEADER_LEN>() else {
            return;
        };
        let key = PairKey::new(header);
        let decision = port.decisions[key.place()];
        if decision.generation != self.generation || decision.key != key {
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
        let Some(port) = self.ports.get_mut(usize::from(ingress.0)).filter(|port| port.present) else {
            return Forward::Drop(DropReason::PortDown);
        };
        let bytes = frame_len as u64;
        port.counters.in_frames += 1;
        port.counters.in_bytes += bytes;
        let (header, dst, src) = match check(port.up, header) {
            Ok(checked) => checked,
            Err(reason) => {
                port.counters.dropped[reason as usize] += 1;
                return Forward::Drop(reason);
            }
        };
        let key = PairKey::new(header);
        let mut decision = port.decisions[key.place()];
        if decision.generation == self.generation && decision.key == key && now <= decision.valid_until {
            self.table.touch(decision.src_slot, now);
        } else {
            decision = self.learn_and_decide(now, ingress, key, dst, src);
            self.ports[usize::from(ingress.0)].decisions[key.place()] = decision;
        }
        self.count(ingress, &decision, dst, 1, bytes);
        decision.forward
    }

    fn learn_and_decide(&mut self, now: Time, ingress: PortId, key: PairKey, dst: MacAddr, src: MacAddr) -> Decision {
        let src_slot = self.learn(now, ingress, src);
        let generation = self.generation;
        let (forward, out, mut valid_until) = self.decide(now, ingress, dst);
        if src_slot == SlotIndex::NONE {
            valid_until = valid_until.min(now.plus_nanos(LEARN_RETRY_NS));
        }
        // `src_slot` is of the table as it was before `decide`: where that changed the table, the old generation keeps
        // the decision from being used again.
        Decision {
            key,
            src_slot,
            forward,
            out,
            generation,
            valid_until,
        }
    }

    fn learn(&mut self, now: Time, ingress: PortId, src: MacAddr) -> SlotIndex {
        if let Some(found) = self.table.find(src) {
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
            self.table.insert(src, ingress, now)
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
        let Some(found) = self.table.find(dst) else {
            return (Forward::Flood, ingress, Time::MAX);
        };
        if self.is_expired(now, found.last_seen) {
            self.table.remove(found.index);
            self.ports[usize::from(found.port.0)].entries -= 1;
            self.generation += 1;
            return (Forward::Flood, ingress, Time::MAX);
        }
        let forward = if found.port == ingress {
            Forward::Drop(DropReason::SamePort)
        } else {
            Forward::One(self.ports[usize::from(found.port.0)].egress)
        };
        (forward, found.port, found.last_seen.plus_nanos(self.config.ageing_ns))
    }

    /// Counts a decision about so many frames at the port they came from and at those they go to.
    fn count(&mut self, ingress: PortId, decision: &Decision, dst: MacAddr, frames: u64, bytes: u64) {
        let counters = &mut self.ports[usize::from(ingress.0)].counters;
        match decision.forward {
            Forward::Drop(reason) => counters.dropped[reason as usize] += frames,
            Forward::One(_) => {
                let out = &mut self.ports[usize::from(decision.out.0)].counters;
                out.out_frames += frames;
                out.out_bytes += bytes;
            }
            Forward::Flood | Forward::Group(_) => {
                if dst.is_broadcast() {
                    counters.in_broadcast += frames;
                } else if dst.is_multicast() {
                    counters.in_multicast += frames;
                } else {
                    counters.in_unknown += frames;
                }
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
            Forward::Flood => self.up.word(word),
            Forward::Group(id) => self
                .groups
                .members(id)
                .map_or(0, |members| self.up.word(word) & members.word(word)),
            Forward::One(_) | Forward::Drop(_) => 0,
        };
        if usize::from(ingress.0) / 64 == word {
            ports & !(1 << (ingress.0 % 64))
        } else {
            ports
        }
    }

    /// Every way out that the decision stands for, in rising order of ports: one, several, or none. The decision must
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
            .map(move |(mac, port, last_seen)| TableEntry {
                mac,
                port,
                age_ns: now.nanos_since(last_seen),
            })
            .filter(|entry| entry.age_ns <= self.config.ageing_ns)
    }
}

/// 01:80:c2:00:00:00 to 01:80:c2:00:00:0f.
fn is_reserved(mac: MacAddr) -> bool {
    mac.to_u64() & !0xf == 0x0180_c200_0000
}

/// The header of a frame that may be forwarded with its destination and source, or why it may not.
fn check(up: bool, header: &[u8]) -> Result<(&[u8; ETHERNET_HEADER_LEN], MacAddr, MacAddr), DropReason> {
    if !up {
        return Err(DropReason::PortDown);
    }
    let Some(header) = header.first_chunk::<ETHERNET_HEADER_LEN>() else {
        return Err(DropReason::TooShort);
    };
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, _, _] = *header;
    let (dst, src) = (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
    if dst == MacAddr::CARD {
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
