//! A learning Ethernet switch: told the first bytes of a frame and where it came from, it says where it goes.
//!
//! It learns and ages addresses, floods what it does not know, serves multicast groups and counts. It holds no frames:
//! queues belong to links and rings. It knows no VLANs (tags are carried, not read) and no spanning tree.

mod groups;
mod ports;
mod table;
mod types;

use alloc::vec::Vec;
use core::fmt;

use ether::{ETHERNET_HEADER_LEN, EtherType, MacAddr, Time};

pub use groups::{GROUPS_MAX, GroupError};
pub use ports::{FloodTargets, PORTS_MAX};
pub use types::{DropReason, Egress, Forward, GroupId, PortCounters, PortId, TableEntry, TrunkId};

use groups::Groups;
use ports::PortSet;
use table::{MacTable, SlotIndex};

/// Largest table that can be asked for (16 MiB of memory at two slots of 16 bytes per entry, rounded up).
const TABLE_ENTRIES_LIMIT: usize = 1 << 18;

/// Slots looked at for expired entries when an address is learned: more than one, so that the table is cleaned faster
/// than it fills.
const SWEEP_SLOTS: usize = 4;

/// Slots looked at before an address is refused for want of room.
const SWEEP_SLOTS_FULL: usize = 64;

/// An address that found no room is tried again this much later. In between its frames may take the fast path.
const LEARN_RETRY_NS: u64 = 10_000_000;

/// Settings of a switch, fixed when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// A station that was silent for longer than this is forgotten, and frames to it are flooded. Default 300 s, as
    /// IEEE 802.1D recommends.
    pub ageing_ns: u64,
    /// Most addresses in the forwarding table, up to 2¹⁸. When it is full, new addresses are not learned (counted), and
    /// frames to them are flooded. Default 4096.
    pub table_entries_max: usize,
    /// Most addresses learned on one port, so that a guest that invents addresses fills its own part only. Default 256.
    /// Trunks count as ports, but have room for the whole table.
    pub port_entries_max: usize,
    /// Secret that spreads addresses over the table. A daemon takes a random one, so that guests cannot choose
    /// addresses that are slow to find; decisions do not depend on it. Default 0.
    pub hash_seed: u64,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            ageing_ns: 300_000_000_000,
            table_entries_max: 4096,
            port_entries_max: 256,
            hash_seed: 0,
        }
    }
}

/// The switch has [`PORTS_MAX`] ports; none was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchFull;

impl fmt::Display for SwitchFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the switch has {PORTS_MAX} ports already; use a second switch and a trunk"
        )
    }
}

impl core::error::Error for SwitchFull {}

/// The twelve bytes of both addresses, as they are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PairKey(u64, u32);

impl PairKey {
    #[inline(always)]
    fn new(header: &[u8; ETHERNET_HEADER_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, _, _] = *header;
        Self(
            u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            u32::from_ne_bytes([i, j, k, l]),
        )
    }
}

/// The decision for the last pair of addresses seen on a port. It holds while `generation` is the switch's own and
/// until `valid_until`.
#[derive(Clone, Copy)]
struct Cached {
    key: PairKey,
    /// The source's place in the table; it is touched for every frame.
    src_slot: SlotIndex,
    forward: Forward,
    /// For [`Forward::One`], the port that counts the frame.
    out: PortId,
    generation: u64,
    valid_until: Time,
}

struct Port {
    cached: Cached,
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
    /// Rises with every change that may make a cached decision wrong; never 0.
    generation: u64,
}

impl Switch {
    /// A switch without ports.
    pub fn new(config: SwitchConfig) -> Self {
        let entries_max = config.table_entries_max.min(TABLE_ENTRIES_LIMIT);
        Self {
            config,
            ports: Vec::new(),
            up: PortSet::EMPTY,
            table: MacTable::new(entries_max, config.hash_seed),
            groups: Groups::default(),
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
            cached: Cached {
                key: PairKey(0, 0),
                src_slot: SlotIndex::NONE,
                forward: Forward::Drop(DropReason::PortDown),
                out: id,
                generation: 0,
                valid_until: Time::ZERO,
            },
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
            && port.cached.generation == self.generation
            && port.cached.key == PairKey::new(bytes)
            && now <= port.cached.valid_until
            && ether_type(bytes) != EtherType::CARD_CONTROL
            && let Forward::One(_) = port.cached.forward
        {
            let cached = port.cached;
            port.counters.in_frames += 1;
            port.counters.in_bytes += frame_len as u64;
            self.table.touch(cached.src_slot, now);
            if let Some(out) = self.ports.get_mut(usize::from(cached.out.0)) {
                out.counters.out_frames += 1;
                out.counters.out_bytes += frame_len as u64;
            }
            return cached.forward;
        }
        self.forward_other(now, ingress, header, frame_len)
    }

    /// What is not the same pair of stations as before.
    #[inline(never)]
    fn forward_other(&mut self, now: Time, ingress: PortId, header: &[u8], frame_len: usize) -> Forward {
        let Some(port) = self.ports.get_mut(usize::from(ingress.0)).filter(|port| port.present) else {
            return Forward::Drop(DropReason::PortDown);
        };
        port.counters.in_frames += 1;
        port.counters.in_bytes += frame_len as u64;
        let forward = match check(port.up, header) {
            Ok((key, dst, src)) => self.learn_and_decide(now, ingress, key, dst, src),
            Err(reason) => Forward::Drop(reason),
        };
        self.count(ingress, forward, header, frame_len as u64);
        forward
    }

    fn learn_and_decide(&mut self, now: Time, ingress: PortId, key: PairKey, dst: MacAddr, src: MacAddr) -> Forward {
        let cached = &self.ports[usize::from(ingress.0)].cached;
        if cached.generation == self.generation && cached.key == key && now <= cached.valid_until {
            let (src_slot, forward) = (cached.src_slot, cached.forward);
            self.table.touch(src_slot, now);
            return forward;
        }
        let src_slot = self.learn(now, ingress, src);
        let generation = self.generation;
        let (forward, out, mut valid_until) = self.decide(now, ingress, dst);
        if src_slot == SlotIndex::NONE {
            valid_until = valid_until.min(now.plus_nanos(LEARN_RETRY_NS));
        }
        // `src_slot` is of the table as it was before `decide`: where that changed the table, the old generation keeps
        // the cached decision from being used.
        self.ports[usize::from(ingress.0)].cached = Cached {
            key,
            src_slot,
            forward,
            out,
            generation,
            valid_until,
        };
        forward
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
        if !self.has_room(ingress) {
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

    /// Counts a decision at the port the frame came from and at those it goes to.
    fn count(&mut self, ingress: PortId, forward: Forward, header: &[u8], bytes: u64) {
        let port = &mut self.ports[usize::from(ingress.0)];
        match forward {
            Forward::Drop(reason) => port.counters.dropped[reason as usize] += 1,
            Forward::One(_) => {
                let out = port.cached.out;
                let out = &mut self.ports[usize::from(out.0)].counters;
                out.out_frames += 1;
                out.out_bytes += bytes;
            }
            Forward::Flood | Forward::Group(_) => {
                match MacAddr::from_slice(header) {
                    Some(MacAddr::BROADCAST) => port.counters.in_broadcast += 1,
                    Some(mac) if mac.is_multicast() => port.counters.in_multicast += 1,
                    _ => port.counters.in_unknown += 1,
                }
                for target in self.targets(ingress, forward).iter() {
                    let out = &mut self.ports[usize::from(target.0)].counters;
                    out.out_frames += 1;
                    out.out_bytes += bytes;
                    out.out_flooded += 1;
                }
            }
        }
    }

    /// The ports of a flood or a group that are up, without `ingress`.
    fn targets(&self, ingress: PortId, forward: Forward) -> PortSet {
        match forward {
            Forward::Flood => self.up.targets(None, ingress),
            Forward::Group(id) => match self.groups.members(id) {
                Some(members) => self.up.targets(Some(members), ingress),
                None => PortSet::EMPTY,
            },
            Forward::One(_) | Forward::Drop(_) => PortSet::EMPTY,
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

#[inline(always)]
fn ether_type(header: &[u8; ETHERNET_HEADER_LEN]) -> EtherType {
    EtherType(u16::from_be_bytes([header[12], header[13]]))
}

/// 01:80:c2:00:00:00 to 01:80:c2:00:00:0f.
fn is_reserved(mac: MacAddr) -> bool {
    mac.to_u64() & !0xf == 0x0180_c200_0000
}

/// Destination and source of a frame that may be forwarded, or why it may not.
fn check(up: bool, header: &[u8]) -> Result<(PairKey, MacAddr, MacAddr), DropReason> {
    if !up {
        return Err(DropReason::PortDown);
    }
    let Some(bytes) = header.first_chunk::<ETHERNET_HEADER_LEN>() else {
        return Err(DropReason::TooShort);
    };
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, _, _] = *bytes;
    let (dst, src) = (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
    if dst == MacAddr::CARD || ether_type(bytes) == EtherType::CARD_CONTROL {
        return Err(DropReason::CardControl);
    }
    if src.is_multicast() || src == MacAddr::default() || src == MacAddr::CARD {
        return Err(DropReason::InvalidSource);
    }
    if is_reserved(dst) {
        return Err(DropReason::ReservedAddress);
    }
    Ok((PairKey::new(bytes), dst, src))
}
