//! Multicast in the card through the whole data path, in virtual time (M-BV5).

use firmware::control::{GroupRefusal, Request};
use firmware::multicast::{TAG_END, Tag, TreeShape};
use firmware::recorder::RecordKind;

use crate::dataplane::WAIT_NS_MAX;
use crate::dataplane::rig::{ALL_FEATURES, RING, Rig, frame, multicast_frame};
use vnicd_protocol::LinkSettings;

pub(super) const GROUP: u16 = 7;

/// Guests 0 … n − 1 in one group, and one that is not.
pub(super) fn group_of(guests: usize) -> Rig {
    let mut rig = Rig::new(&vec![ALL_FEATURES; guests + 1]);
    for guest in 0..guests {
        rig.join(guest, GROUP);
    }
    rig.settle();
    assert!(
        (0..=guests).all(|guest| rig.received(guest).is_empty()),
        "no guest sees what cards say"
    );
    rig
}

pub(super) fn count(rig: &Rig, guest: usize, name: &str) -> u64 {
    rig.stats(guest).multicast[name]
}

/// Frames that the switch sent to more than their receiver.
fn flooded(rig: &Rig) -> u64 {
    (0..rig.guests.len())
        .map(|guest| rig.stats(guest).switch["out_flooded"])
        .sum()
}

#[test]
fn m_bv5_a_packet_spreads_from_card_to_card_copied_once_for_each_guest() {
    let mut rig = group_of(5);
    let before = flooded(&rig);
    for round in 0..20 {
        rig.send(0, round, &multicast_frame(0, GROUP, 1000, round as u8));
    }
    rig.settle();
    assert_eq!(rig.completed(0), 20);
    for guest in 1..5 {
        let received = rig.received(guest);
        assert_eq!(received.len(), 20, "guest {guest}");
        for (round, (_, bytes)) in received.iter().enumerate() {
            let tag = Tag::parse(bytes, 1000).expect("a tag");
            assert_eq!((tag.sender.0[5], tag.sequence, tag.group), (0, round as u32, GROUP));
            assert_eq!(tag.to.0[5], guest as u8);
            assert_eq!(tag.hops, if guest < 3 { 1 } else { 2 });
            assert_eq!(
                bytes[TAG_END..],
                multicast_frame(0, GROUP, 1000, round as u8)[TAG_END..]
            );
        }
        let stats = rig.stats(guest);
        assert_eq!(
            (stats.copied_bytes, stats.delivered_bytes),
            (20_000, 20_000),
            "one copy"
        );
    }
    assert_eq!(
        (rig.received(0).len(), rig.received(5).len()),
        (0, 0),
        "neither the sender nor others"
    );
    // Binary trees: 0 sends to 1 and 2, 1 to 3 and 4.
    let forwarded: Vec<_> = (0..6).map(|guest| count(&rig, guest, "forwarded")).collect();
    assert_eq!(forwarded, [40, 40, 0, 0, 0, 0]);
    assert_eq!(flooded(&rig), before, "cards know the paths to each other");
}

#[test]
fn m_bv5_another_tree_is_what_packets_follow_from_then_on() {
    let mut rig = group_of(5);
    for (shape, forwarded) in [
        (TreeShape::Chain, [10, 10, 10, 10, 0]),
        (TreeShape::Binomial, [30, 10, 0, 0, 0]),
        (TreeShape::Binary, [20, 20, 0, 0, 0]),
    ] {
        let now = rig.now;
        rig.plane.set_tree(GROUP, shape, now);
        rig.settle();
        let before: Vec<_> = (0..5).map(|guest| count(&rig, guest, "forwarded")).collect();
        for round in 0..10 {
            rig.send(0, round, &multicast_frame(0, GROUP, 1000, round as u8));
        }
        rig.settle();
        rig.completed(0);
        let grown: Vec<_> = (0..5)
            .map(|guest| count(&rig, guest, "forwarded") - before[guest])
            .collect();
        assert_eq!(grown, forwarded, "{shape:?}");
        (1..5).for_each(|guest| assert_eq!(rig.received(guest).len(), 10, "{shape:?}: guest {guest}"));
    }
}

#[test]
fn m_bv5_packets_of_a_group_that_had_no_members_meanwhile_are_refused() {
    const DELAY_NS: u64 = 1_000_000;
    let mut rig = group_of(2);
    let slow = LinkSettings {
        delay_ns: DELAY_NS,
        ..LinkSettings::default()
    };
    rig.set_link(0, &LinkSettings::default(), &slow);
    for round in 0..10 {
        rig.send(0, round, &multicast_frame(0, GROUP, 60, 0));
    }
    rig.settle();
    (0..2).for_each(|guest| rig.leave(guest, GROUP));
    (0..2).for_each(|guest| rig.join(guest, GROUP));
    for round in 10..13 {
        rig.send(0, round, &multicast_frame(0, GROUP, 200, 0));
    }
    rig.settle();
    rig.now = rig.now.plus_nanos(2 * DELAY_NS);
    rig.settle();
    let lengths: Vec<_> = rig.received(1).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [200; 3]);
    assert_eq!(count(&rig, 1, "duplicates"), 0);
}

#[test]
fn m_bv5_a_group_is_another_one_on_switches_that_no_trunk_joins() {
    let mut rig = Rig::new(&[ALL_FEATURES; 3]);
    let alone = rig.add_switch_alone();
    // The lowest address and another one are where no frame from the first switch gets to.
    let far = [rig.add_guest(alone, ALL_FEATURES), rig.add_guest(alone, ALL_FEATURES)];
    for guest in [far[0], 0, far[1], 1, 2] {
        rig.join(guest, GROUP);
    }
    rig.settle();
    let before = flooded(&rig);
    for (round, sender) in [0, far[1], 0, far[1]].into_iter().enumerate() {
        rig.send(sender, round as u16, &multicast_frame(sender as u8, GROUP, 200, 1));
    }
    rig.settle();
    let received: Vec<_> = (0..5).map(|guest| rig.received(guest).len()).collect();
    assert_eq!(received, [0, 2, 2, 2, 0]);
    assert_eq!(
        flooded(&rig),
        before,
        "no card looks for members that cannot be reached"
    );
    let refused: u64 = (0..5).map(|guest| count(&rig, guest, "refused")).sum();
    assert_eq!(refused, 0);
}

#[test]
fn m_bv5_leaves_receive_while_the_guest_above_them_takes_nothing() {
    let mut rig = group_of(5);
    // Guest 1 is stopped: it posts nothing any more, and what it posted is used up.
    for index in 0..2 * RING {
        rig.send(0, index % RING, &multicast_frame(0, GROUP, 60, 0));
        rig.settle();
        rig.completed(0);
        (2..5).for_each(|guest| drop(rig.received(guest)));
        rig.now = rig.now.plus_nanos(WAIT_NS_MAX / 20);
    }
    rig.now = rig.now.plus_nanos(2 * WAIT_NS_MAX);
    rig.settle();
    let packets = 2 * u64::from(RING);
    assert_eq!([2, 3, 4].map(|guest| count(&rig, guest, "delivered")), [packets; 3]);
    assert_eq!(count(&rig, 1, "forwarded"), 2 * packets);
    let delivered = count(&rig, 1, "delivered");
    assert_eq!(count(&rig, 1, "no_buffer") + delivered, packets);
    assert!(delivered >= u64::from(RING) && delivered < packets, "{delivered}");
    assert_eq!(
        count(&rig, 0, "waited") + count(&rig, 1, "waited"),
        1,
        "for the first credit, and for no guest"
    );
}

#[test]
fn m_bv5_packets_for_a_guest_whose_driver_stopped_are_counted_and_go_on_to_its_children() {
    let mut rig = group_of(5);
    rig.stop_receiving(1);
    for round in 0..10 {
        rig.send(0, round, &multicast_frame(0, GROUP, 300, 0));
    }
    rig.settle();
    assert_eq!((count(&rig, 1, "delivered"), count(&rig, 1, "no_buffer")), (0, 10));
    assert_eq!([2, 3, 4].map(|guest| count(&rig, guest, "delivered")), [10; 3]);
    assert_eq!(count(&rig, 1, "forwarded"), 20);
}

#[test]
fn m_bv5_the_flight_recorder_tells_what_a_card_passes_on() {
    let mut rig = group_of(5);
    (0..5).for_each(|guest| rig.record(guest));
    for round in 0..3 {
        rig.send(0, round, &multicast_frame(0, GROUP, 300, 0));
    }
    rig.settle();
    let forwarded: Vec<_> = (0..5)
        .map(|guest| {
            let records = rig.recorded(guest);
            let forwards = records.iter().filter(|record| record.kind == RecordKind::Forward);
            forwards
                .map(|record| (record.count, record.number))
                .fold((0, 0), |(frames, bytes), (count, number)| {
                    (frames + count, bytes + number)
                })
        })
        .collect();
    // 0 sends to 1 and 2, 1 to 3 and 4; the others send nothing on.
    assert_eq!(forwarded, [(6, 1800), (6, 1800), (0, 0), (0, 0), (0, 0)]);
}

#[test]
fn m_bv5_leaves_receive_before_the_local_dma_of_the_card_above_them_is_done() {
    const SETUP_NS: u64 = 1_000_000;
    let mut rig = Rig::new(&[ALL_FEATURES]);
    rig.add_guest_with(0, ALL_FEATURES, |settings| settings.dma.setup_ns = SETUP_NS);
    for _ in 2..5 {
        rig.add_guest(0, ALL_FEATURES);
    }
    (0..5).for_each(|guest| rig.join(guest, GROUP));
    rig.settle();
    for round in 0..3 {
        rig.send(0, round, &multicast_frame(0, GROUP, 300, 0));
        rig.settle();
        let received = [1, 2, 3, 4].map(|guest| rig.received(guest).len());
        assert_eq!(received, [0, 1, 1, 1], "1 sends on to 3 and 4 from its own buffer");
        rig.now = rig.now.plus_nanos(SETUP_NS);
        rig.settle();
        assert_eq!(rig.received(1).len(), 1);
    }
}

#[test]
fn m_bv5_a_guest_joins_under_its_own_address_alone() {
    let mut rig = Rig::new(&[ALL_FEATURES; 2]);
    rig.configure_address(0);
    assert_eq!(
        rig.join_as(0, 9, GROUP),
        Err(GroupRefusal::Address),
        "its address is configured"
    );
    assert_eq!(
        rig.join_as(1, 0, GROUP),
        Err(GroupRefusal::Address),
        "this is another port's"
    );
    assert_eq!(rig.join_as(0, 0, GROUP), Ok(()));
    assert_eq!(rig.join_as(1, 1, GROUP), Ok(()));
}

#[test]
fn m_bv5_packets_wait_for_credits_on_slow_links_and_cross_trunks() {
    let mut rig = Rig::new(&[ALL_FEATURES; 4]);
    let far = rig.add_switch();
    let slow = LinkSettings {
        delay_ns: 50_000,
        rate_bps: 1_000_000_000,
        ..LinkSettings::default()
    };
    let guests: Vec<_> = (0..4).chain((0..4).map(|_| rig.add_guest(far, ALL_FEATURES))).collect();
    for &guest in &guests {
        rig.set_link(guest, &slow, &slow);
        rig.join(guest, GROUP);
    }
    let mut sent = 0;
    for round in 0..10u16 {
        for &guest in &guests {
            for index in 0..3 {
                rig.send(guest, round * 3 + index, &multicast_frame(guest as u8, GROUP, 300, 0));
            }
        }
        sent += 3;
        for _ in 0..200 {
            rig.settle();
            let Some(at) = rig.next_due() else { break };
            rig.now = at.max(rig.now);
        }
    }
    rig.now = rig.now.plus_nanos(1_000_000);
    rig.settle();
    for &guest in &guests {
        assert_eq!(count(&rig, guest, "delivered"), 7 * sent, "guest {guest}");
        assert_eq!(rig.received(guest).len() as u64, 7 * sent);
        for name in ["missed", "duplicates", "given_up", "no_buffer"] {
            assert_eq!(count(&rig, guest, name), 0, "{name}");
        }
    }
    assert!(guests.iter().any(|guest| count(&rig, *guest, "waited") > 0));
    assert_eq!(rig.pooled_bytes(), 0, "no buffer is left behind");
}

#[test]
fn m_bv5_packets_that_wait_for_a_credit_are_under_way() {
    let mut rig = group_of(5);
    let gone = LinkSettings {
        up: false,
        ..LinkSettings::default()
    };
    rig.set_link(1, &gone, &gone);
    for round in 0..4 {
        rig.send(0, round, &multicast_frame(0, GROUP, 300, 0));
    }
    rig.settle();
    assert_eq!([1, 2].map(|guest| count(&rig, guest, "delivered")), [0, 4]);
    assert_eq!(rig.plane.under_way().on_links, 4, "an orderly end must not forget them");
}

#[test]
fn m_bv5_links_that_lose_frames_cost_packets_and_nothing_else() {
    let mut rig = group_of(8);
    let lossy = LinkSettings {
        loss_ppm: 20_000,
        delay_ns: 1_000,
        ..LinkSettings::default()
    };
    (0..8).for_each(|guest| rig.set_link(guest, &lossy, &LinkSettings::default()));
    for index in 0..600u16 {
        let guest = usize::from(index % 8);
        rig.send(guest, index / 8, &multicast_frame(guest as u8, GROUP, 100, 0));
        rig.settle();
        rig.now = rig.now.plus_nanos(100_000);
        (0..8).for_each(|guest| drop((rig.received(guest), rig.completed(guest))));
    }
    for _ in 0..100 {
        rig.now = rig.now.plus_nanos(20_000_000);
        rig.settle();
    }
    let sum = |name: &str| -> u64 { (0..8).map(|guest| count(&rig, guest, name)).sum() };
    let (delivered, missed) = (sum("delivered"), sum("missed"));
    assert!(
        delivered > 600 * 7 * 9 / 10 && missed > 0,
        "{delivered} delivered, {missed} missed"
    );
    assert_eq!((sum("duplicates"), sum("given_up"), sum("refused")), (0, 0, 0));
    assert_eq!(rig.pooled_bytes(), 0);
}

#[test]
fn m_bv5_a_guest_that_abuses_groups_is_refused_and_counted() {
    let mut rig = group_of(3);
    let ask = |rig: &mut Rig, guest: u8, from: u8, request: Request| {
        let mut bytes = [0; firmware::CONTROL_FRAME_MAX];
        let len = request.encode(ether::MacAddr([2, 0, 0, 0, 0, from]), 1, &mut bytes);
        rig.send(guest.into(), 0, &bytes[..len]);
        rig.settle();
        rig.completed(guest.into());
        let replies = rig.received(guest.into());
        replies.iter().any(|(_, bytes)| bytes[20..22] == [0, 0])
    };
    // Somebody else's address, which is a member already; then a flood of groups.
    assert!(!ask(&mut rig, 3, 1, Request::JoinGroup { group: GROUP }));
    let joined = (1..=100u16)
        .filter(|group| ask(&mut rig, 2, 2, Request::JoinGroup { group: 100 + group }))
        .count();
    assert_eq!(joined, 15, "and group 7");
    assert_eq!(rig.stats(2).groups.len(), 16);
    assert_eq!(rig.stats(2).control["refused_group"], 85);
    assert!(
        !ask(&mut rig, 2, 2, Request::LeaveGroup { group: 101 }),
        "too many changes at once"
    );
    rig.now = rig.now.plus_nanos(1_000_000_000);
    assert!(
        ask(&mut rig, 2, 2, Request::LeaveGroup { group: 101 }),
        "leaving is possible"
    );
    // Frames of other kinds than a guest may send, as another, and to groups that it is not in.
    let sound = multicast_frame(0, GROUP, 100, 0);
    let mut forged = sound.clone();
    forged[17] = 1;
    for (index, bytes) in [
        forged,
        multicast_frame(1, GROUP, 100, 0),
        multicast_frame(0, 9, 100, 0),
        sound[..30].to_vec(),
    ]
    .iter()
    .enumerate()
    {
        rig.send(0, index as u16, bytes);
    }
    rig.settle();
    assert_eq!(rig.completed(0), 4);
    let refused = rig.stats(0).multicast_refused;
    for reason in ["forged", "wrong_sender", "not_member", "malformed"] {
        assert_eq!(refused[reason], 1, "{reason}");
    }
    assert!((1..4).all(|guest| rig.received(guest).is_empty()));
}

#[test]
fn m_bv5_ordinary_multicast_stays_what_it_was() {
    let mut rig = group_of(3);
    let mut bytes = frame(0, 0, 100, 0);
    bytes[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]);
    bytes[12..14].copy_from_slice(&[8, 0]);
    rig.send(0, 1, &bytes);
    rig.settle();
    assert_eq!(
        [1, 2, 3].map(|guest| rig.received(guest).len()),
        [1, 1, 1],
        "flooded to members and others"
    );
}
