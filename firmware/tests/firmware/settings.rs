//! Counters (M-GF10) and settings that change while traffic runs.

use firmware::{Coalescing, DmaModel, Histogram, PacketInfo, Reason, RxCounts, StrategyKind};

use crate::support::{Bench, DELAY_NS, DMA, MARKED, Numbers, UNMARKED, bench, coalescing, t};

#[test]
fn m_gf10_every_interrupt_has_a_reason_and_reasons_add_up() {
    let mut numbers = Numbers::new(10);
    let mut bench = bench(StrategyKind::Timeout, DMA);
    let mut now = 0;
    for _ in 0..2_000 {
        now += numbers.below(3_000);
        let packet = PacketInfo {
            len: 100,
            marked: numbers.percent(30),
        };
        bench.batch(now, &[packet]);
        if numbers.percent(2) {
            let settings = Coalescing {
                frames_max: numbers.one_of(&[0, 4]),
                ..coalescing(numbers.one_of(StrategyKind::ALL), numbers.one_of(&[0, 5_000, 75_000]))
            };
            bench.rx.set_coalescing(t(now), settings);
        }
    }
    bench.run_to_end();
    let interrupts = bench.interrupts.len() as u64;
    for n in 0..interrupts {
        if n % 3 == 0 {
            bench.rx.note_suppressed()
        } else {
            bench.rx.note_signalled()
        }
    }
    let counters = *bench.rx.counters();
    let total = counters.total();
    for reason in Reason::ALL {
        let seen = bench.interrupts.iter().filter(|i| i.reason == reason).count() as u64;
        assert_eq!(counters.decided_for(reason), seen, "{reason}");
        assert_eq!(total.decided_for(reason), seen, "{reason}");
    }
    assert!(total.decided_for(Reason::Mark) > 0 && total.decided_for(Reason::Deferred) > 0);
    assert!(total.decided_for(Reason::Count) > 0 && total.decided_for(Reason::EveryPacket) > 0);
    assert_eq!(
        (counters.decided_total(), total.decided_total()),
        (interrupts, interrupts)
    );
    assert_eq!(total.suppressed + total.signalled, interrupts);
    assert_eq!((total.packets, total.announced, total.bytes), (2_000, 2_000, 200_000));
    assert_eq!(counters.unannounced(), 0);
    let mut sum = RxCounts::default();
    StrategyKind::ALL
        .iter()
        .for_each(|&kind| sum.add(counters.strategy(kind)));
    assert_eq!(sum, total, "per strategy");
    for (from, to, count) in total.packets_per_interrupt.iter() {
        let seen = bench
            .interrupts
            .iter()
            .filter(|i| (from..=to).contains(&i.packets))
            .count() as u64;
        assert_eq!(count, seen, "interrupts for {from} to {to} packets");
    }
}

#[test]
fn m_gf10_histogram_buckets_cover_every_number_once() {
    let bounds: Vec<_> = (0..Histogram::BUCKETS)
        .map(|n| Histogram::bounds(n).expect("a bucket"))
        .collect();
    let expected = [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 4),
        (5, 8),
        (9, 16),
        (17, 32),
        (33, 64),
        (65, u32::MAX),
    ];
    assert_eq!(bounds, expected);
    assert_eq!(Histogram::bounds(Histogram::BUCKETS), None);
    for packets in (0..200).chain([u32::MAX]) {
        let (from, to) = bounds[Histogram::bucket(packets)];
        assert!((from..=to).contains(&packets), "{packets}");
    }
}

#[test]
fn m_gf10_restart_signals_once_and_announces_what_waits() {
    let mut bench = bench(StrategyKind::Timeout, DmaModel::ZERO);
    let interrupt = bench.rx.restart(t(5));
    assert_eq!(
        (interrupt.reason, interrupt.packets, interrupt.sequence),
        (Reason::Restart, 0, 1)
    );
    bench.batch(10, &[UNMARKED, UNMARKED]);
    let interrupt = bench.rx.restart(t(20));
    assert_eq!(
        (interrupt.reason, interrupt.packets, interrupt.sequence),
        (Reason::Restart, 2, 2)
    );
    assert_eq!(bench.rx.next_event(), None);
}

#[test]
fn a_live_switch_loses_no_announcement() {
    for &from in StrategyKind::ALL {
        for &to in StrategyKind::ALL {
            for delay_ns in [0, 3_000, 75_000, 1_000_000] {
                let mut bench = bench(from, DMA);
                bench.batch(0, &[UNMARKED, MARKED, UNMARKED, MARKED, UNMARKED, UNMARKED]);
                bench.run_until(t(2_000));
                bench.rx.set_coalescing(t(2_000), coalescing(to, delay_ns));
                bench.run_to_end();
                let announced: u32 = bench.interrupts.iter().map(|i| i.packets).sum();
                assert_eq!(announced, 6, "{from} to {to}");
                assert_eq!(bench.rx.counters().unannounced(), 0);
            }
        }
    }
}

#[test]
fn a_live_switch_gives_what_waits_the_new_delay_from_its_arrival() {
    for (delay_ns, expected) in [(20_000, 20_000), (5_000, 10_000), (300_000, 300_000)] {
        let mut bench = bench(StrategyKind::Timeout, DmaModel::ZERO);
        bench.batch(0, &[UNMARKED]);
        bench.run_until(t(10_000));
        bench
            .rx
            .set_coalescing(t(10_000), coalescing(StrategyKind::OpenMx, delay_ns));
        bench.run_to_end();
        assert_eq!(bench.decided(), [(expected, "timeout", 1)]);
    }
}

#[test]
fn a_live_switch_announces_what_the_new_settings_would_not_let_wait() {
    let waiting = |strategy, packets: &[PacketInfo], next: Coalescing| {
        let mut bench = Bench::new(
            coalescing(strategy, DELAY_NS),
            DmaModel {
                setup_ns: 500,
                ..DmaModel::ZERO
            },
        );
        bench.batch(0, packets);
        bench.run_until(t(1_000));
        bench.rx.set_coalescing(t(1_000), next);
        bench.run_until(t(1_000));
        bench.decided()
    };
    let off = coalescing(StrategyKind::Disabled, DELAY_NS);
    assert_eq!(
        waiting(StrategyKind::Timeout, &[UNMARKED; 2], off),
        [(1_000, "every-packet", 2)]
    );
    let two = Coalescing {
        frames_max: 2,
        ..coalescing(StrategyKind::Timeout, DELAY_NS)
    };
    assert_eq!(
        waiting(StrategyKind::Timeout, &[UNMARKED; 2], two),
        [(1_000, "count", 2)]
    );
    // The marked packet is in memory, its interrupt put off for the two behind it.
    let stream = [MARKED, UNMARKED, UNMARKED, UNMARKED];
    let open_mx = coalescing(StrategyKind::OpenMx, DELAY_NS);
    assert_eq!(
        waiting(StrategyKind::Stream, &stream, open_mx),
        [(1_000, "deferred", 2)]
    );
    let same = coalescing(StrategyKind::Stream, 2 * DELAY_NS);
    assert_eq!(waiting(StrategyKind::Stream, &stream, same), []);
}
