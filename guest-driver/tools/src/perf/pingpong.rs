//! The connection of sender and receiver, and both sides of the ping-pong.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use ether::MacAddr;
use hdrhistogram::Histogram;
use omx::Endpoint;
use serde::Serialize;

use super::{
    overlap,
    parameters::{KEY, MATCH_INFO, Mode, PARAMETERS_LEN, Parameters, SERVICE_INFO, SERVICE_MASK},
    phases, rate,
    side::{Buffer, Polling, Side},
};

/// The sender waits for the receiver this long.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// The longest time of one message that the histogram can hold, in nanoseconds.
pub(super) const TIME_NS_MAX: u64 = 60_000_000_000;

/// One length.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    length: usize,
    repetitions: u32,
    /// The mean time of a message in one direction, in microseconds.
    us: f64,
    us_median: f64,
    us_p99: f64,
    mb_per_s: f64,
    mib_per_s: f64,
}

/// The lines above those of [`Measured::imb`].
pub(super) const IMB_HEAD: &str = "\
#---------------------------------------------------
# Benchmarking PingPong
# #processes = 2
#---------------------------------------------------
       #bytes #repetitions      t[usec]   Mbytes/sec";

impl Measured {
    /// Formats a line as the Intel MPI Benchmarks print it; their Mbytes are 10⁶ bytes.
    pub(super) fn imb(&self) -> String {
        format!(
            "{:13}{:13}{:13.2}{:13.2}",
            self.length, self.repetitions, self.us, self.mb_per_s
        )
    }
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

/// Runs the receiver: it serves one sender, whatever that measures, until the sender has finished or is gone. Other
/// senders wait meanwhile: their parameters match no receive. `service` is the number of this service.
///
/// All messages of the reference's sender have the same match information: when it is interrupted, the parameters of the next
/// sender can be taken for one of its messages, and that sender has to be started again.
pub(super) fn receive(endpoint: &Endpoint, polling: Polling, service: u32) -> anyhow::Result<()> {
    let mut bytes = [0; PARAMETERS_LEN];
    let status = endpoint.receive(&mut bytes, MATCH_INFO, u64::MAX)?;
    ensure!(
        status.transferred as usize == PARAMETERS_LEN,
        "the sender is no omx_perf"
    );
    let parameters = Parameters::from_bytes(&bytes).context("the sender wants what this omx_perf does not know")?;
    let source = status.address.context("the sender is gone")?;
    // As the reference does; the address it came from would do.
    let back = endpoint.connect(source.mac(), source.endpoint(), KEY, Some(CONNECT_LIMIT))?;
    let side = Side {
        endpoint,
        polling,
        synchronous: true,
        partner: back,
        match_info: if parameters.numbered {
            SERVICE_INFO | u64::from(service)
        } else {
            MATCH_INFO
        },
    };
    side.send(&[])?;
    let side = Side {
        synchronous: parameters.synchronous,
        ..side
    };
    match parameters.mode {
        Mode::PingPong => answer(&side, parameters),
        Mode::Rate => rate::receive(&side, parameters),
        Mode::Overlap => overlap::receive(&side, parameters),
        Mode::Phases => phases::serve(&side, parameters),
    }
}

fn answer(side: &Side<'_>, parameters: Parameters) -> anyhow::Result<()> {
    for length in parameters.lengths() {
        let mut buffer = Buffer::new(length, parameters.aligned)?;
        for _ in 0..u64::from(parameters.iterations) + u64::from(parameters.warm_up) {
            side.receive(buffer.bytes_mut())?;
            let reply = if parameters.one_way { &[] } else { buffer.bytes() };
            side.send(reply)?;
        }
    }
    Ok(())
}

/// Reaches the receiver as a sender, tells it the parameters, and waits for its turn.
pub(super) fn reach(
    endpoint: &Endpoint,
    polling: Polling,
    (mac, remote): (MacAddr, u8),
    parameters: Parameters,
) -> anyhow::Result<Side<'_>> {
    let partner = endpoint
        .connect(mac, remote, KEY, Some(CONNECT_LIMIT))
        .with_context(|| format!("cannot connect to endpoint {remote} of {mac}"))?;
    let side = Side {
        endpoint,
        polling,
        synchronous: true,
        partner,
        match_info: MATCH_INFO,
    };
    side.send(&parameters.to_bytes())?;
    let answer = side.receive_masked(&mut [], SERVICE_MASK)?;
    Ok(Side {
        synchronous: parameters.synchronous,
        match_info: answer.match_info,
        ..side
    })
}

/// Runs the sender: measures, and shows each length.
pub(super) fn send(
    side: &Side<'_>,
    parameters: Parameters,
    pause: Duration,
    mut show: impl FnMut(&Measured) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let directions = if parameters.one_way { 1.0 } else { 2.0 };
    for length in parameters.lengths() {
        thread::sleep(pause);
        let mut buffer = Buffer::new(length, parameters.aligned)?;
        let mut times_ns = Histogram::<u64>::new_with_bounds(1, TIME_NS_MAX, 3)?;
        let mut begin = Instant::now();
        let mut last = begin;
        for iteration in 0..u64::from(parameters.iterations) + u64::from(parameters.warm_up) {
            if iteration == u64::from(parameters.warm_up) {
                begin = Instant::now();
                last = begin;
            }
            side.send(buffer.bytes())?;
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
        let us = begin.elapsed().as_secs_f64() * 1e6 / f64::from(parameters.iterations) / directions;
        let quantile = |q| times_ns.value_at_quantile(q) as f64 / 1000.0 / directions;
        show(&Measured {
            length,
            repetitions: parameters.iterations,
            us,
            us_median: quantile(0.5),
            us_p99: quantile(0.99),
            mb_per_s: length as f64 / us,
            mib_per_s: length as f64 / us * 1e6 / f64::from(1 << 20),
        })?;
    }
    Ok(())
}
