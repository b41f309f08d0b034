//! What the tests share: a seeded stream of numbers and a driver that polls in time.

use ether::Time;
use firmware::{Coalescing, DmaModel, Event, Interrupt, PacketInfo, PipelineConfig, RxPipeline, StrategyKind};

/// SplitMix64: a seed has one sequence of numbers on any machine.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub const fn t(ns: u64) -> Time {
    Time::from_nanos(ns)
}

pub const MARKED: PacketInfo = PacketInfo { len: 128, marked: true };
pub const UNMARKED: PacketInfo = PacketInfo {
    len: 1500,
    marked: false,
};

pub fn coalescing(strategy: StrategyKind, delay_ns: u64) -> Coalescing {
    Coalescing {
        strategy,
        delay_ns,
        frames_max: 0,
        marks: true,
    }
}

/// A queue and the driver of it, which polls whenever the queue says that something is due.
pub struct Bench {
    pub rx: RxPipeline,
    pub interrupts: Vec<Interrupt>,
    /// Times at which packets were published, in order of arrival.
    pub published: Vec<Time>,
    now: Time,
}

impl Bench {
    pub fn new(coalescing: Coalescing, dma: DmaModel) -> Self {
        let rx = RxPipeline::new(&PipelineConfig { coalescing, dma });
        Self {
            rx,
            interrupts: Vec::new(),
            published: Vec::new(),
            now: Time::ZERO,
        }
    }

    /// Everything until `to` happens, `to` included.
    pub fn run_until(&mut self, to: Time) {
        while let Some(at) = self.rx.next_event() {
            assert!(at >= self.now, "an event in the past: {at} before {}", self.now);
            if at > to {
                break;
            }
            self.now = at;
            let mut progress = false;
            while let Some(event) = self.rx.poll(at) {
                progress = true;
                self.take(event);
            }
            assert!(progress, "the queue asked to be polled at {at} for nothing");
        }
        self.now = to;
        assert_eq!(
            self.rx.poll(to),
            None,
            "something was due at {to} and not announced by next_event"
        );
    }

    pub fn run_to_end(&mut self) {
        while let Some(at) = self.rx.next_event() {
            self.run_until(at);
        }
    }

    fn take(&mut self, event: Event) {
        let interrupt = match event {
            Event::Completed { count, interrupt } => {
                assert!(count > 0, "an event without a completion");
                self.published.extend(std::iter::repeat_n(self.now, count as usize));
                interrupt
            }
            Event::Interrupt(interrupt) => Some(interrupt),
            Event::FetchHostState => unreachable!("no watchdog is on"),
        };
        self.interrupts.extend(interrupt);
    }

    /// A batch of frames, taken at once.
    pub fn batch(&mut self, at_ns: u64, packets: &[PacketInfo]) {
        self.run_until_before(at_ns);
        packets
            .iter()
            .for_each(|&packet| self.rx.arrive(t(at_ns), packet).expect("room"));
        self.run_until(t(at_ns));
    }

    /// A frame that arrives after everything that is due earlier, and before what is due at one time with it.
    fn run_until_before(&mut self, at_ns: u64) {
        if let Some(before) = at_ns.checked_sub(1) {
            self.run_until(t(before));
        }
    }

    /// (time in ns, reason, packets) of every interrupt so far.
    pub fn decided(&self) -> Vec<(u64, &'static str, u32)> {
        self.interrupts
            .iter()
            .map(|i| (i.decided_at.as_nanos(), i.reason.name(), i.packets))
            .collect()
    }
}

/// The card's default in the paper.
pub const DELAY_NS: u64 = 75_000;
/// A DMA that takes about as long as a small frame on a 10G line needs several times over.
pub const DMA: DmaModel = DmaModel::new(700, 16_000_000_000, 2);

pub fn bench(strategy: StrategyKind, dma: DmaModel) -> Bench {
    Bench::new(coalescing(strategy, DELAY_NS), dma)
}
