//! The spanning tree in virtual time: networks of switches whose BPDUs take time on their trunks, trunks that are pulled and
//! plugged in at any moment, and frames that must never circle.

mod common;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use common::{header, station};
use ether::{MacAddr, Time};
use fabric::{
    BRIDGE_GROUP, DropReason, Egress, Forward, PortId, PortRole, PortState, PortVlans, StpConfig, StpPortConfig,
    Switch, SwitchConfig, TrunkId, VlanId, VlanSet,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

struct Trunk {
    ends: [(usize, PortId); 2],
    up: bool,
    delay_ns: u64,
    /// Rises when it is pulled: what was on it then is lost.
    life: u32,
}

/// A frame of a switch in flight over a trunk.
struct OnTrunk {
    trunk: usize,
    /// The end that it will come out at.
    to: usize,
    life: u32,
    bytes: Vec<u8>,
}

/// Switches with one host each, and trunks between them.
struct Network {
    switches: Vec<Switch>,
    hosts: Vec<PortId>,
    trunks: Vec<Trunk>,
    on_trunks: BTreeMap<(u64, u64), OnTrunk>,
    sequence: u64,
    now: u64,
    /// The first loop that was seen, looked for after each event.
    loop_seen: Option<String>,
}

fn bridge(number: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, number as u8])
}

impl Network {
    fn new(priorities: &[u16]) -> Self {
        let mut hosts = Vec::new();
        let switches = priorities.iter().enumerate().map(|(number, priority)| {
            let mut switch = Switch::new(SwitchConfig::default());
            switch.enable_spanning_tree(
                StpConfig {
                    priority: *priority,
                    ..StpConfig::new(bridge(number))
                },
                Time::ZERO,
            );
            hosts.push(switch.add_port());
            switch
        });
        Self {
            switches: switches.collect(),
            hosts,
            trunks: Vec::new(),
            on_trunks: BTreeMap::new(),
            sequence: 0,
            now: 0,
            loop_seen: None,
        }
    }

    fn join(&mut self, a: usize, b: usize, cost: u32, delay_ns: u64) -> usize {
        let id = TrunkId(self.trunks.len() as u16);
        let ends = [a, b].map(|switch| (switch, self.switches[switch].add_trunk(id).unwrap()));
        for (switch, port) in ends {
            let config = StpPortConfig {
                path_cost: cost,
                ..StpPortConfig::of_rate(0)
            };
            self.switches[switch].set_spanning_tree_port(port, config);
        }
        self.trunks.push(Trunk {
            ends,
            up: true,
            delay_ns,
            life: 0,
        });
        self.trunks.len() - 1
    }

    fn set(&mut self, trunk: usize, up: bool) {
        if self.trunks[trunk].up == up {
            return;
        }
        self.trunks[trunk].up = up;
        self.trunks[trunk].life += 1;
        for (switch, port) in self.trunks[trunk].ends {
            self.switches[switch].handle(Time::from_nanos(self.now));
            self.switches[switch].set_port_up(port, up);
        }
        self.send_all();
    }

    /// Puts what the switches have to say on the trunks.
    fn send_all(&mut self) {
        for switch in 0..self.switches.len() {
            let now = Time::from_nanos(self.now);
            self.switches[switch].handle(now);
            while let Some((egress, frame)) = self.switches[switch].poll_transmit(now) {
                let Egress::Trunk(TrunkId(trunk)) = egress else {
                    continue;
                };
                let trunk = usize::from(trunk);
                let Trunk {
                    ends,
                    up,
                    delay_ns,
                    life,
                } = &self.trunks[trunk];
                if *up {
                    let on_trunk = OnTrunk {
                        trunk,
                        to: usize::from(ends[0].0 == switch),
                        life: *life,
                        bytes: frame.bytes().to_vec(),
                    };
                    self.sequence += 1;
                    self.on_trunks.insert((self.now + delay_ns, self.sequence), on_trunk);
                }
            }
        }
        self.look_for_loops();
    }

    fn look_for_loops(&mut self) {
        if self.loop_seen.is_none() && !self.is_forest() {
            self.loop_seen = Some(self.picture());
        }
    }

    fn run_until(&mut self, until: u64) {
        self.send_all();
        loop {
            let arrival = self.on_trunks.first_key_value().map(|((at, _), _)| *at);
            let due = self
                .switches
                .iter()
                .filter_map(Switch::next_event)
                .map(Time::as_nanos)
                .min();
            let next = arrival.into_iter().chain(due).min().unwrap_or(u64::MAX);
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.on_trunks.first_entry()
                && entry.key().0 <= self.now
            {
                let OnTrunk { trunk, to, life, bytes } = entry.remove();
                if self.trunks[trunk].life == life {
                    let (switch, port) = self.trunks[trunk].ends[to];
                    let forward = self.switches[switch].forward(Time::from_nanos(self.now), port, &bytes, bytes.len());
                    assert_eq!(forward, Forward::Taken);
                    self.send_all();
                }
            }
            self.send_all();
        }
        self.now = until;
    }

    fn is_forwarding(&self, (switch, port): (usize, PortId)) -> bool {
        self.switches[switch]
            .spanning_tree_port(port)
            .is_some_and(|port| port.state == PortState::Forwarding)
    }

    /// Trunks over which frames pass now.
    fn open_trunks(&self) -> impl Iterator<Item = &Trunk> {
        let open = |trunk: &&Trunk| trunk.up && trunk.ends.iter().all(|end| self.is_forwarding(*end));
        self.trunks.iter().filter(open)
    }

    /// For each switch, one that stands for all that `trunks` join to it; and whether the trunks make no loop.
    fn joined<'a>(&self, trunks: impl Iterator<Item = &'a Trunk>) -> (Vec<usize>, bool) {
        let mut of: Vec<usize> = (0..self.switches.len()).collect();
        let mut is_forest = true;
        for trunk in trunks {
            let [a, b] = trunk.ends.map(|(switch, _)| of[switch]);
            is_forest &= a != b;
            of.iter_mut().filter(|of| **of == b).for_each(|of| *of = a);
        }
        (of, is_forest)
    }

    fn is_forest(&self) -> bool {
        self.joined(self.open_trunks()).1
    }

    /// Whether every switch reaches all others that it can reach at all.
    fn is_whole(&self) -> bool {
        let groups = |of: &[usize]| -> BTreeSet<Vec<usize>> {
            let members = |root: usize| (0..of.len()).filter(|switch| of[*switch] == root).collect();
            of.iter().map(|root| members(*root)).collect()
        };
        let (open, _) = self.joined(self.open_trunks());
        let (up, _) = self.joined(self.trunks.iter().filter(|trunk| trunk.up));
        groups(&open) == groups(&up)
    }

    /// What the ports of all trunks are, for messages.
    fn picture(&self) -> String {
        let mut text = format!("{} ns", self.now);
        for (number, trunk) in self.trunks.iter().enumerate() {
            for (switch, port) in trunk.ends {
                let status = self.switches[switch].spanning_tree_port(port).unwrap();
                text += &format!("\ntrunk {number} ({}) at {switch}: {status:?}", trunk.up);
            }
        }
        text
    }

    /// Sends a frame from a host, at once over all trunks, and says which hosts got it, as often as they did.
    fn flood(&mut self, from: usize, dst: MacAddr) -> Vec<usize> {
        let frame = header(dst, station(from as u8));
        let mut reached = Vec::new();
        let mut under_way = VecDeque::from([(from, self.hosts[from])]);
        let mut hops = 0;
        while let Some((switch, port)) = under_way.pop_front() {
            hops += 1;
            assert!(hops <= 1000, "the frame circles: {}", self.picture());
            let forward = self.switches[switch].forward(Time::from_nanos(self.now), port, &frame, 60);
            let egresses: Vec<_> = self.switches[switch].flood_targets(port, forward).collect();
            for egress in egresses {
                match egress {
                    Egress::Local(_) => reached.push(switch),
                    Egress::Trunk(trunk) => {
                        let trunk = &self.trunks[usize::from(trunk.0)];
                        if trunk.up {
                            under_way.push_back(trunk.ends[usize::from(trunk.ends[0].0 == switch)]);
                        }
                    }
                }
            }
        }
        reached.sort_unstable();
        reached
    }
}

#[test]
fn a_ring_blocks_one_port_and_heals_at_once_when_a_trunk_is_pulled() {
    let mut net = Network::new(&[32768; 4]);
    for switch in 0..4 {
        net.join(switch, (switch + 1) % 4, 20_000, MS);
    }
    net.run_until(SECOND);
    assert!(net.is_whole() && net.is_forest());
    let status = net.switches[2].spanning_tree().unwrap();
    assert_eq!(status.root.address(), bridge(0), "the lowest address");
    assert_eq!(status.root_cost, 40_000);
    let roles = |net: &Network, switch: usize| -> Vec<PortRole> {
        let ports = net.switches[switch].ports();
        ports
            .map(|port| net.switches[switch].spanning_tree_port(port).unwrap().role)
            .collect()
    };
    assert_eq!(roles(&net, 0), [PortRole::Designated; 3]);
    assert_eq!(
        roles(&net, 2),
        [PortRole::Designated, PortRole::Root, PortRole::Alternate]
    );
    assert_eq!(net.flood(2, MacAddr::BROADCAST), [0, 1, 3]);
    // The path of switch 2 to the root is pulled: its alternate port takes over, in the time that BPDUs take.
    net.set(1, false);
    net.run_until(SECOND + 20 * MS);
    assert!(net.is_whole() && net.is_forest());
    assert_eq!(net.flood(2, MacAddr::BROADCAST), [0, 1, 3]);
    assert_eq!(net.flood(1, MacAddr::BROADCAST), [0, 2, 3]);
    // Back again: the better path is taken again.
    net.set(1, true);
    net.run_until(2 * SECOND);
    assert!(net.is_whole() && net.is_forest());
    assert_eq!(
        roles(&net, 2),
        [PortRole::Designated, PortRole::Root, PortRole::Alternate]
    );
    assert_eq!(net.loop_seen, None);
}

#[test]
fn stations_are_forgotten_when_the_topology_changes() {
    let mut net = Network::new(&[4096, 32768, 32768]);
    for (a, b) in [(0, 1), (1, 2), (2, 0)] {
        net.join(a, b, 20_000, MS);
    }
    net.run_until(SECOND);
    for host in 0..3 {
        net.flood(host, MacAddr::BROADCAST);
    }
    assert_eq!(net.flood(1, station(2)), [2], "known over switch 0");
    net.set(2, false);
    net.run_until(SECOND + 10 * MS);
    assert_eq!(
        net.flood(1, station(2)),
        [0, 2],
        "flooded: no switch knows any more where it is"
    );
    net.flood(2, station(1));
    assert_eq!(net.flood(1, station(2)), [2]);
    assert!(net.switches[0].spanning_tree().unwrap().topology_changes > 0);
}

#[test]
fn priorities_choose_the_root_and_costs_the_way() {
    let mut net = Network::new(&[32768, 32768, 4096]);
    let slow = net.join(0, 2, 200_000, MS);
    net.join(0, 1, 20_000, MS);
    net.join(1, 2, 20_000, MS);
    net.run_until(SECOND);
    let status = net.switches[0].spanning_tree().unwrap();
    assert_eq!((status.root.address(), status.root_cost), (bridge(2), 40_000));
    assert_eq!(status.root.to_string(), format!("1000.{}", bridge(2)));
    let slow_end = net.trunks[slow].ends[0].1;
    let port = net.switches[0].spanning_tree_port(slow_end).unwrap();
    assert_eq!((port.role, port.state), (PortRole::Alternate, PortState::Discarding));
    // Frames that come in there end there, under their reason.
    let forward = net.switches[0].forward(Time::from_nanos(net.now), slow_end, &header(station(1), station(2)), 60);
    assert_eq!(forward, Forward::Drop(DropReason::Discarding));
    assert_eq!(net.switches[0].counters(slow_end).dropped(DropReason::Discarding), 1);
}

#[test]
fn edge_ports_forward_at_once_and_stop_being_edges_when_a_bridge_is_behind_them() {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.enable_spanning_tree(StpConfig::new(bridge(0)), Time::ZERO);
    let (a, b, c) = (switch.add_port(), switch.add_port(), switch.add_port());
    let status = |switch: &Switch, port| switch.spanning_tree_port(port).unwrap();
    assert_eq!(status(&switch, a).state, PortState::Forwarding);
    assert!(status(&switch, a).edge);
    // Two of them are joined by a bridge that passes BPDUs on: one of the two is closed.
    let mut now = 0;
    for _ in 0..5 {
        now += SECOND;
        let time = Time::from_nanos(now);
        switch.handle(time);
        let mut sent = Vec::new();
        while let Some((egress, frame)) = switch.poll_transmit(time) {
            sent.push((egress, frame));
        }
        for (egress, frame) in sent {
            let other = match egress {
                Egress::Local(port) if port == a => b,
                Egress::Local(port) if port == b => a,
                _ => continue,
            };
            switch.forward(time, other, frame.bytes(), 60);
        }
    }
    assert_eq!(status(&switch, b).role, PortRole::Backup);
    assert_eq!(status(&switch, b).state, PortState::Discarding);
    assert_eq!(status(&switch, c).state, PortState::Forwarding);
    let all = header(MacAddr::BROADCAST, station(1));
    let forward = switch.forward(Time::from_nanos(now), c, &all, 60);
    assert_eq!(switch.flood_targets(c, forward).collect::<Vec<_>>(), [Egress::Local(a)]);
}

/// A configuration BPDU as bridges of 1998 send it: root and bridge 8000.02:00:00:00:01:01, port 8001.
fn old_bpdu() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&BRIDGE_GROUP.0);
    frame[6..17].copy_from_slice(&[2, 0, 0, 0, 1, 1, 0, 38, 0x42, 0x42, 3]);
    for at in [22, 34] {
        frame[at..at + 8].copy_from_slice(&[0x80, 0, 2, 0, 0, 0, 1, 1]);
    }
    frame[42..52].copy_from_slice(&[0x80, 1, 0, 0, 20, 0, 2, 0, 15, 0]);
    frame
}

#[test]
fn a_bridge_of_the_old_protocol_is_answered_in_it() {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.enable_spanning_tree(StpConfig::new(bridge(9)), Time::ZERO);
    let port = switch.add_port();
    let frame = old_bpdu();
    let mut old_seen = false;
    for second in 1..60 {
        let now = Time::from_nanos(second * SECOND);
        switch.handle(now);
        assert_eq!(switch.forward(now, port, &frame, 60), Forward::Taken);
        while let Some((_, sent)) = switch.poll_transmit(now) {
            old_seen |= sent.bytes()[19] == 0;
        }
    }
    assert!(old_seen, "version 0 is sent");
    let status = switch.spanning_tree_port(port).unwrap();
    assert_eq!((status.role, status.state), (PortRole::Root, PortState::Forwarding));
    assert!(status.old_protocol && !status.edge);
    assert_eq!(
        switch.spanning_tree().unwrap().root.address(),
        MacAddr([2, 0, 0, 0, 1, 1])
    );
    // It falls silent: this switch is the root again after three hellos.
    let mut now = 60 * SECOND;
    while now < 70 * SECOND {
        now += SECOND / 4;
        switch.handle(Time::from_nanos(now));
    }
    assert_eq!(switch.spanning_tree().unwrap().root_port, None);
}

#[test]
fn frames_to_bridges_that_are_no_bpdus_are_counted_and_any_bytes_are_answered() {
    let mut switch = Switch::new(SwitchConfig::default());
    let port = switch.add_port();
    let frame = |bytes: &[u8]| [&BRIDGE_GROUP.0[..], &station(1).0, bytes].concat();
    let nonsense = frame(&[0, 40, 0x42, 0x42, 3, 0, 0, 9, 9]);
    assert_eq!(
        switch.forward(Time::ZERO, port, &nonsense, 60),
        Forward::Drop(DropReason::ReservedAddress)
    );
    switch.enable_spanning_tree(StpConfig::new(bridge(0)), Time::ZERO);
    assert_eq!(switch.forward(Time::ZERO, port, &nonsense, 60), Forward::Taken);
    assert_eq!(switch.spanning_tree_port(port).unwrap().counters.bpdus_unknown, 1);
    switch.set_forwards_reserved(true);
    assert_eq!(
        switch.forward(Time::ZERO, port, &nonsense, 60),
        Forward::Taken,
        "BPDUs are for the switch nevertheless"
    );
}

/// Priorities of switches; trunks with their ends, costs and delays; changes, each with the time before it, a trunk and its
/// state.
type Case = (Vec<u16>, Vec<(usize, usize, u32, u64)>, Vec<(u64, usize, bool)>);

fn topology() -> impl Strategy<Value = Case> {
    (2..7usize).prop_flat_map(|switches| {
        let priority = prop_oneof![Just(32768u16), Just(4096), Just(0), Just(61440)];
        let delay = prop_oneof![3 => 0..2 * MS, 1 => 0..200 * MS];
        let trunk = (
            0..switches,
            1..switches,
            prop_oneof![Just(2000u32), Just(20_000), Just(200_000)],
            delay,
        )
            .prop_map(move |(a, by, cost, delay_ns)| (a, (a + by) % switches, cost, delay_ns));
        (
            prop::collection::vec(priority, switches),
            prop::collection::vec(trunk, 1..12),
            prop::collection::vec(
                (
                    prop_oneof![0..10 * MS, 0..SECOND, 0..20 * SECOND],
                    0..12usize,
                    any::<bool>(),
                ),
                0..20,
            ),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_frame_ever_circles_and_all_that_can_be_reached_is_reached((priorities, trunks, changes) in topology()) {
        let mut net = Network::new(&priorities);
        for (a, b, cost, delay_ns) in &trunks {
            net.join(*a, *b, *cost, *delay_ns);
        }
        // Changes at any time, also before anything has settled.
        for (wait_ns, trunk, up) in changes {
            net.run_until(net.now + wait_ns);
            net.set(trunk % trunks.len(), up);
            for host in 0..priorities.len() {
                let reached = net.flood(host, MacAddr::BROADCAST);
                let distinct: BTreeSet<_> = reached.iter().collect();
                prop_assert_eq!(distinct.len(), reached.len(), "a host got a frame twice");
            }
        }
        net.run_until(net.now + 60 * SECOND);
        prop_assert_eq!(&net.loop_seen, &None, "trunks that forward made a loop");
        prop_assert!(net.is_whole());
        let (of, _) = net.joined(net.trunks.iter().filter(|trunk| trunk.up));
        for host in 0..priorities.len() {
            let others: Vec<usize> = (0..of.len()).filter(|other| *other != host && of[*other] == of[host]).collect();
            prop_assert_eq!(net.flood(host, MacAddr::BROADCAST), others);
        }
    }
}

#[test]
fn an_aggregate_takes_part_as_the_trunk_that_stands_for_it_was_told_to() {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.enable_spanning_tree(StpConfig::new(bridge(0)), Time::ZERO);
    let ports = [0, 1, 2].map(|number| switch.add_trunk(TrunkId(number)).unwrap());
    let config = StpPortConfig {
        path_cost: 777,
        priority: 64,
        ..StpPortConfig::of_rate(0)
    };
    switch.set_spanning_tree_port(ports[0], config);
    let settings = |switch: &Switch, port| {
        let status = switch.spanning_tree_port(port).unwrap();
        (status.path_cost, status.id >> 8)
    };
    switch.aggregate(&ports[..2]).unwrap();
    assert_eq!(settings(&switch, ports[0]), (777, 64));
    switch.join_aggregate(ports[0], ports[2]).unwrap();
    assert_eq!(settings(&switch, ports[0]), (777, 64));
    for gone in 0..2 {
        switch.remove_port(ports[gone]);
        assert_eq!(settings(&switch, ports[gone + 1]), (777, 64));
    }
}

#[test]
fn a_learning_port_learns_in_the_vlan_of_the_frame() {
    let tagged = |vlan: u8| [&header(station(1), station(2))[..12], &[0x81, 0, 0, vlan, 8, 0]].concat();
    for vlan in [None, Some(10)] {
        let mut switch = Switch::new(SwitchConfig::default());
        switch.enable_spanning_tree(StpConfig::new(bridge(0)), Time::ZERO);
        let trunk = switch.add_trunk(TrunkId(0)).unwrap();
        // The bridge behind it, which is not the root, knows no agreements: the port takes its time.
        if let Some(vlan) = vlan {
            let carries = PortVlans::trunk(None, VlanSet::from_iter(VlanId::new(vlan)));
            switch.set_port_vlans(trunk, Some(carries));
        }
        let mut now = Time::ZERO;
        while switch.spanning_tree_port(trunk).unwrap().state != PortState::Learning {
            now = now.plus_nanos(SECOND);
            assert!(now <= Time::from_nanos(60 * SECOND));
            switch.handle(now);
            assert_eq!(switch.forward(now, trunk, &old_bpdu(), 60), Forward::Taken);
        }
        let discarding = Forward::Drop(DropReason::Discarding);
        assert_eq!(switch.forward(now, trunk, &tagged(10), 60), discarding);
        assert_eq!(
            switch.forward(now, trunk, &header(station(1), station(3)), 60),
            discarding
        );
        let mut learned: Vec<_> = switch.table(now).map(|entry| (entry.mac, entry.vlan)).collect();
        learned.sort();
        match vlan {
            None => assert_eq!(learned, [(station(2), None), (station(3), None)]),
            // The other one has no tag, and is in no VLAN.
            Some(vlan) => assert_eq!(learned, [(station(2), VlanId::new(vlan))]),
        }
    }
}
