//! What a port that fails in the middle of a round costs the others: nothing. In virtual time; each test names its promise.

use super::introduce;
use crate::dataplane::WAIT_NS_MAX;
use crate::dataplane::rig::{ALL_FEATURES, RING, Rig, frame};
use vnicd_protocol::LinkSettings;

/// Sends `count` frames from guest 0, alternately to guests 1 and 2, or all to guest 1.
fn send_batch(rig: &mut Rig, count: u16, alternately: bool) {
    for index in 0..count {
        let to = if alternately { 1 + (index % 2) as u8 } else { 1 };
        rig.send(0, index, &frame(to, 0, 60, index as u8));
    }
}

/// Three guests; the first has heard of both others.
fn three() -> Rig {
    let mut rig = Rig::new(&[0, 0, 0]);
    introduce(&mut rig, 0, 1);
    introduce(&mut rig, 0, 2);
    rig
}

/// What a guest received that was for it: frames to a station whose card failed are flooded.
fn received_for(rig: &mut Rig, guest: usize) -> Vec<Vec<u8>> {
    let received = rig.received(guest).into_iter().map(|(_, frame)| frame);
    received.filter(|frame| usize::from(frame[5]) == guest).collect()
}

fn only_guest_1_failed(rig: &Rig) {
    assert!(rig.failed(1).is_some_and(|why| why.contains("internal error")));
    assert_eq!((rig.failed(0), rig.failed(2)), (None, None));
}

#[test]
fn a_panic_in_the_code_of_a_receiver_fails_the_receiver_and_the_senders_batch_goes_on() {
    for (deliveries, alternately) in [(0, true), (5, true), (0, false), (1, false), (5, false)] {
        let mut rig = three();
        rig.break_receiver(1, deliveries);
        send_batch(&mut rig, 40, alternately);
        rig.settle();
        only_guest_1_failed(&rig);
        // Nothing of the sender's ring is lost: every chain comes back, and it takes a whole ring again.
        assert_eq!(rig.completed(0), 40, "{deliveries} {alternately}");
        let expected: Vec<u8> = (0..40).filter(|index| alternately && index % 2 == 1).collect();
        let seeds =
            |rig: &mut Rig, guest| -> Vec<u8> { received_for(rig, guest).iter().map(|frame| frame[14]).collect() };
        assert_eq!(
            seeds(&mut rig, 2),
            expected,
            "each frame to the third guest once and in order"
        );
        // Frames of a burst are announced together: the burst in which the card failed is lost to it, none before.
        let delivered = if alternately { deliveries } else { deliveries.min(1) };
        assert_eq!(
            seeds(&mut rig, 1).len(),
            delivered as usize,
            "what was delivered before is published"
        );
        for index in 0..RING {
            rig.send(0, index, &frame(2, 0, 60, index as u8));
        }
        rig.settle();
        assert_eq!((rig.completed(0), rig.received(2).len()), (256, 256));
        only_guest_1_failed(&rig);
    }
}

#[test]
fn a_panic_while_announcing_fails_the_port_announced_to_and_the_others_hear_of_their_packets() {
    let mut rig = three();
    rig.set_coalescing(1, firmware::StrategyKind::Disabled, 0);
    rig.set_coalescing(2, firmware::StrategyKind::Disabled, 0);
    rig.break_announcing(1);
    let before = rig.stats(2).rx.frames;
    send_batch(&mut rig, 40, true);
    rig.settle();
    only_guest_1_failed(&rig);
    assert_eq!(rig.completed(0), 40);
    let received = rig.received(2);
    assert_eq!(received.iter().filter(|(_, frame)| frame[5] == 2).count(), 20);
    let counted = rig.stats(2).rx.frames - before;
    assert_eq!(counted, received.len() as u64, "what was delivered is counted");
    assert!(rig.calls(2) > 0);
    send_batch(&mut rig, 40, true);
    rig.settle();
    assert_eq!((rig.completed(0), received_for(&mut rig, 2).len()), (40, 20));
}

#[test]
fn a_panic_while_a_waiting_frame_is_delivered_fails_the_receiver_and_gives_the_senders_chain_back() {
    let slow = LinkSettings {
        delay_ns: 1000,
        ..LinkSettings::default()
    };
    // The frame waits at the receiver's card, or on its way to the switch.
    for (to_guest, from_guest) in [(slow, LinkSettings::default()), (LinkSettings::default(), slow)] {
        let mut rig = three();
        rig.set_link(1, &to_guest, &LinkSettings::default());
        rig.set_link(0, &LinkSettings::default(), &from_guest);
        rig.break_receiver(1, 2);
        send_batch(&mut rig, 40, true);
        rig.settle();
        rig.now = rig.now.plus_nanos(1000);
        rig.settle();
        only_guest_1_failed(&rig);
        assert_eq!(rig.completed(0), 40);
        assert_eq!(rig.received(2).len(), 20);
        assert_eq!(rig.pooled_bytes(), 0, "no buffer of the pool is lost");
    }
}

#[test]
fn a_control_reply_that_fails_its_own_port_ends_the_batch_it_was_asked_in() {
    let mut rig = Rig::new(&[0, 0, 0]);
    // Guest 0 has received nothing yet, so none of its spoilt buffers was read ahead.
    rig.make_receive_buffers_read_only(0);
    let mut request = [0; firmware::CONTROL_FRAME_MAX];
    let source = ether::MacAddr([2, 0, 0, 0, 0, 0]);
    let len = firmware::control::Request::Hello {
        version_min: 1,
        version_max: 1,
    }
    .encode(source, 7, &mut request);
    rig.send(0, 0, &frame(1, 0, 60, 1));
    rig.send(0, 1, &request[..len]);
    for index in 2..40 {
        rig.send(0, index, &frame(1, 0, 60, 2));
    }
    rig.settle();
    assert_eq!(rig.stats(0).rule_violations["read_only_in_receive"], 1);
    assert!(rig.failed(0).is_some());
    let received = rig.received(1);
    assert_eq!(received.len(), 1, "only what was sent before the port failed");
    assert_eq!((received[0].1[14], rig.received(2).len()), (1, 1));
    assert_eq!(rig.completed(0), 1, "no head of the stopped ring is used any more");
    assert_eq!((rig.failed(1), rig.failed(2)), (None, None));
}

#[test]
fn a_port_that_fills_its_share_of_the_pool_keeps_nobody_else_from_modelled_links() {
    let mut rig = three();
    let slow = LinkSettings {
        delay_ns: 1_000_000_000,
        ..LinkSettings::default()
    };
    let duplicating = LinkSettings {
        duplicate_ppm: 1_000_000,
        ..slow
    };
    rig.set_link(1, &duplicating, &LinkSettings::default());
    let lasting = rig.fill_pool(0);
    assert!(lasting > 0);
    for index in 0..10 {
        rig.send(0, index, &frame(1, 0, 60, 0));
        rig.send(2, index, &frame(1, 2, 60, 0));
    }
    rig.settle();
    let stats = rig.stats(1);
    assert_eq!(stats.rx.dropped["pool_share"], 10, "those of the greedy port");
    rig.completed(0);
    rig.now = rig.now.plus_nanos(1_000_000_000);
    rig.settle();
    let from_guest_2 = rig.received(1).into_iter().filter(|(_, frame)| frame[11] == 2);
    assert_eq!(from_guest_2.count(), 20, "each and its duplicate");
}

/// Three guests with mergeable buffers, the second of which has none left.
fn with_empty_receiver() -> Rig {
    let mut rig = Rig::new(&[ALL_FEATURES; 3]);
    introduce(&mut rig, 0, 1);
    introduce(&mut rig, 0, 2);
    for index in 0..RING {
        rig.send(2, index, &frame(1, 2, 60, 0));
    }
    rig.settle();
    rig.completed(2);
    // All of them are announced.
    rig.now = rig.now.plus_nanos(1_000_000_000);
    rig.settle();
    rig
}

#[test]
fn a_receiver_with_too_few_buffers_for_a_frame_keeps_nobody_awake() {
    let mut rig = with_empty_receiver();
    let long = frame(1, 0, 5000, 7);
    for posted in 0..3 {
        if posted == 0 {
            rig.send_long(0, 0, &long);
        } else {
            rig.post(1, posted - 1);
            // The new buffer is looked at, and that is all.
            rig.settle();
        }
        rig.settle();
        assert!(!rig.finds_work_before_sleep(), "with {posted} buffers");
        assert_eq!(rig.next_due(), Some(rig.now.plus_nanos(WAIT_NS_MAX)));
        assert_eq!(rig.completed(0), 0);
    }
    rig.post(1, 2);
    assert!(rig.finds_work_before_sleep(), "the third buffer is enough");
    rig.settle();
    assert_eq!((rig.completed(0), rig.stats(1).rx.dropped["no_buffer"]), (1, 0));
    // The same for a frame that waits in the pool.
    let mut rig = with_empty_receiver();
    let slow = LinkSettings {
        delay_ns: 1000,
        ..LinkSettings::default()
    };
    rig.set_link(1, &slow, &LinkSettings::default());
    rig.send_long(0, 0, &long);
    rig.settle();
    rig.now = rig.now.plus_nanos(1000);
    rig.settle();
    rig.post(1, 0);
    rig.settle();
    assert!(!rig.finds_work_before_sleep());
    (1..3).for_each(|index| rig.post(1, index));
    rig.settle();
    assert_eq!((rig.completed(0), rig.stats(1).rx.dropped["no_buffer"]), (1, 0));
}

#[test]
fn a_receiver_that_posts_one_small_buffer_at_a_time_slows_its_senders_no_more_than_it_earned() {
    let mut rig = with_empty_receiver();
    let start = rig.now;
    let rounds = 200;
    for round in 0..rounds {
        rig.send_long(0, 0, &frame(1, 0, 5000, 0));
        rig.send(0, 10, &frame(2, 0, 60, round as u8));
        rig.settle();
        // One buffer, which a short frame of another port takes, again and again.
        rig.post(1, round % RING);
        rig.send(2, round % RING, &frame(1, 2, 60, 0));
        rig.settle();
        let mut completed = rig.completed(0);
        while completed < 2 {
            let due = rig.next_due().expect("a frame waits");
            assert!(due > rig.now);
            rig.now = due;
            rig.settle();
            completed += rig.completed(0);
        }
        assert_eq!(rig.received(2).len(), 1);
        rig.completed(2);
    }
    let waited_ns = rig.now.nanos_since(start);
    assert!(
        waited_ns < 2 * WAIT_NS_MAX + u64::from(rounds) * 100_000,
        "{waited_ns} ns"
    );
}

#[test]
fn a_frame_waits_no_longer_than_the_bound_however_many_frames_overtake_it() {
    let mut rig = with_empty_receiver();
    rig.send_long(0, 0, &frame(1, 0, 5000, 0));
    let start = rig.now;
    for step in 0..1000u16 {
        rig.settle();
        if rig.completed(0) == 1 {
            break;
        }
        rig.post(1, step % RING);
        rig.send(2, step % RING, &frame(1, 2, 60, 0));
        rig.settle();
        rig.completed(2);
        rig.now = rig.now.plus_nanos(20_000);
    }
    assert!(rig.now.nanos_since(start) <= WAIT_NS_MAX + 20_000);
    assert_eq!(rig.stats(1).rx.dropped["no_buffer"], 1);
    // No frame waits any more, so buffers posted now keep no thread awake.
    rig.post(1, 0);
    rig.settle();
    assert!(!rig.finds_work_before_sleep());
}

#[test]
fn receive_buffers_in_too_many_pieces_for_one_frame_break_a_rule() {
    let mut rig = with_empty_receiver();
    rig.post_scattered(1, 0..8, 200);
    rig.send(0, 0, &frame(1, 0, 900, 0));
    rig.settle();
    assert_eq!(rig.completed(0), 1);
    assert_eq!(rig.failed(1), None, "a thousand pieces will do");
    let mut rig = with_empty_receiver();
    rig.post_scattered(1, 0..8, 200);
    rig.send(0, 0, &frame(1, 0, 1500, 0));
    rig.settle();
    assert_eq!(rig.stats(1).rule_violations["chain_too_scattered"], 1);
    assert_eq!(rig.completed(0), 1);
    assert_eq!(rig.failed(0), None);
}

#[test]
fn memory_that_cannot_be_guarded_against_truncation_is_not_served() {
    let mut rig = three();
    rig.add_regions(1, 16_384);
    let sentence = "its memory is refused: all ports together share more than 16384 memory regions, so these cannot be \
                    guarded against a truncated file";
    assert_eq!(rig.failed(1), Some(sentence));
    send_batch(&mut rig, 40, true);
    rig.settle();
    assert_eq!(
        (rig.completed(0), rig.received(2).len()),
        (40, 40),
        "those to guest 1 are flooded"
    );
}

#[test]
fn a_frame_that_its_sender_spoils_on_the_way_is_counted_wherever_that_is_noticed() {
    use crate::dataplane::frames::frame_ref::FrameRef;
    use crate::dataplane::frames::transit::Transit;
    use crate::dataplane::wiring::link_crossing::Hop;
    use crate::memory::Piece;
    use crate::offload::NetHeader;

    let mut rig = Rig::new(&[ALL_FEATURES]);
    let far = rig.add_switch();
    let guest = rig.add_guest(far, ALL_FEATURES);
    // Its card saw TCP; what is there now is none.
    let bytes = frame(9, 0, 3000, 0);
    let mut rest = [Piece::EMPTY];
    let header = NetHeader::parse(&super::TSO4);
    let spoiled = FrameRef::of_bytes(&bytes, &mut rest, header, Transit::from_ring(0, 0));
    let (forwarding, now) = (&mut rig.plane.forwarding, rig.now);
    let trunk = Hop::Trunk { trunk: 0, from: 0 };
    forwarding.send_over_trunk(0, fabric::TrunkId(0), &spoiled, now);
    assert_eq!(forwarding.wiring.trunks[0].lost[0].bad_offload, 1);
    let (wiring, segments) = (&mut forwarding.wiring, &mut forwarding.segments);
    wiring.cross_by_pool(trunk, &spoiled, segments, now);
    assert_eq!(wiring.trunks[0].lost[0].bad_offload, 2);
    wiring.cross_by_pool(Hop::ToGuest(guest), &spoiled, segments, now);
    wiring.send_to_card(guest, &spoiled, segments, now);
    assert_eq!(rig.stats(guest).rx.dropped["bad_offload"], 2);
    rig.settle();
    assert_eq!((rig.received(guest).len(), rig.pooled_bytes()), (0, 0));
}
