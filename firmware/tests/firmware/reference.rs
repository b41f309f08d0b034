//! The executable specification: the receive part of a card, written directly from the text of the paper (algorithms 1
//! and 2), of `papers.md` M-GF1, 2, 4, 5, 7, 8, and of the rule at `Adaptive`, naively, with lists instead of state.
//!
//! It shares no code with the crate, and is compared with it in `sequences`.

use ether::Time;
use firmware::{Coalescing, DmaModel, PacketInfo, Reason, StrategyKind};

/// The strategies that are specified here.
pub const SPECIFIED: &[StrategyKind] = &[
    StrategyKind::Disabled,
    StrategyKind::Timeout,
    StrategyKind::OpenMx,
    StrategyKind::Stream,
    StrategyKind::Adaptive,
    StrategyKind::AdaptiveOpenMx,
    StrategyKind::AdaptiveStream,
];

/// What the card did, one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// The DMA of the next packet completed.
    Completed,
    /// An interrupt: when it was due, why, how many packets it announces.
    Raised(u64, Reason, u32),
}

#[derive(Clone, Debug)]
struct Packet {
    arrived: u64,
    marked: bool,
    /// `None`: no time is modelled, the DMA completes when the driver polls.
    dma_completes: Option<u64>,
    completed: bool,
}

#[derive(Clone, Debug)]
struct Dma {
    model: DmaModel,
    /// When each engine is free.
    engines: Vec<u64>,
    /// Begin of the period in which the bus is busy without a gap, and the bits since then.
    bus_busy_since: u64,
    bus_bits: u128,
    bus_free: u64,
    last_completion: u64,
}

impl Dma {
    fn new(model: DmaModel, last_completion: u64) -> Self {
        let engines = vec![0; model.parallelism as usize];
        Self {
            model,
            engines,
            bus_busy_since: last_completion,
            bus_bits: 0,
            bus_free: last_completion,
            last_completion,
        }
    }

    fn submit(&mut self, now: u64, len: u32) -> Option<u64> {
        if self.model.setup_ns == 0 && self.model.rate_bps == 0 {
            return None;
        }
        let engine = self.engines.iter_mut().min().expect("at least one engine");
        let set_up = now.max(*engine) + self.model.setup_ns;
        let mut done = set_up;
        if self.model.rate_bps != 0 {
            if set_up > self.bus_free {
                self.bus_busy_since = set_up;
                self.bus_bits = 0;
            }
            self.bus_bits += u128::from(len) * 8;
            done = self.bus_busy_since + (self.bus_bits * 1_000_000_000 / u128::from(self.model.rate_bps)) as u64;
            self.bus_free = done;
        }
        done = done.max(self.last_completion);
        self.last_completion = done;
        *engine = done;
        Some(done)
    }
}

/// M-GF7: "the delay follows the recent traffic: one interrupt per packet when quiet, long delay under load".
#[derive(Clone, Debug, Default)]
struct Moderation {
    /// 0 to 4.
    level: u32,
    sample_began: Option<u64>,
    /// Of each interrupt in the sample, what it announced.
    sample: Vec<u32>,
}

impl Moderation {
    /// A packet that arrived at `arrived` is now the oldest not announced; the delay for it.
    fn oldest(&mut self, arrived: u64, longest: u64) -> u64 {
        let Some(began) = self.sample_began else {
            (self.sample_began, self.sample) = (Some(arrived), Vec::new());
            return 0;
        };
        let took = arrived - began;
        let announced: u32 = self.sample.iter().sum();
        if announced >= 32 || took >= 8 * longest {
            // "Its rate, in packets per longest delay" is announced / took × longest; compared without a division.
            let reaches = |per_delay: u32| {
                u128::from(announced) * u128::from(longest) >= u128::from(per_delay) * u128::from(took)
            };
            if self.level < 4 && reaches(4 * (self.level + 1)) {
                self.level += 1;
            }
            while self.level > 0 && !reaches(2 * self.level) {
                self.level -= 1;
            }
            self.sample_began = Some(arrived);
            self.sample.clear();
        }
        [0, longest / 8, longest / 4, longest / 2, longest][self.level as usize]
    }
}

/// The card's receive part.
#[derive(Clone, Debug)]
pub struct Reference {
    settings: Coalescing,
    /// Packets not announced.
    packets: Vec<Packet>,
    dma: Dma,
    deferred_interrupt: bool,
    moderation: Moderation,
    /// How long the oldest packet may wait.
    delay: u64,
    /// An interrupt made due by a change of settings.
    due: Option<Reason>,
    clock: u64,
    pub deferred_count: u64,
}

impl Reference {
    pub fn new(settings: Coalescing, model: DmaModel) -> Self {
        Self {
            settings,
            packets: Vec::new(),
            dma: Dma::new(model, 0),
            deferred_interrupt: false,
            moderation: Moderation::default(),
            delay: 0,
            due: None,
            clock: 0,
            deferred_count: 0,
        }
    }

    /// "0 disables coalescing: an interrupt per packet."
    fn strategy(&self) -> StrategyKind {
        if self.settings.delay_ns == 0 {
            StrategyKind::Disabled
        } else {
            self.settings.strategy
        }
    }

    /// "If a packet arrives: create packet descriptor; if packet is marked, mark packet descriptor; submit DMA."
    pub fn arrive(&mut self, now: u64, packet: PacketInfo) {
        let dma_completes = self.dma.submit(now, packet.len);
        self.packets.push(Packet {
            arrived: now,
            marked: packet.marked,
            dma_completes,
            completed: false,
        });
        if self.packets.len() == 1 {
            self.new_oldest();
        }
    }

    /// "The delay is counted from the first packet not yet announced": there is another one, or other settings.
    fn new_oldest(&mut self) {
        use StrategyKind::{Adaptive, AdaptiveOpenMx, AdaptiveStream};
        let Some(oldest) = self.packets.first() else { return };
        self.delay = match self.strategy() {
            Adaptive | AdaptiveOpenMx | AdaptiveStream => {
                self.moderation.oldest(oldest.arrived, self.settings.delay_ns)
            }
            _ => self.settings.delay_ns,
        };
    }

    fn waiting(&self) -> u32 {
        self.packets.iter().filter(|p| p.completed).count() as u32
    }

    /// "The timer runs only while a packet is unannounced."
    fn timer(&self) -> Option<u64> {
        self.packets.first().map(|p| p.arrived + self.delay)
    }

    fn next_completion(&self, now: u64) -> Option<(usize, u64)> {
        let index = self.packets.iter().position(|p| !p.completed)?;
        Some((index, self.packets[index].dma_completes.unwrap_or(now).max(self.clock)))
    }

    /// "If it expires when only unfinished DMAs wait, the raise happens at the first completion."
    fn next_expiry(&self) -> Option<u64> {
        if self.waiting() == 0 {
            None
        } else {
            self.timer().map(|at| at.max(self.clock))
        }
    }

    pub fn next_event(&self) -> Option<Time> {
        let last_arrival = self.packets.last().map_or(0, |p| p.arrived);
        let next = self.packets.iter().find(|p| !p.completed);
        let completion = next.map(|p| p.dma_completes.unwrap_or(last_arrival));
        let due = self.due.map(|_| self.clock);
        let next = [completion, self.next_expiry(), due].into_iter().flatten().min()?;
        Some(Time::from_nanos(next.max(self.clock)))
    }

    /// Everything until `now`, in order of time; in one instant completions first, then the time-out.
    pub fn poll(&mut self, now: u64, log: &mut Vec<Did>) {
        if let Some(reason) = self.due {
            self.raise(self.clock, reason, log);
        }
        loop {
            let completion = self.next_completion(now).filter(|&(_, at)| at <= now);
            let expiry = self.next_expiry().filter(|&at| at <= now);
            match (completion, expiry) {
                (Some((index, at)), expiry) if expiry.is_none_or(|expiry| at <= expiry) => {
                    self.dma_completes(index, at, log);
                }
                (_, Some(at)) => {
                    let shortened = self.delay < self.settings.delay_ns;
                    let reason = if shortened { Reason::Adaptive } else { Reason::Timeout };
                    self.raise(at, reason, log);
                }
                _ => break,
            }
        }
        self.clock = now;
    }

    /// Each of [`SPECIFIED`] from its paper.
    fn dma_completes(&mut self, index: usize, at: u64, log: &mut Vec<Did>) {
        self.clock = at;
        self.packets[index].completed = true;
        log.push(Did::Completed);
        let marked = self.packets[index].marked;
        let others_pending = self.packets.iter().any(|p| !p.completed && p.arrived <= at);
        match self.strategy() {
            StrategyKind::Disabled => self.raise(at, Reason::EveryPacket, log),
            StrategyKind::Timeout | StrategyKind::Adaptive => {}
            // Algorithm 1.
            StrategyKind::OpenMx | StrategyKind::AdaptiveOpenMx => {
                if marked {
                    self.raise(at, Reason::Mark, log);
                }
            }
            // Algorithm 2.
            StrategyKind::Stream | StrategyKind::AdaptiveStream => {
                if !others_pending {
                    if marked || self.deferred_interrupt {
                        let reason = if self.deferred_interrupt {
                            Reason::Deferred
                        } else {
                            Reason::Mark
                        };
                        self.raise(at, reason, log);
                    }
                } else if marked {
                    self.deferred_interrupt = true;
                    self.deferred_count += 1;
                }
            }
            #[allow(
                unreachable_patterns,
                reason = "reached by a strategy that is registered and not specified"
            )]
            kind => panic!("{kind} has no specification"),
        }
        // M-GF2: "an interrupt when N packets are waiting, whichever of count and timeout comes first".
        let limit = self.settings.frames_max;
        if limit != 0 && self.waiting() >= limit {
            self.raise(at, Reason::Count, log);
        }
    }

    fn raise(&mut self, at: u64, reason: Reason, log: &mut Vec<Did>) {
        let announced = self.waiting();
        log.push(Did::Raised(at, reason, announced));
        self.clock = at;
        self.due = None;
        self.deferred_interrupt = false;
        self.moderation.sample.push(announced);
        self.packets.retain(|p| !p.completed);
        self.new_oldest();
    }

    pub fn restart(&mut self, now: u64) -> Did {
        let mut log = Vec::new();
        self.raise(now.max(self.clock), Reason::Restart, &mut log);
        log[0]
    }

    pub fn set_coalescing(&mut self, now: u64, settings: Coalescing) {
        self.clock = self.clock.max(now);
        let before = self.strategy();
        self.settings = settings;
        let after = self.strategy();
        let deferring = self.deferred_interrupt && before != after;
        if before != after {
            self.deferred_interrupt = false;
            self.moderation = Moderation::default();
        }
        self.new_oldest();
        if self.waiting() == 0 {
            return;
        }
        if deferring {
            self.due = Some(Reason::Deferred);
        } else if after == StrategyKind::Disabled {
            self.due = Some(Reason::EveryPacket);
        } else if settings.frames_max != 0 && self.waiting() >= settings.frames_max {
            self.due = Some(Reason::Count);
        }
    }

    pub fn set_dma(&mut self, model: DmaModel) {
        self.dma = Dma::new(model, self.dma.last_completion);
    }

    pub fn reset(&mut self) {
        self.packets.clear();
        self.deferred_interrupt = false;
        self.due = None;
    }
}
