//! What the pipeline promises whatever the strategy: no interrupt before the DMA, no packet unannounced for too long.

use firmware::{Coalescing, DmaModel, PENDING_MAX, PacketInfo, PipelineConfig, PipelineFull, RxPipeline, StrategyKind};

use crate::support::{Bench, MARKED, Numbers, UNMARKED, coalescing, t};

/// A random load on a driver that polls in time; gives arrival times and the bench at the end.
fn random_load(seed: u64) -> (Coalescing, Vec<u64>, Bench) {
    let mut numbers = Numbers::new(seed);
    let settings = Coalescing {
        frames_max: numbers.one_of(&[0, 0, 4]),
        ..coalescing(numbers.one_of(StrategyKind::ALL), numbers.one_of(&[0, 50, 400, 3000]))
    };
    let dma = DmaModel::new(
        numbers.one_of(&[0, 10, 100, 1000]),
        numbers.one_of(&[0, 8_000_000_000]),
        numbers.one_of(&[1, 2, 4]),
    );
    let mut bench = Bench::new(settings, dma);
    let marked_percent = numbers.one_of(&[0, 20, 100]);
    let mut now = 0;
    let mut arrivals = Vec::new();
    for _ in 0..60 {
        now += numbers.one_of(&[0, 1, 10, 100, 1000]);
        let packet = PacketInfo {
            len: numbers.one_of(&[60, 128, 1500]),
            marked: numbers.percent(marked_percent),
        };
        bench.batch(now, &[packet]);
        arrivals.push(now);
    }
    bench.run_to_end();
    (settings, arrivals, bench)
}

#[test]
fn no_interrupt_before_the_dma_and_no_packet_unannounced_beyond_the_timeout() {
    for seed in 0..5_000 {
        let (settings, arrivals, bench) = random_load(seed);
        assert_eq!(bench.published.len(), arrivals.len());
        let mut packet = 0;
        for interrupt in &bench.interrupts {
            assert!(interrupt.packets > 0, "seed {seed}: an idle host was interrupted");
            for _ in 0..interrupt.packets {
                let published = bench.published[packet];
                assert!(
                    published <= interrupt.decided_at,
                    "seed {seed}: packet {packet} announced before its DMA"
                );
                let latest = published.max(t(arrivals[packet] + settings.delay_ns));
                assert!(
                    interrupt.decided_at <= latest,
                    "seed {seed}: packet {packet} announced too late"
                );
                packet += 1;
            }
        }
        assert_eq!(packet, arrivals.len(), "seed {seed}: packets never announced");
    }
}

#[test]
fn dma_model_setup_rate_and_parallelism() {
    let off = coalescing(StrategyKind::Disabled, 0);
    let at = |dma, packets: &[PacketInfo]| {
        let mut bench = Bench::new(off, dma);
        bench.batch(1_000, packets);
        bench.run_to_end();
        bench.decided().iter().map(|&(at, ..)| at - 1_000).collect::<Vec<_>>()
    };
    let four = [UNMARKED; 4];
    let model = DmaModel::new;
    assert_eq!(at(DmaModel::ZERO, &four), [0, 0, 0, 0]);
    assert_eq!(at(model(100, 0, 1), &four), [100, 200, 300, 400]);
    assert_eq!(at(model(100, 0, 2), &four), [100, 100, 200, 200]);
    // 1500 B at 12 Gbit/s are 1000 ns.
    assert_eq!(at(model(0, 12_000_000_000, 1), &four), [1_000, 2_000, 3_000, 4_000]);
    assert_eq!(at(model(100, 12_000_000_000, 1), &four), [1_100, 2_200, 3_300, 4_400]);
    // The set-up of one overlaps the transfer of the other; the bus is shared.
    assert_eq!(at(model(100, 12_000_000_000, 2), &four), [1_100, 2_100, 3_100, 4_100]);
    // Remainders are carried: 3 × 1 B at 7 Gbit/s are 24/7 ns.
    let bytes = [PacketInfo { len: 1, marked: false }; 7];
    assert_eq!(at(model(0, 7_000_000_000, 1), &bytes), [1, 2, 3, 4, 5, 6, 8]);
}

#[test]
fn dma_model_limits_are_told_and_kept() {
    let good = DmaModel::new(500, 8_000_000_000, 2);
    assert_eq!(good.validated(), Ok(good));
    for bad in [
        DmaModel {
            setup_ns: u64::MAX,
            ..good
        },
        DmaModel { rate_bps: 1, ..good },
        DmaModel { parallelism: 0, ..good },
        DmaModel {
            parallelism: u32::MAX,
            ..good
        },
    ] {
        let error = bad.validated().expect_err("out of range");
        assert!(error.to_string().contains("DMA"));
        let kept = RxPipeline::new(&PipelineConfig {
            dma: bad,
            ..PipelineConfig::default()
        })
        .dma();
        assert_eq!(kept.validated(), Ok(kept));
    }
}

#[test]
fn a_full_queue_refuses_and_counts() {
    let mut rx = RxPipeline::new(&PipelineConfig::default());
    for _ in 0..PENDING_MAX {
        rx.arrive(t(0), UNMARKED).expect("room");
    }
    assert_eq!(rx.arrive(t(0), MARKED), Err(PipelineFull));
    assert_eq!(rx.pending(), PENDING_MAX);
    let total = rx.counters().total();
    assert_eq!(
        (total.packets, total.marked, total.refused_full),
        (PENDING_MAX as u64, 0, 1)
    );
    while rx.poll(t(0)).is_some() {}
    assert_eq!(rx.pending(), 0);
    rx.arrive(t(0), UNMARKED).expect("room again");
}

#[test]
fn of_packets_together_those_without_room_are_refused_and_counted() {
    let mut rx = RxPipeline::new(&PipelineConfig::default());
    let together = |count: usize| std::iter::repeat_n(UNMARKED, count);
    assert_eq!(rx.arrive_together(t(0), together(PENDING_MAX - 2)), Ok(()));
    assert_eq!(rx.arrive_together(t(0), together(5)), Err(PipelineFull));
    assert_eq!(rx.pending(), PENDING_MAX);
    let total = rx.counters().total();
    assert_eq!((total.packets, total.refused_full), (PENDING_MAX as u64, 3));
}

#[test]
fn time_that_goes_backwards_is_taken_as_the_latest_seen() {
    let mut rx = RxPipeline::new(&PipelineConfig::default());
    rx.arrive(t(1_000_000), UNMARKED).expect("room");
    while rx.poll(t(1_000_000)).is_some() {}
    rx.arrive(t(5), UNMARKED).expect("room");
    while rx.poll(t(7)).is_some() {}
    assert_eq!(rx.next_event(), Some(t(1_075_000)));
    while rx.poll(t(u64::MAX)).is_some() {}
    rx.arrive(t(u64::MAX), UNMARKED).expect("room");
    while rx.poll(t(u64::MAX)).is_some() {}
    assert_eq!(rx.counters().unannounced(), 0, "the end of time does not lose packets");
}

#[test]
fn a_reset_queue_forgets_its_packets_and_counts_them() {
    let dma = DmaModel {
        setup_ns: 10,
        ..DmaModel::ZERO
    };
    let mut bench = Bench::new(coalescing(StrategyKind::Stream, 1_000), dma);
    bench.batch(0, &[MARKED, UNMARKED, UNMARKED]);
    bench.run_until(t(10));
    assert_eq!((bench.rx.waiting(), bench.rx.pending()), (1, 2));
    bench.rx.reset();
    assert_eq!(
        (bench.rx.waiting(), bench.rx.pending(), bench.rx.next_event()),
        (0, 0, None)
    );
    assert_eq!(bench.rx.counters().total().discarded, 3);
    assert_eq!(bench.rx.counters().unannounced(), 0);
    // The deferred flag of the forgotten packet is forgotten too.
    bench.batch(100, &[UNMARKED]);
    bench.run_to_end();
    assert_eq!(bench.decided(), [(1_100, "timeout", 1)]);
}
