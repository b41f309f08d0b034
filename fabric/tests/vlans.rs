//! VLANs: single cases as IEEE 802.1Q has them, and any traffic against a model that is as plain as can be.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{header, station, typed_header};
use ether::{MacAddr, Time};
use fabric::{
    DropReason, Egress, Forward, PortId, PortVlans, Switch, SwitchConfig, TagChange, TrunkId, VlanId, VlanSet,
};
use proptest::prelude::*;

fn vlan(number: u16) -> VlanId {
    VlanId::new(number).unwrap()
}

fn vlans(numbers: &[u16]) -> VlanSet {
    numbers.iter().copied().map(vlan).collect()
}

/// A frame with a tag.
fn tagged(dst: MacAddr, src: MacAddr, tci: u16) -> Vec<u8> {
    let mut bytes = typed_header(dst, src, 0x8100).to_vec();
    bytes.extend_from_slice(&tci.to_be_bytes());
    bytes.extend_from_slice(&[8, 0]);
    bytes
}

/// Where a decision leads, and what happens to the tag there.
fn egresses(switch: &Switch, ingress: PortId, forward: Forward) -> BTreeMap<Egress, TagChange> {
    let kept = |egress| (egress, TagChange::Keep);
    match forward {
        Forward::Several => switch
            .targets()
            .iter()
            .map(|target| (target.egress, target.tag))
            .collect(),
        other => switch.flood_targets(ingress, other).map(kept).collect(),
    }
}

struct Bench {
    switch: Switch,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        Self {
            switch: Switch::new(SwitchConfig::default()),
            now: 0,
        }
    }

    fn port(&mut self, vlans: Option<PortVlans>) -> PortId {
        let port = self.switch.add_port();
        self.switch.set_port_vlans(port, vlans);
        port
    }

    fn send(&mut self, from: PortId, frame: &[u8]) -> Result<BTreeMap<Egress, TagChange>, DropReason> {
        self.now += 1;
        match self
            .switch
            .forward(Time::from_nanos(self.now), from, frame, frame.len() + 46)
        {
            Forward::Drop(reason) => Err(reason),
            forward => Ok(egresses(&self.switch, from, forward)),
        }
    }
}

fn to(egresses: &[(PortId, TagChange)]) -> BTreeMap<Egress, TagChange> {
    egresses
        .iter()
        .map(|(port, tag)| (Egress::Local(*port), *tag))
        .collect()
}

#[test]
fn frames_stay_in_their_vlan_and_leave_as_each_port_wants_them() {
    let mut bench = Bench::new();
    let ten = bench.port(Some(PortVlans::access(vlan(10))));
    let also_ten = bench.port(Some(PortVlans::access(vlan(10))));
    let twenty = bench.port(Some(PortVlans::access(vlan(20))));
    let trunk = bench.port(Some(PortVlans::trunk(Some(vlan(20)), vlans(&[10, 30]))));
    // Nothing was set for this one: VLAN 1.
    let plain = bench.port(None);
    let broadcast = header(MacAddr::BROADCAST, station(1));
    assert_eq!(
        bench.send(ten, &broadcast),
        Ok(to(&[(also_ten, TagChange::Keep), (trunk, TagChange::Push(10))]))
    );
    assert_eq!(
        bench.send(twenty, &broadcast),
        Ok(to(&[(trunk, TagChange::Keep)])),
        "native"
    );
    assert_eq!(bench.send(plain, &broadcast), Ok(to(&[])));
    let answer = tagged(station(1), station(9), 0x600a);
    // The station was heard in VLAN 10 on port `ten` (and elsewhere in other VLANs, which is another thing).
    assert_eq!(bench.send(trunk, &answer), Ok(to(&[(ten, TagChange::Pop)])));
    assert_eq!(
        bench.send(ten, &header(station(9), station(1))),
        Ok(to(&[(trunk, TagChange::Push(10))]))
    );
    let counters = *bench.switch.counters(trunk);
    assert_eq!(
        (counters.out_frames, counters.out_bytes),
        (3, 64 + 60 + 64),
        "as they leave"
    );
}

#[test]
fn tags_on_access_ports_are_handled_as_802_1q_says() {
    let mut bench = Bench::new();
    let ten = bench.port(Some(PortVlans::access(vlan(10))));
    let peer = bench.port(Some(PortVlans::access(vlan(10))));
    let trunk = bench.port(Some(PortVlans::trunk(None, vlans(&[10, 20]))));
    let all = |tci| tagged(MacAddr::BROADCAST, station(1), tci);
    // Its own VLAN, and a priority tag, which names none, are let in; others, and 4095, are not.
    let own = to(&[(peer, TagChange::Pop), (trunk, TagChange::Keep)]);
    assert_eq!(bench.send(ten, &all(0xa00a)), Ok(own));
    let priority = to(&[(peer, TagChange::Pop), (trunk, TagChange::Set(0xa00a))]);
    assert_eq!(bench.send(ten, &all(0xa000)), Ok(priority));
    assert_eq!(bench.send(ten, &all(20)), Err(DropReason::VlanNotAllowed));
    assert_eq!(bench.send(ten, &all(0xefff)), Err(DropReason::VlanInvalid));
    assert_eq!(bench.send(trunk, &all(30)), Err(DropReason::VlanNotAllowed));
    assert_eq!(
        bench.send(trunk, &header(MacAddr::BROADCAST, station(2))),
        Err(DropReason::VlanMissing)
    );
    assert_eq!(bench.send(trunk, &all(0)), Err(DropReason::VlanMissing));
    assert_eq!(bench.send(ten, &all(10)[..16]), Err(DropReason::TooShort));
    // An S-tag is none that this switch reads.
    let provider = typed_header(MacAddr::BROADCAST, station(1), 0x88a8);
    assert_eq!(
        bench.send(ten, &provider),
        Ok(to(&[(peer, TagChange::Keep), (trunk, TagChange::Push(10))]))
    );
    let counters = bench.switch.counters(ten);
    assert_eq!(counters.dropped(DropReason::VlanNotAllowed), 1);
    assert_eq!(counters.in_frames, 3 + counters.dropped_total());
}

#[test]
fn a_switch_without_vlans_carries_tags_unread() {
    let mut bench = Bench::new();
    let (a, b) = (bench.port(None), bench.port(None));
    let frame = tagged(MacAddr::BROADCAST, station(1), 0xffff);
    assert_eq!(bench.send(a, &frame), Ok(to(&[(b, TagChange::Keep)])));
    bench.switch.set_port_vlans(a, Some(PortVlans::access(vlan(5))));
    assert_eq!(bench.send(a, &frame), Err(DropReason::VlanInvalid));
    assert!(
        bench.switch.table(Time::from_nanos(bench.now)).next().is_none(),
        "learned anew"
    );
    bench.switch.set_port_vlans(a, None);
    assert_eq!(bench.send(a, &frame), Ok(to(&[(b, TagChange::Keep)])));
}

#[test]
fn trunks_without_settings_carry_every_vlan() {
    let mut bench = Bench::new();
    let ten = bench.port(Some(PortVlans::access(vlan(10))));
    let one = bench.port(None);
    bench.switch.add_trunk(TrunkId(7)).unwrap();
    let all = header(MacAddr::BROADCAST, station(1));
    let trunk = |tag| BTreeMap::from([(Egress::Trunk(TrunkId(7)), tag)]);
    assert_eq!(bench.send(ten, &all), Ok(trunk(TagChange::Push(10))));
    assert_eq!(
        bench.send(one, &all),
        Ok(trunk(TagChange::Keep)),
        "VLAN 1 has no tag on a trunk"
    );
    assert_eq!(bench.switch.port_vlans(one), Some(PortVlans::access(VlanId::DEFAULT)));
}

#[test]
fn reserved_addresses_are_forwarded_only_where_asked_for() {
    let mut bench = Bench::new();
    let (a, b) = (bench.port(None), bench.port(None));
    for last in 0..16 {
        let frame = typed_header(MacAddr([1, 0x80, 0xc2, 0, 0, last]), station(1), 0x88cc);
        bench.switch.set_forwards_reserved(false);
        assert_eq!(bench.send(a, &frame), Err(DropReason::ReservedAddress));
        bench.switch.set_forwards_reserved(true);
        assert_eq!(bench.send(a, &frame), Ok(to(&[(b, TagChange::Keep)])));
    }
    let counters = *bench.switch.counters(a);
    assert_eq!(counters.dropped(DropReason::ReservedAddress), 16);
    assert_eq!((counters.in_multicast, bench.switch.counters(b).out_flooded), (16, 16));
    bench.switch.set_port_vlans(a, Some(PortVlans::access(vlan(10))));
    let frame = typed_header(MacAddr([1, 0x80, 0xc2, 0, 0, 14]), station(1), 0x88cc);
    assert_eq!(bench.send(a, &frame), Ok(to(&[])), "the other port is in VLAN 1");
    bench
        .switch
        .set_port_vlans(b, Some(PortVlans::trunk(None, vlans(&[10]))));
    assert_eq!(bench.send(a, &frame), Ok(to(&[(b, TagChange::Push(10))])));
}

const PORTS: u16 = 5;

#[derive(Clone, Debug)]
enum Step {
    Frame {
        ingress: u16,
        dst: u8,
        src: u8,
        tci: Option<u16>,
    },
    Configure(u16, Option<(Option<u16>, Vec<u16>)>),
    SetUp(u16, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let number = || prop_oneof![Just(1u16), Just(2), Just(3)];
    let tci = prop::option::of(
        (
            prop_oneof![Just(0u16), Just(1), Just(2), Just(3), Just(4), Just(4095)],
            0..8u16,
        )
            .prop_map(|(n, p)| p << 13 | n),
    );
    prop_oneof![
        20 => (0..PORTS, 0..7u8, 0..6u8, tci).prop_map(|(ingress, dst, src, tci)| Step::Frame { ingress, dst, src, tci }),
        2 => (0..PORTS, prop::option::of((prop::option::of(number()), prop::collection::vec(number(), 0..3))))
            .prop_map(|(port, vlans)| Step::Configure(port, vlans)),
        1 => (0..PORTS, any::<bool>()).prop_map(|(port, up)| Step::SetUp(port, up)),
    ]
}

#[derive(Default)]
struct Model {
    up: BTreeSet<u16>,
    vlans: BTreeMap<u16, PortVlans>,
    seen: BTreeMap<(MacAddr, u16), u16>,
}

impl Model {
    fn of(&self, port: u16) -> PortVlans {
        self.vlans
            .get(&port)
            .cloned()
            .unwrap_or(PortVlans::access(VlanId::DEFAULT))
    }

    fn forward(
        &mut self,
        ingress: u16,
        (dst, src): (MacAddr, MacAddr),
        tci: Option<u16>,
    ) -> Result<BTreeMap<u16, TagChange>, DropReason> {
        if !self.up.contains(&ingress) {
            return Err(DropReason::PortDown);
        }
        let on = self.of(ingress);
        let mut in_vlan = 0;
        if !self.vlans.is_empty() {
            in_vlan = match tci.map_or(0, |tci| tci & 0xfff) {
                0 => on.untagged.ok_or(DropReason::VlanMissing)?.number(),
                4095 => return Err(DropReason::VlanInvalid),
                n if on.untagged == VlanId::new(n) || on.tagged.contains(vlan(n)) => n,
                _ => return Err(DropReason::VlanNotAllowed),
            };
        }
        self.seen.insert((src, in_vlan), ingress);
        let candidates: Vec<u16> = match self.seen.get(&(dst, in_vlan)) {
            Some(port) if *port == ingress => return Err(DropReason::SamePort),
            Some(port) => vec![*port],
            None => self.up.iter().copied().filter(|port| *port != ingress).collect(),
        };
        let form = |port: u16| {
            if in_vlan == 0 {
                return Some(TagChange::Keep);
            }
            let out = self.of(port);
            match (
                tci,
                out.untagged == VlanId::new(in_vlan),
                out.tagged.contains(vlan(in_vlan)),
            ) {
                (None, true, _) => Some(TagChange::Keep),
                (Some(_), true, _) => Some(TagChange::Pop),
                (None, false, true) => Some(TagChange::Push(in_vlan)),
                (Some(tci), false, true) if tci & 0xfff == in_vlan => Some(TagChange::Keep),
                (Some(tci), false, true) => Some(TagChange::Set(tci & 0xf000 | in_vlan)),
                (_, false, false) => None,
            }
        };
        Ok(candidates
            .into_iter()
            .filter_map(|port| Some((port, form(port)?)))
            .collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn decides_as_the_model_does(steps in prop::collection::vec(step(), 1..120)) {
        let mut bench = Bench::new();
        let mut model = Model::default();
        for _ in 0..PORTS {
            model.up.insert(bench.port(None).0);
        }
        let mut sent = BTreeMap::<u16, u64>::new();
        for step in steps {
            match step {
                Step::Frame { ingress, dst, src, tci } => {
                    let (dst, src) = (if dst == 6 { MacAddr::BROADCAST } else { station(dst) }, station(src));
                    let frame = match tci {
                        None => header(dst, src).to_vec(),
                        Some(tci) => tagged(dst, src, tci),
                    };
                    let expected = model.forward(ingress, (dst, src), tci);
                    let got = bench.send(PortId(ingress), &frame);
                    let got = got.map(|egresses| egresses.into_iter().map(|(egress, tag)| match egress {
                        Egress::Local(port) => (port.0, tag),
                        Egress::Trunk(_) => unreachable!("no trunk"),
                    }).collect::<BTreeMap<_, _>>());
                    prop_assert_eq!(&got, &expected);
                    for port in expected.into_iter().flatten() {
                        *sent.entry(port.0).or_default() += 1;
                    }
                }
                Step::Configure(port, vlans_of) => {
                    let vlans_of = vlans_of.map(|(native, list)| PortVlans::trunk(native.map(vlan), vlans(&list)));
                    let had = !model.vlans.is_empty();
                    bench.switch.set_port_vlans(PortId(port), vlans_of.clone());
                    match vlans_of {
                        Some(vlans) => _ = model.vlans.insert(port, vlans),
                        None => _ = model.vlans.remove(&port),
                    }
                    model.seen.retain(|_, on| *on != port && had != model.vlans.is_empty());
                    prop_assert_eq!(bench.switch.has_vlans(), !model.vlans.is_empty());
                }
                Step::SetUp(port, up) => {
                    bench.switch.set_port_up(PortId(port), up);
                    if up {
                        model.up.insert(port);
                    } else {
                        model.up.remove(&port);
                        model.seen.retain(|_, on| *on != port);
                    }
                }
            }
            let table: BTreeMap<_, _> = bench.switch.table(Time::from_nanos(bench.now))
                .map(|entry| ((entry.mac, entry.vlan.map_or(0, VlanId::number)), entry.port.0)).collect();
            prop_assert_eq!(&table, &model.seen);
        }
        for port in 0..PORTS {
            prop_assert_eq!(bench.switch.counters(PortId(port)).out_frames, sent.get(&port).copied().unwrap_or(0));
        }
    }
}

mod aggregates {
    use super::*;

    /// A switch with a card and three trunks to one other switch.
    fn bench() -> (Bench, PortId, [PortId; 3]) {
        let mut bench = Bench::new();
        let card = bench.port(None);
        let trunks = [0, 1, 2].map(|n| bench.switch.add_trunk(TrunkId(n)).unwrap());
        bench.switch.aggregate(&trunks).unwrap();
        (bench, card, trunks)
    }

    fn udp(src: u8, dst: u8, port: u16) -> Vec<u8> {
        let mut frame = header(station(dst), station(src)).to_vec();
        frame.extend_from_slice(&[0x45, 0, 0, 60, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]);
        frame.extend_from_slice(&port.to_be_bytes());
        frame.extend_from_slice(&[0, 9, 0, 8, 0, 0]);
        frame
    }

    fn trunk_of(bench: &mut Bench, from: PortId, frame: &[u8]) -> TrunkId {
        let egresses = bench.send(from, frame).unwrap();
        match egresses.keys().next() {
            Some(Egress::Trunk(trunk)) if egresses.len() == 1 => *trunk,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flows_are_spread_keep_their_trunk_and_move_only_when_it_goes() {
        let (mut bench, card, trunks) = bench();
        let flows: Vec<_> = (0..300).map(|port| udp(1, 2, port)).collect();
        let before: Vec<_> = flows.iter().map(|frame| trunk_of(&mut bench, card, frame)).collect();
        for trunk in 0..3 {
            let share = before.iter().filter(|trunk_of| **trunk_of == TrunkId(trunk)).count();
            assert!(
                (70..=130).contains(&share),
                "{share} of 300 flows over one of three trunks"
            );
        }
        // It is heard over any of them, and known afterwards on the aggregate.
        bench.send(trunks[2], &udp(2, 1, 7)).unwrap();
        let known: Vec<_> = flows.iter().map(|frame| trunk_of(&mut bench, card, frame)).collect();
        assert_eq!(known, before);
        bench.switch.set_port_up(trunks[0], false);
        for (frame, before) in flows.iter().zip(&before) {
            let after = trunk_of(&mut bench, card, frame);
            assert_ne!(after, TrunkId(0));
            assert!(*before == TrunkId(0) || after == *before, "no other flow moves");
        }
        bench.switch.set_port_up(trunks[0], true);
        let again: Vec<_> = flows.iter().map(|frame| trunk_of(&mut bench, card, frame)).collect();
        assert_eq!(again, before);
    }

    #[test]
    fn a_broadcast_takes_one_trunk_and_never_comes_back() {
        let (mut bench, card, trunks) = bench();
        let frame = header(MacAddr::BROADCAST, station(1));
        trunk_of(&mut bench, card, &frame);
        let back = header(MacAddr::BROADCAST, station(2));
        for trunk in trunks {
            assert_eq!(bench.send(trunk, &back), Ok(to(&[(card, TagChange::Keep)])));
        }
        for trunk in trunks {
            bench.switch.set_port_up(trunk, false);
            assert_eq!(bench.send(trunk, &back), Err(DropReason::PortDown));
        }
        assert_eq!(bench.send(card, &frame), Ok(to(&[])));
        assert!(
            bench.switch.table(Time::ZERO).all(|entry| entry.mac == station(1)),
            "no station is behind it"
        );
    }

    #[test]
    fn only_trunks_that_are_free_are_aggregated() {
        let (mut bench, card, trunks) = bench();
        let fourth = bench.switch.add_trunk(TrunkId(3)).unwrap();
        for (members, sentence) in [
            (&[fourth][..], "an aggregate has 2 to 16 trunks, not 1"),
            (&[fourth, card], "port 0 is not free for this aggregate"),
            (&[fourth, trunks[1]], "port 2 is not free for this aggregate"),
            (&[fourth, fourth], "port 4 is not free for this aggregate"),
        ] {
            assert_eq!(bench.switch.aggregate(members).unwrap_err().to_string(), sentence);
        }
        bench.switch.remove_port(trunks[0]);
        assert_eq!(bench.switch.aggregate_of(trunks[2]), &trunks[1..]);
        let frame = header(MacAddr::BROADCAST, station(1));
        assert_eq!(
            bench.send(card, &frame).unwrap().len(),
            2,
            "one of the two, and the fourth"
        );
        bench.switch.remove_port(trunks[1]);
        assert_eq!(bench.switch.aggregate_of(trunks[2]), &[]);
        assert_eq!(bench.send(card, &frame).unwrap().len(), 2);
    }
}
