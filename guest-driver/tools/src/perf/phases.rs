//! The measurement of a three-phase receive (papers.md M-CI4): the program posts a receive, computes in short parts with a call of
//! progress behind each, and waits. What the computation loses is what receiving takes of the processor; a copy engine makes that
//! less. The side that measures is the one that receives.

use std::{
    fmt,
    hint::black_box,
    time::{Duration, Instant},
};

use anyhow::ensure;
use hdrhistogram::Histogram;
use omx::{Counter, Request, Segment};
use serde::Serialize;

use super::{
    overlap::{compute, ns_per_round},
    parameters::Parameters,
    pingpong::TIME_NS_MAX,
    side::{Buffer, SILENCE, Side},
};

/// The computation between two calls of progress takes so long.
const PART: Duration = Duration::from_micros(20);
/// The computation takes so many times as long as receiving alone, so that the message comes meanwhile although progress is made only
/// now and then.
const COMPUTATIONS: f64 = 2.0;

/// One length; times are medians.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    length: usize,
    /// From the receive's post to its end, without computation.
    us_receive: f64,
    /// The computation, with as many calls of progress, and no message.
    us_compute: f64,
    /// Both at once: post, computation, wait.
    us_both: f64,
    /// A copy of so many bytes by the processor.
    us_copy: f64,
    /// What the computation lost by the receive.
    us_lost: f64,
    /// Of receiving alone, the calls that found something to do: what receiving takes of the processor (R-CI1). The 10th percentile: in
    /// most messages, on an emulated machine, other work of its host is in these times, too.
    us_overhead: f64,
    /// Part of the shorter one that was hidden behind the longer one, 0 … 1.
    overlap: f64,
    /// Copies that an engine made for all messages of this length.
    copies: u32,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "length {:8}:\treceive {:.1} us, of which {:.1} us of the processor, computation {:.1} us, both {:.1} us: {:.1} us lost (a copy takes {:.1} us), overlap {:.1} %, {} copies by an engine",
            self.length,
            self.us_receive,
            self.us_overhead,
            self.us_compute,
            self.us_both,
            self.us_lost,
            self.us_copy,
            100.0 * self.overlap,
            self.copies
        )
    }
}

/// Returns what stands at this place of every message.
const fn byte(at: usize) -> u8 {
    (at % 251) as u8 ^ (at >> 12) as u8
}

/// How often a message of each length is sent.
fn messages(parameters: Parameters) -> u64 {
    u64::from(parameters.warm_up) + 2 * u64::from(parameters.iterations)
}

/// Runs the side that is asked for messages.
pub(super) fn serve(side: &Side<'_>, parameters: Parameters) -> anyhow::Result<()> {
    for length in parameters.lengths() {
        let mut buffer = Buffer::new(length, parameters.aligned)?;
        for (at, place) in buffer.bytes_mut().iter_mut().enumerate() {
            *place = byte(at);
        }
        for _ in 0..messages(parameters) {
            side.receive(&mut [])?;
            side.send(buffer.bytes())?;
        }
    }
    Ok(())
}

/// Times in nanoseconds.
fn times() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, TIME_NS_MAX, 3)?)
}

fn median_us(times: &Histogram<u64>) -> f64 {
    times.value_at_quantile(0.5) as f64 / 1000.0
}

/// The program's work: parts of computation, and progress behind each.
#[derive(Clone, Copy)]
struct Work {
    rounds: u64,
    parts: u64,
}

impl Work {
    fn run(self, side: &Side<'_>) {
        for _ in 0..self.parts {
            compute(self.rounds);
            side.endpoint.progress();
        }
    }
}

/// What one receive took.
struct Took {
    elapsed: Duration,
    /// Without work, that of the calls that found something to do.
    overhead: Duration,
}

/// A call that takes so many times as long as one that finds nothing to do has found something.
const BUSY: u32 = 2;
/// Calls that find nothing, to learn how long they take.
const IDLE_CALLS: u32 = 1000;

fn idle(side: &Side<'_>) -> anyhow::Result<Duration> {
    let mut calls = times()?;
    for _ in 0..IDLE_CALLS {
        let begin = Instant::now();
        side.endpoint.progress();
        calls.saturating_record(begin.elapsed().as_nanos() as u64);
    }
    Ok(Duration::from_nanos(calls.value_at_quantile(0.5)))
}

/// Makes progress until a request is over or nothing has come for long. Returns how long the calls took that found something to do.
fn poll(side: &Side<'_>, request: Request, idle: Duration) -> Result<(bool, Duration), omx::Error> {
    let mut overhead = Duration::ZERO;
    let mut begin = Instant::now();
    let (first, mut is_over) = (begin, false);
    while !is_over && begin - first < SILENCE {
        is_over = side.endpoint.test(request)?.is_some();
        let end = Instant::now();
        if end - begin > BUSY * idle {
            overhead += end - begin;
        }
        begin = end;
    }
    Ok((is_over, overhead))
}

/// Receives one message, which is checked byte by byte, while there is this much work.
fn receive(side: &Side<'_>, buffer: &mut Buffer, work: Option<Work>, idle: Duration) -> anyhow::Result<Took> {
    buffer.bytes_mut().fill(!0);
    let begin = Instant::now();
    // SAFETY: `buffer` is borrowed until the request is over.
    let request = unsafe {
        let segment = Segment::of_mut(buffer.bytes_mut());
        side.endpoint.irecv(&[segment], side.match_info, u64::MAX, 0)
    }?;
    let mut overhead = Duration::ZERO;
    let mut is_over = false;
    let asked = side.send(&[]).and_then(|()| {
        match work {
            Some(work) => work.run(side),
            None => (is_over, overhead) = poll(side, request, idle)?,
        }
        Ok(())
    });
    let over = match asked {
        _ if is_over => Ok(()),
        Ok(()) => side.over(request).map(drop),
        Err(error) => side.end(request).map_err(Into::into).and(Err(error)),
    };
    let elapsed = begin.elapsed();
    over?;
    let wrong = (0..).zip(buffer.bytes()).find(|(at, is)| byte(*at) != **is);
    ensure!(
        wrong.is_none(),
        "byte {} of a message is wrong",
        wrong.map_or(0, |(at, _)| at)
    );
    Ok(Took { elapsed, overhead })
}

/// Runs the side that asks for messages and measures.
pub(super) fn measure(
    side: &Side<'_>,
    parameters: Parameters,
    mut show: impl FnMut(&Measured) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let rounds = (PART.as_nanos() as f64 / ns_per_round()).max(1.0) as u64;
    let copies = || side.endpoint.counters().get(Counter::CopiesFinished);
    for length in parameters.lengths() {
        let mut buffer = Buffer::new(length, parameters.aligned)?;
        let before = copies();
        let idle = idle(side)?;
        for _ in 0..parameters.warm_up {
            receive(side, &mut buffer, None, idle)?;
        }
        let (mut alone, mut overhead) = (times()?, times()?);
        for _ in 0..parameters.iterations {
            let took = receive(side, &mut buffer, None, idle)?;
            alone.saturating_record(took.elapsed.as_nanos() as u64);
            overhead.saturating_record(took.overhead.as_nanos() as u64);
        }
        let us_receive = median_us(&alone);
        let parts = (COMPUTATIONS * us_receive / (PART.as_secs_f64() * 1e6)).ceil().max(1.0) as u64;
        let work = Work { rounds, parts };
        let (mut compute, mut both) = (times()?, times()?);
        for _ in 0..parameters.iterations {
            let begin = Instant::now();
            work.run(side);
            compute.saturating_record(begin.elapsed().as_nanos() as u64);
            let took = receive(side, &mut buffer, Some(work), idle)?;
            both.saturating_record(took.elapsed.as_nanos() as u64);
        }
        let (us_compute, us_both) = (median_us(&compute), median_us(&both));
        show(&Measured {
            length,
            us_receive,
            us_compute,
            us_both,
            us_copy: copy_us(length, parameters)?,
            us_lost: us_both - us_compute,
            us_overhead: overhead.value_at_quantile(0.1) as f64 / 1000.0,
            overlap: ((us_receive + us_compute - us_both) / us_receive.min(us_compute)).clamp(0.0, 1.0),
            copies: copies().wrapping_sub(before),
        })?;
    }
    Ok(())
}

/// Returns how long the processor takes to copy so many bytes.
fn copy_us(length: usize, parameters: Parameters) -> anyhow::Result<f64> {
    let source = Buffer::new(length, parameters.aligned)?;
    let mut destination = Buffer::new(length, parameters.aligned)?;
    let mut copied = times()?;
    for _ in 0..parameters.iterations {
        let begin = Instant::now();
        black_box(&mut destination)
            .bytes_mut()
            .copy_from_slice(black_box(&source).bytes());
        copied.saturating_record(begin.elapsed().as_nanos() as u64);
    }
    Ok(median_us(&copied))
}
