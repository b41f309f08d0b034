//! A queue under a watchdog whose driver polls late and changes settings at any moment: what holds whatever happens (M-BV8, M-BV10).

use firmware::{
    Coalescing, DmaModel, Event, HostState, Interrupt, PacketInfo, PipelineConfig, Reason, RxPipeline, StrategyKind,
};

use crate::support::{Numbers, UNMARKED, coalescing, t};

/// What is checked of a queue under a watchdog whose driver polls late, and whose settings change at any moment.
struct Late {
    rx: RxPipeline,
    now: u64,
    delivered: u64,
    processed: u64,
    enabled: bool,
    announced: u64,
    discarded: u64,
    arrived: u64,
}

impl Late {
    fn new(numbers: &mut Numbers) -> Self {
        let dma = numbers.one_of(&[
            DmaModel::ZERO,
            DmaModel {
                setup_ns: 2,
                rate_bps: 8_000_000_000,
                ..DmaModel::ZERO
            },
            DmaModel {
                setup_ns: 9,
                parallelism: 2,
                ..DmaModel::ZERO
            },
        ]);
        let coalescing = any_settings(numbers);
        Self {
            rx: RxPipeline::new(&PipelineConfig { coalescing, dma }),
            now: 0,
            delivered: 0,
            processed: 0,
            enabled: true,
            announced: 0,
            discarded: 0,
            arrived: 0,
        }
    }

    fn announces(&mut self, interrupt: Interrupt) {
        self.announced += u64::from(interrupt.packets);
        let may_be_idle = matches!(interrupt.reason, Reason::Watchdog | Reason::Clock | Reason::Restart);
        assert!(interrupt.packets > 0 || may_be_idle, "{interrupt:?}");
    }

    /// Everything that is due now. True if it was told of anything.
    fn serve(&mut self) -> bool {
        let mut events = 0;
        while let Some(event) = self.rx.poll(t(self.now)) {
            events += 1;
            assert!(events < 2000, "no end of events");
            match event {
                Event::Completed { count, interrupt } => {
                    self.delivered += u64::from(count);
                    if let Some(interrupt) = interrupt {
                        self.announces(interrupt);
                    }
                }
                Event::Interrupt(interrupt) => self.announces(interrupt),
                Event::FetchHostState => {
                    let state = HostState {
                        interrupts_enabled: self.enabled,
                        processed: self.processed,
                    };
                    self.rx.host_state(t(self.now), state);
                }
            }
        }
        events > 0
    }

    fn step(&mut self, numbers: &mut Numbers) {
        match numbers.below(14) {
            0..=3 => {
                let packet = PacketInfo {
                    len: numbers.one_of(&[1, 5]),
                    marked: numbers.percent(25),
                };
                if self.rx.arrive(t(self.now), packet).is_ok() {
                    self.arrived += 1;
                }
            }
            4 => self.now += numbers.one_of(&[1, 3, 10, 60]),
            5 | 6 => _ = self.serve(),
            7 => {
                let next = self.rx.next_event().map_or(0, |at| at.as_nanos());
                self.now = self.now.max(next);
                self.serve();
            }
            8 => self.processed = self.delivered.min(self.processed + 1 + numbers.below(3)),
            9 => self.enabled = !self.enabled,
            10 => self.rx.set_watchdog(t(self.now), numbers.one_of(&[0, 0, 3, 10, 40])),
            11 => self.rx.set_coalescing(t(self.now), any_settings(numbers)),
            12 if numbers.percent(25) => {
                self.discarded += u64::from(self.rx.waiting()) + self.rx.pending() as u64;
                self.rx.reset();
                (self.delivered, self.processed) = (0, 0);
            }
            12 => self.rx.ring(t(self.now)),
            _ if numbers.percent(25) => {
                let interrupt = self.rx.restart(t(self.now));
                self.announces(interrupt);
            }
            _ => {}
        }
    }
}

fn any_settings(numbers: &mut Numbers) -> Coalescing {
    Coalescing {
        frames_max: numbers.one_of(&[0, 0, 3]),
        ..coalescing(numbers.one_of(StrategyKind::ALL), numbers.one_of(&[0, 5, 20]))
    }
}

#[test]
fn m_bv8_polled_late_and_set_anew_at_any_moment_no_packet_is_forgotten_and_nothing_counted_twice() {
    for seed in 0..400_000 {
        let mut numbers = Numbers::new(seed);
        let mut queue = Late::new(&mut numbers);
        for _ in 0..6 + numbers.below(20) {
            queue.step(&mut numbers);
        }
        // From here on it is polled in time, by a host that wants interrupts and processes nothing.
        queue.enabled = true;
        let start = queue.now;
        while queue.rx.waiting() != 0 || queue.rx.pending() != 0 {
            let next = queue.rx.next_event();
            let next = next.unwrap_or_else(|| panic!("seed {seed}: a packet is left and nothing is due"));
            queue.now = queue.now.max(next.as_nanos());
            assert!(queue.now <= start + 1_000, "seed {seed}: a packet is never announced");
            if !queue.serve() {
                // A watchdog that decided to go on, or to end, says nothing; but it was its time.
                let later = queue.rx.next_event().is_none_or(|at| at > t(queue.now));
                assert!(later, "seed {seed}: polled for nothing");
            }
        }
        let total = queue.rx.counters().total();
        assert_eq!(total.packets, queue.arrived, "seed {seed}");
        assert_eq!(
            queue.arrived,
            queue.announced + total.polled + queue.discarded,
            "seed {seed}"
        );
    }
}

#[test]
fn m_bv8_a_packet_that_arrived_after_the_host_state_was_fetched_starts_the_timer_anew_and_is_not_taken_as_on_its_way() {
    // (arrival, restarted since it was in flight, cancelled, next expiry); the state is fetched from 10,000 to 10,500 ns.
    for (arrival, restarted, cancelled, expiry) in [
        (10_400, 1, 0, 20_500),
        (10_500, 1, 0, 20_500),
        (10_501, 0, 1, 20_501),
        (10_800, 0, 1, 20_800),
    ] {
        let dma = DmaModel {
            setup_ns: 500,
            ..DmaModel::ZERO
        };
        let coalescing = coalescing(StrategyKind::Timeout, 75_000);
        let mut rx = RxPipeline::new(&PipelineConfig { coalescing, dma });
        rx.set_watchdog(t(0), 10_000);
        rx.arrive(t(0), UNMARKED).expect("room");
        let completed = Some(Event::Completed {
            count: 1,
            interrupt: None,
        });
        assert_eq!(rx.poll(t(500)), completed);
        assert_eq!(rx.poll(t(10_000)), Some(Event::FetchHostState));
        let state = HostState {
            interrupts_enabled: true,
            processed: 1,
        };
        rx.host_state(t(10_000), state);
        rx.arrive(t(arrival), UNMARKED).expect("room");
        // The driver of the firmware looks late, though before the packet is in the ring.
        assert_eq!(rx.poll(t(10_850)), None);
        let counters = *rx.watchdog().counters();
        let decided = (counters.restarted_pending, counters.cancelled, counters.restarted());
        assert_eq!(decided, (restarted, cancelled, restarted), "arrival at {arrival}");
        assert_eq!(rx.poll(t(arrival + 500)), completed);
        assert_eq!(rx.next_event(), Some(t(expiry)), "arrival at {arrival}");
        assert_eq!(counters.started, 1 + cancelled);
    }
}
