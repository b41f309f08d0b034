//! What switches know of a port ends with its carrier: the cable, the frontend or the rings are gone. In virtual time.

use fabric::{PortId, PortRole, StpConfig};

use super::introduce;
use super::switches::{igmp_report, to_ip_group};
use crate::dataplane::rig::{ALL_FEATURES, RING, Rig, frame};
use vnicd_protocol::LinkSettings;

/// How a carrier is lost.
type Loss = (&'static str, fn(&mut Rig, usize));

const LOSSES: [Loss; 6] = [
    ("cable", |rig, guest| set_link(rig, guest, false, false)),
    ("cable to the guest", |rig, guest| set_link(rig, guest, false, true)),
    ("cable from the guest", |rig, guest| set_link(rig, guest, true, false)),
    ("frontend", |rig, guest| rig.plane.card(guest).disconnect()),
    ("rings", |rig, guest| {
        for ring in 0..2 {
            rig.plane.card(guest).stop_ring(ring);
        }
    }),
    ("card", |rig, guest| {
        let now = rig.now;
        rig.plane.card(guest).fail("of a test".to_owned(), now);
    }),
];

fn set_link(rig: &mut Rig, guest: usize, to_guest: bool, from_guest: bool) {
    let [to_guest, from_guest] = [to_guest, from_guest].map(|up| LinkSettings {
        up,
        ..LinkSettings::default()
    });
    rig.set_link(guest, &to_guest, &from_guest);
}

/// Guest 0 talks to a station behind the card of guest 1, which loses its carrier; then the station is behind that of guest 2.
#[test]
fn frames_reach_a_station_that_moved_from_a_port_without_carrier_before_it_speaks() {
    for (name, lose) in LOSSES {
        let mut rig = Rig::new(&[ALL_FEATURES; 3]);
        introduce(&mut rig, 0, 1);
        lose(&mut rig, 1);
        for number in 0..5 {
            rig.send(0, number, &frame(1, 0, 100, number as u8));
            rig.settle();
        }
        let arrived = rig.received(2).into_iter().map(|(_, frame)| frame);
        let sent = (0..5).map(|number| frame(1, 0, 100, number));
        assert!(arrived.eq(sent), "{name}");
        assert_eq!(rig.completed(0), 5, "{name}");
    }
}

#[test]
fn the_spanning_tree_hears_of_a_carrier_at_a_card_and_snooped_groups_end_with_it() {
    const SWITCH: ether::MacAddr = ether::MacAddr([2, 0, 0, 0, 1, 0]);
    for (name, lose) in LOSSES {
        let mut rig = Rig::new(&[0; 3]);
        let (state, now) = (&mut rig.plane.forwarding.switches[0], rig.now);
        state.switch.enable_spanning_tree(StpConfig::new(SWITCH), now);
        state.switch.set_snooping(Some(SWITCH));
        rig.plane.forwarding.serve_switch(0, now);
        introduce(&mut rig, 0, 1);
        rig.send(0, 1, &to_ip_group(0, 9, &frame(0, 0, 100, 0)));
        rig.send(1, 1, &igmp_report(1, 9));
        rig.settle();
        let role_and_groups = |rig: &Rig| {
            let switch = &rig.plane.forwarding.switches[0].switch;
            let role = switch.spanning_tree_port(PortId(1)).map(|port| port.role);
            (role, switch.group_members(rig.now).count())
        };
        assert_eq!(role_and_groups(&rig), (Some(PortRole::Designated), 1), "{name}");
        lose(&mut rig, 1);
        rig.settle();
        assert_eq!(role_and_groups(&rig), (Some(PortRole::Disabled), 0), "{name}");
    }
}

#[test]
fn a_cable_that_is_plugged_in_again_carries_frames_at_once() {
    let mut rig = Rig::new(&[ALL_FEATURES; 2]);
    introduce(&mut rig, 0, 1);
    set_link(&mut rig, 1, false, false);
    rig.send(0, 1, &frame(1, 0, 100, 1));
    rig.settle();
    set_link(&mut rig, 1, true, true);
    rig.send(0, 2, &frame(1, 0, 100, 2));
    rig.send(1, 1, &frame(0, 1, 100, 3));
    rig.settle();
    assert_eq!(rig.completed(0), 2);
    assert_eq!(rig.received(1).len(), 1);
    assert_eq!(rig.received(0).len(), 1);
}

#[test]
fn a_cable_between_two_cards_carries_every_frame_in_both_directions_and_holds_the_sender_back() {
    let mut rig = Rig::new(&[]);
    rig.plane.forwarding.switches[0].switch.set_cable();
    let guests = [0; 2].map(|_| rig.add_guest(0, ALL_FEATURES));
    for (from, to) in [(guests[0], guests[1]), (guests[1], guests[0])] {
        // To no station that was heard of, from one that a switch would have seen at the other port, and to bridges.
        let frames = [(9, from, 0), (to, to, 0), (from, from, 0), (to, from, 1)];
        let frames = frames.map(|(dst, src, to_bridges)| {
            let mut bytes = frame(dst as u8, src as u8, 100, 7);
            if to_bridges == 1 {
                bytes[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 2]);
            }
            bytes
        });
        for (index, bytes) in (0..).zip(&frames) {
            rig.send(from, index, bytes);
        }
        rig.settle();
        let received: Vec<_> = rig.received(to).into_iter().map(|(_, frame)| frame).collect();
        assert_eq!(received, frames);
        assert_eq!((rig.completed(from), rig.received(from).len()), (frames.len(), 0));
    }
    // More than the receiver has buffers for: what does not fit waits in the sender's ring.
    for round in 0..2 {
        for index in 0..RING {
            rig.send(0, index, &frame(1, 0, 60, index as u8));
        }
        rig.settle();
        assert_eq!(rig.completed(0) == usize::from(RING), round == 0, "round {round}");
    }
    assert_eq!(rig.received(1).len(), usize::from(RING));
    rig.settle();
    assert_eq!(rig.completed(0), usize::from(RING));
    assert_eq!(rig.received(1).len(), usize::from(RING));
    assert_eq!(rig.stats(1).rx.dropped.values().sum::<u64>(), 0);
}
