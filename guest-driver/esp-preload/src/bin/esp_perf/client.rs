//! The side that measures.

use std::{
    io::{self, Read, Write},
    net::{Ipv6Addr, TcpStream},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, anyhow};
use serde_json::json;

use super::{Head, Kind, Measurement, PAUSE, PORT, print_line};

pub(crate) fn run(measurement: &Measurement) -> Result<()> {
    let mut stream =
        connect(&measurement.server).with_context(|| format!("cannot connect to {}", measurement.server))?;
    stream.set_nodelay(true)?;
    let report = measure(&mut stream, measurement).map_err(|error| explained(error, &measurement.server))?;
    print_line(&report)
}

/// Connects to an address and port, or to an address alone.
fn connect(server: &str) -> io::Result<TcpStream> {
    let is_alone = !server.contains(':') || server.parse::<Ipv6Addr>().is_ok();
    if is_alone {
        TcpStream::connect((server, PORT))
    } else {
        TcpStream::connect(server)
    }
}

/// What a measurement failed for, in a sentence with the server's name.
fn explained(error: anyhow::Error, server: &str) -> anyhow::Error {
    let kind = error.downcast_ref().map(io::Error::kind);
    if kind == Some(io::ErrorKind::UnexpectedEof) {
        return anyhow!("{server} closed the connection: it is no esp_perf, or it was ended");
    }
    error.context(format!("the connection to {server} broke"))
}

/// Measures, and returns what is to be said.
fn measure(stream: &mut TcpStream, measurement: &Measurement) -> Result<String> {
    let Measurement { test, size, count, .. } = *measurement;
    let head = Head {
        kind: test,
        size,
        count,
    };
    stream.write_all(&head.to_bytes())?;
    if test == Kind::Stream {
        let rate = rate_of_stream(stream, measurement)?;
        Ok(report_of_stream(measurement, rate))
    } else {
        let times = round_trips(stream, measurement)?;
        Ok(report_of_times(measurement, times))
    }
}

/// Sends without a pause, and returns the megabits per second that arrived.
fn rate_of_stream(stream: &mut TcpStream, measurement: &Measurement) -> Result<f64> {
    let bytes = vec![7; measurement.size as usize];
    let begin = Instant::now();
    for _ in 0..measurement.count {
        stream.write_all(&bytes)?;
    }
    stream.read_exact(&mut [0])?;
    let seconds = begin.elapsed().as_secs_f64();
    let sum = f64::from(measurement.size) * f64::from(measurement.count);
    Ok(sum * 8.0 / seconds / 1e6)
}

fn report_of_stream(measurement: &Measurement, rate: f64) -> String {
    let Measurement { size, count, .. } = *measurement;
    if measurement.json {
        json!({ "test": "stream", "size": size, "count": count, "mbit_per_s": rounded(rate, 10.0) }).to_string()
    } else {
        format!("stream, calls of {size} bytes: {rate:.1} Mbit/s")
    }
}

/// A figure with as many digits behind the point as say something.
fn rounded(figure: f64, parts: f64) -> f64 {
    (figure * parts).round() / parts
}

/// Sends one message after the other, and returns the nanoseconds that each took: half of the round trip, or the call that sends.
fn round_trips(stream: &mut TcpStream, measurement: &Measurement) -> Result<Vec<u64>> {
    let mut bytes = vec![7; measurement.size as usize];
    let mut times = Vec::with_capacity(measurement.count as usize);
    for _ in 0..measurement.count {
        if measurement.test == Kind::Asleep {
            thread::sleep(PAUSE);
        }
        let begin = Instant::now();
        stream.write_all(&bytes)?;
        let sent = begin.elapsed();
        stream.read_exact(&mut bytes)?;
        let time = if measurement.test == Kind::Send {
            sent
        } else {
            begin.elapsed() / 2
        };
        times.push(u64::try_from(time.as_nanos())?);
    }
    Ok(times)
}

fn report_of_times(measurement: &Measurement, mut times: Vec<u64>) -> String {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
    let (median, p99, min) = (at(0.5), at(0.99), at(0.0));
    let (name, what) = match measurement.test {
        Kind::Latency => ("latency", "half round trip"),
        Kind::Asleep => ("asleep", "half round trip, both asleep"),
        Kind::Send | Kind::Stream => ("send", "send call"),
    };
    let Measurement { size, count, .. } = *measurement;
    if measurement.json {
        json!({
            "test": name,
            "size": size,
            "count": count,
            "median_us": rounded(median, 1000.0),
            "p99_us": rounded(p99, 1000.0),
            "min_us": rounded(min, 1000.0),
        })
        .to_string()
    } else {
        format!("{what}, {size} bytes: median {median:.2} us, 99 % {p99:.2} us, least {min:.2} us")
    }
}
