//! The mechanisms of the paper one by one, with its figures: delay 75 µs, 23 fragments of a 32 KiB message.

use ether::{EtherType, MacAddr};
use firmware::{Coalescing, DmaModel, Event, Mark, PacketInfo, Reason, StrategyKind};

use crate::support::{Bench, DELAY_NS, DMA, MARKED, UNMARKED, bench, coalescing, t};

#[test]
fn m_gf1_the_delay_counts_from_the_first_packet_not_yet_announced() {
    let mut bench = bench(StrategyKind::Timeout, DmaModel::ZERO);
    bench.batch(1_000, &[UNMARKED]);
    bench.batch(75_999, &[MARKED]);
    bench.batch(76_000, &[UNMARKED]);
    bench.batch(80_000, &[UNMARKED]);
    bench.run_to_end();
    // The packet at 76 µs is in host memory when the time-out comes in that instant.
    assert_eq!(bench.decided(), [(76_000, "timeout", 3), (155_000, "timeout", 1)]);
}

#[test]
fn m_gf1_a_delay_of_zero_is_an_interrupt_per_packet_under_every_strategy() {
    for &strategy in StrategyKind::ALL {
        let mut bench = Bench::new(
            Coalescing {
                frames_max: 5,
                ..coalescing(strategy, 0)
            },
            DmaModel::ZERO,
        );
        bench.batch(10, &[UNMARKED, MARKED, UNMARKED]);
        bench.run_to_end();
        assert_eq!(bench.decided(), [(10, "every-packet", 1); 3], "{strategy}");
    }
}

#[test]
fn m_gf1_an_idle_host_is_never_interrupted() {
    for &strategy in StrategyKind::ALL {
        let mut bench = bench(strategy, DMA);
        bench.batch(0, &[UNMARKED, MARKED, UNMARKED]);
        bench.run_to_end();
        assert_eq!(bench.rx.next_event(), None, "{strategy}");
        assert_eq!(bench.rx.poll(t(u64::MAX)), None, "{strategy}");
    }
}

#[test]
fn m_gf2_count_or_timeout_whichever_comes_first() {
    let settings = Coalescing {
        frames_max: 3,
        ..coalescing(StrategyKind::Timeout, DELAY_NS)
    };
    let mut bench = Bench::new(settings, DmaModel::ZERO);
    bench.batch(0, &[UNMARKED; 7]);
    bench.run_to_end();
    assert_eq!(
        bench.decided(),
        [(0, "count", 3), (0, "count", 3), (75_000, "timeout", 1)]
    );
}

#[test]
fn m_gf2_the_count_limit_holds_under_open_mx_and_stream() {
    for strategy in [StrategyKind::OpenMx, StrategyKind::Stream] {
        let settings = Coalescing {
            frames_max: 3,
            ..coalescing(strategy, DELAY_NS)
        };
        let mut bench = Bench::new(settings, DmaModel::ZERO);
        bench.batch(0, &[UNMARKED, UNMARKED, UNMARKED, UNMARKED, MARKED]);
        bench.run_to_end();
        assert_eq!(bench.decided(), [(0, "count", 3), (0, "mark", 2)], "{strategy}");
    }
}

#[test]
fn m_gf3_the_mark_is_bit_7_of_the_mxoe_type() {
    let frame = |ether_type: EtherType, kind: u8| {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&MacAddr([2, 0, 0, 0, 0, 1]).0);
        frame[12..14].copy_from_slice(&ether_type.0.to_be_bytes());
        frame[16] = kind;
        frame
    };
    let marked = |ether_type, kind| PacketInfo::classify(&frame(ether_type, kind), 60, true).marked;
    for kind in 0..0x40 {
        assert!(!marked(EtherType::MXOE, kind));
        assert!(marked(EtherType::MXOE, kind | 0x80));
        assert!(
            !marked(EtherType::IPV4, kind | 0x80),
            "in IPv4 the byte is part of the length"
        );
        assert!(
            !PacketInfo::classify(&frame(EtherType::MXOE, kind | 0x80), 60, false).marked,
            "marks are off"
        );
    }
    let whole = frame(EtherType::MXOE, 0xa5);
    for len in 0..=16 {
        assert!(
            !PacketInfo::classify(&whole[..len], len as u32, true).marked,
            "no type byte in {len} bytes"
        );
    }
    assert_eq!(
        PacketInfo::classify(&whole[..17], 1500, true),
        PacketInfo {
            len: 1500,
            marked: true
        }
    );
}

#[test]
fn m_gf3_the_mark_of_esp_is_the_flag_that_ends_a_call() {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&EtherType::ESP.0.to_be_bytes());
    for flags in 0..=u8::MAX {
        frame[14] = flags;
        // The place of MXoE's mark, which is within the port here.
        frame[16] = !flags;
        let marked = |header: &[u8], marks_on| PacketInfo::classify(header, 60, marks_on).marked;
        assert_eq!(marked(&frame, true), flags & 2 != 0, "{flags:#x}");
        assert_eq!(marked(&frame[..15], true), flags & 2 != 0, "{flags:#x}");
        assert!(!marked(&frame[..14], true) && !marked(&frame, false));
    }
    for (ether_type, has_marks) in [
        (EtherType::ESP, true),
        (EtherType::MXOE, true),
        (EtherType::IPV4, false),
    ] {
        frame[12..14].copy_from_slice(&ether_type.0.to_be_bytes());
        assert_eq!(Mark::of(&frame[..14], true).is_some(), has_marks);
        assert_eq!(Mark::of(&frame[..14], false), None);
    }
}

#[test]
fn m_gf4_a_marked_packet_is_announced_when_its_dma_completes() {
    let dma = DmaModel {
        setup_ns: 500,
        ..DmaModel::ZERO
    };
    let mut bench = bench(StrategyKind::OpenMx, dma);
    bench.batch(0, &[UNMARKED, MARKED, UNMARKED, MARKED]);
    bench.run_to_end();
    assert_eq!(bench.decided(), [(1_000, "mark", 2), (2_000, "mark", 2)]);
}

#[test]
fn m_gf4_without_looking_at_marks_open_mx_is_the_timeout() {
    let mut bench = Bench::new(
        Coalescing {
            marks: false,
            ..coalescing(StrategyKind::OpenMx, 100)
        },
        DMA,
    );
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&EtherType::MXOE.0.to_be_bytes());
    frame[16] = 0xa5;
    let packet = bench.rx.classify(&frame, 60);
    bench.batch(0, &[packet]);
    bench.run_to_end();
    assert_eq!(bench.decided()[0].1, "timeout");
}

#[test]
fn m_gf5_a_lone_marked_packet_is_announced_at_once() {
    let mut bench = bench(
        StrategyKind::Stream,
        DmaModel {
            setup_ns: 500,
            ..DmaModel::ZERO
        },
    );
    bench.batch(0, &[MARKED]);
    // Arrives after the DMA.
    bench.batch(600, &[MARKED]);
    bench.run_to_end();
    assert_eq!(bench.decided(), [(500, "mark", 1), (1_100, "mark", 1)]);
}

#[test]
fn m_gf5_a_packet_that_arrives_during_the_dma_defers_the_interrupt() {
    let mut bench = bench(
        StrategyKind::Stream,
        DmaModel {
            setup_ns: 500,
            ..DmaModel::ZERO
        },
    );
    bench.batch(0, &[MARKED]);
    bench.batch(400, &[UNMARKED]);
    bench.run_to_end();
    assert_eq!(bench.decided(), [(1_000, "deferred", 2)]);
    assert_eq!(bench.rx.counters().total().deferred, 1);
}

#[test]
fn m_gf5_a_packet_that_arrives_as_the_dma_completes_defers_the_interrupt() {
    let mut bench = bench(
        StrategyKind::Stream,
        DmaModel {
            setup_ns: 500,
            ..DmaModel::ZERO
        },
    );
    bench.batch(0, &[MARKED]);
    bench.rx.arrive(t(500), UNMARKED).expect("room");
    bench.run_to_end();
    assert_eq!(bench.decided(), [(1_000, "deferred", 2)]);
}

#[test]
fn m_gf5_an_endless_stream_is_announced_by_the_timeout_which_clears_the_flag() {
    let settings = coalescing(StrategyKind::Stream, 2_000);
    let mut bench = Bench::new(
        settings,
        DmaModel {
            setup_ns: 500,
            ..DmaModel::ZERO
        },
    );
    // One DMA at a time, always another packet behind it; the first is the only marked one.
    bench.batch(0, &[MARKED, UNMARKED]);
    for n in 1..10 {
        bench.batch(n * 500, &[UNMARKED]);
    }
    bench.run_to_end();
    // At 2 µs four packets are in memory; the oldest of the rest arrived at 1.5 µs. No flag is left for the last one.
    let expected = [
        (2_000, "timeout", 4),
        (3_500, "timeout", 3),
        (5_000, "timeout", 3),
        (6_500, "timeout", 1),
    ];
    assert_eq!(bench.decided(), expected);
}

#[test]
fn m_gf5_a_timeout_while_only_unfinished_dmas_wait_raises_at_the_first_completion() {
    for strategy in [StrategyKind::Timeout, StrategyKind::OpenMx, StrategyKind::Stream] {
        let settings = coalescing(strategy, 100);
        let mut bench = Bench::new(
            settings,
            DmaModel {
                setup_ns: 500,
                ..DmaModel::ZERO
            },
        );
        bench.batch(0, &[UNMARKED, UNMARKED]);
        assert_eq!(
            bench.rx.next_event(),
            Some(t(500)),
            "{strategy}: nothing to announce before"
        );
        bench.run_to_end();
        assert_eq!(
            bench.decided(),
            [(500, "timeout", 1), (1_000, "timeout", 1)],
            "{strategy}"
        );
    }
}

#[test]
fn m_gf5_frames_of_one_batch_have_all_arrived_before_the_first_completes() {
    let mut bench = bench(StrategyKind::Stream, DmaModel::ZERO);
    bench.batch(0, &[MARKED; 64]);
    bench.run_to_end();
    assert_eq!(bench.decided(), [(0, "deferred", 64)]);
    assert_eq!(bench.rx.counters().total().deferred, 63);
}

/// Also if the driver looked at the clock for each frame of the batch: without a modelled time DMAs complete at the poll.
#[test]
fn m_gf5_frames_of_one_batch_may_carry_different_times() {
    let mut bench = bench(StrategyKind::Stream, DmaModel::ZERO);
    for n in 0..64 {
        bench.rx.arrive(t(n), MARKED).expect("room");
    }
    bench.run_to_end();
    assert_eq!(bench.rx.counters().total().deferred, 63);
    assert_eq!(bench.interrupts.len(), 1);
}

/// The demo's medium message: 32 KiB in 23 frames at line rate, the last one marked.
fn medium() -> Vec<(u64, PacketInfo)> {
    // 1500 B and preamble, gap and check sequence at 10 Gbit/s: 1.23 µs.
    (0..23)
        .map(|n| {
            (
                1_230 * n,
                PacketInfo {
                    len: 1500,
                    marked: n == 22,
                },
            )
        })
        .collect()
}

#[test]
fn m_gf4_gf5_medium_message_disabled_23_interrupts_open_mx_1_stream_1() {
    for dma in [DmaModel::ZERO, DMA] {
        for sent_in_one_go in [false, true] {
            let decided = |strategy| {
                let mut bench = bench(strategy, dma);
                if sent_in_one_go {
                    bench.batch(0, &medium().iter().map(|&(_, packet)| packet).collect::<Vec<_>>());
                } else {
                    medium().iter().for_each(|&(at, packet)| bench.batch(at, &[packet]));
                }
                bench.run_to_end();
                assert_eq!(bench.published.len(), 23);
                let last = bench.published[22].as_nanos();
                let decided = bench.decided();
                (
                    decided.len(),
                    decided.last().copied().map(|(at, reason, _)| (at - last, reason)),
                )
            };
            assert_eq!(decided(StrategyKind::Disabled), (23, Some((0, "every-packet"))));
            assert_eq!(decided(StrategyKind::OpenMx), (1, Some((0, "mark"))));
            assert_eq!(decided(StrategyKind::Stream), (1, Some((0, "mark"))));
            let (count, last) = decided(StrategyKind::Timeout);
            assert_eq!(count, 1);
            assert!(last.is_some_and(|(late, reason)| late > 40_000 && reason == "timeout"));
        }
    }
}

#[test]
fn m_gf4_gf5_of_back_to_back_marked_frames_stream_decides_at_most_0_6_of_open_mx() {
    // (frames taken at once, time between batches in ns, DMA)
    let loads = [
        (64, 5_000, DmaModel::ZERO),
        (8, 500, DmaModel::ZERO),
        (2, 200, DmaModel::ZERO),
        (1, 122, DMA),
    ];
    for (batch, gap_ns, dma) in loads {
        let decided = |strategy| {
            let mut bench = bench(strategy, dma);
            for n in 0..200 {
                bench.batch(n * gap_ns, &vec![MARKED; batch]);
            }
            bench.run_to_end();
            bench.rx.counters().decided_total() as f64
        };
        let (open_mx, stream) = (decided(StrategyKind::OpenMx), decided(StrategyKind::Stream));
        assert_eq!(open_mx, 200.0 * batch as f64, "one interrupt per marked frame");
        assert!(
            stream <= 0.6 * open_mx,
            "{stream} against {open_mx} for batches of {batch}"
        );
    }
}

/// R-GF7: a fragment that comes right behind the marked one no longer costs an early interrupt.
#[test]
fn m_gf5_a_misordered_message_is_still_announced_at_once() {
    let mut fragments = [UNMARKED; 23];
    fragments[21].marked = true;
    for (strategy, expected) in [
        (StrategyKind::OpenMx, vec![("mark", 22), ("timeout", 1)]),
        (StrategyKind::Stream, vec![("deferred", 23)]),
    ] {
        let mut bench = bench(strategy, DMA);
        bench.batch(0, &fragments);
        bench.run_to_end();
        let decided: Vec<_> = bench
            .decided()
            .into_iter()
            .map(|(_, reason, packets)| (reason, packets))
            .collect();
        assert_eq!(decided, expected, "{strategy}");
    }
}

#[test]
fn a_late_poll_decides_as_it_would_have_been_in_time() {
    let dma = DmaModel {
        setup_ns: 500,
        ..DmaModel::ZERO
    };
    let packets = [
        (0, UNMARKED),
        (300, MARKED),
        (5_000, UNMARKED),
        (80_000, MARKED),
        (80_100, UNMARKED),
    ];
    for &strategy in StrategyKind::ALL {
        let mut in_time = bench(strategy, dma);
        packets.iter().for_each(|&(at, packet)| in_time.batch(at, &[packet]));
        in_time.run_to_end();
        let mut late = bench(strategy, dma);
        packets
            .iter()
            .for_each(|&(at, packet)| late.rx.arrive(t(at), packet).expect("room"));
        let mut interrupts = Vec::new();
        while let Some(event) = late.rx.poll(t(1_000_000)) {
            match event {
                Event::Completed { interrupt, .. } => interrupts.extend(interrupt),
                Event::Interrupt(interrupt) => interrupts.push(interrupt),
                Event::FetchHostState => unreachable!("no watchdog is on"),
            }
        }
        assert_eq!(interrupts, in_time.interrupts, "{strategy}");
    }
}

#[test]
fn names_of_strategies_and_reasons_read_back() {
    let names: Vec<_> = StrategyKind::ALL.iter().map(|kind| kind.name()).collect();
    // Codes are on the wire: these stay, whatever is added behind them.
    assert_eq!(
        names[..7],
        [
            "disabled",
            "timeout",
            "open-mx",
            "stream",
            "adaptive",
            "adaptive-open-mx",
            "adaptive-stream"
        ]
    );
    for &kind in StrategyKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
        assert_eq!(StrategyKind::from_code(kind.code()), Some(kind));
    }
    let error = "openmx".parse::<StrategyKind>().expect_err("no such name").to_string();
    assert!(names.iter().all(|name| error.contains(name)), "{error}");
    for reason in Reason::ALL {
        assert_eq!(reason.to_string().parse(), Ok(reason));
    }
    let error = "tired".parse::<Reason>().expect_err("no such name").to_string();
    assert!(error.contains("every-packet") && error.contains("restart"), "{error}");
}
