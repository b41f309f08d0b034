//! What a switch promises, one promise at a time.

mod common;

use common::{header, station, typed_header};
use ether::{MacAddr, Time};
use fabric::{
    DropReason, Egress, Forward, GROUPS_MAX, GroupError, PORTS_MAX, PortId, Switch, SwitchConfig, SwitchFull, TrunkId,
};

const SECOND: u64 = 1_000_000_000;

fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

/// A switch with `n` ports.
fn switch(n: usize) -> (Switch, Vec<PortId>) {
    let mut switch = Switch::new(SwitchConfig::default());
    let ports = (0..n).map(|_| switch.add_port()).collect();
    (switch, ports)
}

fn to(port: PortId) -> Forward {
    Forward::One(Egress::Local(port))
}

fn targets(switch: &Switch, ingress: PortId, forward: Forward) -> Vec<Egress> {
    switch.flood_targets(ingress, forward).collect()
}

#[test]
fn an_unknown_station_is_flooded_and_a_known_one_is_not() {
    let (mut s, p) = switch(3);
    let ask = header(station(2), station(1));
    let answer = header(station(1), station(2));
    let forward = s.forward(at(0), p[0], &ask, 60);
    assert_eq!(forward, Forward::Flood);
    assert_eq!(targets(&s, p[0], forward), [Egress::Local(p[1]), Egress::Local(p[2])]);
    assert_eq!(s.forward(at(1), p[1], &answer, 60), to(p[0]));
    assert_eq!(s.forward(at(2), p[0], &ask, 60), to(p[1]));
    assert_eq!(targets(&s, p[0], to(p[1])), [Egress::Local(p[1])]);
}

#[test]
fn a_frame_never_returns_to_its_port() {
    let (mut s, p) = switch(2);
    s.forward(at(0), p[0], &header(MacAddr::BROADCAST, station(1)), 60);
    let same = s.forward(at(1), p[0], &header(station(1), station(3)), 60);
    assert_eq!(same, Forward::Drop(DropReason::SamePort));
    let itself = s.forward(at(2), p[0], &header(station(1), station(1)), 60);
    assert_eq!(itself, Forward::Drop(DropReason::SamePort));
    assert_eq!(targets(&s, p[0], same), []);
    assert_eq!(s.counters(p[0]).dropped(DropReason::SamePort), 2);
    assert_eq!(s.counters(p[0]).out_frames, 0);
}

#[test]
fn a_cable_hands_every_frame_to_its_other_end_and_learns_nothing() {
    let mut s = Switch::new(SwitchConfig::default());
    s.set_cable();
    let p = [s.add_port(), s.add_port()];
    let reserved = MacAddr([1, 0x80, 0xc2, 0, 0, 2]);
    let pairs = [
        (station(2), station(1)),
        // A switch would have learned that they are behind one port, or drop them.
        (station(1), station(2)),
        (station(1), station(1)),
        (MacAddr::BROADCAST, station(1)),
        (reserved, station(1)),
        (station(2), MacAddr::default()),
        (station(2), MacAddr::BROADCAST),
    ];
    for round in 0..2 {
        for (dst, src) in pairs {
            assert_eq!(
                s.forward(at(round), p[0], &header(dst, src), 60),
                to(p[1]),
                "{dst} {src}"
            );
            s.count_repeated(p[0], &header(dst, src), 2, 120);
        }
    }
    let frames = 2 * 3 * pairs.len() as u64;
    assert_eq!(
        (s.counters(p[0]).in_frames, s.counters(p[1]).out_frames),
        (frames, frames)
    );
    assert_eq!(s.counters(p[0]).in_bytes, s.counters(p[1]).out_bytes);
    assert_eq!(s.table(at(9)).count(), 0);
    // Its cards answer what is for cards.
    let control = typed_header(MacAddr::CARD, station(1), 0x88b5);
    assert_eq!(
        s.forward(at(9), p[0], &control, 60),
        Forward::Drop(DropReason::CardControl)
    );
    // One end alone is none.
    s.set_port_up(p[1], false);
    let frame = header(station(2), station(1));
    assert_eq!(s.forward(at(9), p[0], &frame, 60), Forward::Drop(DropReason::NoWay));
    assert_eq!(s.forward(at(9), p[1], &frame, 60), Forward::Drop(DropReason::PortDown));
    s.set_port_up(p[1], true);
    assert_eq!(s.forward(at(9), p[0], &frame, 60), to(p[1]));
}

#[test]
fn a_silent_station_is_forgotten_after_the_ageing_time_and_not_before() {
    let (mut s, p) = switch(3);
    s.forward(at(0), p[1], &header(MacAddr::BROADCAST, station(2)), 60);
    let frame = header(station(2), station(1));
    let ageing = 300 * SECOND;
    assert_eq!(s.forward(at(0), p[0], &frame, 60), to(p[1]));
    assert_eq!(s.forward(at(ageing), p[0], &frame, 60), to(p[1]));
    assert_eq!(s.forward(at(ageing + 1), p[0], &frame, 60), Forward::Flood);
    assert_eq!(s.forward(at(ageing + 2), p[0], &frame, 60), Forward::Flood);
}

#[test]
fn a_station_that_speaks_on_the_fast_path_is_not_forgotten() {
    let (mut s, p) = switch(2);
    let (there, back) = (header(station(2), station(1)), header(station(1), station(2)));
    s.forward(at(0), p[0], &there, 60);
    for n in 0..1000 {
        assert_eq!(s.forward(at(n * 100 * SECOND), p[1], &back, 60), to(p[0]), "round {n}");
        assert_eq!(s.forward(at(n * 100 * SECOND), p[0], &there, 60), to(p[1]), "round {n}");
    }
}

#[test]
fn a_flood_ends_when_the_station_speaks_again() {
    let (mut s, p) = switch(3);
    let frame = header(station(2), station(1));
    s.forward(at(0), p[1], &header(station(9), station(2)), 60);
    let late = 400 * SECOND;
    assert_eq!(s.forward(at(late), p[0], &frame, 60), Forward::Flood);
    s.forward(at(late + 1), p[1], &header(station(9), station(2)), 60);
    assert_eq!(s.forward(at(late + 2), p[0], &frame, 60), to(p[1]));
}

#[test]
fn a_station_that_moves_is_followed_and_counted() {
    let (mut s, p) = switch(3);
    let frame = header(station(2), station(1));
    s.forward(at(0), p[1], &header(station(9), station(2)), 60);
    assert_eq!(s.forward(at(1), p[0], &frame, 60), to(p[1]));
    s.forward(at(2), p[2], &header(station(9), station(2)), 60);
    assert_eq!(s.forward(at(3), p[0], &frame, 60), to(p[2]));
    assert_eq!(s.counters(p[2]).moved, 1);
    assert_eq!(s.table(at(3)).filter(|entry| entry.mac == station(2)).count(), 1);
}

#[test]
fn a_port_that_goes_down_is_forgotten_and_gets_nothing() {
    let (mut s, p) = switch(3);
    s.forward(at(0), p[1], &header(station(9), station(2)), 60);
    assert_eq!(s.forward(at(1), p[0], &header(station(2), station(1)), 60), to(p[1]));
    s.set_port_up(p[1], false);
    assert!(!s.is_port_up(p[1]));
    let forward = s.forward(at(2), p[0], &header(station(2), station(1)), 60);
    assert_eq!(targets(&s, p[0], forward), [Egress::Local(p[2])]);
    let from_down = s.forward(at(3), p[1], &header(station(1), station(2)), 60);
    assert_eq!(from_down, Forward::Drop(DropReason::PortDown));
    assert_eq!(s.counters(p[1]).dropped(DropReason::PortDown), 1);
    s.set_port_up(p[1], true);
    let forward = s.forward(at(4), p[0], &header(station(2), station(1)), 60);
    assert_eq!(targets(&s, p[0], forward), [Egress::Local(p[1]), Egress::Local(p[2])]);
}

#[test]
fn a_removed_port_leaves_nothing_behind() {
    let (mut s, p) = switch(3);
    let group = MacAddr([1, 0, 0x5e, 0, 0, 7]);
    s.join(group, p[1]).unwrap();
    s.forward(at(0), p[1], &header(station(9), station(2)), 60);
    s.remove_port(p[1]);
    assert_eq!(s.table(at(0)).count(), 0);
    assert_eq!(s.groups().count(), 0);
    assert_eq!(s.egress(p[1]), None);
    assert_eq!(
        s.forward(at(1), p[0], &header(station(2), station(1)), 60),
        Forward::Flood
    );
    assert_eq!(
        s.forward(at(1), p[1], &header(station(1), station(2)), 60),
        Forward::Drop(DropReason::PortDown)
    );
    assert_eq!(s.join(group, p[1]), Err(GroupError::NoSuchPort(p[1])));
    assert_eq!(s.add_port(), p[1], "its number is given out again");
    assert_eq!(s.counters(p[1]).in_frames, 0);
}

#[test]
fn control_frames_are_never_forwarded_and_others_of_their_types_and_address_are() {
    let (mut s, p) = switch(2);
    let (there, back) = (header(station(2), station(1)), header(station(1), station(2)));
    s.forward(at(0), p[1], &back, 60);
    s.forward(at(0), p[0], &there, 60);
    assert_eq!(s.forward(at(0), p[0], &there, 60), to(p[1]));
    for ether_type in [0x88b5, 0x88b6, 0x0800] {
        let is_control = ether_type == 0x88b5;
        assert_eq!(
            s.forward(at(3), p[0], &typed_header(MacAddr::CARD, station(1), ether_type), 60),
            if is_control {
                Forward::Drop(DropReason::CardControl)
            } else {
                Forward::Flood
            }
        );
        // The types are free for experiments of others.
        assert_eq!(
            s.forward(at(4), p[0], &typed_header(station(2), station(1), ether_type), 60),
            to(p[1])
        );
        assert_eq!(
            s.forward(
                at(4),
                p[0],
                &typed_header(MacAddr::BROADCAST, station(1), ether_type),
                60
            ),
            Forward::Flood
        );
    }
    assert_eq!(s.counters(p[0]).dropped(DropReason::CardControl), 1);
}

#[test]
fn frames_that_are_counted_together_count_as_each_for_itself() {
    let (mut one_by_one, p) = switch(3);
    let (mut together, _) = switch(3);
    for s in [&mut one_by_one, &mut together] {
        s.forward(at(0), p[1], &header(station(1), station(2)), 60);
    }
    let same_port = header(station(1), station(1));
    for dst in [
        station(2),
        station(9),
        MacAddr::BROADCAST,
        MacAddr([1, 0, 0, 0, 0, 1]),
        station(1),
    ] {
        let header = header(dst, station(1));
        (0..5).for_each(|_| _ = one_by_one.forward(at(1), p[0], &header, 100));
        together.forward(at(1), p[0], &header, 100);
        together.count_repeated(p[0], &header, 4, 400);
    }
    one_by_one.forward(at(1), p[0], &same_port, 60);
    together.forward(at(1), p[0], &same_port, 60);
    for port in p {
        assert_eq!(one_by_one.counters(port), together.counters(port));
    }
}

#[test]
fn bridge_protocol_addresses_are_not_forwarded() {
    let (mut s, p) = switch(2);
    for last in 0..=0x1f {
        let forward = s.forward(
            at(0),
            p[0],
            &header(MacAddr([1, 0x80, 0xc2, 0, 0, last]), station(1)),
            60,
        );
        let reserved = forward == Forward::Drop(DropReason::ReservedAddress);
        assert_eq!(reserved, last <= 0x0f, "01:80:c2:00:00:{last:02x} gave {forward:?}");
    }
}

#[test]
fn sources_that_no_station_can_have_are_dropped_and_not_learned() {
    let (mut s, p) = switch(2);
    for src in [
        MacAddr::BROADCAST,
        MacAddr([1, 0, 0x5e, 0, 0, 1]),
        MacAddr::default(),
        MacAddr::CARD,
    ] {
        assert_eq!(
            s.forward(at(0), p[0], &header(station(2), src), 60),
            Forward::Drop(DropReason::InvalidSource)
        );
    }
    assert_eq!(
        s.forward(at(0), p[0], &[0; 13], 13),
        Forward::Drop(DropReason::TooShort)
    );
    assert_eq!(s.forward(at(0), p[0], &[], 0), Forward::Drop(DropReason::TooShort));
    assert_eq!(s.table(at(0)).count(), 0);
    assert_eq!(s.counters(p[0]).dropped_total(), 6);
    assert_eq!(
        s.forward(at(0), PortId(77), &header(station(2), station(1)), 60),
        Forward::Drop(DropReason::PortDown)
    );
    assert_eq!(
        s.forward(at(0), PortId(u16::MAX), &[], 0),
        Forward::Drop(DropReason::PortDown)
    );
}

#[test]
fn a_group_with_members_goes_to_them_only() {
    let (mut s, p) = switch(4);
    let group = MacAddr([1, 0, 0x5e, 0, 0, 7]);
    let frame = header(group, station(1));
    assert_eq!(s.forward(at(0), p[0], &frame, 60), Forward::Flood);
    s.join(group, p[2]).unwrap();
    s.join(group, p[0]).unwrap();
    s.join(group, p[0]).unwrap();
    let forward = s.forward(at(1), p[0], &frame, 60);
    assert_eq!(targets(&s, p[0], forward), [Egress::Local(p[2])]);
    let forward = s.forward(at(1), p[3], &header(group, station(4)), 60);
    assert_eq!(targets(&s, p[3], forward), [Egress::Local(p[0]), Egress::Local(p[2])]);
    assert!(s.leave(group, p[2]));
    assert!(!s.leave(group, p[2]));
    let forward = s.forward(at(2), p[0], &frame, 60);
    assert_eq!(targets(&s, p[0], forward), [], "the sender is the only member");
    assert!(s.leave(group, p[0]));
    assert_eq!(
        s.forward(at(3), p[0], &frame, 60),
        Forward::Flood,
        "no members, as before"
    );
    assert_eq!(s.counters(p[0]).in_multicast, 4);
    assert_eq!(s.counters(p[2]).out_flooded, 4);
}

#[test]
fn only_multicast_groups_can_be_joined_and_their_number_is_limited() {
    let (mut s, p) = switch(1);
    for mac in [station(1), MacAddr::BROADCAST, MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e])] {
        assert_eq!(s.join(mac, p[0]), Err(GroupError::NotAGroup(mac)));
    }
    let group = |n: usize| MacAddr([1, 0, 0x5e, 0, (n >> 8) as u8, n as u8]);
    for n in 0..GROUPS_MAX {
        s.join(group(n), p[0]).unwrap();
    }
    assert_eq!(s.join(group(GROUPS_MAX), p[0]), Err(GroupError::TooMany));
    let members: Vec<_> = s
        .groups()
        .map(|(mac, ports)| (mac, ports.collect::<Vec<_>>()))
        .collect();
    assert_eq!(members.len(), GROUPS_MAX);
    assert_eq!(members[5], (group(5), vec![p[0]]));
}

#[test]
fn a_trunk_is_a_way_out_like_a_port() {
    let (mut s, p) = switch(2);
    let trunk = s.add_trunk(TrunkId(7)).unwrap();
    let forward = s.forward(at(0), p[0], &header(MacAddr::BROADCAST, station(1)), 60);
    assert_eq!(
        targets(&s, p[0], forward),
        [Egress::Local(p[1]), Egress::Trunk(TrunkId(7))]
    );
    s.forward(at(1), trunk, &header(station(1), station(9)), 60);
    assert_eq!(
        s.forward(at(2), p[0], &header(station(9), station(1)), 60),
        Forward::One(Egress::Trunk(TrunkId(7)))
    );
    assert_eq!(
        s.forward(at(3), trunk, &header(station(9), station(8)), 60),
        Forward::Drop(DropReason::SamePort),
        "never back over the trunk it came from"
    );
    assert_eq!(s.counters(trunk).out_frames, 2);
}

#[test]
fn a_guest_that_invents_addresses_fills_its_own_part_of_the_table_only() {
    let (mut s, p) = switch(3);
    let trunk = s.add_trunk(TrunkId(0)).unwrap();
    let invented = |n: u32| {
        let [a, b, c, d] = n.to_be_bytes();
        MacAddr([0x02, 1, a, b, c, d])
    };
    for n in 0..100_000 {
        s.forward(at(u64::from(n)), p[0], &header(station(9), invented(n)), 60);
    }
    let now = at(100_000);
    assert_eq!(s.table(now).filter(|entry| entry.port == p[0]).count(), 256);
    assert_eq!(s.counters(p[0]).not_learned, 100_000 - 256);
    s.forward(now, p[1], &header(station(9), station(2)), 60);
    assert_eq!(s.forward(now, p[2], &header(station(2), station(3)), 60), to(p[1]));
    // A trunk may use the whole table.
    for n in 0..10_000 {
        s.forward(now, trunk, &header(station(9), invented(200_000 + n)), 60);
    }
    assert_eq!(s.table(now).count(), 4096);
    // When what was invented has aged, the port learns again.
    let late = at(1000 * SECOND);
    for n in 0..10_000 {
        s.forward(late, p[0], &header(station(9), invented(900_000 + n)), 60);
    }
    assert_eq!(s.table(late).count(), 256);
}

#[test]
fn a_station_that_found_no_room_is_learned_when_there_is_some() {
    let config = SwitchConfig {
        port_entries_max: 1,
        ageing_ns: SECOND,
        ..SwitchConfig::default()
    };
    let mut s = Switch::new(config);
    let (a, b) = (s.add_port(), s.add_port());
    s.forward(at(0), b, &header(station(1), station(9)), 60);
    s.forward(at(0), a, &header(station(9), station(1)), 60);
    let (mut now, mut learned_at) = (0, None);
    while learned_at.is_none() && now < 10 * SECOND {
        now += SECOND / 1000;
        s.forward(at(now), b, &header(station(2), station(9)), 60);
        s.forward(at(now), a, &header(station(9), station(2)), 60);
        if s.table(at(now)).any(|entry| entry.mac == station(2)) {
            learned_at = Some(now);
        }
    }
    let learned_at = learned_at.expect("station 2 was learned in the end");
    assert!(learned_at > SECOND, "not before station 1 has aged");
    assert!(learned_at < 2 * SECOND, "but soon after: {learned_at}");
    assert_eq!(s.forward(at(learned_at), b, &header(station(2), station(9)), 60), to(a));
}

#[test]
fn counters_add_up() {
    let (mut s, p) = switch(3);
    s.forward(at(0), p[0], &header(MacAddr::BROADCAST, station(1)), 100);
    s.forward(at(1), p[1], &header(station(1), station(2)), 200);
    s.forward(at(2), p[1], &header(station(1), station(2)), 300);
    s.forward(at(3), p[1], &header(station(5), station(2)), 400);
    let [a, b, c] = [0, 1, 2].map(|n| *s.counters(p[n]));
    assert_eq!((a.in_frames, a.in_bytes, a.in_broadcast, a.learned), (1, 100, 1, 1));
    assert_eq!((a.out_frames, a.out_bytes, a.out_flooded), (3, 900, 1));
    assert_eq!((b.in_frames, b.in_bytes, b.in_unknown, b.learned), (3, 900, 1, 1));
    assert_eq!((b.out_frames, b.out_bytes, b.out_flooded), (1, 100, 1));
    assert_eq!((c.out_frames, c.out_bytes, c.out_flooded), (2, 500, 2));
    assert_eq!(*s.counters(PortId(99)), Default::default());
}

#[test]
fn there_are_as_many_ports_as_promised() {
    let (mut s, p) = switch(PORTS_MAX);
    assert_eq!(s.try_add_port(), Err(SwitchFull));
    let forward = s.forward(at(0), p[500], &header(MacAddr::BROADCAST, station(1)), 60);
    assert_eq!(s.flood_targets(p[500], forward).count(), PORTS_MAX - 1);
    s.remove_port(p[3]);
    assert_eq!(s.try_add_port(), Ok(p[3]));
}
