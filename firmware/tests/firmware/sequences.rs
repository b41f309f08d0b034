//! Random sequences of events: the crate must do what the executable specification does, event for event.
//!
//! Times, delays and DMA times are small numbers, so that everything often happens at once.

use ether::Time;
use firmware::{
    Coalescing, DmaModel, Event, Interrupt, PacketInfo, PipelineConfig, Reason, RxPipeline, conformance::ReceivePath,
};

use crate::{
    reference::{Did, Reference, SPECIFIED},
    support::{Numbers, t},
};

const SEQUENCES: u64 = 1_000_000;
/// Runs that each have their share of the sequences; more threads than processors do no harm.
const THREADS: u64 = 4;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Time passes.
    Pass(u64),
    Arrive(PacketInfo),
    ArriveTogether([PacketInfo; 3]),
    /// Packets with so long a gap between them, with a poll after each: load for adaptive moderation.
    Flood(PacketInfo, u32, u64),
    Poll,
    /// Poll at each time that the queue names, until so much time has passed.
    Run(u64),
    SetCoalescing(Coalescing),
    SetDma(DmaModel),
    Restart,
    Reset,
}

fn some_coalescing(numbers: &mut Numbers) -> Coalescing {
    Coalescing {
        strategy: numbers.one_of(SPECIFIED),
        delay_ns: numbers.one_of(&[0, 1, 5, 10, 20, 40]),
        frames_max: numbers.one_of(&[0, 0, 0, 1, 2, 3, 5]),
        marks: true,
    }
}

fn some_dma(numbers: &mut Numbers) -> DmaModel {
    if numbers.percent(40) {
        return DmaModel::ZERO;
    }
    DmaModel::new(
        numbers.one_of(&[0, 1, 3, 8, 30]),
        numbers.one_of(&[0, 3_000_000_000, 7_000_000_000, 8_000_000_000]),
        numbers.one_of(&[1, 1, 2, 3, 16]),
    )
}

fn some_packet(numbers: &mut Numbers, marked_percent: u64) -> PacketInfo {
    PacketInfo {
        len: numbers.one_of(&[1, 2, 5, 9]),
        marked: numbers.percent(marked_percent),
    }
}

fn some_ops(numbers: &mut Numbers) -> Vec<Op> {
    let marked_percent = numbers.one_of(&[0, 10, 50, 100]);
    let len = 4 + numbers.below(24);
    (0..len)
        .map(|_| match numbers.below(100) {
            0..20 => Op::Pass(numbers.one_of(&[1, 1, 2, 4, 9, 25])),
            20..50 => Op::Arrive(some_packet(numbers, marked_percent)),
            50..59 => Op::ArriveTogether(std::array::from_fn(|_| some_packet(numbers, marked_percent))),
            59 => Op::Flood(
                some_packet(numbers, marked_percent),
                numbers.one_of(&[10, 40, 90]),
                numbers.one_of(&[0, 1, 2, 3]),
            ),
            60..75 => Op::Poll,
            75..92 => Op::Run(numbers.one_of(&[0, 1, 3, 10, 50])),
            92..96 => Op::SetCoalescing(some_coalescing(numbers)),
            96..98 => Op::SetDma(some_dma(numbers)),
            98 => Op::Restart,
            _ => Op::Reset,
        })
        .collect()
}

/// What the tests of counters add up for themselves.
#[derive(Default)]
struct Tally {
    packets: u64,
    discarded: u64,
    announced: u64,
    raised: [u64; Reason::COUNT],
}

struct Pair<R> {
    real: R,
    model: Reference,
    now: u64,
    tally: Tally,
    sequence: u64,
}

macro_rules! same {
    ($real:expr, $model:expr, $what:expr) => {{
        let (real, model) = ($real, $model);
        if real != model {
            return Err(format!(
                "{}: the firmware says {real:?}, the specification {model:?}",
                $what
            ));
        }
    }};
}

impl<R: ReceivePath> Pair<R> {
    fn raised(&mut self, interrupt: Interrupt) -> Result<Did, String> {
        self.sequence += 1;
        same!(interrupt.sequence, self.sequence, "sequence number");
        self.tally.raised[interrupt.reason.index()] += 1;
        self.tally.announced += u64::from(interrupt.packets);
        Ok(Did::Raised(
            interrupt.decided_at.as_nanos(),
            interrupt.reason,
            interrupt.packets,
        ))
    }

    fn poll(&mut self) -> Result<usize, String> {
        let (mut did, mut specified) = (Vec::new(), Vec::new());
        while let Some(event) = self.real.poll(t(self.now)) {
            let interrupt = match event {
                Event::Completed { count, interrupt } => {
                    did.extend(std::iter::repeat_n(Did::Completed, count as usize));
                    interrupt
                }
                Event::Interrupt(interrupt) => Some(interrupt),
                Event::FetchHostState => unreachable!("no watchdog is on"),
            };
            if let Some(interrupt) = interrupt {
                did.push(self.raised(interrupt)?);
            }
        }
        self.model.poll(self.now, &mut specified);
        same!(&did, &specified, format!("poll at {}", self.now));
        Ok(did.len())
    }

    fn run(&mut self, for_ns: u64) -> Result<(), String> {
        let end = self.now.saturating_add(for_ns);
        while let Some(at) = self.real.next_event().map(Time::as_nanos) {
            if at > end {
                break;
            }
            self.now = self.now.max(at);
            if self.poll()? == 0 {
                return Err(format!("asked to be polled at {at} for nothing"));
            }
        }
        self.now = end;
        Ok(())
    }

    fn arrive(&mut self, packet: PacketInfo) -> Result<(), String> {
        self.real.arrive(t(self.now), packet);
        self.model.arrive(self.now, packet);
        self.tally.packets += 1;
        Ok(())
    }

    fn step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Pass(ns) => self.now += ns,
            Op::Arrive(packet) => self.arrive(packet)?,
            Op::Flood(packet, count, gap_ns) => {
                for _ in 0..count {
                    self.arrive(packet)?;
                    self.poll()?;
                    self.now += gap_ns;
                }
            }
            Op::ArriveTogether(packets) => {
                self.real.arrive_together(t(self.now), &packets);
                packets
                    .into_iter()
                    .for_each(|packet| self.model.arrive(self.now, packet));
                self.tally.packets += packets.len() as u64;
            }
            Op::Poll => {
                self.poll()?;
            }
            Op::Run(ns) => self.run(ns)?,
            Op::SetCoalescing(settings) => {
                self.real.set_coalescing(t(self.now), settings);
                self.model.set_coalescing(self.now, settings);
            }
            Op::SetDma(model) => {
                self.real.set_dma(model);
                self.model.set_dma(model);
            }
            Op::Restart => {
                let interrupt = self.real.restart(t(self.now));
                same!(self.raised(interrupt)?, self.model.restart(self.now), "restart");
            }
            Op::Reset => {
                self.tally.discarded = self.tally.packets - self.tally.announced;
                self.real.reset();
                self.model.reset();
            }
        }
        same!(self.real.next_event(), self.model.next_event(), "next event");
        Ok(())
    }

    /// Nothing is lost, and the counters say what happened.
    fn finish(mut self) -> Result<(), String> {
        self.run(1_000_000)?;
        same!(self.real.next_event(), None, "after the end");
        let tally = &self.tally;
        let total = self.real.counters().total();
        same!(total.packets, tally.packets, "packets");
        same!(total.discarded, tally.packets - tally.announced, "discarded");
        same!(total.announced, tally.announced, "announced");
        same!(total.unannounced(), 0, "unannounced");
        same!(total.decided, tally.raised, "reasons");
        same!(total.decided_total(), self.sequence, "decided");
        same!(
            total.packets_per_interrupt.counts().iter().sum::<u64>(),
            self.sequence,
            "histogram"
        );
        same!(total.deferred, self.model.deferred_count, "deferred");
        Ok(())
    }
}

fn check<R: ReceivePath>(mut real: R, coalescing: Coalescing, dma: DmaModel, ops: &[Op]) -> Result<(), String> {
    real.set_coalescing(Time::ZERO, coalescing);
    real.set_dma(dma);
    let model = Reference::new(coalescing, dma);
    let mut pair = Pair {
        real,
        model,
        now: 0,
        tally: Tally::default(),
        sequence: 0,
    };
    for &op in ops {
        pair.step(op).map_err(|error| format!("{op:?}: {error}"))?;
    }
    pair.finish()
}

/// Leaves out operations as long as the rest still fails.
fn smallest(mut ops: Vec<Op>, fails: impl Fn(&[Op]) -> bool) -> Vec<Op> {
    let mut index = 0;
    while index < ops.len() {
        let mut fewer = ops.clone();
        fewer.remove(index);
        if fails(&fewer) {
            ops = fewer;
            index = 0;
        } else {
            index += 1;
        }
    }
    ops
}

/// The sequence of this number; says what is wrong, with the least that still shows it.
fn sequence<R: ReceivePath>(make: impl Fn() -> R, seed: u64) -> Result<(), String> {
    let mut numbers = Numbers::new(seed);
    let (coalescing, dma) = (some_coalescing(&mut numbers), some_dma(&mut numbers));
    let ops = some_ops(&mut numbers);
    check(make(), coalescing, dma, &ops).map_err(|_| {
        let ops = smallest(ops, |ops| check(make(), coalescing, dma, ops).is_err());
        let error = check(make(), coalescing, dma, &ops).expect_err("it failed before");
        format!("seed {seed}: {error}\n{coalescing:?}\n{dma:?}\n{ops:#?}")
    })
}

/// Whether receive paths do what the specification does in the first `count` sequences; the first difference.
pub fn agrees<R: ReceivePath>(make: impl Fn() -> R, count: u64) -> Result<(), String> {
    (0..count).try_for_each(|seed| sequence(&make, seed))
}

#[test]
fn m_gf1_gf2_gf4_gf5_gf7_gf8_a_million_random_sequences_agree_with_the_specification() {
    let run = |thread: u64| {
        let template = RxPipeline::new(&PipelineConfig::default());
        // Cloning is cheaper than a new ring in an unoptimised build.
        let mut seeds = (thread..SEQUENCES).step_by(THREADS as usize);
        seeds.try_for_each(|seed| sequence(|| template.clone(), seed))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        for thread in threads {
            if let Err(wrong) = thread.join().expect("no panic") {
                panic!("{wrong}");
            }
        }
    });
}
