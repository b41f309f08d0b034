//! What people ask of link emulators: jitter, bursts of lost frames, every Nth frame, token buckets, queues limited in bytes,
//! frames or time, and ECN thresholds. All of it happens in virtual time, and follows from the seed.

use ether::Time;
use fabric::{
    Admission, JitterDistribution, Link, LinkConfig, LinkConfigError, LinkCounters, LinkDrop, QUEUE_FRAMES_MAX,
    QueueLevel, wire_bits,
};
use proptest::prelude::*;

const FRAMES: u64 = 200_000;
const MS: u64 = 1_000_000;

fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

/// Sends frames of 1000 bytes with such a gap; says for each how long it was in flight, if it arrived.
fn run(config: LinkConfig, gap_ns: u64) -> (Vec<Option<u64>>, LinkCounters) {
    let mut link = Link::new(config);
    let delays = (0..FRAMES).map(|n| {
        let now = at(n * gap_ns);
        match link.admit(now, 1000) {
            Admission::Drop { .. } => None,
            Admission::Deliver { at, .. } => Some(at.nanos_since(now)),
        }
    });
    (delays.collect(), *link.counters())
}

fn arrived(delays: &[Option<u64>]) -> Vec<u64> {
    delays.iter().copied().flatten().collect()
}

fn mean(values: &[u64]) -> f64 {
    values.iter().map(|value| *value as f64).sum::<f64>() / values.len() as f64
}

fn deviation(values: &[u64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (*value as f64 - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// At most the larger of 1 % and 1 µs beside what is expected.
#[track_caller]
fn assert_time(what: &str, found: f64, expected: f64) {
    let allowed = (expected.abs() / 100.0).max(1000.0);
    assert!(
        (found - expected).abs() <= allowed,
        "{what}: {found} ns instead of {expected}"
    );
}

/// Within three standard deviations of a share of `of`, of which so many depend on each other that the variance is
/// `correlation` times that of independent ones.
#[track_caller]
fn assert_share(what: &str, count: u64, of: u64, share: f64, correlation: f64) {
    let (expected, deviation) = (
        of as f64 * share,
        (of as f64 * share * (1.0 - share) * correlation).sqrt(),
    );
    assert!(
        (count as f64 - expected).abs() <= 3.0 * deviation,
        "{what}: {count} of {of} instead of {expected} ± {deviation}"
    );
}

// Jitter.

const DISTRIBUTIONS: [JitterDistribution; 3] = [
    JitterDistribution::Uniform,
    JitterDistribution::Normal,
    JitterDistribution::Pareto,
];

fn jittering(jitter_distribution: JitterDistribution) -> LinkConfig {
    LinkConfig {
        delay_ns: 10 * MS,
        jitter_ns: MS,
        jitter_distribution,
        seed: 3,
        ..LinkConfig::IDEAL
    }
}

#[test]
fn delays_have_the_mean_the_deviation_and_the_quantiles_that_were_set() {
    // Quantiles 1 %, 50 % and 99 %, in jitters from the delay; for Pareto of shape 3: ((1-q)^(-1/3) - 3/2) / √(3/4).
    let expected = [
        (0.577_350, [-0.98, 0.0, 0.98]),
        (1.0, [-2.326_348, 0.0, 2.326_348]),
        (1.0, [-0.573_475, -0.277_219, 3.627_602]),
    ];
    for (distribution, (spread, quantiles)) in DISTRIBUTIONS.into_iter().zip(expected) {
        // The gap is so long that order never holds a frame back.
        let (delays, counters) = run(jittering(distribution), 1000 * MS);
        let mut delays = arrived(&delays);
        let name = format!("{distribution:?}");
        assert_eq!(counters.overtaking_frames, 0, "{name}");
        assert_time(&name, mean(&delays), 10.0 * MS as f64);
        // The deviation of Pareto samples settles slowly: their fourth moment has no bound.
        let allowed = if distribution == JitterDistribution::Pareto {
            0.1
        } else {
            0.01
        };
        let found = deviation(&delays) / MS as f64;
        assert!((found / spread - 1.0).abs() < allowed, "{name}: deviation {found}");
        delays.sort_unstable();
        for (below, quantile) in [0.01, 0.5, 0.99].into_iter().zip(quantiles) {
            let found = delays[(FRAMES as f64 * below) as usize] as f64;
            assert_time(&format!("{name} {below}"), found, (10.0 + quantile) * MS as f64);
        }
    }
}

#[test]
fn jitter_keeps_the_order_unless_asked_otherwise() {
    for distribution in DISTRIBUTIONS {
        let kept = jittering(distribution);
        let free = LinkConfig {
            jitter_reorders: true,
            ..kept
        };
        let ((kept, kept_counters), (free, free_counters)) = (run(kept, 100_000), run(free, 100_000));
        assert_eq!(kept_counters.overtaking_frames, 0);
        assert!(free_counters.overtaking_frames > FRAMES / 10, "{distribution:?}");
        // Equal numbers are drawn; a frame that keeps the order waits for the latest of those before it.
        let (mut latest, mut overtaking) = (0, 0);
        for (n, (kept, free)) in arrived(&kept).into_iter().zip(arrived(&free)).enumerate() {
            let sent = n as u64 * 100_000;
            overtaking += u64::from(sent + free < latest);
            latest = latest.max(sent + free);
            assert_eq!(sent + kept, latest);
        }
        assert_eq!(overtaking, free_counters.overtaking_frames);
    }
}

#[test]
fn no_frame_arrives_before_it_was_sent() {
    for distribution in DISTRIBUTIONS {
        let config = LinkConfig {
            delay_ns: 0,
            rate_bps: 1_000_000_000,
            jitter_reorders: true,
            ..jittering(distribution)
        };
        let sending_ns = wire_bits(1000);
        let (delays, _) = run(config, 20_000);
        assert_eq!(arrived(&delays).into_iter().min(), Some(sending_ns));
    }
}

#[test]
fn a_smaller_jitter_lets_no_frame_overtake_those_under_way() {
    let mut link = Link::new(LinkConfig {
        jitter_reorders: true,
        ..jittering(JitterDistribution::Uniform)
    });
    let arrival = |admission| match admission {
        Admission::Deliver { at, .. } => at,
        other => panic!("{other:?}"),
    };
    let latest = (0..100).map(|n| arrival(link.admit(at(n), 1000))).max().unwrap();
    assert!(latest > at(10 * MS));
    link.set_config(LinkConfig::IDEAL);
    assert!(link.is_ideal() && !link.is_drained(at(1000)));
    assert_eq!(arrival(link.admit(at(1000), 1000)), latest);
}

// Losses.

const BURSTS: LinkConfig = LinkConfig {
    loss_enter_ppm: 10_000,
    loss_leave_ppm: 250_000,
    loss_in_burst_ppm: 1_000_000,
    seed: 5,
    ..LinkConfig::IDEAL
};

#[test]
fn bursts_lose_as_much_and_last_as_long_as_the_model_says() {
    for (in_burst_ppm, outside_ppm) in [(1_000_000, 0), (700_000, 0), (900_000, 20_000)] {
        let config = LinkConfig {
            loss_in_burst_ppm: in_burst_ppm,
            loss_ppm: outside_ppm,
            ..BURSTS
        };
        let (delays, counters) = run(config, 1000);
        let (enter, leave) = (0.01, 0.25);
        let (in_burst, outside) = (f64::from(in_burst_ppm) / 1e6, f64::from(outside_ppm) / 1e6);
        let bad = enter / (enter + leave);
        let share = bad * in_burst + (1.0 - bad) * outside;
        // Neighbouring frames of a two-state chain correlate by λ = 1 - p - r a step: the sum over all distances is
        // λ / (1 - λ), of the variance that the state causes.
        let lambda = 1.0 - enter - leave;
        let by_state = bad * (1.0 - bad) * (in_burst - outside).powi(2);
        let correlation = 1.0 + 2.0 * by_state / (share * (1.0 - share)) * lambda / (1.0 - lambda);
        let lost = counters.dropped(LinkDrop::Loss);
        assert_share("lost", lost, FRAMES, share, correlation);
        if in_burst_ppm == 1_000_000 {
            // Frames lost one after the other are a burst: 1 / r frames long in the mean, with deviation √(1-r) / r.
            let rows = delays.chunk_by(|a, b| a.is_none() == b.is_none());
            let rows: Vec<u64> = rows
                .filter(|row| row[0].is_none())
                .map(|row| row.len() as u64)
                .collect();
            let allowed = 3.0 * (1.0 - leave).sqrt() / leave / (rows.len() as f64).sqrt();
            assert!(
                (mean(&rows) - 1.0 / leave).abs() <= allowed,
                "bursts of {}",
                mean(&rows)
            );
        }
    }
}

#[test]
fn loss_without_bursts_is_within_three_deviations() {
    for ppm in [1_000, 100_000, 500_000] {
        let config = LinkConfig {
            loss_ppm: ppm,
            seed: 8,
            ..LinkConfig::IDEAL
        };
        let (_, counters) = run(config, 1000);
        assert_share(
            "lost",
            counters.dropped(LinkDrop::Loss),
            FRAMES,
            f64::from(ppm) / 1e6,
            1.0,
        );
    }
}

#[test]
fn one_use_of_randomness_does_not_move_another() {
    let lost = |config| -> Vec<bool> { run(config, 1000).0.iter().map(Option::is_none).collect() };
    let bursts = lost(BURSTS);
    let disturbed = LinkConfig {
        jitter_ns: 100,
        duplicate_ppm: 100_000,
        reorder_ppm: 100_000,
        reorder_delay_ns: 10,
        ..BURSTS
    };
    assert_eq!(lost(disturbed), bursts);
    // Frames lost outside of bursts come on top of these bursts.
    let both = lost(LinkConfig {
        loss_ppm: 50_000,
        ..BURSTS
    });
    assert!(bursts.iter().zip(&both).all(|(burst, both)| !burst || *both));
    let delays = |config| run(config, 1000 * MS).0;
    let jitter = jittering(JitterDistribution::Normal);
    let lossy = delays(LinkConfig {
        loss_ppm: 50_000,
        ..jitter
    });
    let same = lossy
        .iter()
        .zip(delays(jitter))
        .all(|(lossy, all)| lossy.is_none() || *lossy == all);
    assert!(same);
}

#[test]
fn every_nth_frame_is_lost_and_no_other() {
    for every in [1, 3, 100] {
        let config = LinkConfig {
            loss_every: every,
            ..LinkConfig::IDEAL
        };
        let (delays, counters) = run(config, 1000);
        for (n, delay) in (1u64..).zip(&delays) {
            assert_eq!(
                delay.is_none(),
                n.is_multiple_of(u64::from(every)),
                "frame {n} of every {every}"
            );
        }
        assert_eq!(counters.dropped(LinkDrop::EveryNth), FRAMES / u64::from(every));
        assert_eq!(counters.dropped(LinkDrop::EveryNth), counters.dropped_total());
    }
}

#[test]
fn turns_are_counted_anew_when_they_change_and_bursts_end_with_their_setting() {
    let every = |loss_every| LinkConfig {
        loss_every,
        ..LinkConfig::IDEAL
    };
    let mut link = Link::new(every(3));
    let mut is_lost = |config: LinkConfig| {
        link.set_config(config);
        matches!(link.admit(at(0), 100), Admission::Drop { .. })
    };
    assert!(
        !is_lost(every(3)) && !is_lost(every(3)) && is_lost(every(3)),
        "the third"
    );
    assert!(
        !is_lost(every(3)) && !is_lost(every(2)) && is_lost(every(2)),
        "the second of the new"
    );
    let endless = LinkConfig {
        loss_enter_ppm: 1_000_000,
        loss_in_burst_ppm: 1_000_000,
        ..LinkConfig::IDEAL
    };
    assert!(!is_lost(endless) && is_lost(endless) && is_lost(endless));
    assert!(!is_lost(LinkConfig::IDEAL));
    assert!(
        !is_lost(endless) && is_lost(endless),
        "it begins outside of a burst again"
    );
}

// Token buckets.

#[test]
fn a_bucket_lets_its_bytes_through_at_once_and_then_keeps_the_rate() {
    // 1 byte per 8 ns; the bucket holds four frames of 1024 bytes on the wire.
    let mut link = Link::new(LinkConfig {
        rate_bps: 1_000_000_000,
        burst_bytes: 4096,
        ..LinkConfig::IDEAL
    });
    let mut sent = |now| match link.admit(at(now), 1000) {
        Admission::Deliver { at, sent_at, .. } => {
            assert_eq!(at, sent_at);
            at.as_nanos()
        }
        other => panic!("{other:?}"),
    };
    // Nothing was sent before: the bucket is full. It is so at time 0 as later.
    let start = 100_000;
    for _ in 0..4 {
        assert_eq!(sent(start), start);
    }
    assert_eq!((sent(start), sent(start)), (start + 8192, start + 2 * 8192));
    // Two frames' time later than the last was sent, the bucket is half full.
    let later = start + 4 * 8192;
    assert_eq!((sent(later), sent(later), sent(later)), (later, later, later + 8192));
    // However long nothing is sent, it is never more than full.
    let much_later = later + 1_000_000_000;
    let times: Vec<u64> = (0..5).map(|_| sent(much_later)).collect();
    assert_eq!(times[3..], [much_later, much_later + 8192]);
}

#[test]
fn the_rate_of_a_bucket_is_kept_within_one_percent() {
    for (rate_bps, burst_bytes) in [(10_000_000, 0), (10_000_000, 15_000), (950_000_000, 64 << 10)] {
        let mut link = Link::new(LinkConfig {
            rate_bps,
            burst_bytes,
            queue_max: QueueLevel::NONE,
            ..LinkConfig::IDEAL
        });
        let mut last = Time::ZERO;
        for _ in 0..FRAMES {
            if let Admission::Deliver { at, .. } = link.admit(at(1_000_000_000), 1000) {
                last = at;
            }
        }
        let bits = FRAMES * wire_bits(1000) - burst_bytes * 8;
        let rate = bits as f64 / (last.nanos_since(at(1_000_000_000)) as f64 / 1e9);
        assert!(
            (rate / rate_bps as f64 - 1.0).abs() < 0.01,
            "{rate} instead of {rate_bps}"
        );
    }
}

proptest! {
    /// In any stretch of time at most the bucket and the rate are sent, in order, and no frame waits without need.
    #[test]
    fn a_bucket_is_never_overdrawn(
        rate_bps in 1_000_000..10_000_000_000u64,
        burst_bytes in 0..100_000u64,
        steps in proptest::collection::vec((0..100_000u64, 60..1500usize), 1..200),
    ) {
        let mut link = Link::new(LinkConfig { rate_bps, burst_bytes, queue_max: QueueLevel::NONE, ..LinkConfig::IDEAL });
        let mut sent: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for (gap_ns, frame_len) in steps {
            now += gap_ns;
            let Admission::Deliver { sent_at, .. } = link.admit(at(now), frame_len) else {
                return Err(TestCaseError::fail("dropped"));
            };
            sent.push((sent_at.as_nanos(), wire_bits(frame_len)));
        }
        prop_assert!(sent.is_sorted_by_key(|(at, _)| *at));
        for from in 0..sent.len() {
            // What is sent behind frame `from` until the next is sent; the frame that ends the stretch earned its own time.
            let mut bits = 0u128;
            for (until, size) in &sent[from + 1..] {
                bits += u128::from(*size);
                let time_ns = u128::from(until - sent[from].0) + 1;
                let allowed = time_ns * u128::from(rate_bps) / 1_000_000_000 + u128::from(burst_bytes) * 8;
                // A bucket smaller than a frame is one frame deep for what was sent in one moment.
                prop_assert!(bits <= allowed + 1, "{bits} bits in {time_ns} ns, {allowed} allowed");
            }
        }
    }
}

// Queues.

const SLOW: LinkConfig = LinkConfig {
    rate_bps: 1_000_000_000,
    ..LinkConfig::IDEAL
};

/// The time that a frame of 1000 bytes takes on [`SLOW`].
const FRAME_NS: u64 = 1024 * 8;

/// How many of 1000 frames that are sent at once find room.
fn room(config: LinkConfig) -> usize {
    let mut link = Link::new(config);
    (0..1000)
        .filter(|_| matches!(link.admit(at(0), 1000), Admission::Deliver { .. }))
        .count()
}

#[test]
fn a_queue_is_limited_in_bytes_frames_or_time() {
    let limited = |queue_max| room(LinkConfig { queue_max, ..SLOW });
    assert_eq!(limited(QueueLevel::NONE), 1000);
    assert_eq!(limited(QueueLevel::bytes(10 * 1024)), 10);
    assert_eq!(limited(QueueLevel::bytes(10 * 1024 - 1)), 9);
    assert_eq!(limited(QueueLevel::frames(10)), 10);
    assert_eq!(limited(QueueLevel::nanos(10 * FRAME_NS)), 10);
    assert_eq!(limited(QueueLevel::nanos(10 * FRAME_NS - 1)), 9);
    // A free wire takes any frame.
    assert_eq!(limited(QueueLevel::frames(0)), 1);
    assert_eq!(limited(QueueLevel::nanos(0)), 1);
    let first_reached = QueueLevel {
        bytes: Some(20 * 1024),
        frames: Some(7),
        ns: Some(9 * FRAME_NS),
    };
    assert_eq!(limited(first_reached), 7);
}

#[test]
fn a_frame_that_was_sent_makes_room_for_one() {
    for queue_max in [
        QueueLevel::bytes(3 * 1024),
        QueueLevel::frames(3),
        QueueLevel::nanos(3 * FRAME_NS),
    ] {
        let mut link = Link::new(LinkConfig { queue_max, ..SLOW });
        let mut fits = |now| matches!(link.admit(at(now), 1000), Admission::Deliver { .. });
        assert!(fits(0) && fits(0) && fits(0) && !fits(0) && !fits(FRAME_NS - 1));
        assert!(fits(FRAME_NS) && !fits(FRAME_NS), "{queue_max:?}");
        assert!(
            fits(3 * FRAME_NS) && fits(3 * FRAME_NS) && !fits(3 * FRAME_NS),
            "{queue_max:?}"
        );
        assert_eq!(link.counters().dropped(LinkDrop::QueueFull), 4);
        assert_eq!(link.counters().queue_bytes_peak, 3 * 1024);
    }
}

#[test]
fn a_limit_in_frames_counts_what_waits_already() {
    let with = |queue_max| LinkConfig { queue_max, ..SLOW };
    let mut link = Link::new(with(QueueLevel::NONE));
    // 30 full frames wait, uncounted.
    for _ in 0..30 {
        link.admit(at(0), 1514);
    }
    link.set_config(with(QueueLevel::frames(20)));
    let full_ns = wire_bits(1514);
    let fits = |link: &mut Link, now| matches!(link.admit(at(now), 1514), Admission::Deliver { .. });
    assert!(!fits(&mut link, 0) && !fits(&mut link, 10 * full_ns));
    assert!(fits(&mut link, 11 * full_ns) && !fits(&mut link, 11 * full_ns));
    // Larger and smaller limits know what was counted.
    link.set_config(with(QueueLevel::frames(22)));
    assert!(fits(&mut link, 11 * full_ns) && fits(&mut link, 11 * full_ns) && !fits(&mut link, 11 * full_ns));
    link.set_config(with(QueueLevel::frames(5)));
    assert!(!fits(&mut link, 28 * full_ns) && fits(&mut link, 29 * full_ns));
}

#[test]
fn frames_are_marked_above_the_threshold_and_only_then() {
    for ecn_above in [
        QueueLevel::bytes(4 * 1024),
        QueueLevel::frames(4),
        QueueLevel::nanos(4 * FRAME_NS),
    ] {
        let mut link = Link::new(LinkConfig {
            ecn_above,
            queue_max: QueueLevel::frames(6),
            ..SLOW
        });
        let marks: Vec<Option<bool>> = (0..7)
            .map(|_| match link.admit(at(0), 1000) {
                Admission::Deliver { mark_ecn, .. } => Some(mark_ecn),
                Admission::Drop { .. } => None,
            })
            .collect();
        let [below, above] = [Some(false), Some(true)];
        assert_eq!(marks, [below, below, below, below, above, above, None], "{ecn_above:?}");
        // Only frames that the caller marked are counted.
        assert_eq!(link.counters().marked_frames, 0);
        link.count_marked();
        assert_eq!(link.counters().marked_frames, 1);
    }
}

#[test]
fn a_link_without_rate_marks_nothing() {
    let mut link = Link::new(LinkConfig {
        delay_ns: MS,
        ecn_above: QueueLevel::frames(0),
        ..LinkConfig::IDEAL
    });
    for _ in 0..10 {
        let admission = link.admit(at(0), 1000);
        assert!(matches!(admission, Admission::Deliver { mark_ecn: false, .. }));
    }
}

#[test]
fn contradictions_are_named() {
    let burst = LinkConfig {
        burst_bytes: 1,
        ..LinkConfig::IDEAL
    };
    assert_eq!(burst.validate(), Err(LinkConfigError::BurstWithoutRate));
    assert_eq!(LinkConfig { rate_bps: 1, ..burst }.validate(), Ok(()));
    let never = |ecn_above, queue_max| {
        let config = LinkConfig {
            ecn_above,
            queue_max,
            ..LinkConfig::IDEAL
        };
        config.validate() == Err(LinkConfigError::ThresholdBeyondQueue)
    };
    assert!(never(QueueLevel::bytes(100), QueueLevel::bytes(100)));
    assert!(!never(QueueLevel::bytes(99), QueueLevel::bytes(100)));
    assert!(never(QueueLevel::nanos(5), QueueLevel::nanos(4)));
    // What has different units cannot be compared.
    assert!(!never(QueueLevel::frames(1000), QueueLevel::bytes(1)));
    assert!(!never(QueueLevel::NONE, QueueLevel::bytes(1)));
    let many = LinkConfig {
        queue_max: QueueLevel::frames(QUEUE_FRAMES_MAX + 1),
        ..LinkConfig::IDEAL
    };
    assert_eq!(
        many.validate().unwrap_err().to_string(),
        "queue_frames is 65537, but a queue counts at most 65536 frames"
    );
    let share = LinkConfig {
        loss_enter_ppm: 1_000_001,
        ..LinkConfig::IDEAL
    };
    assert!(
        share
            .validate()
            .unwrap_err()
            .to_string()
            .starts_with("loss_enter_ppm is 1000001")
    );
}
