//! Reliable groups through the whole data path, in virtual time (M-BV5): guests that take nothing for a while keep their packets and
//! the credits for them, and guests that are dead are removed.

use firmware::multicast::{DEAD_NS, FLAG_REPORT, FLAG_UNICAST, Kind, RELIABLE_GROUP_MIN, SEND_BUFFERS, TAG_END, Tag};

use vnicd_protocol::PacketsGiven;

use super::multicast::count;
use crate::dataplane::WAIT_NS_MAX;
use crate::dataplane::rig::{ALL_FEATURES, RING, Rig, multicast_frame};

pub(super) const GROUP: u16 = RELIABLE_GROUP_MIN + 7;

pub(super) fn group_of(guests: usize) -> Rig {
    group_with(guests, DEAD_NS)
}

/// A group whose members may take nothing for so long.
fn group_with(guests: usize, member_timeout_ns: u64) -> Rig {
    let mut rig = Rig::new(&[]);
    for _ in 0..guests {
        rig.add_guest_with(0, ALL_FEATURES, |settings| {
            settings.member_timeout_ns = member_timeout_ns
        });
    }
    for guest in 0..guests {
        rig.join(guest, GROUP);
    }
    rig.settle();
    rig
}

/// A packet of `guest` for the member of rank `to`.
pub(super) fn unicast_frame(guest: u8, to: u8) -> Vec<u8> {
    let mut frame = multicast_frame(guest, GROUP, 60, 0);
    let tag = Tag {
        flags: FLAG_UNICAST | FLAG_REPORT,
        rank: to,
        ..Tag::send(ether::MacAddr([2, 0, 0, 0, 0, guest]), GROUP, (60 - TAG_END) as u16)
    };
    tag.write(frame.first_chunk_mut().expect("longer than a tag"));
    frame
}

/// What a guest received since it last looked: kind, rank of the sender, and number.
fn tags(rig: &mut Rig, guest: usize) -> Vec<(Kind, u8, u32)> {
    let packets = rig.received(guest);
    let tag = |(_, bytes): &(_, Vec<u8>)| {
        let tag = Tag::parse(bytes, bytes.len() as u32).expect("a tag");
        assert_eq!(tag.to.0[5], guest as u8);
        (tag.kind, tag.rank, tag.sequence)
    };
    packets.iter().map(tag).collect()
}

pub(super) fn numbers(rig: &mut Rig, guest: usize) -> Vec<u32> {
    let tags = tags(rig, guest);
    tags.iter().filter(|tag| tag.0 == Kind::Data).map(|tag| tag.2).collect()
}

/// Guest 0 sends so many packets to all; only those of `takers` take them.
fn send(rig: &mut Rig, packets: u16, takers: &[usize], got: &mut [Vec<u32>]) {
    for index in 0..packets {
        rig.send(0, index % RING, &multicast_frame(0, GROUP, 60, 0));
        rig.settle();
        rig.completed(0);
        for taker in takers {
            let numbers = numbers(rig, *taker);
            got[*taker].extend(numbers);
        }
        rig.settle();
    }
}

#[test]
fn m_bv5_a_guest_that_computes_for_two_seconds_loses_nothing_and_the_others_receive() {
    let mut rig = group_of(5);
    let mut got = vec![Vec::new(); 5];
    let packets = RING + 20;
    send(&mut rig, packets, &[0, 2, 3, 4], &mut got);
    assert!(rig.finds_work_before_sleep() || rig.next_due().is_some());
    for _ in 0..400 {
        rig.now = rig.now.plus_nanos(WAIT_NS_MAX);
        rig.settle();
    }
    let all: Vec<_> = (0..u32::from(packets)).collect();
    assert_eq!([&got[2], &got[3], &got[4]], [&all; 3], "the others have all");
    assert_eq!(count(&rig, 1, "no_buffer") + count(&rig, 1, "given_up"), 0);
    assert!(!rig.finds_work_before_sleep(), "there is nothing to do without buffers");
    // It posts buffers again.
    loop {
        let numbers = numbers(&mut rig, 1);
        if numbers.is_empty() {
            break;
        }
        got[1].extend(numbers);
        assert!(rig.finds_work_before_sleep() || got[1].len() == all.len());
        rig.settle();
    }
    assert_eq!(got[1], all);
    assert_eq!(
        (count(&rig, 1, "delivered"), rig.pooled_bytes()),
        (u64::from(packets), 0)
    );
}

#[test]
fn m_bv5_a_packet_of_a_reliable_group_is_kept_where_the_pool_is_used_up() {
    let mut rig = group_of(5);
    let mut got = vec![Vec::new(); 5];
    send(&mut rig, RING, &[0, 2, 3, 4], &mut got);
    assert!(rig.fill_pool(1) > 0);
    send(&mut rig, 10, &[0, 2, 3, 4], &mut got);
    assert_eq!(count(&rig, 1, "no_buffer"), 0);
    while got[1].len() < usize::from(RING) + 10 {
        let numbers = numbers(&mut rig, 1);
        assert!(!numbers.is_empty(), "{:?}", got[1].len());
        got[1].extend(numbers);
        rig.settle();
    }
    assert!(got[1].iter().copied().eq(0..u32::from(RING) + 10));
}

#[test]
fn m_bv5_a_packet_for_one_member_reaches_it_alone_and_its_sender_is_told() {
    let mut rig = group_of(3);
    rig.send(0, 0, &unicast_frame(0, 2));
    rig.settle();
    assert_eq!(tags(&mut rig, 2), [(Kind::Data, 0, 0)]);
    assert!(tags(&mut rig, 1).is_empty());
    assert_eq!(tags(&mut rig, 0), [(Kind::Sent, 0, 1)]);
}

#[test]
fn m_bv5_a_guest_that_is_stopped_for_the_whole_time_is_removed_and_the_others_are_told_who_it_was() {
    for (machine_is_gone, timeout_ns) in [
        (false, DEAD_NS),
        (true, DEAD_NS),
        (false, DEAD_NS / 20),
        (true, DEAD_NS / 20),
    ] {
        let mut rig = group_with(5, timeout_ns);
        if machine_is_gone {
            rig.stop_receiving(1);
        }
        let mut got = vec![Vec::new(); 5];
        send(&mut rig, 2 * RING, &[0, 2, 3, 4], &mut got);
        rig.now = rig.now.plus_nanos(timeout_ns - 1);
        rig.settle();
        for guest in [0, 2, 3, 4] {
            assert!(tags(&mut rig, guest).iter().all(|tag| tag.0 != Kind::Gone));
        }
        rig.now = rig.now.plus_nanos(1_000_000);
        rig.settle();
        for guest in [0, 2, 3, 4] {
            let tags = tags(&mut rig, guest);
            assert_eq!(
                tags.iter().filter(|tag| tag.0 == Kind::Gone).collect::<Vec<_>>(),
                [&(Kind::Gone, 1, 0)]
            );
        }
        // The card of the guest that is gone forwards all the same.
        (2..5).for_each(|guest| got[guest].clear());
        send(&mut rig, 2 * SEND_BUFFERS, &[0, 2, 3, 4], &mut got);
        assert_eq!(
            [2, 3, 4].map(|guest| got[guest].len()),
            [2 * usize::from(SEND_BUFFERS); 3]
        );
        assert_eq!(rig.pooled_bytes(), 0);
    }
}

#[test]
fn m_bv5_a_guest_is_told_how_many_packets_have_left_where_its_process_ended_in_order_and_is_removed_where_it_was_killed()
 {
    for in_order in [true, false] {
        let mut rig = Rig::new(&[]);
        let given = [11, 40].map(|count| PacketsGiven { group: GROUP, count });
        for (guest, given) in given.into_iter().enumerate() {
            rig.add_guest_with(0, ALL_FEATURES, |settings| {
                settings.packets_given = if in_order { vec![given] } else { Vec::new() };
            });
            rig.join(guest, GROUP);
        }
        let now = rig.now;
        rig.plane.go_on_in_group(1, GROUP, now);
        rig.settle();
        // The card's own tables put the members in the order of their addresses.
        let told = |count, rank| {
            if in_order {
                (Kind::Sent, rank, count)
            } else {
                (Kind::Gone, rank, 0)
            }
        };
        assert_eq!(tags(&mut rig, 0), [told(11, 0)]);
        assert_eq!(tags(&mut rig, 1), [told(40, 1)]);
        rig.send(0, 0, &unicast_frame(0, 1));
        rig.settle();
        let arrived: Vec<_> = tags(&mut rig, 1)
            .into_iter()
            .filter(|tag| tag.0 == Kind::Data)
            .collect();
        assert_eq!(arrived.len(), usize::from(in_order), "{arrived:?}");
        if in_order {
            assert_eq!(tags(&mut rig, 0), [(Kind::Sent, 0, 12)]);
        }
    }
}
