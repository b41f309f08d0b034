//! M-GF11: while no marked frame is waiting, interrupt times equal the base policy's, event for event, whatever strategy
//! is on. The base policy is M-GF1, or M-GF2 with a count limit.

use firmware::{Coalescing, DmaModel, Event, Interrupt, PacketInfo, PipelineConfig, RxPipeline, StrategyKind};

use crate::support::{Bench, MARKED, Numbers, UNMARKED, coalescing, t};

const STRATEGIES: [StrategyKind; 2] = [StrategyKind::OpenMx, StrategyKind::Stream];
/// And those with another base policy, M-GF7.
const ON_ADAPTIVE: [StrategyKind; 2] = [StrategyKind::AdaptiveOpenMx, StrategyKind::AdaptiveStream];

fn settings(numbers: &mut Numbers, strategies: &[StrategyKind]) -> (Coalescing, DmaModel) {
    let settings = Coalescing {
        frames_max: numbers.one_of(&[0, 0, 3]),
        ..coalescing(numbers.one_of(strategies), numbers.one_of(&[0, 7, 20, 100]))
    };
    let dma = DmaModel::new(
        numbers.one_of(&[0, 3, 15]),
        numbers.one_of(&[0, 0, 8_000_000_000]),
        numbers.one_of(&[1, 3]),
    );
    (settings, dma)
}

/// (arrival after the one before, packet)
fn load(numbers: &mut Numbers, len: usize, marked_percent: u64) -> Vec<(u64, PacketInfo)> {
    (0..len)
        .map(|_| {
            let packet = PacketInfo {
                len: numbers.one_of(&[1, 4]),
                marked: numbers.percent(marked_percent),
            };
            (numbers.one_of(&[0, 0, 1, 4, 12, 60]), packet)
        })
        .collect()
}

/// Everything that `poll` gives at the times the queue names, up to `end`.
fn drain(rx: &mut RxPipeline, end: u64, log: &mut Vec<(u64, u32, Option<Interrupt>)>) {
    while let Some(at) = rx.next_event().filter(|&at| at <= t(end)) {
        while let Some(event) = rx.poll(at) {
            log.push(match event {
                Event::Completed { count, interrupt } => (at.as_nanos(), count, interrupt),
                Event::Interrupt(interrupt) => (at.as_nanos(), 0, Some(interrupt)),
                Event::FetchHostState => unreachable!("no watchdog is on"),
            });
        }
    }
}

/// The times of interrupts and the packets they announce; reasons may be told differently.
fn times(log: &[(u64, u32, Option<Interrupt>)]) -> Vec<(u64, u32, Option<u32>)> {
    log.iter()
        .map(|&(at, count, interrupt)| (at, count, interrupt.map(|i| i.packets)))
        .collect()
}

#[test]
fn m_gf11_unmarked_traffic_meets_the_base_policy_under_every_strategy() {
    unmarked_traffic_meets(StrategyKind::Timeout, &STRATEGIES, 20);
    // Long enough for the delay to grow.
    unmarked_traffic_meets(StrategyKind::Adaptive, &ON_ADAPTIVE, 100);
}

fn unmarked_traffic_meets(base: StrategyKind, strategies: &[StrategyKind], len: usize) {
    for seed in 0..20_000 {
        let mut numbers = Numbers::new(seed);
        let (with_marks, dma) = settings(&mut numbers, strategies);
        let base = Coalescing {
            strategy: base,
            ..with_marks
        };
        let load = load(&mut numbers, len, 0);
        let run = |coalescing| {
            let mut rx = RxPipeline::new(&PipelineConfig { coalescing, dma });
            let (mut now, mut log) = (0, Vec::new());
            for &(after, packet) in &load {
                now += after;
                drain(&mut rx, now.saturating_sub(1), &mut log);
                rx.arrive(t(now), packet).expect("room");
            }
            drain(&mut rx, u64::MAX, &mut log);
            log
        };
        assert_eq!(
            run(with_marks),
            run(base),
            "seed {seed}: {with_marks:?} {dma:?} {load:?}"
        );
    }
}

/// From any moment at which no marked frame waits, until the next marked one: as if the base policy had been on from that
/// moment. The moments are reached through marked traffic, so flags or timers that outlive a mark would show.
#[test]
fn m_gf11_after_marked_traffic_nothing_of_it_remains() {
    let mut moments = 0;
    for seed in 0..20_000 {
        let mut numbers = Numbers::new(seed);
        let (with_marks, dma) = settings(&mut numbers, &STRATEGIES);
        let base = Coalescing {
            strategy: StrategyKind::Timeout,
            ..with_marks
        };
        let mut rx = RxPipeline::new(&PipelineConfig {
            coalescing: with_marks,
            dma,
        });
        let (mut now, mut log) = (0, Vec::new());
        // Marks of packets not announced, oldest first.
        let mut marks: Vec<bool> = Vec::new();
        for (after, packet) in load(&mut numbers, 12, 40) {
            now += after;
            drain(&mut rx, now.saturating_sub(1), &mut log);
            rx.arrive(t(now), packet).expect("room");
            marks.push(packet.marked);
        }
        loop {
            let announced: u32 = log
                .iter()
                .filter_map(|(.., interrupt)| interrupt.map(|i| i.packets))
                .sum();
            if !marks[announced as usize..].contains(&true) {
                break;
            }
            let at = rx.next_event().expect("a marked frame waits");
            now = now.max(at.as_nanos());
            drain(&mut rx, now, &mut log);
        }
        if rx.counters().unannounced() > 0 {
            moments += 1;
        }
        let mut rival = rx.clone();
        rival.set_coalescing(t(now), base);
        let unmarked = load(&mut numbers, 12, 0);
        let continued = |mut rx: RxPipeline| {
            let (mut now, mut log) = (now, Vec::new());
            for &(after, packet) in &unmarked {
                now += after;
                drain(&mut rx, now.saturating_sub(1), &mut log);
                rx.arrive(t(now), packet).expect("room");
            }
            drain(&mut rx, u64::MAX, &mut log);
            times(&log)
        };
        assert_eq!(continued(rx), continued(rival), "seed {seed}: {with_marks:?} {dma:?}");
    }
    assert!(
        moments > 1_000,
        "only {moments} moments with unmarked packets left over: the test shows little"
    );
}

#[test]
fn m_gf11_unmarked_frames_wait_the_full_timeout_under_open_mx_and_stream() {
    for strategy in [StrategyKind::Timeout, StrategyKind::OpenMx, StrategyKind::Stream] {
        let mut bench = Bench::new(coalescing(strategy, 75_000), DmaModel::ZERO);
        bench.batch(1_000, &[UNMARKED]);
        bench.batch(30_000, &[UNMARKED, UNMARKED]);
        bench.batch(200_000, &[UNMARKED]);
        bench.run_to_end();
        assert_eq!(
            bench.decided(),
            [(76_000, "timeout", 3), (275_000, "timeout", 1)],
            "{strategy}"
        );
    }
}

#[test]
fn m_gf11_a_mark_takes_the_waiting_with_it_and_the_timer_starts_anew() {
    for strategy in STRATEGIES {
        let mut bench = Bench::new(coalescing(strategy, 75_000), DmaModel::ZERO);
        bench.batch(0, &[UNMARKED]);
        bench.batch(10_000, &[MARKED]);
        bench.batch(20_000, &[UNMARKED]);
        bench.run_to_end();
        assert_eq!(
            bench.decided(),
            [(10_000, "mark", 2), (95_000, "timeout", 1)],
            "{strategy}"
        );
    }
}
