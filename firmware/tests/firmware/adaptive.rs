//! Adaptive moderation (M-GF7, M-GF8): what the delay does under quiet traffic, load, and traffic between the two.

use firmware::{AdaptiveState, Coalescing, CoalescingChange, DmaModel, PacketInfo, StrategyKind, control};

use crate::{
    control::{ask, card},
    support::{Bench, DELAY_NS, MARKED, Numbers, UNMARKED, bench, coalescing, t},
};

const ADAPTIVE: [StrategyKind; 3] = [
    StrategyKind::Adaptive,
    StrategyKind::AdaptiveOpenMx,
    StrategyKind::AdaptiveStream,
];

/// Packets with so long a gap between them, from `from` on; gives the time after the last gap.
fn stream(bench: &mut Bench, from: u64, count: u64, gap_ns: u64, packet: PacketInfo) -> u64 {
    (0..count).for_each(|n| bench.batch(from + n * gap_ns, &[packet]));
    from + count * gap_ns
}

fn state(bench: &Bench) -> AdaptiveState {
    bench.rx.adaptive().expect("adaptive moderation is on")
}

#[test]
fn m_gf7_quiet_traffic_has_an_interrupt_per_packet_at_once() {
    for strategy in ADAPTIVE {
        let mut bench = bench(strategy, DmaModel::ZERO);
        stream(&mut bench, 1_000_000, 50, 1_000_000, UNMARKED);
        bench.run_to_end();
        let expected: Vec<_> = (1..=50).map(|n| (n * 1_000_000, "adaptive", 1)).collect();
        assert_eq!(bench.decided(), expected, "{strategy}");
        let state = state(&bench);
        assert_eq!((state.delay_ns, state.packets_per_s, state.longer), (0, 1_000, 0));
    }
}

#[test]
fn m_gf7_a_ping_pong_stays_quiet() {
    // 20 µs are a fast round trip; four of them are longer than the longest delay.
    let mut bench = bench(StrategyKind::Adaptive, DmaModel::ZERO);
    stream(&mut bench, 0, 10_000, 20_000, UNMARKED);
    assert_eq!(bench.interrupts.len(), 10_000);
    assert_eq!(state(&bench).longer, 0);
}

#[test]
fn m_gf7_under_load_the_delay_grows_to_that_of_the_settings() {
    for strategy in ADAPTIVE {
        let mut bench = bench(strategy, DmaModel::ZERO);
        let full = stream(&mut bench, 0, 1_000, 1_000, UNMARKED);
        let before = bench.interrupts.len();
        assert!(
            before < 200,
            "{strategy}: {before} interrupts until the delay is the longest"
        );
        stream(&mut bench, full, 7_600, 1_000, UNMARKED);
        let interrupts = &bench.interrupts[before + 1..];
        assert!(
            (95..=101).contains(&interrupts.len()),
            "{strategy}: {}",
            interrupts.len()
        );
        // The time-out's packet, and those that came while it waited.
        assert!(
            interrupts
                .iter()
                .all(|i| i.packets == 76 && i.reason.name() == "timeout")
        );
        let state = state(&bench);
        assert_eq!((state.delay_ns, state.longer, state.shorter), (DELAY_NS, 4, 0));
        assert!((900_000..=1_100_000).contains(&state.packets_per_s), "{state:?}");
    }
}

#[test]
fn m_gf7_after_load_the_second_packet_at_the_latest_is_announced_at_once() {
    for pause_ns in [600_000, 1_000_000, 10_000_000, 1_000_000_000] {
        let mut bench = bench(StrategyKind::Adaptive, DmaModel::ZERO);
        let end = stream(&mut bench, 0, 5_000, 500, UNMARKED);
        assert_eq!(state(&bench).delay_ns, DELAY_NS);
        bench.run_to_end();
        bench.interrupts.clear();
        let end = stream(&mut bench, end + pause_ns, 2, 1_000_000, UNMARKED);
        bench.run_to_end();
        let last = bench.interrupts.last().expect("an interrupt");
        assert_eq!(last.decided_at, t(end - 1_000_000), "after a pause of {pause_ns} ns");
        assert_eq!(state(&bench).delay_ns, 0);
    }
}

#[test]
fn m_gf7_each_level_has_its_delay_and_its_rate() {
    // (gap between packets, delay): 4, 8, 12, 16 packets per longest delay and more; then half as many and less.
    let cases = [
        (18_750, 9_375),
        (9_375, 18_750),
        (6_250, 37_500),
        (4_000, 75_000),
        (100, 75_000),
    ];
    let mut up = bench(StrategyKind::Adaptive, DmaModel::ZERO);
    let mut now = 0;
    for (gap_ns, delay_ns) in cases {
        now = stream(&mut up, now, 2_000, gap_ns, UNMARKED);
        assert_eq!(state(&up).delay_ns, delay_ns, "a packet per {gap_ns} ns");
    }
    for (gap_ns, delay_ns) in [
        (9_375, 75_000),
        (9_600, 37_500),
        (12_600, 18_750),
        (18_800, 9_375),
        (37_600, 0),
    ] {
        now = stream(&mut up, now, 2_000, gap_ns, UNMARKED);
        assert_eq!(state(&up).delay_ns, delay_ns, "a packet per {gap_ns} ns, after load");
    }
    assert_eq!((state(&up).longer, state(&up).shorter), (4, 4));
}

#[test]
fn m_gf7_random_traffic_at_the_rate_where_a_level_begins_does_not_flap() {
    for per_delay in [4, 8, 12, 16] {
        let mut numbers = Numbers::new(per_delay);
        let mut bench = bench(StrategyKind::Adaptive, DmaModel::ZERO);
        let (mut now, packets) = (0, 100_000);
        for _ in 0..packets {
            // A packet comes in each 75 ns with equal probability, whatever came before.
            now += 75;
            while numbers.below(1_000) >= per_delay {
                now += 75;
            }
            bench.batch(now, &[UNMARKED]);
        }
        let state = state(&bench);
        let samples = packets / 32;
        assert!(
            state.longer + state.shorter < samples / 25,
            "{per_delay} packets per delay: {state:?} in {samples} samples"
        );
    }
}

#[test]
fn m_gf8_a_marked_packet_is_announced_at_once_under_load_and_others_wait() {
    for (strategy, last) in [
        (StrategyKind::Adaptive, (75_000, "timeout", 3)),
        (StrategyKind::AdaptiveOpenMx, (2_000, "mark", 3)),
        (StrategyKind::AdaptiveStream, (2_000, "mark", 3)),
    ] {
        let mut bench = bench(strategy, DmaModel::ZERO);
        let end = stream(&mut bench, 0, 5_000, 1_000, UNMARKED);
        // Within the sample that runs: the delay is still the longest.
        bench.run_to_end();
        bench.interrupts.clear();
        let start = end + 80_000;
        bench.batch(start, &[UNMARKED]);
        bench.batch(start + 1_000, &[UNMARKED]);
        bench.batch(start + 2_000, &[MARKED]);
        bench.run_to_end();
        let (after, reason, packets) = last;
        assert_eq!(bench.decided(), [(start + after, reason, packets)], "{strategy}");
    }
}

#[test]
fn m_gf8_adaptive_stream_puts_off_while_others_are_on_their_way() {
    let dma = DmaModel {
        setup_ns: 1_000,
        ..DmaModel::ZERO
    };
    let mut bench = bench(StrategyKind::AdaptiveStream, dma);
    stream(&mut bench, 0, 5_000, 1_000, UNMARKED);
    bench.run_to_end();
    bench.interrupts.clear();
    bench.batch(5_100_000, &[MARKED, UNMARKED]);
    bench.run_to_end();
    assert_eq!(bench.decided(), [(5_102_000, "deferred", 2)]);
}

#[test]
fn m_gf7_the_delay_follows_the_settings_while_traffic_runs() {
    let mut bench = bench(StrategyKind::Adaptive, DmaModel::ZERO);
    stream(&mut bench, 0, 5_000, 1_000, UNMARKED);
    let shorter = coalescing(StrategyKind::Adaptive, 40_000);
    bench.rx.set_coalescing(t(5_000_000), shorter);
    assert_eq!(state(&bench).delay_ns, 40_000);
    bench
        .rx
        .set_coalescing(t(5_000_000), coalescing(StrategyKind::Timeout, 40_000));
    assert_eq!(bench.rx.adaptive(), None);
    bench.rx.set_coalescing(t(5_000_000), shorter);
    assert_eq!(bench.rx.adaptive(), Some(AdaptiveState::default()), "a fresh start");
    bench
        .rx
        .set_coalescing(t(5_000_000), coalescing(StrategyKind::Adaptive, 0));
    assert_eq!(bench.rx.adaptive(), None, "a delay of 0 turns coalescing off");
}

#[test]
fn m_gf7_the_state_comes_across_in_band() {
    let mut nic = card(2);
    let request = control::Request::GetAdaptive { queue: 1 };
    let report = |nic: &mut firmware::Card| match ask(nic, request) {
        control::Reply::GetAdaptive(report) => report,
        other => panic!("another reply: {other:?}"),
    };
    let before = report(&mut nic);
    assert_eq!((before.queue, before.strategy), (1, StrategyKind::Timeout.into()));
    assert_eq!((before.longest_ns, before.state), (Coalescing::DEFAULT.delay_ns, None));
    let change = CoalescingChange {
        strategy: Some(StrategyKind::AdaptiveStream),
        ..CoalescingChange::default()
    };
    nic.change_coalescing(t(0), None, change).expect("a good change");
    for n in 0..1_000 {
        nic.rx(1).arrive(t(n * 5_000), UNMARKED).expect("room");
        while nic.rx(1).poll(t(n * 5_000)).is_some() {}
    }
    let after = report(&mut nic);
    assert_eq!(after.strategy, StrategyKind::AdaptiveStream.into());
    let state = after.state.expect("adaptive moderation is on");
    assert_eq!(Some(state), nic.queues()[1].adaptive());
    assert_eq!((state.delay_ns, state.longer, state.shorter), (37_500, 3, 0));
    assert!((190_000..=210_000).contains(&state.packets_per_s), "{state:?}");
}
