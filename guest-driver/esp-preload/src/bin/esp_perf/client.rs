//! The side that measures.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use crate::{Head, Kind, Measurement, PAUSE, SIZE_MAX};

pub(crate) fn run(measurement: &Measurement) -> Result<()> {
    let Measurement { size, count, .. } = *measurement;
    ensure!(size > 0 && size <= SIZE_MAX, "a message has 1 to {SIZE_MAX} bytes");
    ensure!(count > 0, "there is nothing to measure without messages");
    let mut stream =
        TcpStream::connect(&measurement.server).with_context(|| format!("cannot connect to {}", measurement.server))?;
    stream.set_nodelay(true)?;
    let head = Head {
        kind: measurement.test,
        size,
        count,
    };
    stream.write_all(&head.to_bytes())?;
    if measurement.test == Kind::Stream {
        return measure_stream(&mut stream, measurement);
    }
    let times = round_trips(&mut stream, measurement)?;
    print_times(measurement, times);
    Ok(())
}

fn measure_stream(stream: &mut TcpStream, measurement: &Measurement) -> Result<()> {
    let bytes = vec![7; measurement.size as usize];
    let begin = Instant::now();
    for _ in 0..measurement.count {
        stream.write_all(&bytes)?;
    }
    stream.read_exact(&mut [0])?;
    let seconds = begin.elapsed().as_secs_f64();
    let sum = f64::from(measurement.size) * f64::from(measurement.count);
    let rate = sum * 8.0 / seconds / 1e6;
    if measurement.json {
        println!(
            r#"{{"test":"stream","size":{},"count":{},"mbit_per_s":{rate:.1}}}"#,
            measurement.size, measurement.count
        );
    } else {
        println!("stream, calls of {} bytes: {rate:.1} Mbit/s", measurement.size);
    }
    Ok(())
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

fn print_times(measurement: &Measurement, mut times: Vec<u64>) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
    let (median, p99, min) = (at(0.5), at(0.99), at(0.0));
    let (name, what) = match measurement.test {
        Kind::Latency => ("latency", "half round trip"),
        Kind::Asleep => ("asleep", "half round trip, both asleep"),
        Kind::Send | Kind::Stream => ("send", "send call"),
    };
    let size = measurement.size;
    if measurement.json {
        let count = measurement.count;
        println!(
            r#"{{"test":"{name}","size":{size},"count":{count},"median_us":{median:.3},"p99_us":{p99:.3},"min_us":{min:.3}}}"#
        );
    } else {
        println!("{what}, {size} bytes: median {median:.2} us, 99 % {p99:.2} us, least {min:.2} us");
    }
}
