//! What links do to frames, whichever path they take through the data plane: faults as often as is set, buffers back when a frame has
//! left the card, queues that fill and drop, and room that is bounded.

use ether::Time;

use super::{introduce, tcp_frame};
use crate::dataplane::WAIT_NS_MAX;
use crate::dataplane::rig::{ALL_FEATURES, RING, Rig, frame, multicast_frame};
use vnicd_protocol::LinkSettings;

/// 200 bytes per segment, so that a frame of one buffer becomes ten.
pub(super) const TSO4_SHORT: [u8; 12] = [1, 1, 54, 0, 200, 0, 34, 0, 16, 0, 0, 0];

/// What a sender's ring is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// To two guests in turn: none is part of a burst.
    Single,
    /// A burst to one guest.
    Row,
    /// Frames that are still to be cut.
    Segmented,
    /// To everybody.
    Flood,
    /// To a group of cards.
    Group,
}

const KINDS: [Kind; 5] = [Kind::Single, Kind::Row, Kind::Segmented, Kind::Flood, Kind::Group];

/// Which link is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faulty {
    FromSender,
    ToReceiver,
    Trunk,
}

/// Guest 0 sends to guests 1 and 2, of which those behind the faulty link are meant; 2 is behind a trunk, as is 1 if that is faulty.
fn rig_of(faulty: Faulty, settings: &LinkSettings) -> Rig {
    let mut rig = Rig::new(&[ALL_FEATURES]);
    let far = rig.add_switch();
    let near = if faulty == Faulty::Trunk { far } else { 0 };
    rig.add_guest(near, ALL_FEATURES);
    rig.add_guest(far, ALL_FEATURES);
    introduce(&mut rig, 0, 1);
    introduce(&mut rig, 0, 2);
    (0..3).for_each(|guest| rig.join(guest, 7));
    rig.settle();
    let ideal = LinkSettings::default();
    match faulty {
        Faulty::FromSender => rig.set_link(0, &ideal, settings),
        Faulty::ToReceiver => {
            for seed in 1..3 {
                // Each cable has faults of its own.
                let settings = LinkSettings { seed, ..*settings };
                rig.set_link(seed as usize, &settings, &ideal);
            }
        }
        Faulty::Trunk => rig.set_trunk(settings, &ideal),
    }
    rig
}

/// Fills the ring of guest 0; frames on the wire.
fn send(rig: &mut Rig, kind: Kind, round: u16) -> u64 {
    const FRAMES: u16 = 64;
    let long = |to| frame(to, 0, 200, round as u8);
    match kind {
        Kind::Single => (0..FRAMES).for_each(|index| rig.send(0, index, &long(1 + index as u8 % 2))),
        Kind::Row => (0..FRAMES).for_each(|index| rig.send(0, index, &long(1))),
        Kind::Flood => (0..FRAMES).for_each(|index| {
            let mut bytes = long(1);
            bytes[..6].fill(0xff);
            rig.send(0, index, &bytes);
        }),
        Kind::Segmented => {
            (0..10).for_each(|index| rig.send_with_header(0, index, &TSO4_SHORT, &tcp_frame(1, 1960)));
            return 100;
        }
        Kind::Group => {
            rig.send(0, 0, &multicast_frame(0, 7, 200, round as u8));
            return 1;
        }
    }
    u64::from(FRAMES)
}

/// Lets everything arrive; frames on the wire that each guest received.
fn receive(rig: &mut Rig) -> [u64; 3] {
    let mut received = [0; 3];
    for _ in 0..1000 {
        rig.settle();
        for (guest, count) in received.iter_mut().enumerate() {
            for (header, bytes) in rig.received(guest) {
                let segments = if header[1] == 0 {
                    1
                } else {
                    (bytes.len() - 54).div_ceil(200)
                };
                *count += segments as u64;
            }
        }
        rig.completed(0);
        match rig.next_due() {
            Some(due) if due < rig.now.plus_nanos(1_000_000_000) => rig.now = due,
            _ => break,
        }
    }
    rig.now = rig.now.plus_nanos(1_000_000);
    received
}

/// Counters of the faulty links together: admitted, delivered, and so many with the fault called `name`.
fn counted(rig: &Rig, faulty: Faulty, name: &str) -> [u64; 3] {
    let sum = |links: &[std::collections::BTreeMap<String, u64>]| {
        ["offered_frames", "delivered_frames", name].map(|name| links.iter().map(|link| link[name]).sum())
    };
    match faulty {
        Faulty::FromSender => sum(&[rig.stats(0).link.from_guest]),
        Faulty::ToReceiver => sum(&[rig.stats(1).link.to_guest, rig.stats(2).link.to_guest]),
        Faulty::Trunk => {
            let counters = rig.trunk_counters();
            let fault = match name {
                "dropped_loss" => counters.dropped(fabric::LinkDrop::Loss),
                "dropped_corrupt" => counters.dropped(fabric::LinkDrop::Corrupt),
                "duplicated_frames" => counters.duplicated_frames,
                _ => counters.held_back_frames,
            };
            [counters.offered_frames, counters.delivered_frames, fault]
        }
    }
}

#[test]
fn each_fault_befalls_as_many_frames_as_is_set_whichever_way_they_take() {
    let ideal = LinkSettings::default();
    let faults = [
        (
            "dropped_loss",
            100_000,
            LinkSettings {
                loss_ppm: 100_000,
                ..ideal
            },
        ),
        (
            "dropped_corrupt",
            100_000,
            LinkSettings {
                corrupt_ppm: 100_000,
                ..ideal
            },
        ),
        (
            "duplicated_frames",
            200_000,
            LinkSettings {
                duplicate_ppm: 200_000,
                ..ideal
            },
        ),
        (
            "held_back_frames",
            500_000,
            LinkSettings {
                reorder_ppm: 500_000,
                reorder_delay_ns: 1000,
                ..ideal
            },
        ),
    ];
    for (name, ppm, settings) in faults {
        for faulty in [Faulty::FromSender, Faulty::ToReceiver, Faulty::Trunk] {
            for kind in KINDS {
                let what = format!("{name}, {faulty:?}, {kind:?}");
                let mut rig = rig_of(faulty, &settings);
                let [offered_before, delivered_before, fault_before] = counted(&rig, faulty, name);
                let (mut sent, mut received) = (0, 0);
                let rounds = if kind == Kind::Group { 600 } else { 30 };
                for round in 0..rounds {
                    sent += send(&mut rig, kind, round);
                    received += receive(&mut rig).iter().sum::<u64>();
                }
                let [admitted, delivered, fault] = counted(&rig, faulty, name);
                let (admitted, fault) = (admitted - offered_before, fault - fault_before);
                let delivered = delivered - delivered_before;
                let p = f64::from(ppm) / 1e6;
                let (mean, deviation) = (admitted as f64 * p, (admitted as f64 * p * (1.0 - p)).sqrt());
                assert!(
                    (fault as f64 - mean).abs() <= 3.0 * deviation,
                    "{what}: {fault} of {admitted}, not {mean:.0}"
                );
                let twice = if name == "duplicated_frames" { fault } else { 0 };
                let lost = if name.starts_with("dropped") { fault } else { 0 };
                assert_eq!(admitted + twice - lost, delivered, "{what}");
                if kind == Kind::Group {
                    // Cards say more to each other than guests do to them.
                    assert!(admitted > sent, "{what}: {admitted} for {sent}");
                    continue;
                }
                let copies = match (kind, faulty) {
                    (Kind::Flood, Faulty::ToReceiver) => 2,
                    _ => 1,
                };
                assert_eq!(admitted, copies * sent, "{what}: each frame is asked about once");
                let arrives = if kind == Kind::Flood { 2 / copies } else { 1 };
                assert_eq!(received, arrives * delivered, "{what}");
                for guest in 1..3 {
                    assert_eq!(rig.stats(guest).rx.dropped["no_buffer"], 0, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_senders_chains_never_wait_for_a_trunk_or_the_receivers_cable() {
    let slow = LinkSettings {
        rate_bps: 1_000_000,
        delay_ns: 1_000_000_000,
        ..LinkSettings::default()
    };
    for faulty in [Faulty::ToReceiver, Faulty::Trunk] {
        for kind in [Kind::Single, Kind::Row, Kind::Segmented, Kind::Flood] {
            let mut rig = rig_of(faulty, &slow);
            send(&mut rig, kind, 0);
            let chains = if kind == Kind::Segmented { 10 } else { 64 };
            rig.settle();
            assert_eq!(rig.completed(0), chains, "{faulty:?} {kind:?}");
        }
    }
    // 1,000 short frames at a delay of one second are sent at once.
    let far = LinkSettings {
        delay_ns: 1_000_000_000,
        ..LinkSettings::default()
    };
    let mut rig = rig_of(Faulty::FromSender, &far);
    let start = rig.now;
    let mut completed = 0;
    for number in 0..1000u16 {
        rig.send(0, number % RING, &frame(1, 0, 60, number as u8));
        rig.settle();
        completed += rig.completed(0);
    }
    assert_eq!((completed, rig.now), (1000, start));
    let received: Vec<_> = {
        rig.now = start.plus_nanos(1_000_000_000);
        let mut all = Vec::new();
        loop {
            rig.settle();
            let received = rig.received(1);
            if received.is_empty() {
                break all;
            }
            all.extend(received);
        }
    };
    assert_eq!(received.len(), 1000);
}

#[test]
fn frames_that_a_guest_sent_before_its_ring_stopped_arrive_and_complete_nothing_afterwards() {
    let slow = LinkSettings {
        rate_bps: 1_000_000,
        delay_ns: 1000,
        ..LinkSettings::default()
    };
    let mut rig = rig_of(Faulty::FromSender, &slow);
    (0..20).for_each(|index| rig.send(0, index, &frame(1, 0, 60, 0)));
    rig.settle();
    assert_eq!(rig.completed(0), 0);
    rig.plane.card(0).stop_ring(1);
    assert_eq!(rig.completed(0), 20, "all come back when the ring stops");
    assert_eq!(receive(&mut rig)[1], 20);
    assert_eq!((rig.completed(0), rig.pooled_bytes()), (0, 0));
}

#[test]
fn a_distant_congested_port_drops_what_its_queue_cannot_hold() {
    const PAYLOAD: usize = 1472;
    let slow = LinkSettings {
        rate_bps: 10_000_000,
        queue_max: fabric::QueueLevel::bytes(64 << 10),
        ..LinkSettings::default()
    };
    for faulty in [Faulty::ToReceiver, Faulty::Trunk] {
        let mut rig = rig_of(faulty, &slow);
        // 50 Mbit/s on the wire for two seconds.
        let gap_ns = (PAYLOAD as u64 + 42 + 24) * 8 * 1000 / 50;
        let frames = 2_000_000_000 / gap_ns;
        let (start, mut received) = (rig.now, 0);
        for number in 0..frames {
            let at = start.plus_nanos(number * gap_ns);
            while let Some(due) = rig.next_due().filter(|due| *due <= at) {
                rig.now = due;
                rig.settle();
                received += rig.received(1).len() as u64;
            }
            rig.now = at;
            rig.send(0, (number % 256) as u16, &frame(1, 0, 14 + 28 + PAYLOAD, 0));
            rig.settle();
            assert_eq!(rig.completed(0), 1, "the sender is not paced");
        }
        received += receive(&mut rig)[1];
        let lost = 100.0 * (frames - received) as f64 / frames as f64;
        // The queue holds 43 of 8,127 frames at the end.
        assert!((lost - 80.0).abs() <= 2.0, "{faulty:?}: {lost:.2} % lost");
        if faulty == Faulty::ToReceiver {
            assert_eq!(rig.stats(1).rx.dropped["link"], frames - received);
            let peak = rig.stats(1).link.to_guest["queue_bytes_peak"];
            assert!(peak as f64 >= 0.9 * 65536.0, "{peak}");
        }
    }
}

/// One bulk flow of a sender with a window that grows with every acknowledgement and is halved when a frame is lost, through a
/// queue of `queue_bytes` at 10 Mbit/s with 5 ms of delay in each direction. Returns the most that was queued, and the longest round trip.
fn bulk_flow(queue_bytes: u64) -> (u64, u64) {
    let to_receiver = LinkSettings {
        rate_bps: 10_000_000,
        queue_max: fabric::QueueLevel::bytes(queue_bytes),
        delay_ns: 5_000_000,
        ..LinkSettings::default()
    };
    let back = LinkSettings {
        delay_ns: 5_000_000,
        ..LinkSettings::default()
    };
    let mut rig = rig_of(Faulty::FromSender, &LinkSettings::default());
    rig.set_link(1, &to_receiver, &back);
    let (mut window, mut next, mut highest, mut trip_max_ns) = (10.0f64, 0u32, 0u32, 0);
    let mut doubles = true;
    let mut sent: std::collections::BTreeMap<u32, Time> = Default::default();
    let end = rig.now.plus_nanos(30_000_000_000);
    let (mut acks, mut index) = (0u16, 0u16);
    while rig.now < end {
        while (sent.len() as f64) < window {
            let mut bytes = frame(1, 0, 1514, 0);
            bytes[14..18].copy_from_slice(&next.to_be_bytes());
            rig.send(0, index % RING, &bytes);
            sent.insert(next, rig.now);
            (next, index) = (next + 1, index.wrapping_add(1));
            rig.settle();
            rig.completed(0);
        }
        let Some(due) = rig.next_due() else {
            panic!("everything was lost")
        };
        rig.now = due;
        rig.settle();
        for (_, bytes) in rig.received(1) {
            let mut ack = frame(0, 1, 60, 0);
            ack[14..18].copy_from_slice(&bytes[14..18]);
            rig.send(1, acks % RING, &ack);
            acks = acks.wrapping_add(1);
            rig.settle();
            rig.completed(1);
        }
        for (_, bytes) in rig.received(0) {
            let number = bytes[14..18]
                .first_chunk()
                .map_or(0, |bytes| u32::from_be_bytes(*bytes));
            let Some(at) = sent.remove(&number) else { continue };
            trip_max_ns = trip_max_ns.max(rig.now.nanos_since(at));
            let lost: Vec<u32> = sent.range(..number).map(|(number, _)| *number).collect();
            lost.iter().for_each(|number| _ = sent.remove(number));
            if !lost.is_empty() && number > highest {
                window = (window / 2.0).max(2.0);
                (highest, doubles) = (next, false);
            } else {
                window += if doubles { 1.0 } else { 4.0 / window };
            }
        }
    }
    (rig.stats(1).link.to_guest["queue_bytes_peak"], trip_max_ns)
}

#[test]
fn one_bulk_flow_fills_a_distant_queue_and_its_round_trip_is_what_the_queue_takes() {
    for queue_bytes in [64 << 10, 1 << 20] {
        let (peak, trip_ns) = bulk_flow(queue_bytes);
        assert!(peak as f64 >= 0.9 * queue_bytes as f64, "{peak} of {queue_bytes}");
        let expected_ns = 10e6 + queue_bytes as f64 * 8.0 / 10e6 * 1e9;
        assert!(
            (trip_ns as f64 / expected_ns - 1.0).abs() <= 0.1,
            "{trip_ns} ns, not {expected_ns}"
        );
    }
}

#[test]
fn three_senders_at_once_overflow_the_queue_of_one_receiver() {
    let mut rig = Rig::new(&[ALL_FEATURES; 4]);
    (1..4).for_each(|guest| introduce(&mut rig, 0, guest));
    let slow = LinkSettings {
        rate_bps: 1_000_000_000,
        queue_max: fabric::QueueLevel::bytes(64 << 10),
        ..LinkSettings::default()
    };
    rig.set_link(0, &slow, &LinkSettings::default());
    for guest in 1..4 {
        (0..32).for_each(|index| rig.send(guest, index, &frame(0, guest as u8, 1514, 0)));
    }
    rig.settle();
    assert_eq!((1..4).map(|guest| rig.completed(guest)).sum::<usize>(), 96);
    // 42 frames of 1,538 bytes on the wire fit, the first of which is being sent.
    assert_eq!(rig.stats(0).rx.dropped["link"], 96 - 42);
    assert_eq!(receive(&mut rig)[0], 42);
}

#[test]
fn where_nothing_is_modelled_overload_waits_in_the_senders_ring_over_trunks_and_for_guests_without_offloads_too() {
    let mut rig = rig_of(Faulty::Trunk, &LinkSettings::default());
    for features in [ALL_FEATURES, 0] {
        rig.plane.card(1).set_features(features);
        // All buffers of the guest are used up.
        for index in 0..RING {
            rig.send(0, index, &frame(1, 0, 60, 0));
        }
        rig.settle();
        assert_eq!(rig.completed(0), usize::from(RING));
        let mut waits = 0;
        for index in 0..10 {
            rig.send_with_header(0, index, &TSO4_SHORT, &tcp_frame(1, 1960));
            rig.settle();
            waits += 1 - rig.completed(0);
        }
        // One that must be cut waits at the port, and all behind it in the ring.
        assert_eq!(waits, if features == 0 { 9 } else { 10 });
        let mut received = 0;
        for _ in 0..50 {
            received += rig.received(1).len();
            rig.settle();
            rig.now = rig.now.plus_nanos(1000);
        }
        assert_eq!(received, usize::from(RING) + if features == 0 { 100 } else { 10 });
        assert_eq!((rig.completed(0), rig.stats(1).rx.dropped["no_buffer"]), (waits, 0));
    }
}

#[test]
fn what_waits_for_a_guest_that_takes_nothing_is_bounded_and_counted() {
    let near = LinkSettings {
        delay_ns: 1000,
        ..LinkSettings::default()
    };
    let mut rig = rig_of(Faulty::FromSender, &near);
    let mut sent = 0;
    // It earned patience, and takes nothing any more.
    while sent < 5000 {
        for index in 0..64 {
            rig.send(0, index, &frame(1, 0, 1514, 0));
            sent += 1;
        }
        rig.settle();
        assert_eq!(rig.completed(0), 64);
        rig.now = rig.now.plus_nanos(1000);
        rig.settle();
    }
    let stats = rig.stats(1);
    let waiting = sent - u64::from(RING) - stats.rx.dropped["no_buffer"];
    assert!((1500..2100).contains(&waiting), "4 MiB of 2 KiB: {waiting}");
    assert!(rig.pooled_bytes() <= 4 << 20);
    rig.now = rig.now.plus_nanos(WAIT_NS_MAX);
    rig.settle();
    assert_eq!(rig.stats(1).rx.dropped["no_buffer"], sent - u64::from(RING));
    assert_eq!(rig.pooled_bytes(), 0);
}

#[test]
fn a_delayed_frame_that_is_still_to_be_cut_arrives_whole_and_counts_as_its_segments() {
    let far = LinkSettings {
        delay_ns: 1_000_000,
        ..LinkSettings::default()
    };
    for faulty in [Faulty::FromSender, Faulty::ToReceiver, Faulty::Trunk] {
        let mut rig = rig_of(faulty, &far);
        let before = rig.stats(1).rx.frames;
        rig.send_with_header(0, 0, &TSO4_SHORT, &tcp_frame(1, 1960));
        rig.settle();
        assert_eq!(rig.completed(0), 1);
        rig.now = rig.now.plus_nanos(1_000_000);
        rig.settle();
        let received = rig.received(1);
        assert_eq!(received.len(), 1, "{faulty:?}");
        assert_eq!((received[0].0[1], &received[0].1), (1, &tcp_frame(1, 1960)));
        let stats = rig.stats(1);
        assert_eq!(stats.rx.frames - before, 10);
        // A receiver that cannot take it gets segments.
        rig.plane.card(1).set_features(0);
        rig.send_with_header(0, 0, &TSO4_SHORT, &tcp_frame(1, 1960));
        rig.settle();
        rig.now = rig.now.plus_nanos(1_000_000);
        rig.settle();
        assert_eq!(rig.received(1).len(), 10, "{faulty:?}");
    }
}

#[test]
fn frames_of_the_cards_types_that_are_not_for_a_card_are_ordinary_frames() {
    let mut rig = rig_of(Faulty::FromSender, &LinkSettings::default());
    for ether_type in [0xb5, 0xb6] {
        for to_all in [false, true] {
            let mut bytes = frame(1, 0, 100, 3);
            bytes[12..14].copy_from_slice(&[0x88, ether_type]);
            if to_all {
                bytes[..6].fill(0xff);
            }
            (0..3).for_each(|index| rig.send(0, index, &bytes));
            rig.settle();
            let received: Vec<_> = rig.received(1).into_iter().map(|(_, bytes)| bytes).collect();
            assert_eq!(received, vec![bytes; 3]);
            assert_eq!(rig.received(2).len(), if to_all { 3 } else { 0 });
        }
    }
    assert_eq!(rig.stats(0).tx.dropped.values().sum::<u64>(), 0);
    // What is for the card and makes no sense ends there, and the table says so.
    let mut request = frame(0, 0, 100, 3);
    request[..6].copy_from_slice(&ether::MacAddr::CARD.0);
    request[12..14].copy_from_slice(&[0x88, 0xb5]);
    rig.send(0, 0, &request);
    let mut packet = multicast_frame(0, 7, 100, 0);
    packet[17] = 9;
    rig.send(0, 1, &packet);
    rig.send(0, 2, &multicast_frame(0, 8, 100, 0));
    rig.settle();
    let stats = rig.stats(0);
    let seen = (&stats.tx, &stats.control, &stats.multicast_refused);
    assert_eq!(
        (stats.tx.dropped["card_refused"], stats.control["refused_malformed"]),
        (2, 1),
        "{seen:?}"
    );
    let answers = rig.received(0);
    assert_eq!(answers.len(), 1, "the card says that it cannot read the request");
    assert_eq!(answers[0].1[6..12], ether::MacAddr::CARD.0);
    assert!((1..3).all(|guest| rig.received(guest).is_empty()));
}
