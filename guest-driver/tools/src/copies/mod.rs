//! `icopy_perf`: copies by a card that is wired to itself, against copies by the processor (R-CI1's data-touching part).

use std::{
    fmt,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Parser;
use icopy::{CardAddress, Engine, Memory, Options, Use};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::run::print;

/// Lengths that are measured unless others are given.
const LENGTHS: [usize; 2] = [64 << 10, 1 << 20];
/// The longest: both buffers of all lengths are locked in memory.
const LENGTH_MAX: u64 = 256 << 20;

/// Measures copies by a card that is wired to itself: the processor time of a copy, and the time until it is notified, against
/// memcpy. All bytes of every copy are checked.
#[derive(Debug, Parser)]
#[command(name = "icopy_perf", version)]
pub struct Arguments {
    /// The card, as `nicctl bind` prints it: 0000:00:11.0
    #[arg(value_name = "CARD")]
    card: CardAddress,
    /// Lengths in bytes [default: 65536 1048576]
    #[arg(value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=LENGTH_MAX))]
    lengths: Vec<u64>,
    /// Copies of each length and kind
    #[arg(short = 'N', long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print one line of JSON per length
    #[arg(long)]
    pub json: bool,
}

/// What copies of one length took.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    /// Their length in bytes.
    bytes: usize,
    /// How many of each kind.
    rounds: u32,
    /// Median time of a copy by the processor, in nanoseconds: its processor time, and until it is done.
    memcpy_cpu_ns: u64,
    memcpy_ns: u64,
    /// Median processor time of asking for a copy by the card and seeing that it is done, in nanoseconds.
    icopy_cpu_ns: u64,
    /// Median time from before the call until its notification is seen, in nanoseconds.
    notified_ns: u64,
    /// Frames that each copy was cut into.
    frames: u64,
    /// Pieces of memory on both sides of each copy: pages, or several that follow each other.
    pieces: u64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        write!(
            f,
            "{} bytes: memcpy {:.1} µs; icopy {:.1} µs of the processor ({:.3} ×), notified after {:.1} µs ({:.3} ×), {} frames, {} pieces",
            self.bytes,
            us(self.memcpy_cpu_ns),
            us(self.icopy_cpu_ns),
            ratio(self.icopy_cpu_ns, self.memcpy_cpu_ns),
            us(self.notified_ns),
            ratio(self.notified_ns, self.memcpy_ns),
            self.frames,
            self.pieces
        )
    }
}

/// Runs `icopy_perf`.
///
/// # Errors
/// The card cannot be used, or a copy is wrong.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut engine = Engine::open(arguments.card, &Options::default())?;
    let given: Vec<usize> = arguments.lengths.iter().map(|length| *length as usize).collect();
    let lengths = if given.is_empty() { &LENGTHS[..] } else { &given };
    for bytes in lengths {
        print(arguments.json, &measure(&mut engine, *bytes, arguments.rounds)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

fn median_ns(mut times: Vec<Duration>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0, |time| time.as_nanos() as u64)
}

/// Bytes that are others in each round.
fn pattern(bytes: &mut [u8], round: u32) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(round) << 17;
    for part in bytes.chunks_mut(8) {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        part.copy_from_slice(&state.to_ne_bytes()[..part.len()]);
    }
}

struct Buffers {
    source: Memory,
    destination: Memory,
    sent: Vec<u8>,
    arrived: Vec<u8>,
}

impl Buffers {
    fn fill(&mut self, round: u32) {
        pattern(&mut self.sent, round);
        self.source.write(0, &self.sent);
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.destination.read(0, &mut self.arrived);
        let wrong = self
            .sent
            .iter()
            .zip(&self.arrived)
            .position(|(sent, arrived)| sent != arrived);
        ensure!(wrong.is_none(), "byte {} of a copy is wrong", wrong.unwrap_or_default());
        Ok(())
    }
}

fn measure(engine: &mut Engine, bytes: usize, rounds: u32) -> anyhow::Result<Measured> {
    let mut buffers = Buffers {
        source: engine.allocate(bytes, Use::Program)?,
        destination: engine.allocate(bytes, Use::Program)?,
        sent: vec![0; bytes],
        arrived: vec![0; bytes],
    };
    let notification = engine.allocate(8, Use::Program)?;
    let variable = notification.variable(0);
    let (mut copied_cpu, mut copied) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        buffers.fill(round);
        let (begin, begin_cpu) = (Instant::now(), processor_time());
        buffers.destination.copy_from(0, &buffers.source, 0, bytes);
        copied_cpu.push(processor_time() - begin_cpu);
        copied.push(begin.elapsed());
        buffers.check()?;
    }
    let before = engine.counters();
    let (mut asked_cpu, mut notified) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        buffers.fill(!round);
        let value = u64::from(round) + 1;
        let (begin, begin_cpu) = (Instant::now(), processor_time());
        engine.icopy_notif(buffers.destination.at(0), buffers.source.at(0), bytes, variable, value)?;
        let asked = processor_time() - begin_cpu;
        engine.wait(variable, value)?;
        notified.push(begin.elapsed());
        // What a program that computed meanwhile pays: it looks once, and the rings are seen to.
        engine.finish()?;
        let begin_cpu = processor_time();
        ensure!(engine.test(variable, value)?, "a notification is gone");
        engine.progress()?;
        asked_cpu.push(asked + (processor_time() - begin_cpu));
        buffers.check().with_context(|| format!("round {round}"))?;
    }
    let after = engine.counters();
    let each = |of: fn(&icopy::Counters) -> u64| (of(&after) - of(&before)) / u64::from(rounds);
    for memory in [buffers.source, buffers.destination, notification] {
        engine.unregister(memory.as_ptr(), memory.len())?;
    }
    Ok(Measured {
        bytes,
        rounds,
        memcpy_cpu_ns: median_ns(copied_cpu),
        memcpy_ns: median_ns(copied),
        icopy_cpu_ns: median_ns(asked_cpu),
        notified_ns: median_ns(notified),
        frames: each(|counters| counters.frames),
        pieces: each(|counters| counters.pieces),
    })
}
