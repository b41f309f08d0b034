//! The data path in virtual time, without threads or sockets: what a frame costs, where it goes, and what the guest is
//! told. Each test names the promise it holds.

mod captures;
mod card;
mod carriers;
mod draining;
mod faults;
mod host_record;
mod hostile_driver;
mod iommu;
mod legacy;
mod links;
mod loopback;
mod multicast;
mod multicast_reliable;
mod multicast_waits;
mod paths;
mod shortcuts;
mod switches;
mod timed;
mod vlans;

use ether::Time;
use ether::checksum::{finish, pseudo_header_v4, sum};
use firmware::StrategyKind;

use crate::dataplane::rig::{ALL_FEATURES, RING, Rig, frame, mxoe_frame};
use crate::dataplane::{Chunk, WAIT_NS_MAX};
use vnicd_protocol::LinkSettings;

const MRG: u64 = 1 << virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;
const EVENT_IDX: u64 = 1 << virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// Two guests that have heard of each other.
fn pair(features: u64) -> Rig {
    let mut rig = Rig::new(&[features, features]);
    introduce(&mut rig, 0, 1);
    rig
}

pub(super) fn introduce(rig: &mut Rig, a: usize, b: usize) {
    rig.send(a, 0, &frame(b as u8, a as u8, 60, 0));
    rig.settle();
    rig.send(b, 0, &frame(a as u8, b as u8, 60, 0));
    rig.settle();
    for guest in 0..rig.guests.len() {
        rig.received(guest);
        rig.completed(guest);
        rig.now = rig.now.plus_nanos(1_000_000_000);
        rig.settle();
        rig.calls(guest);
    }
}

#[test]
fn a_frame_between_guests_is_copied_once() {
    let mut rig = pair(ALL_FEATURES);
    let before = rig.stats(1);
    for index in 0..100 {
        rig.send(0, index, &frame(1, 0, 1514, index as u8));
    }
    rig.settle();
    assert_eq!(rig.received(1).len(), 100);
    assert_eq!(rig.completed(0), 100);
    let after = rig.stats(1);
    let delivered = after.delivered_bytes - before.delivered_bytes;
    assert_eq!(delivered, 100 * 1514);
    assert_eq!(after.copied_bytes - before.copied_bytes, delivered);
}

#[test]
fn frames_arrive_whole_and_in_order() {
    let mut rig = pair(0);
    for len in [14, 59, 60, 63, 64, 65, 77, 1000, 2036] {
        let sent = frame(1, 0, len, len as u8);
        rig.send(0, 7, &sent);
        rig.settle();
        let received = rig.received(1);
        assert_eq!(received.len(), 1, "{len} bytes");
        assert_eq!(received[0].1, sent);
        assert_eq!(received[0].0[10..12], [1, 0]);
        rig.completed(0);
    }
}

#[test]
fn a_frame_longer_than_a_buffer_takes_several_when_mergeable_and_is_dropped_otherwise() {
    let mut rig = Rig::new(&[ALL_FEATURES, MRG, 0]);
    introduce(&mut rig, 0, 1);
    introduce(&mut rig, 0, 2);
    let sent = frame(1, 0, 5000, 9);
    rig.send_long(0, 1, &sent);
    rig.send_long(0, 10, &frame(2, 0, 5000, 9));
    rig.settle();
    let received = rig.received(1);
    assert_eq!(received[0].0[10..12], [3, 0], "three buffers");
    assert_eq!(received[0].1, sent);
    assert_eq!(rig.received(2).len(), 0);
    assert_eq!(rig.stats(2).rx.dropped["buffer_too_small"], 1);
    assert_eq!(rig.completed(0), 2);
}

#[test]
fn a_learned_address_is_not_flooded_and_an_unknown_one_is() {
    let mut rig = Rig::new(&[0, 0, 0]);
    introduce(&mut rig, 0, 1);
    rig.send(0, 1, &frame(1, 0, 60, 0));
    rig.settle();
    assert_eq!((rig.received(1).len(), rig.received(2).len()), (1, 0));
    rig.send(0, 2, &frame(99, 0, 60, 0));
    rig.settle();
    assert_eq!(
        (rig.received(0).len(), rig.received(1).len(), rig.received(2).len()),
        (0, 1, 1)
    );
}

#[test]
fn a_frame_crosses_a_trunk_to_another_switch() {
    let mut rig = Rig::new(&[0, 0]);
    let far = rig.add_switch();
    let guest = rig.add_guest(far, 0);
    introduce(&mut rig, 0, guest);
    rig.send(0, 1, &frame(guest as u8, 0, 500, 3));
    rig.settle();
    assert_eq!(rig.received(guest).len(), 1);
    assert_eq!(rig.received(1).len(), 0);
    assert_eq!(rig.completed(0), 1);
}

#[test]
fn m_gf1_unmarked_frames_wait_for_the_time_out_under_timeout_and_open_mx() {
    for strategy in [StrategyKind::Timeout, StrategyKind::OpenMx] {
        let mut rig = pair(EVENT_IDX);
        rig.set_coalescing(1, strategy, 75_000);
        rig.received(1);
        rig.send(0, 1, &mxoe_frame(1, 0, 100, false));
        rig.settle();
        assert_eq!(rig.calls(1), 0, "{strategy}");
        assert_eq!(rig.next_due(), Some(rig.now.plus_nanos(75_000)));
        rig.now = rig.now.plus_nanos(74_999);
        rig.settle();
        assert_eq!(rig.calls(1), 0, "{strategy}");
        rig.now = rig.now.plus_nanos(1);
        rig.settle();
        assert_eq!(rig.calls(1), 1, "{strategy}");
    }
}

#[test]
fn m_gf4_a_marked_frame_is_announced_at_once() {
    let mut rig = pair(EVENT_IDX);
    rig.set_coalescing(1, StrategyKind::OpenMx, 1_000_000);
    rig.received(1);
    rig.send(0, 1, &mxoe_frame(1, 0, 100, true));
    rig.settle();
    assert_eq!(rig.calls(1), 1);
    assert_eq!(rig.stats(1).interrupts.by_reason["mark"], 1);
}

#[test]
fn m_gf5_stream_decides_fewer_interrupts_than_open_mx_for_marked_frames_in_a_row() {
    let decided = |strategy| {
        let mut rig = pair(EVENT_IDX);
        rig.set_coalescing(1, strategy, 1_000_000);
        let before = rig.stats(1).interrupts.decided;
        for index in 0..60 {
            rig.send(0, index, &mxoe_frame(1, 0, 100, true));
        }
        rig.settle();
        assert_eq!(rig.received(1).len(), 60);
        rig.stats(1).interrupts.decided - before
    };
    let (open_mx, stream) = (decided(StrategyKind::OpenMx), decided(StrategyKind::Stream));
    assert_eq!(open_mx, 60);
    assert!(stream * 10 <= open_mx * 6, "{stream} against {open_mx}");
}

#[test]
fn m_gf10_reasons_add_up_and_signalled_interrupts_are_what_the_eventfd_counts() {
    let mut rig = pair(EVENT_IDX);
    let before = rig.stats(1).interrupts;
    let mut calls = 0;
    for round in 0..200u16 {
        let strategy = StrategyKind::ALL[usize::from(round / 7) % StrategyKind::ALL.len()];
        rig.set_coalescing(1, strategy, 75_000);
        for index in 0..1 + round % 5 {
            rig.send(0, index, &mxoe_frame(1, 0, 100, round % 3 == 0));
        }
        rig.settle();
        rig.now = rig.now.plus_nanos(u64::from(round) * 1000);
        rig.settle();
        // The guest takes packets now and then only, so that some decisions find a driver that wants no call.
        if round % 2 == 0 {
            rig.received(1);
        }
        rig.completed(0);
        calls += rig.calls(1);
    }
    let after = rig.stats(1).interrupts;
    assert_eq!(after.by_reason.values().sum::<u64>(), after.decided);
    assert_eq!(after.decided, after.signalled + after.suppressed);
    let announced: u64 = after.packets_by_reason.values().sum();
    assert_eq!(announced + after.unannounced, rig.stats(1).rx.frames);
    assert_eq!(after.signalled - before.signalled, calls);
    assert!(after.suppressed > before.suppressed && calls > 50);
    assert_eq!(
        after.packets_per_interrupt.iter().map(|class| class.count).sum::<u64>(),
        after.decided
    );
}

#[test]
fn a_receiver_without_buffers_holds_the_sender_for_a_moment_then_costs_frames() {
    let mut rig = Rig::new(&[0, 0, 0]);
    introduce(&mut rig, 0, 1);
    introduce(&mut rig, 0, 2);
    // The receiver takes nothing any more: its ring fills, then frames stay in the sender's ring.
    for index in 0..RING {
        rig.send(0, index, &frame(1, 0, 60, 0));
    }
    rig.settle();
    assert_eq!(rig.completed(0), usize::from(RING));
    rig.now = rig.now.plus_nanos(1_000_000);
    rig.settle();
    for index in 0..10 {
        rig.send(0, index, &frame(1, 0, 60, 0));
    }
    rig.send(0, 10, &frame(2, 0, 60, 0));
    rig.settle();
    assert_eq!(rig.completed(0), 0, "it waits");
    assert_eq!(rig.next_due(), Some(rig.now.plus_nanos(WAIT_NS_MAX)));
    rig.now = rig.now.plus_nanos(WAIT_NS_MAX);
    rig.settle();
    assert_eq!(rig.completed(0), 11);
    assert_eq!(rig.stats(1).rx.dropped["no_buffer"], 10);
    assert_eq!(rig.received(2).len(), 1, "the frame behind them arrives");
    // From now on a dead receiver costs no sender time.
    rig.send(0, 0, &frame(1, 0, 60, 0));
    rig.settle();
    assert_eq!(rig.completed(0), 1);
    // It comes back: everything it had buffers for is there, and new frames arrive.
    assert_eq!(rig.received(1).len(), usize::from(RING));
    rig.send(0, 1, &frame(1, 0, 60, 0));
    rig.settle();
    assert_eq!(rig.received(1).len(), 1);
}

#[test]
fn a_held_frame_goes_on_when_the_receiver_posts_buffers() {
    let mut rig = pair(0);
    for index in 0..RING {
        rig.send(0, index, &frame(1, 0, 60, 0));
    }
    rig.settle();
    rig.completed(0);
    let before = rig.stats(0).switch["in_frames"];
    rig.send(0, 0, &frame(1, 0, 60, 77));
    rig.settle();
    assert_eq!(rig.received(1).len(), usize::from(RING));
    rig.settle();
    let received = rig.received(1);
    assert_eq!((received.len(), received[0].1[14]), (1, 77));
    assert_eq!(rig.stats(1).rx.dropped["no_buffer"], 0);
    assert_eq!(
        rig.stats(0).switch["in_frames"] - before,
        1,
        "waiting frames are switched once"
    );
}

#[test]
fn a_chain_comes_back_when_its_frame_has_left_the_card_however_long_the_wire_is() {
    let mut rig = pair(0);
    let far = LinkSettings {
        delay_ns: 50_000,
        ..LinkSettings::default()
    };
    let slow = LinkSettings {
        // 84 bytes on the wire in 6,720 ns.
        rate_bps: 100_000_000,
        ..far
    };
    rig.set_link(0, &LinkSettings::default(), &slow);
    rig.set_link(1, &far, &LinkSettings::default());
    let start = rig.now;
    (0..3).for_each(|index| rig.send(0, index, &frame(1, 0, 60, index as u8)));
    rig.settle();
    let mut events = Vec::new();
    while let Some(due) = rig.next_due() {
        rig.now = due;
        rig.settle();
        let (completed, received) = (rig.completed(0), rig.received(1).len());
        if completed + received > 0 {
            events.push((rig.now.nanos_since(start), completed, received));
        }
    }
    let sent = |n: u64| n * 6720;
    let expected = [1, 2, 3].map(|n| (sent(n), 1, 0)).into_iter();
    let expected = expected.chain([1, 2, 3].map(|n| (sent(n) + 100_000, 0, 1)));
    assert!(events.iter().copied().eq(expected), "{events:?}");
}

#[test]
fn chains_come_back_in_order_whatever_the_link_does_to_their_frames() {
    let mut rig = pair(0);
    let faulty = LinkSettings {
        delay_ns: 10_000,
        loss_ppm: 200_000,
        duplicate_ppm: 200_000,
        reorder_ppm: 200_000,
        reorder_delay_ns: 30_000,
        ..LinkSettings::default()
    };
    rig.set_link(0, &LinkSettings::default(), &faulty);
    rig.set_link(1, &faulty, &LinkSettings::default());
    let mut completed = 0;
    let mut received = 0;
    for round in 0..50 {
        for index in 0..20 {
            rig.send(0, index, &frame(1, 0, 60, round));
        }
        for _ in 0..20 {
            rig.settle();
            rig.now = rig.now.plus_nanos(10_000);
        }
        rig.settle();
        completed += rig.completed(0);
        received += rig.received(1).len();
    }
    assert_eq!(completed, 1000);
    let counters = rig.stats(0).link.from_guest;
    assert!(counters["dropped_loss"] > 100 && counters["duplicated_frames"] > 100);
    assert!(counters["overtaking_frames"] > 50);
    assert!((700..1300).contains(&received), "{received}");
}

/// A TCP frame with `payload` bytes whose checksum field holds the pseudo header's sum, as a guest hands it over.
pub(super) fn tcp_frame(destination: u8, payload: usize) -> Vec<u8> {
    let mut bytes = frame(destination, 0, 54 + payload, 0);
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14..54].fill(0);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    bytes[23] = 6;
    bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[46] = 0x50;
    let partial = !finish(pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], 6, (20 + payload) as u16));
    bytes[50..52].copy_from_slice(&partial.to_be_bytes());
    bytes
}

pub(super) const NEEDS_CHECKSUM: [u8; 12] = [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0];
pub(super) const TSO4: [u8; 12] = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0]; // 1000 bytes per segment

pub(super) fn is_complete_tcp(bytes: &[u8]) -> bool {
    let pseudo = pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], 6, (bytes.len() - 34) as u16);
    finish(pseudo + sum(&bytes[34..])) == 0
}

#[test]
fn offloads_pass_through_between_guests_that_both_have_them() {
    let mut rig = pair(ALL_FEATURES);
    rig.send_with_header(0, 1, &TSO4, &tcp_frame(1, 1900));
    rig.settle();
    let received = rig.received(1);
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].0[..10], TSO4[..10]);
    assert_eq!(received[0].1, tcp_frame(1, 1900));
}

#[test]
fn offloads_are_resolved_for_a_guest_without_them() {
    let mut rig = Rig::new(&[ALL_FEATURES, 0]);
    introduce(&mut rig, 0, 1);
    rig.send_with_header(0, 1, &TSO4, &tcp_frame(1, 1900));
    rig.send_with_header(0, 2, &NEEDS_CHECKSUM, &tcp_frame(1, 100));
    rig.settle();
    let received = rig.received(1);
    assert_eq!(
        received.iter().map(|(_, frame)| frame.len()).collect::<Vec<_>>(),
        [1054, 954, 154]
    );
    for (header, frame) in &received {
        assert_eq!(header[..2], [0, 0]);
        assert!(is_complete_tcp(frame));
    }
    assert_eq!(rig.completed(0), 2);
}

#[test]
fn offload_requests_that_were_not_negotiated_cost_the_frame() {
    let mut rig = pair(MRG);
    rig.send_with_header(0, 1, &TSO4, &tcp_frame(1, 1900));
    rig.settle();
    assert_eq!(rig.received(1).len(), 0);
    assert_eq!(rig.completed(0), 1);
    assert_eq!(rig.stats(0).tx.dropped["bad_offload"], 1);
}

#[test]
fn a_capture_shows_whole_frames_both_ways_with_the_reason_of_the_interrupt() {
    let mut rig = pair(ALL_FEATURES);
    rig.set_coalescing(1, StrategyKind::OpenMx, 75_000);
    let reader = rig.capture(1);
    rig.send_with_header(0, 1, &TSO4, &tcp_frame(1, 1900));
    rig.send(0, 2, &mxoe_frame(1, 0, 100, true));
    rig.settle();
    let mut answer = tcp_frame(0, 300);
    answer[11] = 1;
    rig.send_with_header(1, 1, &NEEDS_CHECKSUM, &answer);
    rig.settle();
    let mut file = Vec::new();
    assert_eq!(reader.next_chunk(&mut file), Chunk::Data);
    let text = String::from_utf8_lossy(&file);
    assert!(
        text.contains("mark, 2 packets"),
        "a capture changes nothing for the guest"
    );
    assert_eq!(rig.received(1).len(), 2);
    assert_eq!(rig.received(0).len(), 1);
    let frames = file.windows(4).filter(|bytes| bytes == &[8, 0, 0x45, 0]).count();
    assert_eq!(frames, 3, "two segments received and one frame sent");
}

#[test]
fn a_panic_in_one_port_fails_that_port_alone() {
    let mut rig = Rig::new(&[0, 0, 0]);
    introduce(&mut rig, 0, 1);
    rig.break_port(2);
    rig.send(2, 0, &frame(0, 2, 60, 0));
    rig.send(0, 1, &frame(1, 0, 60, 0));
    rig.settle();
    assert!(rig.failed(2).is_some_and(|why| why.contains("internal error")));
    assert_eq!(rig.received(1).len(), 1);
    assert!(rig.failed(0).is_none() && rig.failed(1).is_none());
}

#[test]
fn control_frames_are_answered_by_the_card_and_go_nowhere_else() {
    let mut rig = pair(EVENT_IDX);
    let mut request = [0; firmware::CONTROL_FRAME_MAX];
    let source = ether::MacAddr([2, 0, 0, 0, 0, 0]);
    let len = firmware::control::Request::Hello {
        version_min: 1,
        version_max: 1,
    }
    .encode(source, 7, &mut request);
    rig.send(0, 1, &request[..len]);
    rig.settle();
    let received = rig.received(0);
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].1[..6], source.0);
    assert_eq!(received[0].1[6..12], ether::MacAddr::CARD.0);
    assert_eq!(rig.received(1).len(), 0);
    assert_eq!(rig.stats(0).control["served"], 1);
}

#[test]
fn nothing_is_due_when_nothing_waits() {
    let mut rig = pair(EVENT_IDX);
    rig.now = Time::from_nanos(rig.now.as_nanos() + 1_000_000_000);
    rig.settle();
    assert_eq!(rig.next_due(), None);
}

#[test]
fn entries_that_were_not_given_back_cannot_be_made_available_again() {
    let mut rig = pair(0);
    let slow = LinkSettings {
        rate_bps: 1_000_000,
        ..LinkSettings::default()
    };
    rig.set_link(0, &LinkSettings::default(), &slow);
    for index in 0..RING {
        rig.send(0, index, &frame(1, 0, 60, 0));
    }
    rig.settle();
    assert!(rig.failed(0).is_none(), "a full ring is fine");
    rig.send(0, 0, &frame(1, 0, 60, 0));
    rig.settle();
    assert_eq!(rig.stats(0).rule_violations["avail_index_jump"], 1);
}

#[test]
fn the_mtu_of_a_link_counts_in_the_direction_it_is_set_for() {
    let mut rig = pair(0);
    let narrow = LinkSettings {
        mtu: 576,
        ..LinkSettings::default()
    };
    rig.set_link(0, &LinkSettings::default(), &narrow);
    for (index, len) in [(1, 590), (2, 1000), (3, 590), (4, 1000)] {
        rig.send(0, index, &frame(1, 0, len, 0));
    }
    rig.settle();
    assert_eq!(rig.received(1).len(), 2);
    assert_eq!(rig.stats(0).tx.dropped["too_long"], 2);
    rig.send(1, 1, &frame(0, 1, 1000, 0));
    rig.settle();
    assert_eq!(rig.received(0).len(), 1);
}

#[test]
fn what_a_receiver_without_buffers_sends_is_found_before_sleep() {
    let mut rig = Rig::new(&[0, 0]);
    introduce(&mut rig, 0, 1);
    for index in 0..RING {
        rig.send(0, index, &frame(1, 0, 60, 0));
    }
    rig.settle();
    rig.completed(0);
    rig.send(0, 0, &frame(1, 0, 60, 0));
    rig.settle();
    rig.send(1, 0, &frame(0, 1, 60, 0));
    assert!(
        rig.finds_work_before_sleep(),
        "frames wait for its buffers, and it sends"
    );
}

#[test]
fn a_receiver_is_asked_to_kick_for_new_buffers_only_while_frames_wait_for_them() {
    let mut rig = Rig::new(&[0, 0]);
    introduce(&mut rig, 0, 1);
    assert!(!rig.asked_for_refill_kicks(1));
    for index in 0..RING {
        rig.send(0, index, &frame(1, 0, 60, 0));
    }
    rig.settle();
    rig.completed(0);
    rig.send(0, 0, &frame(1, 0, 60, 0));
    rig.settle();
    assert!(!rig.finds_work_before_sleep());
    assert!(
        rig.asked_for_refill_kicks(1),
        "a frame waits and the receiver has no buffer"
    );
    assert_eq!(rig.received(1).len(), 256);
    rig.settle();
    assert_eq!(rig.received(1).len(), 1);
    assert!(!rig.finds_work_before_sleep());
    assert!(!rig.asked_for_refill_kicks(1));
}
