//! Multicast in the card (M-BV5) at guests that take nothing for a while: what waits for them, in which order, how long, and
//! that it concerns no other card.

use firmware::multicast::Tag;
use firmware::recorder::RecordKind;

use super::multicast::{GROUP, count, group_of};
use crate::dataplane::WAIT_NS_MAX;
use crate::dataplane::rig::{BUFFER, RING, Rig, multicast_frame};
use vnicd_protocol::LinkSettings;

/// Guest 0 sends so many packets that fit in one buffer each; everybody but guest 1 takes them.
fn send_to_all_but_one(rig: &mut Rig, packets: u16) {
    for index in 0..packets {
        rig.send(0, index % RING, &multicast_frame(0, GROUP, 60, 0));
        rig.settle();
        rig.completed(0);
    }
}

/// The numbers of the packets that `guest` received since it last looked.
fn numbers(rig: &mut Rig, guest: usize) -> Vec<u32> {
    let packets = rig.received(guest);
    let number = |(_, bytes): &(_, Vec<u8>)| Tag::parse(bytes, bytes.len() as u32).expect("a tag").sequence;
    packets.iter().map(number).collect()
}

#[test]
fn m_bv5_a_packet_waits_a_bounded_time_for_a_receive_buffer_of_the_guest() {
    const MORE: u16 = 3;
    let full = u32::from(RING);
    let all = u32::from(RING + MORE);
    let mut rig = group_of(2);
    // It takes its packets in time: those that waited come too.
    send_to_all_but_one(&mut rig, RING + MORE);
    rig.now = rig.now.plus_nanos(WAIT_NS_MAX - 1);
    rig.settle();
    assert_eq!(
        (count(&rig, 1, "delivered"), count(&rig, 1, "no_buffer")),
        (RING.into(), 0)
    );
    assert!(numbers(&mut rig, 1).into_iter().eq(0..full));
    rig.settle();
    assert!(numbers(&mut rig, 1).into_iter().eq(full..all));
    assert_eq!((count(&rig, 1, "no_buffer"), rig.pooled_bytes()), (0, 0));
    // It takes them too late: those that waited are gone, and counted.
    send_to_all_but_one(&mut rig, RING + MORE);
    rig.now = rig.now.plus_nanos(WAIT_NS_MAX);
    rig.settle();
    assert_eq!((count(&rig, 1, "no_buffer"), rig.pooled_bytes()), (MORE.into(), 0));
    assert!(numbers(&mut rig, 1).into_iter().eq(all..all + full));
    rig.settle();
    assert!(numbers(&mut rig, 1).is_empty());
}

#[test]
fn m_bv5_no_packet_overtakes_one_of_its_sender_that_waits_for_a_receive_buffer() {
    let mut rig = group_of(3);
    send_to_all_but_one(&mut rig, RING - 1);
    // One buffer is left: too little for the first of these, and enough for the second, which must wait all the same.
    let long = multicast_frame(0, GROUP, BUFFER + 100, 0);
    rig.send_long(0, RING - 3, &long);
    rig.send(0, RING - 1, &multicast_frame(0, GROUP, 60, 0));
    rig.settle();
    assert_eq!(numbers(&mut rig, 1).len(), usize::from(RING) - 1);
    assert_eq!(count(&rig, 1, "delivered"), u64::from(RING) - 1, "both wait");
    rig.settle();
    let first = u32::from(RING) - 1;
    assert_eq!(numbers(&mut rig, 1), [first, first + 1]);
    assert_eq!(count(&rig, 1, "no_buffer"), 0);
}

#[test]
fn m_bv5_a_card_on_a_link_with_delay_forwards_while_packets_wait_for_its_guest() {
    const DELAY_NS: u64 = 1_000;
    const MORE: u16 = 10;
    let mut rig = group_of(5);
    let slow = LinkSettings {
        delay_ns: DELAY_NS,
        ..LinkSettings::default()
    };
    rig.set_link(1, &slow, &slow);
    let mut received = [0; 3];
    for index in 0..RING + MORE {
        rig.send(0, index % RING, &multicast_frame(0, GROUP, 60, 0));
        // For a credit there and back, for the packet to guest 1, and from there on.
        for _ in 0..4 {
            rig.settle();
            rig.now = rig.now.plus_nanos(DELAY_NS);
        }
        rig.settle();
        rig.completed(0);
        for (received, guest) in received.iter_mut().zip([2, 3, 4]) {
            *received += rig.received(guest).len() as u16;
        }
        assert_eq!(received, [index + 1; 3], "guest 1 concerns no other guest");
    }
    assert_eq!(count(&rig, 1, "delivered"), u64::from(RING));
    assert_eq!(count(&rig, 1, "no_buffer"), 0, "the others wait for its guest");
    assert_eq!(numbers(&mut rig, 1).len(), usize::from(RING));
    rig.settle();
    assert_eq!(numbers(&mut rig, 1).len(), usize::from(MORE));
}

#[test]
fn m_bv5_a_packet_that_has_no_place_to_wait_for_a_receive_buffer_is_counted_and_goes_on() {
    let mut rig = group_of(5);
    send_to_all_but_one(&mut rig, RING);
    assert!(rig.fill_pool(1) > 0);
    (2..5).for_each(|guest| drop(rig.received(guest)));
    send_to_all_but_one(&mut rig, 2);
    assert_eq!(
        (count(&rig, 1, "delivered"), count(&rig, 1, "no_buffer")),
        (RING.into(), 2)
    );
    assert_eq!([2, 3, 4].map(|guest| rig.received(guest).len()), [2; 3]);
}

#[test]
fn m_bv5_a_card_sends_a_packet_on_before_it_turns_to_its_own_guest() {
    // Of a guest that takes nothing the flight recorder tells at once, in the order of what happened.
    let mut rig = group_of(5);
    rig.stop_receiving(1);
    rig.record(1);
    for index in 0..3 {
        rig.send(0, index, &multicast_frame(0, GROUP, 300, 0));
        rig.settle();
        let kinds: Vec<_> = rig.recorded(1).iter().map(|record| record.kind).collect();
        assert_eq!(kinds, [RecordKind::Forward, RecordKind::Drop]);
    }
}
