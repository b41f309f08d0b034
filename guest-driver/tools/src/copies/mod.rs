//! `icopy_perf`: copies by a card that is wired to itself, against copies by the processor (R-CI1's data-touching part).

use std::{
    fmt, hint,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::Parser;
use icopy::{CardAddress, Engine, Memory, Options, Use};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::run::print;

/// Lengths that are measured unless others are given.
const LENGTHS: [usize; 2] = [64 << 10, 1 << 20];
/// The longest: both buffers are locked in memory.
const LENGTH_MAX: u64 = 256 << 20;
/// Copies that follow each other before their bytes are checked, each with a place of its own, while all fit into this length.
const SERIES_MAX: usize = 8;
const SERIES_LEN_MAX: usize = 8 << 20;
/// How long the program computes between asking for a copy and looking whether it is done.
const COMPUTE: Duration = Duration::from_micros(300);
/// After so long a copy that should be done long since is asked for.
const PATIENCE: Duration = Duration::from_millis(10);
/// A pause after which what emulates the card sleeps.
const PAUSE: Duration = Duration::from_millis(5);

/// Measures copies by a card that is wired to itself: the processor time of a copy, and the time until it is notified, against
/// memcpy. All bytes of every copy are checked.
#[derive(Debug, Parser)]
#[command(name = "icopy_perf", version)]
pub struct Arguments {
    /// The card, as `nicctl bind` prints it: virtio:0000:00:11.0; its address alone will do
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

/// What copies of one length took. All are medians; reading the clock itself is not in them.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    /// Their length in bytes.
    bytes: usize,
    /// How many of each kind.
    rounds: u32,
    /// A copy by the processor, in nanoseconds: its processor time, and until it is done.
    memcpy_cpu_ns: u64,
    memcpy_ns: u64,
    /// Processor time of asking for a copy by the card and seeing that it is done, in nanoseconds, where copies follow each other and
    /// the program computes meanwhile.
    icopy_cpu_ns: u64,
    /// Processor time of a copy after a pause, which finds what emulates the card asleep.
    awakening_cpu_ns: u64,
    /// Time from before the call until its notification is seen, in nanoseconds, where the program waits for each copy.
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
            "{} bytes: memcpy {:.1} µs; icopy {:.1} µs of the processor ({:.3} ×), after a pause {:.1} µs ({:.3} ×), notified after \
             {:.1} µs ({:.3} ×), {} frames, {} pieces",
            self.bytes,
            us(self.memcpy_cpu_ns),
            us(self.icopy_cpu_ns),
            ratio(self.icopy_cpu_ns, self.memcpy_cpu_ns),
            us(self.awakening_cpu_ns),
            ratio(self.awakening_cpu_ns, self.memcpy_cpu_ns),
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

/// Processor time at the beginning of what is measured. The clock is read twice: under emulation the first reading after other code takes
/// longer, and what is subtracted for the reading at the end is the time of one that does not.
fn begin_processor_time() -> Duration {
    processor_time();
    processor_time()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// What two readings of the clock of processor time take of it.
fn clock_time() -> Duration {
    let mut times = [Duration::ZERO; 101];
    for time in &mut times {
        let begin = begin_processor_time();
        *time = processor_time() - begin;
    }
    median(&mut times)
}

/// Bytes that are others in each round, a part at a time: few are in memory beside the copies.
fn pattern(len: usize, round: u32) -> impl Iterator<Item = (usize, Vec<u8>)> {
    const PART: usize = 64 << 10;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(round) << 17;
    (0..len).step_by(PART).map(move |at| {
        let mut bytes = vec![0; PART.min(len - at)];
        for word in bytes.chunks_mut(8) {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            word.copy_from_slice(&state.to_ne_bytes()[..word.len()]);
        }
        (at, bytes)
    })
}

/// Who copies, and what the program does meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The processor copies.
    Memcpy,
    /// The card copies, and the program computes.
    Computing,
    /// The card copies, after a pause, and the program computes.
    Awakening,
    /// The card copies, and the program waits.
    Waiting,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Memcpy, Self::Computing, Self::Awakening, Self::Waiting];
}

/// What is copied: places for a series of copies.
struct Buffers {
    bytes: usize,
    source: Memory,
    destination: Memory,
    notification: Memory,
    /// The value of the last notification.
    value: u64,
    /// Of which the bytes of the source are.
    round: u32,
}

impl Buffers {
    fn new(engine: &mut Engine, bytes: usize, series: usize) -> anyhow::Result<Self> {
        let len = bytes * series;
        Ok(Self {
            bytes,
            source: engine.allocate(len, Use::Program)?,
            destination: engine.allocate(len, Use::Program)?,
            notification: engine.allocate(8, Use::Program)?,
            value: 0,
            round: 0,
        })
    }

    fn fill(&mut self, round: u32) {
        self.round = round;
        for (at, bytes) in pattern(self.source.len(), round) {
            self.source.write(at, &bytes);
        }
    }

    /// Checks the bytes of the first copies.
    fn check(&self, copies: usize) -> anyhow::Result<()> {
        let mut arrived = Vec::new();
        for (at, mut sent) in pattern(self.source.len(), self.round) {
            sent.truncate((copies * self.bytes).saturating_sub(at));
            arrived.resize(sent.len(), 0);
            self.destination.read(at, &mut arrived);
            if sent != arrived {
                let wrong = sent.iter().zip(&arrived).take_while(|(sent, arrived)| sent == arrived);
                let wrong = at + wrong.count();
                bail!("byte {} of copy {} is wrong", wrong % self.bytes, wrong / self.bytes);
            }
        }
        Ok(())
    }

    /// What is in the notification variable.
    fn noted(&self) -> u64 {
        let mut value = [0; 8];
        self.notification.read(0, &mut value);
        u64::from_ne_bytes(value)
    }

    /// Makes copy `number`, and returns its processor time and the time until it is done.
    fn copy(&mut self, engine: &mut Engine, number: usize, kind: Kind) -> anyhow::Result<[Duration; 2]> {
        let at = number * self.bytes;
        if kind == Kind::Awakening {
            thread::sleep(PAUSE);
        }
        let (begin_cpu, begin) = (begin_processor_time(), Instant::now());
        if kind == Kind::Memcpy {
            self.destination.copy_from(at, &self.source, at, self.bytes);
            let cpu = processor_time() - begin_cpu;
            return Ok([cpu, begin.elapsed()]);
        }
        self.value += 1;
        let (variable, value) = (self.notification.variable(0), self.value);
        engine.icopy_notif(self.destination.at(at), self.source.at(at), self.bytes, variable, value)?;
        if kind == Kind::Waiting {
            engine.wait(variable, value)?;
            let elapsed = begin.elapsed();
            return Ok([processor_time() - begin_cpu, elapsed]);
        }
        let asked = processor_time() - begin_cpu;
        while begin.elapsed() < COMPUTE {
            hint::spin_loop();
        }
        // If it is not done yet, the program computes for longer; at last it asks the engine, which reminds a card that was started anew.
        while self.noted() != value {
            if begin.elapsed() > PATIENCE {
                engine.progress()?;
            }
            hint::spin_loop();
        }
        let begin_cpu = begin_processor_time();
        engine.wait(variable, value)?;
        Ok([asked + (processor_time() - begin_cpu), begin.elapsed()])
    }
}

fn measure(engine: &mut Engine, bytes: usize, rounds: u32) -> anyhow::Result<Measured> {
    let series = (SERIES_LEN_MAX / bytes).clamp(1, SERIES_MAX);
    let mut buffers = Buffers::new(engine, bytes, series)?;
    let before = engine.counters();
    let mut times = Kind::ALL.map(|_| [Vec::new(), Vec::new()]);
    let mut left = rounds as usize;
    while left > 0 {
        let copies = left.min(series);
        for (kind, times) in Kind::ALL.into_iter().zip(&mut times) {
            buffers.fill(4 * left as u32 + kind as u32);
            for number in 0..copies {
                let taken = buffers.copy(engine, number, kind)?;
                times.iter_mut().zip(taken).for_each(|(times, time)| times.push(time));
            }
            buffers.check(copies)?;
        }
        left -= copies;
    }
    let after = engine.counters();
    let clock = clock_time();
    let each = |of: fn(&icopy::Counters) -> u64| (of(&after) - of(&before)) / (after.copies - before.copies);
    let mut cpu_ns = |kind: Kind, readings: u32| {
        let cpu = median(&mut times[kind as usize][0]);
        cpu.saturating_sub(clock * readings).as_nanos() as u64
    };
    let (memcpy_cpu_ns, icopy_cpu_ns, awakening_cpu_ns) = (
        cpu_ns(Kind::Memcpy, 1),
        cpu_ns(Kind::Computing, 2),
        cpu_ns(Kind::Awakening, 2),
    );
    let mut elapsed = |kind: Kind| median(&mut times[kind as usize][1]);
    let notified_ns = elapsed(Kind::Waiting).as_nanos() as u64;
    // A reading of the other clock is in it.
    let memcpy_ns = elapsed(Kind::Memcpy).saturating_sub(clock).as_nanos() as u64;
    for memory in [buffers.source, buffers.destination, buffers.notification] {
        engine.unregister(memory.as_ptr(), memory.len())?;
    }
    Ok(Measured {
        bytes,
        rounds,
        memcpy_cpu_ns,
        memcpy_ns,
        icopy_cpu_ns,
        awakening_cpu_ns,
        notified_ns,
        frames: each(|counters| counters.frames),
        pieces: each(|counters| counters.pieces),
    })
}
