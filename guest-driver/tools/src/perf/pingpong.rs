//! Both sides of the ping-pong, on the endpoint's safe calls and, where two requests overlap, on its requests.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use ether::MacAddr;
use hdrhistogram::Histogram;
use omx::{Address, Endpoint, Segment, Status, StatusCode};
use serde::Serialize;

use super::parameters::{KEY, MATCH_INFO, PARAMETERS_LEN, Parameters};

/// The receiver is waited for this long.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// Buffers begin at a multiple of this when they are to be aligned.
const ALIGNMENT: usize = 64 << 10;
/// Longest time of one message that is told apart, in nanoseconds.
const TIME_NS_MAX: u64 = 60_000_000_000;
/// Longest message: what a peer may ask this side to allocate.
const LENGTH_MAX: usize = 1 << 30;

/// What is done while a message is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polling {
    /// The endpoint's own wait.
    Wait,
    /// Tests, and yields the processor in between.
    Yield,
}

/// One length.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    length: usize,
    /// Mean time of a message one way, in microseconds.
    us: f64,
    us_median: f64,
    us_p99: f64,
    mb_per_s: f64,
    mib_per_s: f64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "length {:8}:\t{:.3} us\t{:.2} MB/s\t {:.2} MiB/s",
            self.length, self.us, self.mb_per_s, self.mib_per_s
        )
    }
}

/// A buffer, aligned or not.
struct Buffer {
    memory: Vec<u8>,
    at: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize, aligned: bool) -> Self {
        let memory = vec![0x5a; len + ALIGNMENT];
        let at = if aligned {
            memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT)
        } else {
            0
        };
        Self { memory, at, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.at..self.at + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.at..self.at + self.len]
    }
}

struct Side<'a> {
    endpoint: &'a Endpoint,
    polling: Polling,
    synchronous: bool,
}

impl Side<'_> {
    fn over(&self, request: omx::Request) -> anyhow::Result<Status> {
        let status = loop {
            let status = match self.polling {
                Polling::Wait => self.endpoint.wait(request, None)?,
                Polling::Yield => {
                    let status = self.endpoint.test(request)?;
                    if status.is_none() {
                        thread::yield_now();
                    }
                    status
                }
            };
            if let Some(status) = status {
                break status;
            }
        };
        match status.code {
            StatusCode::Success => Ok(status),
            code => bail!("a message failed: {code}"),
        }
    }

    fn send(&self, data: &[u8], to: Address) -> anyhow::Result<()> {
        // SAFETY: `data` is borrowed until the request is over, or the process ends.
        let request = unsafe {
            self.endpoint
                .isend(&[Segment::of(data)], to, MATCH_INFO, 0, self.synchronous)
        }?;
        self.over(request).map(drop)
    }

    fn receive(&self, buffer: &mut [u8]) -> anyhow::Result<Status> {
        // SAFETY: `buffer` is borrowed until the request is over, or the process ends.
        let request = unsafe { self.endpoint.irecv(&[Segment::of_mut(buffer)], MATCH_INFO, u64::MAX, 0) }?;
        self.over(request)
    }
}

/// The receiver: serves one sender.
pub(super) fn receive(endpoint: &Endpoint, polling: Polling) -> anyhow::Result<()> {
    let mut bytes = [0; PARAMETERS_LEN];
    let status = endpoint.receive(&mut bytes, MATCH_INFO, u64::MAX)?;
    ensure!(
        status.transferred as usize == PARAMETERS_LEN,
        "the sender is no omx_perf"
    );
    let parameters = Parameters::from_bytes(&bytes);
    let source = status.address.context("the sender is gone")?;
    // As the reference does; the address it came from would do.
    let back = endpoint.connect(source.mac(), source.endpoint(), KEY, Some(CONNECT_LIMIT))?;
    endpoint.send_synchronous(&[], back, MATCH_INFO)?;
    let side = Side {
        endpoint,
        polling,
        synchronous: parameters.synchronous,
    };
    for length in parameters.lengths() {
        ensure!(
            length <= LENGTH_MAX,
            "the sender wants messages of {length} bytes, which are too long"
        );
        let mut buffer = Buffer::new(length, parameters.aligned);
        for _ in 0..u64::from(parameters.iterations) + u64::from(parameters.warm_up) {
            side.receive(buffer.bytes_mut())?;
            let reply = if parameters.one_way { &[] } else { buffer.bytes() };
            side.send(reply, back)?;
        }
    }
    Ok(())
}

/// The sender: measures, and shows each length.
pub(super) fn send(
    endpoint: &Endpoint,
    polling: Polling,
    (mac, remote): (MacAddr, u8),
    parameters: Parameters,
    pause: Duration,
    mut show: impl FnMut(&Measured) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let to = endpoint
        .connect(mac, remote, KEY, Some(CONNECT_LIMIT))
        .with_context(|| format!("cannot connect to endpoint {remote} of {mac}"))?;
    endpoint.send_synchronous(&parameters.to_bytes(), to, MATCH_INFO)?;
    endpoint.receive(&mut [], MATCH_INFO, u64::MAX)?;
    let side = Side {
        endpoint,
        polling,
        synchronous: parameters.synchronous,
    };
    let ways = if parameters.one_way { 1.0 } else { 2.0 };
    for length in parameters.lengths() {
        ensure!(length <= LENGTH_MAX, "messages of {length} bytes are too long");
        thread::sleep(pause);
        let mut buffer = Buffer::new(length, parameters.aligned);
        let mut times_ns = Histogram::<u64>::new_with_bounds(1, TIME_NS_MAX, 3)?;
        let mut begin = Instant::now();
        let mut last = begin;
        for iteration in 0..u64::from(parameters.iterations) + u64::from(parameters.warm_up) {
            if iteration == u64::from(parameters.warm_up) {
                begin = Instant::now();
                last = begin;
            }
            side.send(buffer.bytes(), to)?;
            let reply = if parameters.one_way {
                &mut []
            } else {
                buffer.bytes_mut()
            };
            side.receive(reply)?;
            let now = Instant::now();
            if iteration >= u64::from(parameters.warm_up) {
                times_ns.saturating_record((now - last).as_nanos() as u64);
            }
            last = now;
        }
        let us = begin.elapsed().as_secs_f64() * 1e6 / f64::from(parameters.iterations) / ways;
        let quantile = |q| times_ns.value_at_quantile(q) as f64 / 1000.0 / ways;
        show(&Measured {
            length,
            us,
            us_median: quantile(0.5),
            us_p99: quantile(0.99),
            mb_per_s: length as f64 / us,
            mib_per_s: length as f64 / us * 1e6 / f64::from(1 << 20),
        })?;
    }
    Ok(())
}
