//! IGMP and MLD snooping: single cases as RFC 4541 has them, and any wishes of hosts against a plain model.

mod bench;
#[path = "../common/mod.rs"]
mod common;
mod messages;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use common::{header, station};
use ether::{MacAddr, Time, checksum};
use fabric::{DropReason, Egress, Forward, MEMBERSHIPS_MAX, PORT_MEMBERSHIPS_MAX, PortVlans, TrunkId, VlanId, VlanSet};
use proptest::prelude::*;

use self::{bench::*, messages::*};

#[test]
fn frames_to_a_group_go_where_it_is_wanted_however_a_host_says_so() {
    let (v4, v6) = (ip("239.1.2.3"), ip("ff05::1:3"));
    let joins: [fn(u8, IpAddr) -> Vec<u8>; 6] = [
        |from, group| old(from, if group.is_ipv4() { 0x12 } else { 131 }, group),
        |from, group| old(from, if group.is_ipv4() { 0x16 } else { 131 }, group),
        |from, group| report(from, &[(2, group, 0)]),
        |from, group| report(from, &[(4, group, 2)]),
        |from, group| report(from, &[(3, group, 0), (6, group, 1), (5, group, 1)]),
        |from, group| {
            report(
                from,
                &[
                    (2, ip(if group.is_ipv4() { "239.7.7.7" } else { "ff08::7" }), 3),
                    (1, group, 1),
                ],
            )
        },
    ];
    for group in [v4, v6] {
        for (number, join) in joins.iter().enumerate() {
            let mut bench = Bench::new(4);
            assert_eq!(bench.forward(0, &data(1, group)), Forward::Drop(DropReason::NoMember));
            assert_eq!(bench.send(2, &join(3, group)), local([]), "no host hears reports");
            assert_eq!(bench.send(0, &data(1, group)), local([2]), "{group}, report {number}");
            assert_eq!(bench.forward(2, &data(3, group)), Forward::Drop(DropReason::NoMember));
            bench.send(3, &join(4, group));
            assert_eq!(bench.send(2, &data(3, group)), local([3]));
            let other = if group.is_ipv4() {
                ip("239.129.2.3")
            } else {
                ip("ff0e::1:3")
            };
            assert_eq!(mac_of(other), mac_of(group));
            assert_eq!(
                bench.send(0, &data(1, other)),
                local([]),
                "one Ethernet address, another group"
            );
            let counters = bench.switch.counters(port(2));
            assert_eq!(
                (counters.in_frames, counters.in_control, counters.in_multicast),
                (3, 1, 1)
            );
            assert_eq!(counters.dropped(DropReason::NoMember), 1);
        }
    }
}

#[test]
fn what_is_for_all_reaches_all() {
    let mut bench = Bench::new(3);
    for group in [
        "224.0.0.1",
        "224.0.0.22",
        "224.0.0.251",
        "ff02::1",
        "ff02::fb",
        "ff02::1:ff00:1",
        "ff01::1",
    ] {
        assert_eq!(bench.send(0, &data(1, ip(group))), local([1, 2]), "{group}");
    }
    for dst in [
        MacAddr::BROADCAST,
        MacAddr([1, 0, 0x5e, 1, 2, 3]),
        MacAddr([3, 0, 0, 0, 0, 7]),
    ] {
        // Not IP.
        assert_eq!(bench.send(0, &header(dst, station(1))), local([1, 2]), "{dst}");
    }
    // A report of such a group says nothing.
    bench.send(1, &report(2, &[(2, ip("224.0.0.251"), 0)]));
    bench.send(1, &report(2, &[(2, ip("ff02::fb"), 0)]));
    assert_eq!(bench.switch.group_members(Time::from_nanos(bench.now)).count(), 0);
}

#[test]
fn who_leaves_is_asked_about_and_who_answers_keeps_the_group() {
    let groups = [ip("239.1.2.3"), ip("ff05::1:3")];
    let leaves: [fn(u8, IpAddr) -> Vec<u8>; 3] = [
        |from, group| old(from, if group.is_ipv4() { 0x17 } else { 132 }, group),
        |from, group| report(from, &[(3, group, 0)]),
        |from, group| report(from, &[(6, group, 1)]),
    ];
    for group in groups {
        for leave in leaves {
            for answers in [false, true] {
                let mut bench = Bench::new(3);
                bench.send(2, &report(3, &[(4, group, 0)]));
                let left = bench.now;
                assert_eq!(bench.send(2, &leave(3, group)), local([]));
                let mut asked = bench.wait(SECOND / 2);
                if answers {
                    bench.send(2, &report(4, &[(2, group, 0)]));
                }
                asked.extend(bench.wait(SECOND));
                assert_eq!(bench.send(0, &data(1, group)), local([2]), "it may still be wanted");
                let asked: Vec<_> = asked
                    .into_iter()
                    .map(|(at, egress, frame)| (at - left, egress, frame[..6].to_vec()))
                    .collect();
                let expected = |at| (at, Egress::Local(port(2)), mac_of(group).0.to_vec());
                assert_eq!(asked, [expected(0), expected(SECOND)]);
                bench.wait(SECOND + 1);
                let expected = if answers { local([2]) } else { local([]) };
                assert_eq!(bench.send(0, &data(1, group)), expected);
            }
        }
    }
}

#[test]
fn groups_age_and_the_switch_asks_for_them() {
    let mut bench = Bench::new(2);
    let group = ip("239.1.2.3");
    bench.send(1, &report(2, &[(4, group, 0)]));
    let joined = bench.now;
    let sent = bench.wait(260 * SECOND - 1);
    assert_eq!(bench.send(0, &data(1, group)), local([1]));
    bench.wait(1);
    assert_eq!(bench.send(0, &data(1, group)), local([]));
    // General queries of both protocols, to both ports, every 125 s, behind the first two, with 5 s between them.
    let times: BTreeSet<_> = sent.iter().map(|(at, ..)| *at).collect();
    assert_eq!(
        times,
        BTreeSet::from([130 * SECOND, 255 * SECOND]),
        "joined at {joined}"
    );
    assert_eq!(sent.len(), 8);
    for (_, egress, frame) in &sent[..4] {
        let is_v4 = frame[12..14] == [8, 0];
        let kinds = if is_v4 { (38, 0x11) } else { (62, 130) };
        assert_eq!(frame[kinds.0], kinds.1, "{egress:?}");
        assert_eq!(frame.len(), if is_v4 { 60 } else { 90 });
        // Their checksums are right.
        if is_v4 {
            assert_eq!(checksum::checksum(&frame[14..38]), 0);
            assert_eq!(checksum::checksum(&frame[38..50]), 0);
            assert_eq!(frame[26..30], [0; 4], "a switch has no address");
        } else {
            let octets = |at: usize| frame[at..at + 16].try_into().unwrap();
            let pseudo = checksum::pseudo_header_v6(octets(22), octets(38), 58, 28);
            assert_eq!(checksum::finish(pseudo + checksum::sum(&frame[62..])), 0);
        }
    }
    // Both first ones, and these.
    assert_eq!(bench.switch.snooping_counters().queries_out, 2 * 4 + 8);
    for number in 0..2 {
        let counters = bench.switch.counters(port(number));
        assert_eq!((counters.out_control, counters.out_control_bytes), (8, 4 * (60 + 90)));
    }
}

#[test]
fn routers_get_everything_and_the_switch_asks_only_while_they_do_not() {
    let group = ip("239.1.2.3");
    let general = |from, source: &str| query(from, ip(source), None);
    for (asks, families) in [
        (vec![general(3, "10.0.0.3"), general(3, "fe80::3")], 0),
        (vec![general(3, "10.0.0.3")], 1),
        // A Hello of PIM says that there is a router, and not that it asks.
        (
            vec![packet(3, ip("10.0.0.3"), ip("224.0.0.13"), 103, &[0x20, 0, 0, 0])],
            2,
        ),
    ] {
        let mut bench = Bench::new(3);
        for ask in &asks {
            assert_eq!(bench.send(2, ask), local([0, 1]));
        }
        assert!(bench.switch.has_router(Time::from_nanos(bench.now), port(2)));
        assert_eq!(bench.send(0, &data(1, group)), local([2]));
        assert_eq!(
            bench.send(1, &report(2, &[(4, group, 0)])),
            local([2]),
            "routers hear reports"
        );
        let sent = bench.wait(254 * SECOND);
        assert_eq!(sent.len(), families * 2 * 3, "{sent:?}");
        let sent = bench.wait(SECOND);
        assert_eq!(
            bench.send(0, &data(1, ip("239.8.8.8"))),
            local([]),
            "the router is gone"
        );
        assert_eq!(!sent.is_empty(), families < 2, "so the switch asks again");
    }
    // Of two switches the one with the lower address asks; neither is a router to the other.
    for (other, is_asked) in [(0x5f, false), (0x61, true)] {
        let mut bench = Bench::new(1);
        bench.switch.add_trunk(TrunkId(0)).unwrap();
        bench.wait(10 * SECOND);
        let mut general = general(3, "0.0.0.0");
        general[6..12].copy_from_slice(&[2, 0x57, 0x45, 0x46, other, 0]);
        bench.send(1, &general);
        let sent = bench.wait(130 * SECOND);
        assert_eq!(sent.iter().any(|(.., frame)| frame[12..14] == [8, 0]), is_asked);
        assert!(!bench.switch.has_router(Time::from_nanos(bench.now), port(1)));
    }
}

#[test]
fn other_switches_hear_reports_and_get_what_is_wanted_behind_them() {
    let group = ip("ff05::1:3");
    let mut bench = Bench::new(2);
    let trunk = bench.switch.add_trunk(TrunkId(7)).unwrap();
    assert_eq!(
        bench.send(0, &data(1, group)),
        BTreeSet::from([Egress::Local(port(1)), Egress::Trunk(TrunkId(7))]),
        "a trunk came: all were asked anew"
    );
    bench.wait(10 * SECOND);
    assert_eq!(bench.send(0, &data(1, group)), local([]));
    let over_trunk = BTreeSet::from([Egress::Trunk(TrunkId(7))]);
    assert_eq!(bench.send(1, &report(2, &[(4, group, 0)])), over_trunk);
    assert_eq!(bench.send(trunk.0, &report(9, &[(4, group, 0)])), local([]));
    assert_eq!(bench.send(1, &data(2, group)), over_trunk);
    assert_eq!(bench.send(trunk.0, &data(9, group)), local([1]));
    bench.switch.set_port_up(trunk, false);
    assert_eq!(bench.send(0, &data(1, group)), local([1]), "a trunk went");
    bench.wait(10 * SECOND);
    assert_eq!(bench.send(1, &data(2, group)), local([]));
}

#[test]
fn every_record_of_a_report_is_heard_however_long_it_is() {
    // As many as fit into the longest frames that there are.
    for (count, group) in [
        (
            1120,
            (|n: u16| IpAddr::from([239, 9, (n >> 8) as u8, n as u8])) as fn(u16) -> IpAddr,
        ),
        (440, |n: u16| IpAddr::from([0xff05, 0, 0, 0, 0, 0, 9, n])),
    ] {
        let mut bench = Bench::new(2);
        let trunk = bench.switch.add_trunk(TrunkId(0)).unwrap();
        bench.wait(10 * SECOND);
        bench.send(0, &data(1, group(0)));
        bench.wait(10 * SECOND);
        let records: Vec<_> = (1..=count).map(|n| (4, group(n), 0)).collect();
        let frame = report(9, &records);
        assert!((8000..9022).contains(&frame.len()), "{} bytes", frame.len());
        bench.send(trunk.0, &frame);
        for n in [1, 256, 257, count] {
            assert_eq!(
                bench.send(0, &data(1, group(n))),
                BTreeSet::from([Egress::Trunk(TrunkId(0))]),
                "{n}"
            );
        }
        // A card's part of the table is smaller: what it has no room for is not kept, and the card gets everything.
        bench.send(1, &frame);
        let not_kept = u64::from(count) - PORT_MEMBERSHIPS_MAX as u64;
        assert_eq!(bench.switch.snooping_counters().not_kept, not_kept);
        assert!(bench.send(0, &data(1, group(count))).contains(&Egress::Local(port(1))));
    }
}

#[test]
fn a_guest_that_joins_without_end_fills_its_own_part_only() {
    let mut bench = Bench::new(3);
    let group = |n: u16| IpAddr::from([239, 9, (n >> 8) as u8, n as u8]);
    bench.send(1, &report(2, &[(4, group(9999), 0)]));
    for n in 0..PORT_MEMBERSHIPS_MAX as u16 + 50 {
        bench.send(2, &report(3, &[(4, group(n), 0)]));
    }
    let members = |bench: &Bench| bench.switch.group_members(Time::from_nanos(bench.now)).count();
    assert_eq!(members(&bench), 1 + PORT_MEMBERSHIPS_MAX);
    assert_eq!(bench.switch.snooping_counters().not_kept, 50);
    assert_eq!(bench.send(0, &data(1, group(5))), local([2]));
    assert_eq!(
        bench.send(0, &data(1, group(9999))),
        local([1, 2]),
        "it gets everything"
    );
    // Those that have ended make room.
    bench.wait(261 * SECOND);
    bench.send(2, &report(3, &[(4, group(9999), 0)]));
    assert_eq!((members(&bench), bench.switch.snooping_counters().not_kept), (1, 50));

    // However many come over a trunk, the table has an end.
    let trunk = bench.switch.add_trunk(TrunkId(0)).unwrap();
    for n in 0..MEMBERSHIPS_MAX as u16 + 10 {
        bench.send(trunk.0, &report(9, &[(4, group(n), 0)]));
    }
    assert_eq!(members(&bench), MEMBERSHIPS_MAX);
}

#[test]
fn groups_stay_in_their_vlan() {
    let vlan = |number| VlanId::new(number).unwrap();
    let mut bench = Bench::new(4);
    for (number, vlans) in [
        (0, PortVlans::access(vlan(10))),
        (1, PortVlans::access(vlan(10))),
        (2, PortVlans::access(vlan(20))),
        (3, PortVlans::trunk(None, VlanSet::from_iter([vlan(10), vlan(20)]))),
    ] {
        bench.switch.set_port_vlans(port(number), Some(vlans));
    }
    let group = ip("ff05::1:3");
    let tagged = |frame: Vec<u8>, vlan: u8| [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat();
    for from in [0, 2] {
        bench.send(from, &data(1, group));
    }
    // Queries leave each port in its form.
    let sent = bench.wait(SECOND);
    let mut forms = BTreeMap::<Egress, BTreeSet<Vec<u8>>>::new();
    for (_, egress, frame) in sent {
        forms.entry(egress).or_default().insert(frame[12..16].to_vec());
    }
    let untagged = BTreeSet::from([vec![8, 0, 0x46, 0xc0], vec![0x86, 0xdd, 0x60, 0]]);
    assert_eq!(forms[&Egress::Local(port(0))], untagged);
    assert_eq!(forms[&Egress::Local(port(2))], untagged);
    let tags = BTreeSet::from([vec![0x81, 0, 0, 10], vec![0x81, 0, 0, 20]]);
    assert_eq!(forms[&Egress::Local(port(3))], tags);
    bench.wait(10 * SECOND);
    assert_eq!(bench.send(0, &data(1, group)), local([]));
    // Both kinds of reports with a tag, as behind it the type of an MLD message is not among the first bytes.
    bench.send(3, &tagged(report(4, &[(4, group, 0)]), 10));
    bench.send(3, &tagged(report(4, &[(4, ip("239.1.1.1"), 0)]), 20));
    assert_eq!(bench.send(0, &data(1, group)), local([3]));
    assert_eq!(bench.send(2, &data(3, group)), local([]), "another VLAN");
    assert_eq!(bench.send(2, &data(3, ip("239.1.1.1"))), local([3]));
    bench.send(1, &report(2, &[(4, group, 0)]));
    assert_eq!(bench.send(3, &tagged(data(4, group), 10)), local([1]));
    let vlans: Vec<_> = bench
        .switch
        .group_members(Time::from_nanos(bench.now))
        .map(|member| member.vlan)
        .collect();
    assert_eq!(vlans, [10, 10, 20].map(VlanId::new));
}

#[test]
fn routers_and_ports_that_want_too_much_get_all_groups_of_their_vlan_alone() {
    let vlan = |number| VlanId::new(number).unwrap();
    let both = || Some(PortVlans::trunk(None, VlanSet::from_iter([vlan(10), vlan(20)])));
    let tagged = |vlan: u8, frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat();
    let (group, unwanted) = (ip("239.1.2.3"), ip("239.8.8.8"));
    let mut bench = Bench::new(4);
    for number in 0..4 {
        bench.switch.set_port_vlans(port(number), both());
    }
    for vlan in [10, 20] {
        bench.send(0, &tagged(vlan, data(1, group)));
    }
    bench.wait(10 * SECOND);
    bench.send(1, &tagged(10, query(2, ip("10.0.0.2"), None)));
    for n in 0..=PORT_MEMBERSHIPS_MAX as u16 {
        let group = IpAddr::from([239, 9, (n >> 8) as u8, n as u8]);
        bench.send(2, &tagged(20, report(3, &[(4, group, 0)])));
    }
    assert_eq!(bench.switch.snooping_counters().not_kept, 1);
    assert_eq!(bench.send(0, &tagged(10, data(1, unwanted))), local([1]));
    assert_eq!(bench.send(0, &tagged(20, data(1, unwanted))), local([2]));
    // Reports go to routers of their VLAN.
    assert_eq!(bench.send(3, &tagged(10, report(4, &[(4, group, 0)]))), local([1]));
    assert_eq!(bench.send(3, &tagged(20, report(4, &[(4, group, 0)]))), local([]));
    let has_router = |bench: &Bench| bench.switch.has_router(Time::from_nanos(bench.now), port(1));
    assert!(has_router(&bench));
    // With the last VLANs of the switch, all that was known goes.
    for number in 0..4 {
        bench.switch.set_port_vlans(port(number), None);
    }
    assert!(!has_router(&bench));
    bench.send(0, &data(1, group));
    bench.wait(10 * SECOND);
    assert_eq!(bench.send(0, &data(1, unwanted)), local([]));
}

#[test]
fn igmp_that_is_not_known_reaches_everybody() {
    let group = ip("239.1.2.3");
    for kind in [0x13, 0x1f, 0x30, 0xff] {
        let mut bench = Bench::new(3);
        let mut frame = old(1, kind, group);
        assert_eq!(bench.send(0, &frame), local([1, 2]), "type {kind:#x}");
        assert_eq!(bench.switch.snooping_counters().unreadable, 1);
        // Only if it is sound.
        *frame.last_mut().unwrap() ^= 1;
        assert_eq!(bench.send(0, &frame), local([]));
    }
}

#[test]
fn however_often_the_topology_changes_all_are_asked_once_a_second() {
    let group = ip("239.1.2.3");
    let mut bench = Bench::new(2);
    let trunk = bench.switch.add_trunk(TrunkId(0)).unwrap();
    bench.wait(10 * SECOND);
    bench.send(1, &report(2, &[(4, group, 0)]));
    bench.wait(10 * SECOND);
    assert_eq!(bench.send(0, &data(1, group)), local([1]));
    let everybody = BTreeSet::from([Egress::Local(port(1)), Egress::Trunk(TrunkId(0))]);
    let mut asked = Vec::new();
    let began = bench.now;
    for _ in 0..50 {
        for up in [false, true] {
            bench.switch.set_port_up(trunk, up);
        }
        assert_eq!(bench.send(0, &data(1, group)), everybody, "it may be wanted there");
        asked.extend(bench.wait(SECOND / 10));
    }
    let to_card = asked.iter().filter(|(_, egress, _)| *egress == Egress::Local(port(1)));
    let times: Vec<_> = to_card.map(|(at, ..)| at - began).collect();
    let expected: Vec<_> = (0..=5).flat_map(|second| [second * SECOND; 2]).collect();
    assert_eq!(times, expected, "for both versions of IP");
    bench.wait(9 * SECOND);
    assert_eq!(bench.send(0, &data(1, group)), local([1]));
}

#[test]
fn memberships_of_a_port_without_carrier_are_forgotten_and_its_hosts_are_asked_when_it_is_back() {
    for group in [ip("239.1.2.3"), ip("ff05::1:3")] {
        let mut bench = Bench::new(4);
        bench.send(2, &report(3, &[(4, group, 0)]));
        assert_eq!(bench.send(0, &data(1, group)), local([2]));
        bench.switch.set_port_up(port(2), false);
        assert_eq!(bench.send(0, &data(1, group)), local([]));
        bench.send(3, &report(4, &[(4, group, 0)]));
        bench.wait(10 * SECOND);
        bench.switch.set_port_up(port(2), true);
        let asked = bench.wait(0);
        assert_eq!(asked.len(), 2, "for both versions of IP");
        assert!(asked.iter().all(|(_, egress, _)| *egress == Egress::Local(port(2))));
        assert_eq!(bench.send(0, &data(1, group)), local([2, 3]), "it may be wanted there");
        bench.send(2, &report(3, &[(2, group, 0)]));
        bench.wait(10 * SECOND);
        assert_eq!(bench.send(0, &data(1, group)), local([2, 3]), "it answered");
        for up in [false, true] {
            bench.switch.set_port_up(port(2), up);
        }
        bench.wait(10 * SECOND);
        assert_eq!(bench.send(0, &data(1, group)), local([3]), "no host answered");
    }
}

#[test]
fn however_often_ports_come_and_go_their_hosts_are_asked_once_a_second() {
    let mut bench = Bench::new(4);
    let began = bench.now;
    let mut asked = Vec::new();
    for _ in 0..50 {
        for up in [false, true] {
            bench.switch.set_port_up(port(1), up);
            bench.switch.set_port_up(port(3), up);
        }
        asked.extend(bench.wait(SECOND / 10));
    }
    let to_one = asked.iter().filter(|(_, egress, _)| *egress == Egress::Local(port(3)));
    let times: Vec<_> = to_one.map(|(at, ..)| at - began).collect();
    let expected: Vec<_> = (0..=5).flat_map(|second| [second * SECOND; 2]).collect();
    assert_eq!(times, expected, "for both versions of IP");
}

#[test]
fn a_vlan_too_many_is_flooded_at_once_and_takes_the_place_of_one_that_fell_silent() {
    let group = ip("239.1.2.3");
    let mut bench = Bench::new(2);
    for number in 0..2 {
        bench
            .switch
            .set_port_vlans(port(number), Some(PortVlans::trunk(None, VlanSet::all())));
    }
    let tagged = |vlan: u8, frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat();
    let sent = |vlan| tagged(vlan, data(1, group));
    let first_bytes_say = |bench: &mut Bench, vlan| {
        let (now, frame) = (Time::from_nanos(bench.now), sent(vlan));
        bench.switch.forward(now, port(0), &frame[..64], frame.len())
    };
    for vlan in 1..=64 {
        assert_eq!(bench.send(0, &sent(vlan)), local([1]));
        bench.send(1, &tagged(vlan, report(2, &[(4, group, 0)])));
    }
    // The 65th is looked for a place once a second, and flooded by its first bytes in between.
    for _ in 0..3 {
        assert_eq!(first_bytes_say(&mut bench, 65), Forward::Inspect);
        bench.send(0, &sent(65));
        for _ in 0..10 {
            assert_eq!(first_bytes_say(&mut bench, 65), Forward::Several);
            assert_eq!(bench.switch.targets().len(), 1);
        }
        bench.wait(SECOND);
    }
    // All but two of them fall silent, and what was wanted there ends.
    for _ in 0..3 {
        bench.wait(100 * SECOND);
        bench.send(0, &sent(1));
        bench.send(1, &tagged(2, report(2, &[(4, group, 0)])));
    }
    bench.send(0, &sent(65));
    let now = Time::from_nanos(bench.now);
    let kept: Vec<_> = bench.switch.snooped_vlans(now).map(|state| state.vlan).collect();
    assert_eq!(kept, [1, 2, 65].map(VlanId::new));
}

#[test]
fn a_port_whose_vlans_change_keeps_its_groups_and_its_hosts_are_asked() {
    let vlan = |number| VlanId::new(number).unwrap();
    let carries = |numbers: [u16; 2]| Some(PortVlans::trunk(None, VlanSet::from_iter(numbers.map(vlan))));
    let mut bench = Bench::new(3);
    for number in [0, 2] {
        bench
            .switch
            .set_port_vlans(port(number), Some(PortVlans::access(vlan(10))));
    }
    bench.switch.set_port_vlans(port(1), carries([10, 20]));
    let group = ip("239.1.2.3");
    let tagged = |frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat();
    bench.send(0, &data(1, group));
    bench.wait(10 * SECOND);
    bench.send(1, &tagged(report(4, &[(4, group, 0)])));
    assert_eq!(bench.send(0, &data(1, group)), local([1]));

    bench.switch.set_port_vlans(port(1), carries([10, 30]));
    assert_eq!(bench.send(0, &data(1, group)), local([1, 2]), "until it has answered");
    let asked = bench.wait(SECOND);
    let is_query = |(_, egress, frame): &(u64, Egress, Vec<u8>)| {
        *egress == Egress::Local(port(1)) && frame[12..18] == [0x81, 0, 0, 10, 8, 0]
    };
    assert_eq!(asked.iter().filter(|sent| is_query(sent)).count(), 1, "{asked:?}");
    bench.send(1, &tagged(report(4, &[(4, group, 0)])));
    bench.wait(10 * SECOND);
    assert_eq!(bench.send(0, &data(1, group)), local([1]));
    // Equal VLANs again are no change.
    bench.switch.set_port_vlans(port(1), carries([10, 30]));
    assert_eq!(bench.send(0, &data(1, group)), local([1]));
    assert_eq!(bench.wait(SECOND), []);
}

#[test]
fn damaged_messages_change_nothing_and_go_where_frames_to_their_address_go() {
    let groups = [ip("239.1.2.3"), ip("ff05::1:3")];
    for group in groups {
        let whole = report(3, &[(4, group, 0)]);
        for bit in 14 * 8..whole.len() * 8 {
            // Traffic class, flow label, hop limit and options have no checksum in IPv6.
            if group.is_ipv6() && matches!(bit / 8, 14..18 | 21 | 54..62) {
                continue;
            }
            let mut bench = Bench::new(3);
            let mut frame = whole.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            bench.forward(2, &frame);
            assert_eq!(bench.send(0, &data(1, group)), local([]), "bit {bit}");
        }
        for len in 14..whole.len() {
            let mut bench = Bench::new(3);
            bench.forward(2, &whole[..len]);
            assert_eq!(bench.send(0, &data(1, group)), local([]), "{len} bytes");
        }
    }
    let mut bench = Bench::new(3);
    let mut frame = report(3, &[(4, groups[0], 0)]);
    frame[40] ^= 1;
    assert_eq!(bench.send(2, &frame), local([0, 1]));
    assert_eq!(bench.switch.snooping_counters().unreadable, 1);
}

#[derive(Clone, Debug)]
enum Event {
    Join(u16, usize),
    Leave(u16, usize),
    Data(u16, usize),
    Noise(u16, Vec<u8>),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let (ports, groups) = (0..4u16, 0..6usize);
    prop_oneof![
        3 => (ports.clone(), groups.clone()).prop_map(|(port, group)| Event::Join(port, group)),
        2 => (ports.clone(), groups.clone()).prop_map(|(port, group)| Event::Leave(port, group)),
        4 => (ports.clone(), groups).prop_map(|(port, group)| Event::Data(port, group)),
        1 => (ports, prop::collection::vec(any::<u8>(), 0..80)).prop_map(|(port, bytes)| Event::Noise(port, bytes)),
        2 => prop_oneof![0..4 * SECOND, 0..300 * SECOND].prop_map(Event::Wait),
    ]
}

proptest! {
    #[test]
    fn any_wishes_are_met_as_in_a_plain_model(events in prop::collection::vec(event(), 1..60)) {
        let groups = ["239.1.1.1", "239.1.1.2", "239.129.1.1", "ff05::1", "ff05::2", "ff0e::1"].map(ip);
        let mut bench = Bench::new(4);
        let mut wanted = BTreeMap::<(usize, u16), u64>::new();
        for event in events {
            match event {
                Event::Join(from, group) => {
                    bench.send(from, &report(from as u8 + 1, &[(4, groups[group], 0)]));
                    wanted.insert((group, from), bench.now + 260 * SECOND);
                }
                Event::Leave(from, group) => {
                    bench.send(from, &report(from as u8 + 1, &[(3, groups[group], 0)]));
                    let soon = bench.now + 5 * SECOND / 2;
                    wanted.entry((group, from)).and_modify(|until| *until = soon.min(*until));
                }
                Event::Data(from, group) => {
                    let expected: BTreeSet<_> = (0..4)
                        .filter(|to| *to != from && wanted.get(&(group, *to)).is_some_and(|until| bench.now < *until))
                        .map(|to| Egress::Local(port(to)))
                        .collect();
                    prop_assert_eq!(bench.send(from, &data(from as u8 + 1, groups[group])), expected);
                }
                Event::Noise(from, bytes) => {
                    // To the addresses of IGMP and of MLD.
                    for first in [&[1, 0, 0x5e, 0, 0, 22, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0][..], &[0x33, 0x33, 0, 0, 0, 22, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60]] {
                        bench.forward(from, &[first, &bytes].concat());
                    }
                }
                Event::Wait(ns) => {
                    bench.wait(ns);
                }
            }
        }
    }
}
