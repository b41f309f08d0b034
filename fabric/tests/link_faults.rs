//! Faults come from a seed, happen as often as asked for, and are counted when they really happened.

use ether::Time;
use fabric::{Admission, Link, LinkConfig, LinkCounters, LinkDrop};

const FRAMES: u64 = 100_000;
const GAP_NS: u64 = 1000;

/// What a receiver sees of numbered frames that are sent with a microsecond between them.
#[derive(Default)]
struct Received {
    /// Numbers of the frames in the order they arrive.
    arrivals: Vec<u64>,
    flipped: Vec<(u64, u32)>,
    lost: Vec<u64>,
}

fn run(config: LinkConfig) -> (Received, LinkCounters) {
    let mut link = Link::new(config);
    let mut received = Received::default();
    let mut arrivals = Vec::new();
    for number in 0..FRAMES {
        match link.admit(Time::from_nanos(number * GAP_NS), 1000) {
            Admission::Drop { .. } => received.lost.push(number),
            Admission::Deliver {
                at,
                duplicate_at,
                corrupt_bit,
                ..
            } => {
                arrivals.push((at, number));
                arrivals.extend(duplicate_at.map(|at| (at, number)));
                received.flipped.extend(corrupt_bit.map(|bit| (number, bit)));
            }
        }
    }
    // Stable: frames with equal times keep the order in which they were admitted.
    arrivals.sort_by_key(|(at, _)| *at);
    received.arrivals = arrivals.into_iter().map(|(_, number)| number).collect();
    (received, *link.counters())
}

/// Within five standard deviations of what `ppm` of all frames would be.
#[track_caller]
fn assert_share(count: u64, ppm: u32) {
    let p = f64::from(ppm) / 1e6;
    let (mean, deviation) = (FRAMES as f64 * p, (FRAMES as f64 * p * (1.0 - p)).sqrt());
    let off = (count as f64 - mean).abs();
    assert!(
        off <= 5.0 * deviation,
        "{count} of {FRAMES} frames, but {mean} ± {deviation:.0} were asked for"
    );
}

#[test]
fn lost_frames_are_as_many_as_asked_for_and_do_not_arrive() {
    for ppm in [1000, 50_000, 500_000] {
        let (received, counters) = run(LinkConfig {
            loss_ppm: ppm,
            seed: 1,
            ..Default::default()
        });
        assert_share(received.lost.len() as u64, ppm);
        assert_eq!(counters.dropped(LinkDrop::Loss), received.lost.len() as u64);
        assert_eq!(
            received.arrivals.len() as u64,
            FRAMES - counters.dropped(LinkDrop::Loss)
        );
    }
}

#[test]
fn duplicates_really_arrive_twice() {
    let (received, counters) = run(LinkConfig {
        duplicate_ppm: 20_000,
        seed: 2,
        ..Default::default()
    });
    assert_share(counters.duplicated_frames, 20_000);
    let twice = received.arrivals.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert_eq!(twice, counters.duplicated_frames);
    assert_eq!(received.arrivals.len() as u64, FRAMES + counters.duplicated_frames);
}

#[test]
fn duplicates_take_the_wires_time() {
    let config = LinkConfig {
        rate_bps: 1_000_000_000,
        duplicate_ppm: 1_000_000,
        ..Default::default()
    };
    let mut link = Link::new(config);
    let sent_ns = 1024 * 8;
    for n in 0..10 {
        let expected = Admission::Deliver {
            sent_at: Time::from_nanos((2 * n + 1) * sent_ns),
            at: Time::from_nanos((2 * n + 1) * sent_ns),
            duplicate_at: Some(Time::from_nanos((2 * n + 2) * sent_ns)),
            corrupt_bit: None,
            mark_ecn: false,
        };
        assert_eq!(link.admit(Time::ZERO, 1000), expected);
    }
}

#[test]
fn frames_held_back_are_really_overtaken() {
    let config = LinkConfig {
        reorder_ppm: 10_000,
        reorder_delay_ns: 3500,
        seed: 3,
        ..Default::default()
    };
    let (received, counters) = run(config);
    assert_share(counters.held_back_frames, 10_000);
    assert_eq!(received.arrivals.len() as u64, FRAMES, "nothing is lost by it");
    let late = received.arrivals.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
    assert!(late > 0 && late <= counters.held_back_frames, "{late} fell behind");
    // A frame delayed for 3.5 frame times is overtaken by three.
    let three = 3 * counters.held_back_frames;
    assert!(
        (three * 9 / 10..=three).contains(&counters.overtaking_frames),
        "{counters:?}"
    );
}

#[test]
fn corrupted_frames_are_found_by_the_receivers_check() {
    let (received, counters) = run(LinkConfig {
        corrupt_ppm: 30_000,
        seed: 4,
        ..Default::default()
    });
    assert_share(counters.dropped(LinkDrop::Corrupt), 30_000);
    assert_eq!(received.lost.len() as u64, counters.dropped(LinkDrop::Corrupt));
    assert_eq!((counters.corrupted_frames, received.flipped.len()), (0, 0));
}

#[test]
fn corruption_past_the_check_flips_one_bit_anywhere_in_the_frame() {
    let config = LinkConfig {
        corrupt_ppm: 30_000,
        corrupt_past_fcs: true,
        seed: 4,
        ..Default::default()
    };
    let (received, counters) = run(config);
    assert_share(counters.corrupted_frames, 30_000);
    assert_eq!(counters.corrupted_frames, received.flipped.len() as u64);
    assert_eq!(received.arrivals.len() as u64, FRAMES);
    // Each eighth of the frame's 8000 bits gets its share.
    for eighth in 0..8 {
        let count = received.flipped.iter().filter(|(_, bit)| bit / 1000 == eighth).count() as u64;
        assert_share(count, 30_000 / 8);
    }
    assert!(received.flipped.iter().all(|(_, bit)| *bit < 8000));
}

#[test]
fn the_same_seed_gives_the_same_faults_and_another_seed_others() {
    let config = LinkConfig {
        loss_ppm: 100_000,
        seed: 5,
        ..Default::default()
    };
    let (first, _) = run(config);
    assert_eq!(first.lost, run(config).0.lost);
    let other = run(LinkConfig { seed: 6, ..config }).0.lost;
    let common = first
        .lost
        .iter()
        .filter(|number| other.binary_search(number).is_ok())
        .count() as u64;
    assert_share(common, 10_000);
}

#[test]
fn one_probability_does_not_move_the_faults_of_another() {
    let config = LinkConfig {
        loss_ppm: 50_000,
        seed: 7,
        ..Default::default()
    };
    let disturbed = LinkConfig {
        reorder_ppm: 100_000,
        reorder_delay_ns: 10,
        duplicate_ppm: 100_000,
        ..config
    };
    assert_eq!(run(config).0.lost, run(disturbed).0.lost);
}

#[test]
fn a_change_while_running_acts_from_the_next_frame_on() {
    let mut link = Link::new(LinkConfig::default());
    let mut lost_in = |config: LinkConfig| {
        link.set_config(config);
        let before = link.counters().dropped(LinkDrop::Loss);
        for _ in 0..FRAMES {
            link.admit(Time::ZERO, 100);
        }
        link.counters().dropped(LinkDrop::Loss) - before
    };
    assert_eq!(lost_in(LinkConfig::default()), 0);
    assert_share(
        lost_in(LinkConfig {
            loss_ppm: 200_000,
            ..Default::default()
        }),
        200_000,
    );
    assert_eq!(
        lost_in(LinkConfig {
            loss_ppm: 1_000_000,
            ..Default::default()
        }),
        FRAMES
    );
    assert_eq!(lost_in(LinkConfig::default()), 0);
}

/// One reviewed table of what the faults do together: any change of how random numbers are used shows here.
#[test]
fn faults_by_seed() {
    let mut report = String::from("seed loss% | lost corrupt duplicated held-back overtaking arrived\n");
    for seed in 0..3 {
        for loss_ppm in [0, 10_000, 100_000] {
            let (received, counters) = run(LinkConfig {
                rate_bps: 10_000_000_000,
                delay_ns: 5000,
                loss_ppm,
                reorder_ppm: 5000,
                reorder_delay_ns: 2500,
                duplicate_ppm: 3000,
                corrupt_ppm: 2000,
                seed,
                ..Default::default()
            });
            report += &format!(
                "{seed:>4} {:>5} | {:>5} {:>6} {:>10} {:>9} {:>10} {:>7}\n",
                loss_ppm / 10_000,
                counters.dropped(LinkDrop::Loss),
                counters.dropped(LinkDrop::Corrupt),
                counters.duplicated_frames,
                counters.held_back_frames,
                counters.overtaking_frames,
                received.arrivals.len(),
            );
        }
    }
    insta::assert_snapshot!(report);
}
