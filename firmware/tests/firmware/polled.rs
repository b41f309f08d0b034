//! The watchdog and clocks composed with coalescing: a queue with a host that polls, or does not.

use firmware::{
    Card, CardConfig, Coalescing, DmaModel, Event, HostState, Interrupt, PacketInfo, PipelineConfig, Reason,
    RxPipeline, StrategyKind,
    watchdog::{WATCHDOG_DELAY_NS_MAX, WatchdogCounters},
};

use crate::support::{DELAY_NS, DMA, MARKED, Numbers, UNMARKED, coalescing, t};

/// A queue and a host, which processes packets when it polls or, some time after it, because of an interrupt.
struct Host {
    rx: RxPipeline,
    now: u64,
    delivered: u64,
    processed: u64,
    enabled: bool,
    /// Processes what is delivered so long after an interrupt; `None` = does not react.
    reaction_ns: Option<u64>,
    reacts_at: Option<u64>,
    interrupts: Vec<Interrupt>,
}

impl Host {
    fn new(coalescing: Coalescing, dma: DmaModel, watchdog_ns: u64) -> Self {
        let mut rx = RxPipeline::new(&PipelineConfig { coalescing, dma });
        rx.set_watchdog(t(0), watchdog_ns);
        Self {
            rx,
            now: 0,
            delivered: 0,
            processed: 0,
            enabled: true,
            reaction_ns: Some(500),
            reacts_at: None,
            interrupts: Vec::new(),
        }
    }

    fn timeout(watchdog_ns: u64) -> Self {
        Self::new(coalescing(StrategyKind::Timeout, DELAY_NS), DmaModel::ZERO, watchdog_ns)
    }

    /// Everything until `to`, `to` included.
    fn run_until(&mut self, to: u64) {
        loop {
            let card = self.rx.next_event().map(|at| at.as_nanos());
            let Some(at) = [card, self.reacts_at]
                .into_iter()
                .flatten()
                .min()
                .filter(|&at| at <= to)
            else {
                break;
            };
            assert!(at >= self.now, "an event in the past");
            self.now = at;
            if self.reacts_at == Some(at) {
                self.reacts_at = None;
                self.processed = self.delivered;
            }
            self.serve();
        }
        self.now = to;
        self.serve();
    }

    fn serve(&mut self) {
        while let Some(event) = self.rx.poll(t(self.now)) {
            let interrupt = match event {
                Event::Completed { count, interrupt } => {
                    self.delivered += u64::from(count);
                    interrupt
                }
                Event::Interrupt(interrupt) => Some(interrupt),
                Event::FetchHostState => {
                    assert_eq!(
                        self.rx.delivered(),
                        self.delivered,
                        "all that completed was told before"
                    );
                    let state = HostState {
                        interrupts_enabled: self.enabled,
                        processed: self.processed,
                    };
                    self.rx.host_state(t(self.now), state);
                    None
                }
            };
            if interrupt.is_some() && self.enabled {
                self.reacts_at = self.reacts_at.or(self.reaction_ns.map(|ns| self.now + ns));
            }
            self.interrupts.extend(interrupt);
        }
    }

    fn arrive(&mut self, at: u64, packet: PacketInfo) {
        if let Some(before) = at.checked_sub(1) {
            self.run_until(before);
        }
        self.now = at;
        self.rx.arrive(t(at), packet).expect("room");
        self.run_until(at);
    }

    fn poll(&mut self, at: u64) {
        self.run_until(at);
        self.processed = self.delivered;
    }

    fn decided(&self) -> Vec<(u64, Reason, u32)> {
        let mapped = |i: &Interrupt| (i.decided_at.as_nanos(), i.reason, i.packets);
        self.interrupts.iter().map(mapped).collect()
    }

    fn counters(&self) -> WatchdogCounters {
        *self.rx.watchdog().counters()
    }
}

/// A packet every 10 µs for 10 ms. The host polls every `polls_ns` (0 = never). Gives the interrupts.
fn interrupts_of(watchdog_ns: u64, polls_ns: u64) -> (usize, WatchdogCounters) {
    let mut host = Host::timeout(watchdog_ns);
    for n in 1..=1_000u64 {
        let from = (n - 1) * 10_000;
        let polls = 10_000u64.checked_div(polls_ns).unwrap_or(0);
        (0..polls).for_each(|poll| host.poll(from + poll * polls_ns + 1));
        host.arrive(n * 10_000, UNMARKED);
    }
    if polls_ns != 0 {
        host.poll(10_000_001);
    }
    host.run_until(20_000_000);
    assert_eq!(host.processed, 1_000, "every packet is processed in the end");
    (host.interrupts.len(), host.counters())
}

#[test]
fn m_bv8_delays_from_1_us_to_1_ms_interrupt_a_host_that_does_not_poll_and_none_that_does() {
    // Off: the time-out of 75 µs announces the packets of 80 µs, the last ones of the run by its own.
    let (off, counters) = interrupts_of(0, 0);
    assert_eq!((off, counters), (125, WatchdogCounters::default()));
    // This host, which processes 500 ns after an interrupt, under the watchdog: one for the packets of every second
    // delay, since the look after an interrupt finds that some were processed.
    for (delay_ns, expected) in [(1_000, 1_000), (100_000, 51), (1_000_000, 6)] {
        let (silent, counters) = interrupts_of(delay_ns, 0);
        assert_eq!(silent, expected, "{delay_ns} ns, a host that does not poll");
        assert_eq!(counters.fired as usize, silent);
        // A host that polls every 500 ns is interrupted at no delay: not even at 1 µs.
        let (polling, counters) = interrupts_of(delay_ns, 500);
        assert_eq!((polling, counters.fired), (0, 0), "{delay_ns} ns, a host that polls");
        assert!(counters.cancelled > 0);
        assert_eq!(counters.lateness.max_ns(), 0, "virtual time is never late");
    }
}

#[test]
fn m_bv8_the_watchdog_takes_the_place_of_the_time_out_and_of_nothing_else() {
    let settings = Coalescing {
        frames_max: 3,
        ..coalescing(StrategyKind::OpenMx, DELAY_NS)
    };
    let mut host = Host::new(settings, DmaModel::ZERO, 200_000);
    host.reaction_ns = Some(1_000);
    host.arrive(0, UNMARKED);
    host.run_until(199_999);
    assert_eq!(host.decided(), [], "no time-out");
    host.arrive(250_000, MARKED);
    (0..3).for_each(|n| host.arrive(260_000 + n, UNMARKED));
    host.run_until(1_000_000);
    let expected = [
        (200_000, Reason::Watchdog, 1),
        (250_000, Reason::Mark, 1),
        (260_002, Reason::Count, 3),
    ];
    assert_eq!(host.decided(), expected);
    let counters = host.counters();
    assert_eq!(
        (counters.fired, counters.cancelled),
        (1, 1),
        "at 400 µs all was processed"
    );
}

#[test]
fn m_bv8_a_card_without_coalescing_waits_for_its_watchdog_too() {
    let mut host = Host::new(coalescing(StrategyKind::Disabled, 0), DmaModel::ZERO, 50_000);
    host.arrive(0, UNMARKED);
    host.arrive(10, UNMARKED);
    host.run_until(60_000);
    assert_eq!(host.decided(), [(50_000, Reason::Watchdog, 2)]);
    host.arrive(70_000, UNMARKED);
    host.rx.set_watchdog(t(80_000), 0);
    host.run_until(80_000);
    host.arrive(90_000, UNMARKED);
    let expected = [(80_000, Reason::EveryPacket, 1), (90_000, Reason::EveryPacket, 1)];
    assert_eq!(host.decided()[1..], expected, "and not without one");
}

#[test]
fn m_bv8_packets_that_the_host_polled_need_no_announcement_and_are_counted() {
    let mut host = Host::timeout(100_000);
    (0..4).for_each(|n| host.arrive(n, UNMARKED));
    host.poll(50_000);
    host.run_until(150_000);
    let total = host.rx.counters().total();
    assert_eq!((total.polled, total.announced, total.unannounced()), (4, 0, 0));
    assert_eq!((host.rx.waiting(), host.rx.next_event()), (0, None));
}

#[test]
fn m_bv9_a_host_with_interrupts_disabled_is_interrupted_after_it_enabled_them() {
    let mut host = Host::timeout(10_000);
    host.enabled = false;
    host.arrive(0, UNMARKED);
    host.run_until(95_000);
    assert_eq!(host.decided(), []);
    host.enabled = true;
    host.run_until(1_000_000);
    assert_eq!(host.decided(), [(100_000, Reason::Watchdog, 1)]);
    assert_eq!(host.counters().restarted_disabled, 9);
}

#[test]
fn m_bv9_a_flag_toggled_during_the_fetch_is_read_stale_and_no_interrupt_is_lost() {
    let mut host = Host::new(coalescing(StrategyKind::Timeout, DELAY_NS), DMA, 10_000);
    host.enabled = false;
    host.arrive(0, UNMARKED);
    host.run_until(10_000);
    host.enabled = true;
    host.run_until(10_000 + DMA.transfer_ns(8));
    assert_eq!(host.decided(), [], "what the card copied was older");
    host.run_until(30_000);
    assert_eq!(host.decided().len(), 1);
}

#[test]
fn m_bv8_a_host_that_does_not_react_is_interrupted_again_with_nothing_new() {
    let mut host = Host::timeout(10_000);
    host.reaction_ns = None;
    host.arrive(0, UNMARKED);
    host.run_until(25_000);
    let expected = [(10_000, Reason::Watchdog, 1), (20_000, Reason::Watchdog, 0)];
    assert_eq!(host.decided(), expected);
}

#[test]
fn m_bv8_turned_off_what_waits_has_its_time_out_again() {
    let mut host = Host::timeout(WATCHDOG_DELAY_NS_MAX);
    host.arrive(0, UNMARKED);
    host.run_until(30_000);
    host.rx.set_watchdog(t(30_000), 0);
    host.run_until(80_000);
    assert_eq!(host.decided(), [(DELAY_NS, Reason::Timeout, 1)]);
    host.run_until(90_000);
    host.arrive(100_000, UNMARKED);
    host.rx.set_watchdog(t(110_000), 20_000);
    host.run_until(400_000);
    assert_eq!(
        host.decided()[1..],
        [(130_000, Reason::Watchdog, 1)],
        "from when it was turned on"
    );
    host.rx.reset();
    assert_eq!((host.rx.delivered(), host.rx.next_event()), (0, None));
}

/// Random traffic under random settings: what holds whatever happens.
#[test]
fn m_bv8_no_interrupt_before_a_dma_and_no_packet_unannounced_for_longer_than_two_delays() {
    for seed in 0..60_000 {
        let mut numbers = Numbers::new(seed);
        let delay_ns = numbers.one_of(&[3, 10, 40]);
        let dma = numbers.one_of(&[
            DmaModel::ZERO,
            DmaModel {
                setup_ns: 2,
                rate_bps: 8_000_000_000,
                ..DmaModel::ZERO
            },
        ]);
        let settings = Coalescing {
            frames_max: numbers.one_of(&[0, 0, 2]),
            ..coalescing(numbers.one_of(&[StrategyKind::Timeout, StrategyKind::Stream]), 5)
        };
        let mut host = Host::new(settings, dma, delay_ns);
        let polls = numbers.percent(50);
        host.reaction_ns = numbers.one_of(&[None, Some(0), Some(7)]);
        let mut at = 0;
        let mut arrivals = Vec::new();
        for _ in 0..numbers.below(12) {
            at += numbers.one_of(&[0, 1, 3, 11, 60]);
            let packet = PacketInfo {
                len: numbers.one_of(&[1, 4]),
                marked: numbers.percent(20),
            };
            host.arrive(at, packet);
            arrivals.push(at);
            if polls && numbers.percent(40) {
                host.poll(at);
            }
        }
        let own_dma = 12 * dma.transfer_ns(4);
        host.run_until(at + 3 * (delay_ns + dma.transfer_ns(8)) + own_dma);
        let announced = host.interrupts.iter().map(|i| u64::from(i.packets)).sum::<u64>();
        let total = host.rx.counters().total();
        assert_eq!(total.announced, announced, "seed {seed}");
        assert_eq!(
            total.packets,
            announced + total.polled + u64::from(host.rx.waiting()),
            "seed {seed}"
        );
        let by_reason: u64 = Reason::ALL.iter().map(|&reason| total.decided_for(reason)).sum();
        assert_eq!(by_reason, host.interrupts.len() as u64, "seed {seed}");
        assert_eq!(
            total.decided_for(Reason::Watchdog),
            host.counters().fired,
            "seed {seed}"
        );
        assert_eq!(total.decided_for(Reason::Timeout), 0, "seed {seed}");
        assert_eq!(host.rx.waiting(), 0, "seed {seed}: announced or polled in the end");
        if host.reaction_ns.is_none() && !polls {
            // Nothing is processed, so packets are announced in order of arrival.
            let mut packets = arrivals.iter();
            for interrupt in &host.interrupts {
                for &arrived in packets.by_ref().take(interrupt.packets as usize) {
                    let waited = interrupt.decided_at.as_nanos() - arrived;
                    let bound = 2 * (delay_ns + dma.transfer_ns(8)) + own_dma;
                    assert!(waited <= bound, "seed {seed}: a packet waited {waited} ns");
                    assert!(waited >= dma.transfer_ns(1), "seed {seed}: before its DMA");
                }
            }
        }
    }
}

#[test]
fn m_bv10_a_ring_is_announced_when_its_doorbell_is_in_host_memory() {
    for watchdog_ns in [0, 500_000] {
        for dma in [DmaModel::ZERO, DMA] {
            let mut host = Host::new(coalescing(StrategyKind::Timeout, DELAY_NS), dma, watchdog_ns);
            host.rx.arrive(t(0), UNMARKED).expect("room");
            host.rx
                .arrive(t(0), PacketInfo { len: 60, marked: false })
                .expect("room");
            host.rx.ring(t(0));
            host.run_until(5_000);
            let [(at, Reason::Clock, 2)] = host.decided()[..] else {
                panic!("{:?}", host.decided());
            };
            assert_eq!(at == 0, dma.is_zero());
            host.rx.ring(t(5_000));
            host.run_until(5_000);
            assert_eq!(host.decided()[1..], [(5_000, Reason::Clock, 0)], "without a doorbell");
        }
    }
}

#[test]
fn a_card_bounds_its_watchdogs_and_tells_its_next_timer() {
    let mut card = Card::new(CardConfig {
        queue_pairs: 4,
        timer_ns_min: 50_000,
        ..CardConfig::default()
    });
    assert_eq!(card.watchdog_ns_min(), 200_000);
    for bad in [1, 199_999, WATCHDOG_DELAY_NS_MAX + 1] {
        card.set_watchdog(t(0), None, bad).expect_err("out of range");
    }
    card.set_watchdog(t(0), Some(4), 200_000).expect_err("no such queue");
    card.set_watchdog(t(0), Some(3), 200_000).expect("in range");
    let delays = [0, 3].map(|queue| card.watchdog(queue).expect("a queue").delay_ns());
    assert_eq!(delays, [0, 200_000]);
    card.rx(3).arrive(t(10), UNMARKED).expect("room");
    card.rx(3).poll(t(10));
    assert_eq!(card.next_event(), Some(t(200_010)));
    card.timers_mut()
        .arm(t(20), 1, firmware::TimerKind::Once, 60_000, Default::default())
        .expect("room");
    assert_eq!(card.next_event(), Some(t(60_020)));
}

#[test]
fn m_bv8_what_the_host_has_polled_leaves_no_put_off_interrupt_behind() {
    // The DMA of a long packet goes on while the host polls the marked one before it.
    let dma = DmaModel {
        setup_ns: 5_000,
        rate_bps: 1_000_000_000,
        ..DmaModel::ZERO
    };
    let mut host = Host::new(coalescing(StrategyKind::Stream, DELAY_NS), dma, 15_000);
    let marked = PacketInfo {
        len: 1000,
        marked: true,
    };
    let long = PacketInfo {
        len: 2500,
        marked: false,
    };
    host.arrive(0, marked);
    host.arrive(12_000, long);
    host.poll(14_000);
    assert_eq!((host.delivered, host.rx.counters().total().deferred), (1, 1));
    // The card fetches what the host has processed at 15 µs and knows it at 20 µs; the long packet is there at 38 µs.
    host.run_until(38_500);
    assert_eq!(host.delivered, 2);
    assert_eq!(host.decided(), [], "the host does not wait for the long packet");
}
