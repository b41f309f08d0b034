//! Switches that take part in the spanning tree, aggregates, and frames to reserved addresses, through the whole data path.

use fabric::{DropReason, Forward, PortId, PortRole, StpConfig};

use super::introduce;
use crate::dataplane::rig::{ALL_FEATURES, RING, Rig, frame};
use crate::dataplane::{Fabric, FabricSettings, TrunkOptions};
use vnicd_protocol::{
    LinkSettings, PortSettings, StpSettings, SwitchInfo, SwitchSettings, TrunkLinks, VlanChange, VlanList, VlanSettings,
};

/// A broadcast of guest `source`.
fn broadcast(source: u8) -> Vec<u8> {
    [&[0xff; 6], &frame(0, source, 200, 3)[6..]].concat()
}

/// `frame` as an IPv4 packet of guest `source` to the group 239.0.0.`group`.
pub(super) fn to_ip_group(source: u8, group: u8, frame: &[u8]) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    bytes[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, group]);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, source]);
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    // UDP.
    bytes[23] = 17;
    bytes[30..34].copy_from_slice(&[239, 0, 0, group]);
    bytes
}

/// The IGMPv2 report of guest `source` that it wants the group 239.0.0.`group`.
pub(super) fn igmp_report(source: u8, group: u8) -> Vec<u8> {
    let mut bytes = to_ip_group(source, group, &[0; 60]);
    bytes[16..18].copy_from_slice(&[0, 28]);
    (bytes[22], bytes[23]) = (1, 2);
    let sum = ether::checksum::checksum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes[34] = 0x16;
    bytes[38..42].copy_from_slice(&[239, 0, 0, group]);
    let sum = ether::checksum::checksum(&bytes[34..42]);
    bytes[36..38].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn is_bpdu(frame: &[u8]) -> bool {
    frame.starts_with(&[1, 0x80, 0xc2, 0, 0, 0])
}

/// What a guest received, BPDUs aside.
fn data(rig: &mut Rig, guest: usize) -> Vec<Vec<u8>> {
    let received = rig.received(guest).into_iter().map(|(_, frame)| frame);
    received.filter(|frame| !is_bpdu(frame)).collect()
}

/// Lets so much time go by, with a round whenever something is due.
fn wait(rig: &mut Rig, ns: u64) {
    let end = rig.now.plus_nanos(ns);
    rig.settle();
    while let Some(at) = rig.next_due().filter(|at| *at <= end) {
        rig.now = rig.now.max(at);
        rig.settle();
    }
    rig.now = end;
    rig.settle();
}

fn enable(rig: &mut Rig, switch: usize) {
    let address = ether::MacAddr([2, 0, 0, 0, 1, switch as u8]);
    let now = rig.now;
    rig.plane.forwarding.switches[switch]
        .switch
        .enable_spanning_tree(StpConfig::new(address), now);
    rig.plane.forwarding.serve_switch(switch, now);
}

fn pull(rig: &mut Rig, trunk: usize, up: bool) {
    for link in &mut rig.plane.forwarding.wiring.trunks[trunk].links {
        link.set_config(fabric::LinkConfig { up, ..*link.config() });
    }
    rig.plane.trunk_changed(trunk, rig.now);
}

/// Two switches with a guest each and two trunks between them, or one with another `aggregate`.
fn pair(spanning_tree: bool, aggregate: Option<&str>) -> (Rig, usize) {
    let mut rig = Rig::new(&[0]);
    let far = rig.add_switch_alone();
    if spanning_tree {
        enable(&mut rig, 0);
        enable(&mut rig, far);
    }
    let guest = rig.add_guest(far, 0);
    for _ in 0..2 {
        rig.plane.check_loops((0, far), aggregate).unwrap();
        rig.join_switches(0, far, aggregate);
    }
    wait(&mut rig, 1_000_000_000);
    (rig, guest)
}

#[test]
fn redundant_trunks_carry_a_broadcast_once_and_one_takes_the_others_place() {
    let (mut rig, guest) = pair(true, None);
    for round in 0..7 {
        // None, the first, the second pulled, and so on; never both.
        pull(&mut rig, 0, round % 3 != 1);
        pull(&mut rig, 1, round % 3 != 2);
        wait(&mut rig, 50_000_000);
        data(&mut rig, 0);
        data(&mut rig, guest);
        rig.send(0, 1, &broadcast(0));
        rig.send(guest, 1, &broadcast(9));
        rig.settle();
        assert_eq!(data(&mut rig, guest), [broadcast(0)], "round {round}");
        assert_eq!(data(&mut rig, 0), [broadcast(9)], "round {round}");
        assert_eq!((rig.completed(0), rig.completed(guest)), (1, 1));
    }
    let far = &rig.plane.forwarding.switches[rig.plane.cards()[guest].attachment().switch].switch;
    let roles: Vec<_> = far
        .ports()
        .map(|port| far.spanning_tree_port(port).unwrap().role)
        .collect();
    assert!(
        roles.contains(&PortRole::Root) && roles.contains(&PortRole::Alternate),
        "{roles:?}"
    );
    assert_eq!(rig.pooled_bytes(), 0);
}

#[test]
fn guests_hear_bpdus_every_two_seconds_and_no_row_follows_them() {
    let (mut rig, _) = pair(true, None);
    rig.received(0);
    wait(&mut rig, 10_000_000_000);
    let bpdus = rig.received(0);
    assert_eq!(bpdus.len(), 5);
    assert!(bpdus.iter().all(|(_, frame)| is_bpdu(frame) && frame.len() == 60));
    // A guest that sends a burst of BPDUs: each is read, none reaches a guest.
    let status = |rig: &Rig| {
        let switch = &rig.plane.forwarding.switches[0].switch;
        switch.spanning_tree_port(PortId(0)).unwrap()
    };
    let before = status(&rig);
    for index in 0..20 {
        rig.send(0, index, &bpdus[0].1);
    }
    rig.settle();
    assert_eq!(rig.completed(0), 20);
    let after = status(&rig);
    assert_eq!(after.counters.bpdus_in - before.counters.bpdus_in, 20);
    assert!(before.edge && !after.edge);
}

#[test]
fn an_aggregate_is_one_trunk() {
    for spanning_tree in [false, true] {
        let (mut rig, guest) = pair(spanning_tree, Some("lag"));
        for up in [true, false, true] {
            pull(&mut rig, 0, up);
            wait(&mut rig, 50_000_000);
            data(&mut rig, 0);
            data(&mut rig, guest);
            rig.send(0, 1, &broadcast(0));
            rig.settle();
            assert_eq!(data(&mut rig, guest), [broadcast(0)]);
            rig.send(guest, 1, &frame(0, 9, 100, 1));
            rig.settle();
            assert_eq!(data(&mut rig, 0), [frame(0, 9, 100, 1)]);
        }
    }
}

#[test]
fn loops_without_a_spanning_tree_are_refused() {
    let mut rig = Rig::new(&[0]);
    let (second, third) = (rig.add_switch(), rig.add_switch());
    let refused = |rig: &Rig, ends, aggregate| rig.plane.check_loops(ends, aggregate).unwrap_err().to_string();
    assert!(refused(&rig, (second, third), None).contains("closes a loop"));
    assert!(refused(&rig, (0, second), None).contains("closes a loop"));
    assert!(
        refused(&rig, (0, second), Some("new")).contains("closes a loop"),
        "the first trunk is not in it"
    );
    enable(&mut rig, 0);
    enable(&mut rig, second);
    assert!(
        refused(&rig, (second, third), None).contains("closes a loop"),
        "the third has none"
    );
    assert!(rig.plane.check_loops((0, second), None).is_ok());
    enable(&mut rig, third);
    assert!(rig.plane.check_loops((second, third), None).is_ok());
    assert!(refused(&rig, (third, third), None).contains("to itself"));
}

#[test]
fn frames_to_reserved_addresses_are_dropped_under_their_reason_or_forwarded() {
    let mut rig = Rig::new(&[0, 0]);
    let lldp = |seed| [&[1, 0x80, 0xc2, 0, 0, 14], &frame(0, 0, 100, seed)[6..]].concat();
    rig.send(0, 1, &lldp(1));
    rig.settle();
    assert_eq!(data(&mut rig, 1).len(), 0);
    let switch = &mut rig.plane.forwarding.switches[0].switch;
    assert_eq!(switch.counters(PortId(0)).dropped(DropReason::ReservedAddress), 1);
    switch.set_forwards_reserved(true);
    // A burst, each frame of which is forwarded.
    for index in 0..10 {
        rig.send(0, index, &lldp(index as u8));
    }
    rig.settle();
    assert_eq!(data(&mut rig, 1), (0..10).map(lldp).collect::<Vec<_>>());
}

#[test]
fn frames_that_circle_over_ideal_trunks_end_and_are_counted() {
    // Two, three, four trunks side by side, and nothing that cuts the loops: copies double and treble at every switch.
    for trunks in [2, 3, 4, 8] {
        let mut rig = Rig::new(&[0]);
        let far = rig.add_switch_alone();
        let guest = rig.add_guest(far, 0);
        for _ in 0..trunks {
            rig.join_switches(0, far, None);
        }
        rig.send(0, 1, &broadcast(0));
        rig.settle();
        assert_eq!(rig.completed(0), 1);
        assert!(data(&mut rig, guest).contains(&broadcast(0)));
        let lost: Vec<_> = rig
            .plane
            .forwarding
            .wiring
            .trunks
            .iter()
            .flat_map(|trunk| trunk.lost)
            .collect();
        let ended: u64 = lost.iter().map(|lost| lost.too_many_trunks).sum();
        let no_room: u64 = lost.iter().map(|lost| lost.pool_share).sum();
        if trunks == 2 {
            // One circles in each direction, and crosses as many as there are.
            assert_eq!((ended, no_room), (2, 0));
            let links = rig.plane.forwarding.wiring.trunks.iter().flat_map(|trunk| &trunk.links);
            let passed: u64 = links.map(|link| link.counters().delivered_frames).sum();
            assert_eq!(passed, 4);
        }
        assert!(ended > 0);
        assert_eq!(rig.pooled_bytes(), 0);
    }
}

#[test]
fn a_long_line_of_switches_is_no_loop() {
    use crate::dataplane::wiring::trunk::TRUNKS_CROSSED_MAX;
    let mut rig = Rig::new(&[0]);
    let mut last = 0;
    for _ in 0..TRUNKS_CROSSED_MAX {
        let next = rig.add_switch_alone();
        rig.join_switches(last, next, None);
        last = next;
    }
    let guest = rig.add_guest(last, 0);
    rig.send(0, 1, &broadcast(0));
    rig.settle();
    assert_eq!(data(&mut rig, guest), [broadcast(0)]);
    rig.send(guest, 1, &frame(0, 1, 100, 1));
    rig.settle();
    assert_eq!(data(&mut rig, 0), [frame(0, 1, 100, 1)]);
    let lost = rig.plane.forwarding.wiring.trunks.iter().flat_map(|trunk| trunk.lost);
    assert!(
        lost.into_iter()
            .all(|lost| lost == crate::dataplane::wiring::trunk::TrunkLosses::default())
    );
}

#[test]
fn frames_to_a_group_reach_those_that_want_it_over_trunks_too() {
    let mut rig = Rig::new(&[0, 0]);
    let far = rig.add_switch();
    let (member, other) = (rig.add_guest(far, 0), rig.add_guest(far, 0));
    for (number, state) in rig.plane.forwarding.switches.iter_mut().enumerate() {
        state
            .switch
            .set_snooping(Some(ether::MacAddr([2, 0, 0, 0, 1, number as u8])));
    }
    let sent = |number: u8| to_ip_group(0, 7, &frame(0, 0, 100, number));
    let to_group = |rig: &mut Rig, guest: usize| {
        let mut frames = data(rig, guest);
        frames.retain(|frame| frame.starts_with(&[1, 0, 0x5e, 0, 0, 7]));
        frames
    };
    // Nobody was asked yet.
    rig.send(0, 0, &sent(0));
    rig.settle();
    for guest in [1, member, other] {
        assert_eq!(to_group(&mut rig, guest), [sent(0)]);
    }
    wait(&mut rig, 10_000_000_000);
    // Both switches asked at once; then the one with the lower address did, for both versions of IP.
    let queries = data(&mut rig, other);
    let of: Vec<_> = queries
        .iter()
        .map(|frame| (frame[6..12].to_vec(), [frame[12], frame[13]]))
        .collect();
    let first = || vec![2, 0, 0, 0, 1, 0];
    assert_eq!(of, [(first(), [8, 0]), (first(), [0x86, 0xdd])]);

    rig.send(member, 0, &igmp_report(9, 7));
    rig.settle();
    for number in 0..10 {
        rig.send(0, u16::from(number), &sent(number));
    }
    rig.settle();
    assert_eq!(to_group(&mut rig, member), (0..10).map(sent).collect::<Vec<_>>());
    assert_eq!(to_group(&mut rig, 1).len() + to_group(&mut rig, other).len(), 0);
    // A group that no port wants ends where it came in, under its reason.
    rig.send(0, 1, &to_ip_group(0, 8, &[0; 100]));
    rig.settle();
    let counters = rig.plane.forwarding.switches[0].switch.counters(PortId(0));
    assert_eq!(counters.dropped(DropReason::NoMember), 1);
    assert_eq!(rig.pooled_bytes(), 0);
}

/// A guest behind a trunk has no buffers left; a frame to it waits in its sender's ring, and these stand behind it.
fn behind_a_frame_that_waits(trunk: &LinkSettings, behind: &[Vec<u8>]) -> (Rig, usize) {
    let mut rig = Rig::new(&[0]);
    let far = rig.add_switch();
    let guest = rig.add_guest(far, 0);
    introduce(&mut rig, 0, guest);
    rig.set_trunk(trunk, &LinkSettings::default());
    for index in 0..RING {
        rig.send(0, index, &frame(guest as u8, 0, 100, 0));
    }
    rig.settle();
    assert_eq!(rig.completed(0), usize::from(RING));
    for (index, sent) in (0..).zip([&[frame(guest as u8, 0, 100, 1)], behind].concat()) {
        rig.send(0, index, &sent);
    }
    rig.settle();
    assert_eq!(rig.completed(0), 0, "the first waits");
    assert_eq!(rig.received(guest).len(), usize::from(RING));
    rig.settle();
    assert_eq!(rig.completed(0), 1 + behind.len());
    (rig, guest)
}

#[test]
fn a_row_behind_a_frame_that_waited_is_counted_on_the_trunk_and_at_both_switches() {
    let behind: Vec<_> = (0..20).map(|number| frame(1, 0, 100, number)).collect();
    let (mut rig, guest) = behind_a_frame_that_waits(&LinkSettings::default(), &behind);
    assert_eq!(data(&mut rig, guest).len(), 21);
    // One more from when they heard of each other.
    let all = u64::from(RING) + 21 + 1;
    let there = rig.trunk_counters();
    assert_eq!((there.offered_frames, there.delivered_frames), (all, all));
    let [near, far] = rig.plane.forwarding.wiring.trunks[0].ends;
    let counters = |(switch, port): (usize, PortId)| *rig.plane.forwarding.switches[switch].switch.counters(port);
    assert_eq!(counters(near).out_frames, all);
    assert_eq!(counters(far).in_frames, all);
    assert_eq!(rig.stats(guest).switch["out_frames"], all);
    assert_eq!(rig.stats(0).switch["in_frames"], all);
}

#[test]
fn a_row_behind_a_frame_that_waited_is_held_to_the_mtu_of_the_trunk() {
    let narrow = LinkSettings {
        mtu: 576,
        ..LinkSettings::default()
    };
    let behind: Vec<_> = (0..20).map(|number| frame(1, 0, 1000, number)).collect();
    let (mut rig, guest) = behind_a_frame_that_waits(&narrow, &behind);
    assert_eq!(data(&mut rig, guest), [frame(1, 0, 100, 1)]);
    assert_eq!(rig.trunk_counters().dropped(fabric::LinkDrop::Mtu), 20);
}

/// A fabric with one switch, and that as it is now.
fn fabric_with(settings: &SwitchSettings) -> (Fabric, crate::dataplane::SwitchId) {
    let fabric = Fabric::new(FabricSettings::default()).unwrap();
    let switch = fabric.add_switch("s1");
    fabric.set_switch(switch, settings).unwrap();
    (fabric, switch)
}

fn only(fabric: &Fabric) -> SwitchInfo {
    fabric.switch_info(Some("s1")).unwrap().remove(0)
}

/// A port as the configuration file makes it.
fn named_port(name: &str) -> PortSettings {
    PortSettings {
        name: name.to_owned(),
        ..Rig::new(&[0]).plane.cards()[0].settings().clone()
    }
}

#[test]
fn a_switch_of_guests_alone_sends_bpdus_from_its_first_guest_on() {
    let mut rig = Rig::new(&[]);
    enable(&mut rig, 0);
    assert_eq!(rig.next_due(), None, "no port is there");
    for number in 0..2 {
        let guest = rig.add_guest(0, 0);
        rig.plane.forwarding.serve_switch(0, rig.now);
        let switch = &rig.plane.forwarding.switches[0].switch;
        let port = switch.spanning_tree_port(PortId(number)).unwrap();
        assert!(port.counters.bpdus_out >= 1, "{port:?}");
        assert!(rig.received(guest).iter().all(|(_, frame)| is_bpdu(frame)));
        let (due, now) = (rig.next_due(), rig.now);
        assert!(
            due.is_some_and(|due| due <= now.plus_nanos(2_000_000_000)),
            "the next one is due at {due:?}, it is {now:?}"
        );
    }
}

#[test]
fn a_switch_that_snoops_asks_as_soon_as_the_vlans_of_a_port_change() {
    let (fabric, switch) = fabric_with(&SwitchSettings {
        snooping: true,
        ..SwitchSettings::default()
    });
    fabric.add_port(switch, named_port("n1")).unwrap();
    let set = |tagged: &[u16]| {
        let vlans = VlanSettings {
            untagged: Some(10),
            tagged: tagged.iter().copied().collect::<VlanList>(),
        };
        fabric.set_vlans("n1", Some(VlanChange::Set(vlans))).unwrap();
    };
    set(&[]);
    let sent = to_ip_group(1, 7, &[0; 100]);
    fabric.runner.with(|plane, now| {
        let state = &mut plane.forwarding.switches[switch.0].switch;
        // No guest is there that could send it.
        state.set_port_up(PortId(0), true);
        assert_eq!(state.forward(now, PortId(0), &sent[..64], sent.len()), Forward::Inspect);
        state.inspect(now, PortId(0), &sent, sent.len());
        plane.forwarding.serve_switch(switch.0, now);
    });
    let asked = || only(&fabric).snooping.unwrap().counters["queries_out"];
    let before = asked();
    set(&[20]);
    assert_eq!(asked(), before + 2, "for both versions of IP");
    fabric.shutdown();
}

#[test]
fn the_first_trunk_of_an_aggregate_says_what_it_costs_and_which_vlans_it_carries() {
    let stp = SwitchSettings {
        stp: Some(StpSettings { priority: 32_768 }),
        ..SwitchSettings::default()
    };
    let (fabric, near) = fabric_with(&stp);
    let far = fabric.add_switch("s2");
    fabric.set_switch(far, &stp).unwrap();
    let gigabit = || LinkSettings {
        rate_bps: 1_000_000_000,
        ..LinkSettings::default()
    };
    let add = |aggregate: &str, stp_cost: Option<u32>, vlan: Option<u16>, links: TrunkLinks| {
        let options = TrunkOptions {
            aggregate: Some(aggregate.to_owned()),
            stp_cost,
            vlans: vlan.map(|untagged| VlanSettings {
                untagged: Some(untagged),
                tagged: VlanList::default(),
            }),
        };
        let added = fabric.add_trunk_with(far, near, &links, &options);
        added.map_err(|error| error.to_string())
    };
    let slow = || TrunkLinks {
        a_to_b: gigabit(),
        b_to_a: gigabit(),
    };
    add("cost", Some(7), Some(10), TrunkLinks::default()).unwrap();
    add("rate", None, None, slow()).unwrap();
    for _ in 0..2 {
        add("cost", None, None, slow()).unwrap();
        add("cost", Some(7), Some(10), slow()).unwrap();
        add("rate", None, None, TrunkLinks::default()).unwrap();
        let ports = only(&fabric).ports;
        let cost = |port: usize| ports[port].stp.as_ref().unwrap().cost;
        assert_eq!((cost(0), cost(1)), (7, 20_000));
    }
    let trunks = only(&fabric).ports.len();
    for (refused, name) in [
        (add("cost", Some(8), None, slow()), "stp_cost"),
        (add("rate", Some(8), None, slow()), "stp_cost"),
        (add("cost", None, Some(11), slow()), "vlans"),
    ] {
        assert!(refused.unwrap_err().contains(&format!("other {name} than the first")));
    }
    assert_eq!(only(&fabric).ports.len(), trunks);
    fabric.shutdown();
}

#[test]
fn what_switches_send_by_themselves_is_counted_and_missed_by_nobody() {
    for delay_ns in [0, 1_000] {
        let (mut rig, guest) = pair(true, None);
        for (number, state) in rig.plane.forwarding.switches.iter_mut().enumerate() {
            state
                .switch
                .set_snooping(Some(ether::MacAddr([2, 0, 0, 0, 1, number as u8])));
        }
        let link = LinkSettings {
            delay_ns,
            ..LinkSettings::default()
        };
        rig.set_link(0, &link, &LinkSettings::default());
        // Both switches begin to ask; then the second guest goes, and the first one without a word.
        rig.send(0, 1, &to_ip_group(0, 7, &[0; 100]));
        rig.settle();
        rig.stop_receiving(guest);
        wait(&mut rig, 20_000_000_000);
        let of_card = |rig: &Rig| {
            let stats = rig.stats(0);
            let given = stats.switch["out_frames"] + stats.switch["out_control"];
            let bytes = stats.switch["out_bytes"] + stats.switch["out_control_bytes"];
            (
                given,
                bytes,
                stats.link.to_guest["offered_frames"],
                stats.link.to_guest["offered_bytes"],
            )
        };
        let (given, bytes, admitted, offered_bytes) = of_card(&rig);
        assert!(given > 10);
        assert_eq!((given, bytes), (admitted, offered_bytes), "delay {delay_ns}");
        for trunk in &rig.plane.forwarding.wiring.trunks {
            for (from, (switch, port)) in trunk.ends.into_iter().enumerate() {
                let counters = rig.plane.forwarding.switches[switch].switch.counters(port);
                let admitted = trunk.links[from].counters().offered_frames;
                assert_eq!(counters.out_frames + counters.out_control, admitted);
                let (switch, port) = trunk.ends[1 - from];
                assert_eq!(
                    rig.plane.forwarding.switches[switch].switch.counters(port).in_frames,
                    admitted
                );
            }
        }
        rig.stop_receiving(0);
        let before = rig.stats(0).switch["out_control"];
        wait(&mut rig, 20_000_000_000);
        assert!(rig.stats(0).switch["out_control"] >= before + 10);
        for guest in [0, guest] {
            let dropped = &rig.stats(guest).rx.dropped;
            assert!(dropped.values().all(|count| *count == 0), "{dropped:?}");
        }
        // What another guest sends there is a loss.
        rig.send(0, 2, &broadcast(0));
        rig.settle();
        assert_eq!(rig.stats(guest).rx.dropped["not_ready"], 1);
    }
}

#[test]
fn every_frame_that_comes_in_is_forwarded_taken_or_dropped_segmented_ones_too() {
    use super::{TSO4, tcp_frame};
    let mut rig = Rig::new(&[ALL_FEATURES, ALL_FEATURES]);
    enable(&mut rig, 0);
    introduce(&mut rig, 0, 1);
    let before = *rig.plane.forwarding.switches[0].switch.counters(PortId(0));
    let to = |dst: [u8; 6]| [&dst, &tcp_frame(1, 1900)[6..]].concat();
    // To a station, to bridges, to no station.
    for (index, dst) in (1..).zip([[2, 0, 0, 0, 0, 1], [1, 0x80, 0xc2, 0, 0, 0], [1, 0x80, 0xc2, 0, 0, 3]]) {
        rig.send_with_header(0, index, &TSO4, &to(dst));
    }
    rig.settle();
    assert_eq!(rig.completed(0), 3);
    let after = *rig.plane.forwarding.switches[0].switch.counters(PortId(0));
    assert_eq!(after.in_control - before.in_control, 1, "a switch looks at it as it is");
    assert_eq!(after.dropped(DropReason::ReservedAddress), 2, "cut in two");
    assert_eq!(after.in_frames - before.in_frames, 2 + 1 + 2);
}

#[test]
fn what_switches_tell_each_other_is_not_under_way_when_all_else_has_arrived() {
    let (mut rig, guest) = pair(true, None);
    let slow = LinkSettings {
        delay_ns: 10_000_000,
        ..LinkSettings::default()
    };
    rig.set_trunk(&slow, &slow);
    rig.set_link(0, &slow, &LinkSettings::default());
    rig.stop_receiving(guest);
    // Until BPDUs are in flight on the trunk and to the card.
    let is_pooled = |rig: &Rig| rig.pooled_bytes() > 0;
    for _ in 0..10_000 {
        wait(&mut rig, 1_000_000);
        if is_pooled(&rig) {
            break;
        }
    }
    assert!(is_pooled(&rig));
    assert_eq!(rig.plane.under_way().on_links, 0);
    rig.send(guest, 1, &frame(0, 9, 100, 1));
    rig.settle();
    assert!(rig.plane.under_way().on_links > 0);
}
