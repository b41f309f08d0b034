//! The end of a process in order, at the rings of guests, in virtual time: QEMU throws the frames in a ring away at a kick that no process
//! takes, so drivers are not to kick, and no kick is left over.

use super::introduce;
use super::multicast_reliable::{GROUP, group_of, numbers, unicast_frame};
use crate::dataplane::rig::{ALL_FEATURES, RING, Rig, frame};

/// Guests that know each other, one of which has EVENT_IDX; nothing waits.
fn two_guests() -> Rig {
    let mut rig = Rig::new(&[0, ALL_FEATURES]);
    introduce(&mut rig, 0, 1);
    rig
}

fn begin_drain(rig: &mut Rig) {
    rig.plane.drains += 1;
    rig.plane.set_quiet(true);
}

fn end_drain(rig: &mut Rig) {
    rig.plane.drains -= 1;
    rig.plane.set_quiet(false);
}

#[test]
fn a_drain_asks_no_driver_to_kick_before_it_ends_however_many_frames_it_adds() {
    let mut rig = two_guests();
    let asks = |rig: &mut Rig, guest: usize| {
        assert!(!rig.finds_work_before_sleep());
        rig.asked_for_kicks(guest)
    };
    for guest in [0, 1] {
        assert!(asks(&mut rig, guest));
    }
    // Frames of a larger batch, for which the driver looks whether it is to kick when all are there.
    for guest in [0, 1] {
        for index in 0..3 {
            rig.send(guest, index, &frame(1 - guest as u8, guest as u8, 60, 0));
        }
    }
    begin_drain(&mut rig);
    rig.settle();
    for guest in [0, 1] {
        rig.send(guest, 3, &frame(1 - guest as u8, guest as u8, 60, 0));
        assert!(!asks(&mut rig, guest), "guest {guest}");
        assert!((1..=RING).all(|added| !rig.would_kick(guest, added)), "guest {guest}");
    }
    end_drain(&mut rig);
    rig.settle();
    for guest in [0, 1] {
        assert!(asks(&mut rig, guest), "guest {guest}, after a drain that ended");
    }
}

#[test]
fn a_drain_takes_the_frames_that_drivers_may_kick_for_yet_and_leaves_those_behind_them() {
    let mut rig = two_guests();
    for guest in [0, 1] {
        rig.completed(guest);
        rig.received(guest);
        for index in 0..2 {
            rig.send(guest, index, &frame(1 - guest as u8, guest as u8, 60, 0));
        }
    }
    begin_drain(&mut rig);
    assert_eq!(rig.plane.kicked_for(), 4);
    for guest in [0, 1] {
        rig.send(guest, 2, &frame(1 - guest as u8, guest as u8, 60, 0));
    }
    rig.settle();
    assert_eq!(rig.plane.kicked_for(), 0);
    for guest in [0, 1] {
        assert_eq!(
            (rig.completed(guest), rig.received(guest).len()),
            (2, 2),
            "guest {guest}"
        );
    }
    end_drain(&mut rig);
    rig.settle();
    for guest in [0, 1] {
        assert_eq!(
            (rig.completed(guest), rig.received(guest).len()),
            (1, 1),
            "guest {guest}"
        );
    }
}

#[test]
fn a_ring_that_starts_during_a_drain_is_left_alone_and_its_driver_does_not_kick() {
    let mut rig = two_guests();
    begin_drain(&mut rig);
    for guest in [0, 1] {
        rig.restart_transmitting(guest);
        assert!(!rig.would_kick(guest, 1), "guest {guest}");
        rig.received(guest);
        rig.send(guest, 0, &frame(1 - guest as u8, guest as u8, 60, 0));
    }
    rig.settle();
    assert_eq!([0, 1].map(|guest| rig.received(guest).len()), [0, 0]);
    end_drain(&mut rig);
    rig.settle();
    assert_eq!([0, 1].map(|guest| rig.received(guest).len()), [1, 1]);
}

#[test]
fn m_bv5_packets_that_a_drain_still_takes_arrive_and_count_as_given() {
    let mut rig = group_of(2);
    rig.send(0, 0, &unicast_frame(0, 1));
    begin_drain(&mut rig);
    rig.send(0, 1, &unicast_frame(0, 1));
    rig.settle();
    assert_eq!(numbers(&mut rig, 1), [0]);
    let given: Vec<_> = rig.plane.cards()[0].firmware().multicast().packets_given().collect();
    assert_eq!(given, [(GROUP, 1)], "the next process takes the second one");
    assert_eq!(rig.plane.under_way().on_links, 0);
}

#[test]
fn no_kick_is_left_for_the_frontend_when_a_connection_ends() {
    let mut rig = two_guests();
    let kick = rig.kick_of(0);
    let is_left = |rig: &Rig| {
        rustix::io::write(&kick, &3u64.to_ne_bytes()).expect("room in the counter");
        rig.plane.cards()[0].take_kicks();
        rustix::io::read(&kick, &mut [0; 8]) != Err(rustix::io::Errno::AGAIN)
    };
    assert!(!is_left(&rig));
    rig.plane.card(0).stop_ring(1);
    assert!(is_left(&rig), "a ring that does not run is the frontend's");
}
