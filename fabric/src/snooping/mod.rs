//! IGMP and MLD snooping (RFC 4541): which ports want which multicast groups, from what hosts and routers say.
//!
//! It is a state machine without clock: it is told of messages and of the time, and answers which ports a frame to a group goes to and
//! which queries are to be sent. Frames are forwarded elsewhere.

mod message;
mod query;

use alloc::vec::Vec;
use core::net::IpAddr;

use ether::{MacAddr, Time};

use message::{Family, GroupAddr, Message, QuerierRank, Wish};
pub(crate) use message::{Kind, kind_of};

use crate::control_frame::ControlFrame;
use crate::ports::{PortId, PortSet};
use crate::vlan_tag::VlanId;

/// Memberships that a switch keeps (128 KiB): each is a group that is wanted behind a port.
pub const MEMBERSHIPS_MAX: usize = 4096;

/// Memberships of one port that leads to a card, so that a guest that joins without end fills its own part only. It gets the
/// frames of all groups of the VLAN then.
pub const PORT_MEMBERSHIPS_MAX: usize = 256;

/// VLANs in which groups are kept separate. In further ones frames to groups are flooded.
const VLANS_MAX: usize = 64;

/// Least time between searches for a VLAN in which nothing is heard any more, where a further one wants its place.
const VLAN_SWEEP_GAP_NS: u64 = SECOND_NS;

/// Queries for one group that wait for their time. Where there is no room for more, who leaves a group is not asked about, and
/// the membership ends when it would have ended without.
const ASKED_MAX: usize = 64;

const SECOND_NS: u64 = 1_000_000_000;

/// Between two general queries.
const INTERVAL_NS: u64 = query::INTERVAL_S as u64 * SECOND_NS;

/// In which hosts answer one.
const ANSWER_MS: u16 = 10_000;

/// How long a group is wanted after a host said so: two queries, and the time to answer (RFC 3376, 8.4).
const MEMBERSHIP_NS: u64 = 2 * INTERVAL_NS + ANSWER_MS as u64 * 1_000_000;

/// How long a router, or another querier, is believed to be there (RFC 3376, 8.5).
const ROUTER_NS: u64 = 2 * INTERVAL_NS + ANSWER_MS as u64 * 500_000;

/// General queries that are sent soon after each other, when nothing is known yet.
const FIRST_QUERIES: u8 = 2;
const FIRST_INTERVAL_NS: u64 = 5 * SECOND_NS;
const FIRST_ANSWER_MS: u16 = 2000;

/// How long all frames to groups are flooded when nothing is known: until both first queries are answered, and a second more.
const UNKNOWN_NS: u64 = FIRST_INTERVAL_NS + FIRST_ANSWER_MS as u64 * 1_000_000 + SECOND_NS;

/// Least time between two changes of the topology that all are asked anew for: a bridge may tell of as many as it likes, and each
/// costs a query for each VLAN, version of IP and port.
const RESTART_GAP_NS: u64 = SECOND_NS;

/// How long a port that came into service gets the frames of all groups: until the query to it was sent and answered, and a second
/// more.
const PORT_UNKNOWN_NS: u64 = RESTART_GAP_NS + FIRST_ANSWER_MS as u64 * 1_000_000 + SECOND_NS;

/// Queries for a group that a host left, with a second after each, in which they are answered.
const LAST_QUERIES: u64 = 2;
const LAST_ANSWER_MS: u16 = 1000;

/// How long a group that a host left is wanted if no host answers.
const LAST_NS: u64 = LAST_QUERIES * SECOND_NS + SECOND_NS / 2;

/// Least time between sweeps of all memberships for want of room.
const SWEEP_GAP_NS: u64 = 100_000_000;

/// What was heard and said about groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SnoopingCounters {
    /// Reports of hosts, those of leaving included.
    pub reports: u64,
    /// Queries of others, and Hellos of PIM.
    pub queries_in: u64,
    /// Queries sent, for each port that they were sent to.
    pub queries_out: u64,
    /// Messages that were cut off or damaged, forwarded like any frame to their group; and IGMP of a kind that is not known, which goes
    /// to all.
    pub unreadable: u64,
    /// Memberships that were not kept for want of room: their ports get the frames of all groups of their VLAN.
    pub not_kept: u64,
}

/// A group that is wanted behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The VLAN; none in a switch without VLANs.
    pub vlan: Option<VlanId>,
    /// The group.
    pub group: IpAddr,
    /// The port; of an aggregate the one that stands for it.
    pub port: PortId,
    /// Time until it is forgotten unless a host says again that it is wanted, in nanoseconds.
    pub left_ns: u64,
}

/// A VLAN in which groups are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnoopedVlan {
    /// The VLAN; none in a switch without VLANs.
    pub vlan: Option<VlanId>,
    /// Too little is known yet: frames to groups are flooded.
    pub is_flooded: bool,
    /// Ethernet address of who queries with IGMP and with MLD, if it is another one than this switch.
    pub queriers: [Option<MacAddr>; 2],
}

/// Who gets a message about groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The stations that would get any frame to the address.
    AsData,
    /// All stations of the VLAN.
    Everybody,
    /// Routers and other switches: hosts that hear reports say nothing themselves.
    Routers,
}

#[derive(Clone, Copy)]
struct Membership {
    vlan: u16,
    group: GroupAddr,
    port: PortId,
    until: Time,
}

impl Membership {
    fn key(&self) -> (u16, GroupAddr, PortId) {
        (self.vlan, self.group, self.port)
    }
}

#[derive(Clone, Copy)]
struct PortState {
    is_trunk: bool,
    memberships: usize,
    asking: PortAsking,
}

impl PortState {
    fn new(is_trunk: bool) -> Self {
        Self {
            is_trunk,
            memberships: 0,
            asking: PortAsking::Done,
        }
    }
}

/// Whether who is behind a port has been asked for groups since it came into service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortAsking {
    /// It is in service from now on.
    New,
    /// It gets the frames of all groups meanwhile.
    Due,
    Done,
}

/// A port that gets the frames of all groups of a VLAN.
#[derive(Clone, Copy)]
struct Wide {
    vlan: u16,
    port: PortId,
    /// A router is behind it until then.
    router_until: Time,
    /// What is wanted behind it had no room until then.
    everything_until: Time,
}

/// Who asks in a VLAN for the groups of one version of IP.
#[derive(Clone, Copy)]
struct Querier {
    /// The querier is not this switch.
    other: Option<QuerierRank>,
    /// When the switch asks: next, or if the other one is not heard again.
    next_at: Time,
    /// First queries that are still to come.
    first_left: u8,
}

#[derive(Clone, Copy)]
struct VlanState {
    vlan: u16,
    flood_until: Time,
    heard_at: Time,
    queriers: [Querier; 2],
}

impl VlanState {
    fn new(vlan: u16, now: Time) -> Self {
        let querier = Querier {
            other: None,
            next_at: now,
            first_left: FIRST_QUERIES,
        };
        Self {
            vlan,
            flood_until: now.plus_nanos(UNKNOWN_NS),
            heard_at: now,
            queriers: [querier; 2],
        }
    }
}

/// A query that is to be sent.
#[derive(Clone, Copy)]
struct Asked {
    at: Time,
    family: Family,
    group: Option<GroupAddr>,
    answer_within_ms: u16,
    vlan: u16,
    /// Ports that it still goes to.
    next_port: usize,
    end_port: usize,
}

/// A query that is to leave by one port.
pub(crate) struct Outgoing {
    pub port: PortId,
    pub vlan: u16,
    pub frame: ControlFrame,
}

/// What a switch knows of multicast groups.
pub(crate) struct Snooping {
    address: MacAddr,
    /// In rising order of VLANs, groups and ports.
    memberships: Vec<Membership>,
    /// In no order: there are few. No more than one for each VLAN that is kept, and port.
    wide: Vec<Wide>,
    ports: Vec<PortState>,
    vlans: Vec<VlanState>,
    asked: Vec<Asked>,
    /// The query that is being sent.
    asking: Option<Asked>,
    /// Trunks came or went: groups may be wanted behind other ports than before, and all are to be asked.
    is_changed: bool,
    /// When all ports may be asked anew again.
    next_restart_at: Time,
    /// Ports came into service and are to be asked.
    has_new_ports: bool,
    /// When they may be.
    next_ports_asked_at: Time,
    next_sweep_at: Time,
    /// When the place of a VLAN may be searched for again.
    next_vlan_sweep_at: Time,
    pub counters: SnoopingCounters,
}

impl Snooping {
    /// Nothing is known yet. `address` is the one that queries come from.
    pub fn new(address: MacAddr) -> Self {
        Self {
            address,
            // So that nothing is allocated for a frame.
            memberships: Vec::with_capacity(MEMBERSHIPS_MAX),
            wide: Vec::new(),
            ports: Vec::new(),
            vlans: Vec::with_capacity(VLANS_MAX),
            asked: Vec::with_capacity(ASKED_MAX),
            asking: None,
            is_changed: false,
            next_restart_at: Time::ZERO,
            has_new_ports: false,
            next_ports_asked_at: Time::ZERO,
            next_sweep_at: Time::ZERO,
            next_vlan_sweep_at: Time::ZERO,
            counters: SnoopingCounters::default(),
        }
    }

    /// There is a port, about which nothing is known.
    pub fn add_port(&mut self, port: PortId, is_trunk: bool) {
        let state = PortState::new(is_trunk);
        let number = usize::from(port.0);
        if self.ports.len() <= number {
            self.ports.resize(number + 1, state);
            // So that nothing is allocated for a frame.
            let wide_max = VLANS_MAX * self.ports.len();
            self.wide.reserve(wide_max.saturating_sub(self.wide.len()));
        }
        self.forget_port(port);
        self.ports[number] = state;
    }

    /// Forgets what is wanted behind a port, and routers there.
    pub fn forget_port(&mut self, port: PortId) {
        self.memberships.retain(|membership| membership.port != port);
        self.wide.retain(|wide| wide.port != port);
        if let Some(state) = self.ports.get_mut(usize::from(port.0)) {
            state.memberships = 0;
            state.asking = PortAsking::Done;
        }
    }

    /// A port that nothing is known of is in service from now on: it gets the frames of all groups until who is behind it has been
    /// asked. A station that was there before says nothing unasked.
    pub fn port_opened(&mut self, port: PortId) {
        if let Some(state) = self.ports.get_mut(usize::from(port.0)) {
            state.asking = PortAsking::New;
            self.has_new_ports = true;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.memberships.clear();
        self.wide.clear();
        self.vlans.clear();
        self.asked.clear();
        self.asking = None;
        for state in &mut self.ports {
            state.memberships = 0;
        }
    }

    /// Trunks came or went: until all were asked again, frames to groups are flooded.
    pub fn topology_changed(&mut self) {
        self.is_changed = true;
    }

    /// Whether groups are kept separate in a VLAN already.
    fn knows(&self, vlan: u16) -> bool {
        self.vlans.iter().any(|state| state.vlan == vlan)
    }

    /// Whether a frame to a group in a VLAN is reason to [`begin`](Self::begin) with it.
    pub fn wants_to_begin(&self, now: Time, vlan: u16) -> bool {
        (self.is_changed && now >= self.next_restart_at)
            || (!self.knows(vlan) && (self.vlans.len() < VLANS_MAX || now >= self.next_vlan_sweep_at))
    }

    /// Keeps groups separate in a VLAN from now on, if there is room for it.
    pub fn begin(&mut self, now: Time, vlan: u16) {
        self.handle(now);
        if self.knows(vlan) {
            return;
        }
        if self.vlans.len() >= VLANS_MAX && now >= self.next_vlan_sweep_at {
            self.next_vlan_sweep_at = now.plus_nanos(VLAN_SWEEP_GAP_NS);
            // All that was wanted in such a VLAN has ended, too, since that is wanted no longer from when it was heard.
            self.vlans
                .retain(|state| now.nanos_since(state.heard_at) <= MEMBERSHIP_NS);
            let vlans = &self.vlans;
            self.wide
                .retain(|wide| vlans.iter().any(|state| state.vlan == wide.vlan));
        }
        if self.vlans.len() < VLANS_MAX {
            self.vlans.push(VlanState::new(vlan, now));
        }
    }

    /// Does what is due by now, but for queries.
    pub fn handle(&mut self, now: Time) {
        if self.has_new_ports {
            self.serve_new_ports(now);
        }
        if !self.is_changed || now < self.next_restart_at {
            return;
        }
        self.is_changed = false;
        if !self.vlans.is_empty() {
            self.next_restart_at = now.plus_nanos(RESTART_GAP_NS);
        }
        for state in &mut self.vlans {
            *state = VlanState::new(state.vlan, now);
        }
    }

    /// Lets ports that came into service have all groups, and asks who is behind them.
    fn serve_new_ports(&mut self, now: Time) {
        let is_due = now >= self.next_ports_asked_at;
        let (mut first, mut end) = (usize::MAX, 0);
        for number in 0..self.ports.len() {
            if self.ports[number].asking == PortAsking::New {
                self.open_for_all_groups(PortId(number as u16), now.plus_nanos(PORT_UNKNOWN_NS));
                self.ports[number].asking = PortAsking::Due;
            }
            if is_due && self.ports[number].asking == PortAsking::Due {
                self.ports[number].asking = PortAsking::Done;
                (first, end) = (first.min(number), number + 1);
            }
        }
        if !is_due {
            return;
        }
        self.has_new_ports = false;
        self.next_ports_asked_at = now.plus_nanos(RESTART_GAP_NS);
        for at in 0..self.vlans.len() {
            let vlan = self.vlans[at].vlan;
            for family in [Family::V4, Family::V6] {
                if self.asked.len() >= ASKED_MAX {
                    // The next general query asks them.
                    for number in first..end {
                        self.open_for_all_groups(PortId(number as u16), now.plus_nanos(MEMBERSHIP_NS));
                    }
                    return;
                }
                self.asked.push(Asked {
                    at: now,
                    family,
                    group: None,
                    answer_within_ms: FIRST_ANSWER_MS,
                    vlan,
                    next_port: first,
                    end_port: end,
                });
            }
        }
    }

    /// A port gets the frames of all groups until then, in all VLANs.
    fn open_for_all_groups(&mut self, port: PortId, until: Time) {
        for at in 0..self.vlans.len() {
            if let Some(wide) = self.wide_mut(self.vlans[at].vlan, port) {
                wide.everything_until = wide.everything_until.max(until);
            }
        }
    }

    /// The ports that frames to a group go to; none: to all.
    pub fn wanted_behind(&mut self, now: Time, vlan: u16, group: GroupAddr) -> Option<PortSet> {
        let state = self.vlans.iter_mut().find(|state| state.vlan == vlan)?;
        state.heard_at = now;
        if self.is_changed || now < state.flood_until {
            return None;
        }
        let mut ports = PortSet::EMPTY;
        for wide in self.wide.iter().filter(|wide| wide.vlan == vlan) {
            if now < wide.router_until.max(wide.everything_until) {
                ports.insert(wide.port);
            }
        }
        let first = self
            .memberships
            .partition_point(|membership| (membership.vlan, membership.group) < (vlan, group));
        for membership in &self.memberships[first..] {
            if (membership.vlan, membership.group) != (vlan, group) {
                break;
            }
            if now < membership.until {
                ports.insert(membership.port);
            }
        }
        Some(ports)
    }

    /// The ports that reports in a VLAN go to: those of routers and of other switches.
    pub fn routers(&self, now: Time, vlan: u16) -> PortSet {
        let mut ports = PortSet::EMPTY;
        for (number, state) in self.ports.iter().enumerate() {
            if state.is_trunk {
                ports.insert(PortId(number as u16));
            }
        }
        for wide in &self.wide {
            if wide.vlan == vlan && now < wide.router_until {
                ports.insert(wide.port);
            }
        }
        ports
    }

    /// What a port gets of all groups of a VLAN; `None` if there is no such port, or frames of the VLAN are flooded for want of room.
    fn wide_mut(&mut self, vlan: u16, port: PortId) -> Option<&mut Wide> {
        if usize::from(port.0) >= self.ports.len() || !self.knows(vlan) {
            return None;
        }
        let found = self.wide.iter().position(|wide| (wide.vlan, wide.port) == (vlan, port));
        let at = found.unwrap_or_else(|| {
            self.wide.push(Wide {
                vlan,
                port,
                router_until: Time::ZERO,
                everything_until: Time::ZERO,
            });
            self.wide.len() - 1
        });
        self.wide.get_mut(at)
    }

    fn hear_router(&mut self, now: Time, vlan: u16, port: PortId) {
        if let Some(wide) = self.wide_mut(vlan, port) {
            wide.router_until = now.plus_nanos(ROUTER_NS);
        }
    }

    /// Reads a message that came in at a port, and says who gets it.
    pub fn hear(&mut self, now: Time, vlan: u16, port: PortId, frame: &[u8], type_at: usize) -> Audience {
        let Some(message) = message::parse(frame, type_at) else {
            self.counters.unreadable += 1;
            return Audience::AsData;
        };
        if let Some(state) = self.vlans.iter_mut().find(|state| state.vlan == vlan) {
            state.heard_at = now;
        }
        match message {
            Message::Report(wishes) => {
                self.counters.reports += 1;
                for wish in wishes {
                    match wish {
                        Wish::Join(group) => self.join(now, vlan, port, group),
                        Wish::Leave(group) => self.leave(now, vlan, port, group),
                    }
                }
                return Audience::Routers;
            }
            Message::GeneralQuery {
                family,
                rank,
                is_router,
            } => {
                self.counters.queries_in += 1;
                self.hear_querier(now, vlan, family, rank);
                // One without an address behind a card is a bridge, behind which are hosts, and which tells no other bridge of them.
                let is_trunk = |state: &PortState| state.is_trunk;
                if is_router || !self.ports.get(usize::from(port.0)).is_some_and(is_trunk) {
                    self.hear_router(now, vlan, port);
                }
            }
            Message::GroupQuery => self.counters.queries_in += 1,
            Message::Other => self.counters.unreadable += 1,
            Message::Router => {
                self.counters.queries_in += 1;
                self.hear_router(now, vlan, port);
            }
        }
        Audience::Everybody
    }

    /// Of several queriers, the first by rank goes on.
    fn hear_querier(&mut self, now: Time, vlan: u16, family: Family, rank: QuerierRank) {
        let own = query::rank(family, self.address);
        if let Some(state) = self.vlans.iter_mut().find(|state| state.vlan == vlan)
            && rank < own
        {
            state.queriers[family as usize] = Querier {
                other: Some(rank),
                next_at: now.plus_nanos(ROUTER_NS),
                first_left: 0,
            };
        }
    }

    fn join(&mut self, now: Time, vlan: u16, port: PortId, group: GroupAddr) {
        let until = now.plus_nanos(MEMBERSHIP_NS);
        let found = self.find(vlan, group, port);
        if let Ok(at) = found {
            self.memberships[at].until = until;
            return;
        }
        let has_room = |snooping: &Self| {
            let state = snooping.ports.get(usize::from(port.0));
            state.is_some_and(|state| state.is_trunk || state.memberships < PORT_MEMBERSHIPS_MAX)
                && snooping.memberships.len() < MEMBERSHIPS_MAX
        };
        if !has_room(self) && now >= self.next_sweep_at {
            self.next_sweep_at = now.plus_nanos(SWEEP_GAP_NS);
            self.sweep(now);
        }
        let is_kept = has_room(self);
        let at = self.find(vlan, group, port).unwrap_or_else(|at| at);
        if !is_kept {
            self.counters.not_kept += 1;
            if let Some(wide) = self.wide_mut(vlan, port) {
                wide.everything_until = until;
            }
            return;
        }
        let Some(state) = self.ports.get_mut(usize::from(port.0)) else {
            return;
        };
        state.memberships += 1;
        let membership = Membership {
            vlan,
            group,
            port,
            until,
        };
        self.memberships.insert(at, membership);
    }

    /// Notes that a host behind a port does not want a group any more: the others there are asked.
    fn leave(&mut self, now: Time, vlan: u16, port: PortId, group: GroupAddr) {
        let Ok(at) = self.find(vlan, group, port) else { return };
        let until = now.plus_nanos(LAST_NS);
        if self.memberships[at].until <= until || self.asked.len() + LAST_QUERIES as usize > ASKED_MAX {
            return;
        }
        self.memberships[at].until = until;
        for number in 0..LAST_QUERIES {
            self.asked.push(Asked {
                at: now.plus_nanos(number * SECOND_NS),
                family: group.family(),
                group: Some(group),
                answer_within_ms: LAST_ANSWER_MS,
                vlan,
                next_port: usize::from(port.0),
                end_port: usize::from(port.0) + 1,
            });
        }
    }

    fn find(&self, vlan: u16, group: GroupAddr, port: PortId) -> Result<usize, usize> {
        let key = (vlan, group, port);
        self.memberships
            .binary_search_by(|membership| membership.key().cmp(&key))
    }

    /// Forgets memberships that have ended.
    fn sweep(&mut self, now: Time) {
        let ports = &mut self.ports;
        self.memberships.retain(|membership| {
            let is_kept = now < membership.until;
            if !is_kept && let Some(state) = ports.get_mut(usize::from(membership.port.0)) {
                state.memberships -= 1;
            }
            is_kept
        });
    }

    /// When there is something to do next, if nothing else happens.
    pub fn next_event(&self) -> Option<Time> {
        if self.asking.is_some() {
            return Some(Time::ZERO);
        }
        let restart = (self.is_changed && !self.vlans.is_empty()).then_some(self.next_restart_at);
        let queriers = self.vlans.iter().flat_map(|state| &state.queriers);
        let general = queriers.map(|querier| querier.next_at);
        let asked = self.asked.iter().map(|asked| asked.at);
        let new_ports = self.has_new_ports.then_some(self.next_ports_asked_at);
        general.chain(asked).chain(restart).chain(new_ports).min()
    }

    /// The next query that is due, to leave by one of `ports` ports; whether it leaves there is the caller's business. Call it until
    /// there is none.
    pub fn poll_query(&mut self, now: Time, ports: usize) -> Option<Outgoing> {
        loop {
            let mut asking = match self.asking.take() {
                Some(asking) => asking,
                None => self.next_asked(now)?,
            };
            if asking.next_port >= asking.end_port.min(ports) {
                continue;
            }
            let port = PortId(asking.next_port as u16);
            asking.next_port += 1;
            self.asking = Some(asking);
            let frame = query::frame(self.address, asking.family, asking.group, asking.answer_within_ms);
            return Some(Outgoing {
                port,
                vlan: asking.vlan,
                frame,
            });
        }
    }

    fn next_asked(&mut self, now: Time) -> Option<Asked> {
        if let Some(at) = self.asked.iter().position(|asked| asked.at <= now) {
            return Some(self.asked.remove(at));
        }
        for state in &mut self.vlans {
            for (querier, family) in state.queriers.iter_mut().zip([Family::V4, Family::V6]) {
                if now < querier.next_at {
                    continue;
                }
                querier.other = None;
                let answer_within_ms = match querier.first_left {
                    0 => ANSWER_MS,
                    _ => FIRST_ANSWER_MS,
                };
                querier.first_left = querier.first_left.saturating_sub(1);
                let interval_ns = match querier.first_left {
                    0 => INTERVAL_NS,
                    _ => FIRST_INTERVAL_NS,
                };
                querier.next_at = now.plus_nanos(interval_ns);
                return Some(Asked {
                    at: now,
                    family,
                    group: None,
                    answer_within_ms,
                    vlan: state.vlan,
                    next_port: 0,
                    end_port: usize::MAX,
                });
            }
        }
        None
    }

    /// What is wanted behind ports at `now`, in rising order of VLANs, groups and ports.
    pub fn members(&self, now: Time) -> impl Iterator<Item = GroupMember> + '_ {
        let live = self.memberships.iter().filter(move |membership| now < membership.until);
        live.map(move |membership| GroupMember {
            vlan: VlanId::new(membership.vlan),
            group: membership.group.to_ip(),
            port: membership.port,
            left_ns: membership.until.nanos_since(now),
        })
    }

    /// Whether a router is behind a port at `now`, in any VLAN.
    pub fn has_router(&self, now: Time, port: PortId) -> bool {
        self.wide
            .iter()
            .any(|wide| wide.port == port && now < wide.router_until)
    }

    /// The VLANs in which groups are kept separate.
    pub fn vlans(&self, now: Time) -> impl Iterator<Item = SnoopedVlan> + '_ {
        self.vlans.iter().map(move |state| SnoopedVlan {
            vlan: VlanId::new(state.vlan),
            is_flooded: self.is_changed || now < state.flood_until,
            queriers: state
                .queriers
                .map(|querier| querier.other.map(|QuerierRank(_, mac)| mac)),
        })
    }
}
