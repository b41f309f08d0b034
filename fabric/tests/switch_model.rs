//! The switch against a model that is as plain as can be: a map of addresses, and no fast path.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{header, station};
use ether::{MacAddr, Time};
use fabric::{DropReason, Egress, Forward, PortId, Switch, SwitchConfig};
use proptest::prelude::*;

const PORTS: u16 = 5;
const STATIONS: u8 = 12;
const AGEING_NS: u64 = 1000;

#[derive(Clone, Debug)]
enum Step {
    /// One frame `count` times, each `gap_ns` after the one before.
    Frames {
        ingress: u16,
        dst: u8,
        src: u8,
        count: u8,
        gap_ns: u64,
    },
    SetUp(u16, bool),
    Replace(u16),
    Join(u8, u16),
    Leave(u8, u16),
    Silence(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let gap_ns = prop_oneof![4 => 0..20u64, 1 => 200..1200u64];
    prop_oneof![
        20 => (0..PORTS, 0..STATIONS + 4, 0..STATIONS, 1..4u8, gap_ns)
            .prop_map(|(ingress, dst, src, count, gap_ns)| Step::Frames { ingress, dst, src, count, gap_ns }),
        1 => (0..PORTS, any::<bool>()).prop_map(|(port, up)| Step::SetUp(port, up)),
        1 => (0..PORTS).prop_map(Step::Replace),
        1 => (0..3u8, 0..PORTS).prop_map(|(group, port)| Step::Join(group, port)),
        1 => (0..3u8, 0..PORTS).prop_map(|(group, port)| Step::Leave(group, port)),
        1 => (0..2 * AGEING_NS).prop_map(Step::Silence),
    ]
}

fn group(n: u8) -> MacAddr {
    MacAddr([1, 0, 0x5e, 0, 0, n])
}

/// Stations first, then the groups and the broadcast address.
fn destination(n: u8) -> MacAddr {
    match n.checked_sub(STATIONS) {
        None => station(n),
        Some(3) => MacAddr::BROADCAST,
        Some(n) => group(n),
    }
}

#[derive(Default)]
struct Model {
    up: BTreeSet<u16>,
    seen: BTreeMap<MacAddr, (u16, u64)>,
    groups: BTreeMap<MacAddr, BTreeSet<u16>>,
}

impl Model {
    /// Where the frame goes; an error is why it does not.
    fn forward(&mut self, now: u64, ingress: u16, dst: MacAddr, src: MacAddr) -> Result<BTreeSet<u16>, DropReason> {
        if !self.up.contains(&ingress) {
            return Err(DropReason::PortDown);
        }
        self.seen.insert(src, (ingress, now));
        let mut targets = match (self.seen.get(&dst), self.groups.get(&dst)) {
            (Some(&(port, _)), _) if self.is_known(now, dst) && port == ingress => return Err(DropReason::SamePort),
            (Some(&(port, _)), _) if self.is_known(now, dst) => BTreeSet::from([port]),
            (_, Some(members)) if !members.is_empty() => self.up.intersection(members).copied().collect(),
            _ => self.up.clone(),
        };
        targets.remove(&ingress);
        Ok(targets)
    }

    fn is_known(&self, now: u64, mac: MacAddr) -> bool {
        self.seen.get(&mac).is_some_and(|&(_, at)| now - at <= AGEING_NS)
    }

    fn forget(&mut self, port: u16) {
        self.up.remove(&port);
        self.seen.retain(|_, (on, _)| *on != port);
    }
}

fn local(egress: Egress) -> u16 {
    match egress {
        Egress::Local(port) => port.0,
        Egress::Trunk(_) => unreachable!("the switch has no trunk"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn decides_table_and_counts_as_the_model_does(steps in proptest::collection::vec(step(), 1..80), hash_seed: u64) {
        // A small table, so that chains of colliding addresses are common.
        let config = SwitchConfig { ageing_ns: AGEING_NS, hash_seed, table_entries_max: 40, ..SwitchConfig::default() };
        let mut switch = Switch::new(config);
        let mut model = Model::default();
        for _ in 0..PORTS {
            model.up.insert(switch.add_port().0);
        }
        let mut now = 0;
        let mut sent = BTreeMap::<u16, u64>::new();
        for step in steps {
            match step {
                Step::Frames { ingress, dst, src, count, gap_ns } => {
                    let (dst, src) = (destination(dst), station(src));
                    for _ in 0..count {
                        now += gap_ns;
                        let got = switch.forward(Time::from_nanos(now), PortId(ingress), &header(dst, src), 60);
                        let expected = model.forward(now, ingress, dst, src);
                        let targets: BTreeSet<u16> = switch.flood_targets(PortId(ingress), got).map(local).collect();
                        match expected {
                            Err(reason) => prop_assert_eq!(got, Forward::Drop(reason)),
                            Ok(expected) => {
                                prop_assert!(!matches!(got, Forward::Drop(_)), "{:?} is dropped", got);
                                prop_assert_eq!(&targets, &expected);
                            }
                        }
                        prop_assert!(!targets.contains(&ingress));
                        for target in targets {
                            *sent.entry(target).or_default() += 1;
                        }
                    }
                }
                Step::SetUp(port, up) => {
                    switch.set_port_up(PortId(port), up);
                    if up {
                        model.up.insert(port);
                    } else if model.up.contains(&port) {
                        model.forget(port);
                    }
                }
                Step::Replace(port) => {
                    switch.remove_port(PortId(port));
                    model.forget(port);
                    model.groups.values_mut().for_each(|members| { members.remove(&port); });
                    sent.remove(&port);
                    prop_assert_eq!(switch.add_port(), PortId(port));
                    model.up.insert(port);
                }
                Step::Join(n, port) => {
                    switch.join(group(n), PortId(port)).unwrap();
                    model.groups.entry(group(n)).or_default().insert(port);
                }
                Step::Leave(n, port) => {
                    let was_member = model.groups.entry(group(n)).or_default().remove(&port);
                    prop_assert_eq!(switch.leave(group(n), PortId(port)), was_member);
                }
                Step::Silence(ns) => now += ns,
            }
            let table: BTreeMap<MacAddr, (u16, u64)> = switch
                .table(Time::from_nanos(now))
                .map(|entry| (entry.mac, (entry.port.0, now - entry.age_ns)))
                .collect();
            let expected: BTreeMap<MacAddr, (u16, u64)> =
                model.seen.iter().filter(|(mac, _)| model.is_known(now, **mac)).map(|(mac, at)| (*mac, *at)).collect();
            prop_assert_eq!(table, expected);
        }
        for port in 0..PORTS {
            prop_assert_eq!(switch.counters(PortId(port)).out_frames, sent.get(&port).copied().unwrap_or(0));
        }
    }

    /// In a table that is far too small a frame may be flooded that need not be, but it never goes to a port where the
    /// station was not last seen, and no limit is passed.
    #[test]
    fn a_table_that_is_too_small_never_misleads(
        frames in proptest::collection::vec((0..4u16, 0..16u8, 0..16u8, 1..6u8, 0..100u64), 1..200),
        hash_seed: u64,
    ) {
        let config = SwitchConfig { ageing_ns: AGEING_NS, hash_seed, table_entries_max: 9, port_entries_max: 3 };
        let mut switch = Switch::new(config);
        for _ in 0..4 {
            switch.add_port();
        }
        let mut seen = BTreeMap::<MacAddr, (u16, u64)>::new();
        let mut now = 0;
        let repeated = frames.into_iter().flat_map(|(ingress, dst, src, count, gap_ns)| {
            // The answer after each frame: so both ports have a decision to remember, and one to give up.
            let pair = [(ingress, dst, src, gap_ns), ((ingress + u16::from(dst)) % 4, src, dst, 0)];
            std::iter::repeat_n(pair, count.into()).flatten()
        });
        for (ingress, dst, src, gap_ns) in repeated {
            now += gap_ns;
            let (dst, src) = (station(dst), station(src));
            seen.insert(src, (ingress, now));
            match switch.forward(Time::from_nanos(now), PortId(ingress), &header(dst, src), 60) {
                Forward::One(egress) => {
                    let (port, at) = seen[&dst];
                    prop_assert_eq!(local(egress), port);
                    prop_assert!(now - at <= AGEING_NS);
                }
                Forward::Drop(reason) => {
                    prop_assert_eq!(reason, DropReason::SamePort);
                    prop_assert_eq!(seen[&dst].0, ingress);
                }
                forward => prop_assert_eq!(forward, Forward::Flood),
            }
            let mut per_port = [0; 4];
            for entry in switch.table(Time::from_nanos(now)) {
                per_port[usize::from(entry.port.0)] += 1;
                prop_assert_eq!(seen[&entry.mac], (entry.port.0, now - entry.age_ns));
            }
            prop_assert!(per_port.iter().all(|&entries| entries <= 3) && per_port.iter().sum::<usize>() <= 9);
        }
    }

    #[test]
    fn any_bytes_from_any_port_are_answered(
        frames in proptest::collection::vec((any::<u16>(), proptest::collection::vec(any::<u8>(), 0..20)), 0..50),
    ) {
        let mut switch = Switch::new(SwitchConfig { table_entries_max: 0, ..SwitchConfig::default() });
        let port = switch.add_port();
        switch.add_port();
        for (ingress, bytes) in frames {
            for ingress in [PortId(ingress), port] {
                let forward = switch.forward(Time::MAX, ingress, &bytes, bytes.len());
                prop_assert!(switch.flood_targets(ingress, forward).count() <= 1);
            }
        }
        prop_assert_eq!(switch.table(Time::MAX).count(), 0);
    }
}
