//! What a link promises about time and room: rate, delay, queue, MTU, and changes of them while frames are in flight.

use ether::Time;
use fabric::{Admission, JitterDistribution, Link, LinkConfig, LinkConfigError, LinkDrop, QueueLevel, wire_bits};
use proptest::prelude::*;

fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

fn arrival(admission: Admission) -> u64 {
    match admission {
        Admission::Deliver {
            at,
            duplicate_at: None,
            corrupt_bit: None,
            mark_ecn: false,
            ..
        } => at.as_nanos(),
        other => panic!("not an undisturbed delivery: {other:?}"),
    }
}

/// Dropped in front of the wire: the sender is rid of it at once.
fn dropped(reason: LinkDrop, now: u64) -> Admission {
    Admission::Drop {
        reason,
        sent_at: at(now),
    }
}

#[test]
fn a_default_link_is_a_perfect_wire() {
    let mut link = Link::new(LinkConfig::default());
    assert!(link.is_ideal() && link.is_drained(at(0)));
    assert_eq!(arrival(link.admit(at(5), 1514)), 5);
    link.count_passed(2, 100);
    let counters = link.counters();
    assert_eq!((counters.offered_frames, counters.offered_bytes), (3, 1614));
    assert_eq!((counters.delivered_frames, counters.delivered_bytes), (3, 1614));
}

#[test]
fn each_setting_that_disturbs_makes_a_link_less_than_ideal() {
    let ideal = LinkConfig::default();
    let disturbed = [
        LinkConfig { up: false, ..ideal },
        LinkConfig { rate_bps: 1, ..ideal },
        LinkConfig { delay_ns: 1, ..ideal },
        LinkConfig { loss_ppm: 1, ..ideal },
        LinkConfig {
            reorder_ppm: 1,
            ..ideal
        },
        LinkConfig {
            duplicate_ppm: 1,
            ..ideal
        },
        LinkConfig {
            corrupt_ppm: 1,
            ..ideal
        },
        LinkConfig { jitter_ns: 1, ..ideal },
        LinkConfig { loss_every: 1, ..ideal },
        LinkConfig {
            loss_enter_ppm: 1,
            loss_in_burst_ppm: 1,
            ..ideal
        },
    ];
    for config in disturbed {
        assert!(!Link::new(config).is_ideal(), "{config:?}");
    }
    assert!(
        Link::new(LinkConfig {
            mtu: 1,
            seed: 9,
            reorder_delay_ns: 7,
            queue_max: QueueLevel::frames(1),
            ecn_above: QueueLevel::nanos(1),
            jitter_distribution: JitterDistribution::Pareto,
            jitter_reorders: true,
            // Bursts in which nothing is lost.
            loss_enter_ppm: 1,
            ..ideal
        })
        .is_ideal()
    );
}

#[test]
fn ten_gigabits_carry_the_frames_per_second_of_a_cable() {
    let mut link = Link::new(LinkConfig {
        rate_bps: 10_000_000_000,
        queue_max: QueueLevel::NONE,
        ..Default::default()
    });
    let mut last = 0;
    for _ in 0..148_809 {
        last = arrival(link.admit(at(0), 60));
    }
    // 14.88 million frames per second: one more frame, of 67.2 ns, would end behind 10 ms.
    assert_eq!(last, 9_999_964);
    assert_eq!(wire_bits(60), 84 * 8);
    assert_eq!(wire_bits(14), 84 * 8, "short frames are padded");
    assert_eq!(wire_bits(1514), 1538 * 8);
}

#[test]
fn what_division_leaves_over_is_carried_on() {
    // 672 bits at 3 bit/s: 224 s exactly; at 7 bit/s: 96 s; at 11 bit/s 61.0909… s each.
    let mut link = Link::new(LinkConfig {
        rate_bps: 11,
        queue_max: QueueLevel::NONE,
        ..Default::default()
    });
    let times: Vec<u64> = (0..11).map(|_| arrival(link.admit(at(0), 60))).collect();
    assert_eq!(times[0], 61_090_909_090);
    assert_eq!(times[1], 122_181_818_181);
    assert_eq!(times[10], 672_000_000_000);
}

#[test]
fn delay_comes_on_top_of_sending() {
    let mut link = Link::new(LinkConfig {
        rate_bps: 1_000_000_000,
        delay_ns: 500,
        ..Default::default()
    });
    assert_eq!(arrival(link.admit(at(1000), 1514)), 1000 + 1538 * 8 + 500);
    assert!(!link.is_drained(at(1000 + 1538 * 8 + 500)));
    assert!(link.is_drained(at(1000 + 1538 * 8 + 501)));
    let mut without_rate = Link::new(LinkConfig {
        delay_ns: 500,
        ..Default::default()
    });
    assert_eq!(arrival(without_rate.admit(at(7), 1514)), 507);
}

#[test]
fn the_queue_holds_what_it_may_and_no_more() {
    // 1 byte per 8 ns; three frames of 1538 bytes on the wire fit, the one being sent counts.
    let config = LinkConfig {
        rate_bps: 1_000_000_000,
        queue_max: QueueLevel::bytes(3 * 1538),
        ..Default::default()
    };
    let mut link = Link::new(config);
    for n in 1..=3 {
        assert_eq!(arrival(link.admit(at(0), 1514)), n * 1538 * 8);
    }
    assert_eq!(link.queue_bytes(at(0)), 3 * 1538);
    assert_eq!(link.admit(at(0), 1514), dropped(LinkDrop::QueueFull, 0));
    assert_eq!(
        link.admit(at(1538 * 8 - 1), 1514),
        dropped(LinkDrop::QueueFull, 1538 * 8 - 1)
    );
    assert_eq!(arrival(link.admit(at(1538 * 8), 1514)), 4 * 1538 * 8);
    assert_eq!(link.counters().dropped(LinkDrop::QueueFull), 2);
    assert_eq!(link.counters().queue_bytes_peak, 3 * 1538);
    assert_eq!(link.queue_bytes(at(1 << 40)), 0);
}

#[test]
fn a_free_wire_takes_any_frame() {
    let mut link = Link::new(LinkConfig {
        rate_bps: 1_000_000,
        queue_max: QueueLevel::bytes(0),
        ..Default::default()
    });
    assert_eq!(arrival(link.admit(at(0), 1514)), 1538 * 8 * 1000);
    assert_eq!(link.admit(at(1), 60), dropped(LinkDrop::QueueFull, 1));
    assert_eq!(arrival(link.admit(at(1538 * 8 * 1000), 60)), (1538 + 84) * 8 * 1000);
}

#[test]
fn a_frame_leaves_its_sender_with_its_last_bit_whenever_it_arrives() {
    let config = LinkConfig {
        rate_bps: 1_000_000,
        delay_ns: 50_000_000,
        reorder_ppm: 500_000,
        reorder_delay_ns: 3,
        duplicate_ppm: 500_000,
        loss_ppm: 300_000,
        corrupt_ppm: 300_000,
        queue_max: QueueLevel::NONE,
        seed: 3,
        ..Default::default()
    };
    let (mut link, mut sent_at, mut copies) = (Link::new(config), 0, 0);
    let mut lost = [0; LinkDrop::ALL.len()];
    for _ in 0..1000 {
        // A second copy takes the wire after the first.
        sent_at += (1 + copies) * 1538 * 8 * 1000;
        let admission = link.admit(at(0), 1514);
        assert_eq!(admission.sent_at(), at(sent_at));
        copies = 0;
        match admission {
            Admission::Drop { reason, .. } => lost[reason as usize] += 1,
            Admission::Deliver { at, duplicate_at, .. } => {
                assert!(at.nanos_since(admission.sent_at()) >= 50_000_000);
                copies = u64::from(duplicate_at.is_some());
            }
        }
    }
    assert!(lost[LinkDrop::Loss as usize] > 200 && lost[LinkDrop::Corrupt as usize] > 100);
}

#[test]
fn frames_above_the_mtu_are_dropped_and_counted() {
    let mut link = Link::new(LinkConfig {
        mtu: 1500,
        ..Default::default()
    });
    assert_eq!(arrival(link.admit(at(0), 1522)), 0, "with two VLAN tags");
    assert_eq!(link.admit(at(0), 1523), dropped(LinkDrop::Mtu, 0));
    assert_eq!(link.admit(at(0), u32::MAX as usize), dropped(LinkDrop::Mtu, 0));
    assert_eq!(link.counters().dropped(LinkDrop::Mtu), 2);
}

#[test]
fn frames_that_are_only_delayed_may_be_asked_about_together() {
    let delayed = LinkConfig {
        delay_ns: 1000,
        ..Default::default()
    };
    let (mut one_by_one, mut together) = (Link::new(delayed), Link::new(delayed));
    let slow = LinkConfig {
        rate_bps: 1_000_000,
        ..delayed
    };
    let mut sent_at = 0;
    for link in [&mut one_by_one, &mut together] {
        assert!(link.only_delays(at(0)) && !link.is_ideal());
        // What still waits when the rate goes comes first.
        link.set_config(slow);
        assert!(!link.only_delays(at(0)));
        sent_at = link.admit(at(0), 1514).sent_at().as_nanos();
        link.set_config(delayed);
        assert!(!link.only_delays(at(sent_at - 1)) && link.only_delays(at(sent_at)));
    }
    for now in [sent_at, sent_at + 10, 2 * sent_at] {
        let expected: Vec<_> = (0..3).map(|_| arrival(one_by_one.admit(at(now), 1514))).collect();
        assert_eq!(expected, [together.admit_together(at(now), 3, 3 * 1514).as_nanos(); 3]);
    }
    assert_eq!(one_by_one.counters(), together.counters());
}

#[test]
fn a_link_that_is_down_passes_nothing() {
    let mut link = Link::new(LinkConfig {
        up: false,
        ..Default::default()
    });
    assert_eq!(link.admit(at(0), 60), dropped(LinkDrop::Down, 0));
    link.set_config(LinkConfig::default());
    assert_eq!(arrival(link.admit(at(0), 60)), 0);
    assert_eq!(
        (
            link.counters().dropped(LinkDrop::Down),
            link.counters().delivered_frames
        ),
        (1, 1)
    );
}

#[test]
fn a_shorter_delay_lets_no_frame_overtake_those_under_way() {
    let mut link = Link::new(LinkConfig {
        delay_ns: 1_000_000,
        ..Default::default()
    });
    assert_eq!(arrival(link.admit(at(0), 60)), 1_000_000);
    link.set_config(LinkConfig::default());
    assert!(
        link.is_ideal() && !link.is_drained(at(1_000_000)) && link.is_drained(at(1_000_001)),
        "the caller must not deliver at once yet"
    );
    assert_eq!(arrival(link.admit(at(10), 60)), 1_000_000);
    assert_eq!(arrival(link.admit(at(1_000_001), 60)), 1_000_001);
}

#[test]
fn a_new_rate_counts_from_the_next_frame_on() {
    let slow = LinkConfig {
        rate_bps: 1_000_000,
        ..Default::default()
    };
    let mut link = Link::new(slow);
    let first = arrival(link.admit(at(0), 1514));
    link.set_config(LinkConfig {
        rate_bps: 1_000_000_000,
        ..slow
    });
    assert_eq!(arrival(link.admit(at(0), 1514)), first + 1538 * 8);
}

#[test]
fn what_waits_keeps_its_size_when_the_rate_changes() {
    let slow = LinkConfig {
        rate_bps: 1_000_000,
        queue_max: QueueLevel::bytes(3 * 1538),
        ..Default::default()
    };
    let mut link = Link::new(slow);
    arrival(link.admit(at(0), 1514));
    let both_sent = arrival(link.admit(at(0), 1514));
    for rate_bps in [1_000_000_000_000, 17, 1_000_000_000] {
        link.set_config(LinkConfig { rate_bps, ..slow });
        assert_eq!(link.queue_bytes(at(0)), 2 * 1538);
        assert_eq!(link.queue_bytes(at(both_sent / 2)), 1538);
        assert_eq!(link.queue_bytes(at(both_sent)), 0);
    }
    assert_eq!(arrival(link.admit(at(0), 1514)), both_sent + 1538 * 8);
    assert_eq!(link.queue_bytes(at(0)), 3 * 1538);
    assert_eq!(link.admit(at(0), 60), dropped(LinkDrop::QueueFull, 0));
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let config = LinkConfig {
        corrupt_ppm: 1_000_001,
        ..Default::default()
    };
    let error = config.validate().unwrap_err();
    assert_eq!(
        error,
        LinkConfigError::PpmTooLarge {
            field: "corrupt_ppm",
            ppm: 1_000_001
        }
    );
    assert_eq!(
        error.to_string(),
        "corrupt_ppm is 1000001, but a probability is at most 1000000 parts per million"
    );
    let config = LinkConfig {
        reorder_ppm: 1,
        ..Default::default()
    };
    assert_eq!(config.validate(), Err(LinkConfigError::ReorderWithoutDelay));
    assert_eq!(
        LinkConfig {
            reorder_delay_ns: 1,
            ..config
        }
        .validate(),
        Ok(())
    );
}

/// Settings of any kind, faults included.
fn config() -> impl Strategy<Value = LinkConfig> {
    let ppm = || prop_oneof![Just(0), 0..1_000_000u32, Just(u32::MAX)];
    let rate = prop_oneof![Just(0), 1..10u64, 1_000_000..100_000_000_000u64, Just(u64::MAX)];
    let delay = || prop_oneof![Just(0), 0..100_000u64, Just(u64::MAX)];
    let distribution = prop_oneof![
        Just(JitterDistribution::Uniform),
        Just(JitterDistribution::Normal),
        Just(JitterDistribution::Pareto)
    ];
    let level = || {
        let bytes = proptest::option::of(prop_oneof![0..100_000u64, Just(u64::MAX)]);
        let frames = proptest::option::of(prop_oneof![0..20u32, Just(u32::MAX)]);
        let ns = proptest::option::of(prop_oneof![0..1_000_000u64, Just(u64::MAX)]);
        (bytes, frames, ns).prop_map(|(bytes, frames, ns)| QueueLevel { bytes, frames, ns })
    };
    let wire = (
        prop::bool::weighted(0.9),
        rate,
        delay(),
        delay(),
        level(),
        level(),
        0..10_000u32,
    );
    let jitter = (delay(), distribution, any::<bool>());
    let loss = (ppm(), ppm(), ppm(), ppm(), 0..10u32);
    let faults = (ppm(), delay(), ppm(), ppm(), any::<bool>(), 0..3u64);
    (wire, jitter, loss, faults).prop_map(|(wire, jitter, loss, faults)| LinkConfig {
        up: wire.0,
        rate_bps: wire.1,
        burst_bytes: wire.2,
        delay_ns: wire.3,
        queue_max: wire.4,
        ecn_above: wire.5,
        mtu: wire.6,
        jitter_ns: jitter.0,
        jitter_distribution: jitter.1,
        jitter_reorders: jitter.2,
        loss_ppm: loss.0,
        loss_enter_ppm: loss.1,
        loss_leave_ppm: loss.2,
        loss_in_burst_ppm: loss.3,
        loss_every: loss.4,
        reorder_ppm: faults.0,
        reorder_delay_ns: faults.1,
        duplicate_ppm: faults.2,
        corrupt_ppm: faults.3,
        corrupt_past_fcs: faults.4,
        seed: faults.5,
    })
}

proptest! {
    /// Whatever the settings and however they change: every frame is accounted for, none arrives before it was sent, and
    /// flipped bits lie inside the frame.
    #[test]
    fn every_frame_is_accounted_for(
        steps in proptest::collection::vec((proptest::option::weighted(0.1, config()), 0..5000u64, 0..10_000usize), 1..200),
    ) {
        let mut link = Link::new(LinkConfig::default());
        let (mut now, mut delivered, mut dropped) = (0, 0, 0);
        for (config, gap_ns, frame_len) in steps {
            if let Some(config) = config {
                link.set_config(config);
            }
            now += gap_ns;
            match link.admit(at(now), frame_len) {
                Admission::Drop { .. } => dropped += 1,
                Admission::Deliver { at: arrives_at, duplicate_at, corrupt_bit, .. } => {
                    delivered += 1 + u64::from(duplicate_at.is_some());
                    prop_assert!(arrives_at >= at(now));
                    prop_assert!(duplicate_at.is_none_or(|second| second >= arrives_at));
                    prop_assert!(corrupt_bit.is_none_or(|bit| (bit as usize) < frame_len * 8));
                }
            }
        }
        let counters = link.counters();
        prop_assert_eq!(counters.delivered_frames, delivered);
        prop_assert_eq!(counters.dropped_total(), dropped);
        prop_assert_eq!(counters.offered_frames + counters.duplicated_frames, delivered + dropped);
    }

    /// Without reordering asked for, times never fall, however the settings change.
    #[test]
    fn order_is_kept_unless_reordering_is_asked_for(
        steps in proptest::collection::vec((proptest::option::weighted(0.2, config()), 0..5000u64, 60..2000usize), 1..200),
    ) {
        let mut link = Link::new(LinkConfig::default());
        let (mut now, mut latest) = (0, Time::ZERO);
        for (config, gap_ns, frame_len) in steps {
            if let Some(config) = config {
                link.set_config(LinkConfig { reorder_ppm: 0, jitter_reorders: false, ..config });
            }
            now += gap_ns;
            if let Admission::Deliver { at, duplicate_at, .. } = link.admit(at(now), frame_len) {
                prop_assert!(at >= latest);
                latest = duplicate_at.unwrap_or(at);
            }
        }
        prop_assert_eq!(link.counters().overtaking_frames, 0);
    }

    /// At most what the rate allows arrives in any stretch of time, and a busy wire has no gaps.
    #[test]
    fn a_busy_wire_is_neither_faster_nor_slower_than_its_rate(
        rate_bps in 1_000_000..40_000_000_000u64,
        lengths in proptest::collection::vec(60..9000usize, 1..300),
    ) {
        let mut link = Link::new(LinkConfig { rate_bps, queue_max: QueueLevel::NONE, ..Default::default() });
        let mut bits = 0u128;
        for frame_len in lengths {
            bits += u128::from(wire_bits(frame_len));
            let exact = bits * 1_000_000_000 / u128::from(rate_bps);
            prop_assert_eq!(u128::from(arrival(link.admit(at(0), frame_len))), exact);
        }
    }
}
