//! `esp_perf` between the two hosts: one program for all rivals, with and without `esp-run`. Rivals take turns within some ten
//! milliseconds.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::{
    Work,
    figure::{Kind, Rival},
};
use crate::scenarios::{
    mpi::{
        frames::{Frames, PORTS},
        hosts::{Hosts, built},
        launch::last_lines,
    },
    openmx::THERE,
};
use testbed::harness::Sample;

/// Bytes that a call of a stream sends.
const STREAM_CALL_BYTES: u32 = 128 << 10;

/// How one kind is measured: the name that `esp_perf` has for it, messages in a run of the program, and runs of each rival in a turn.
struct Manner {
    test: &'static str,
    bytes: u32,
    messages: u32,
    runs: u32,
}

fn manner(kind: Kind) -> Result<Manner> {
    let of = |test, bytes, messages, runs| Manner {
        test,
        bytes,
        messages,
        runs,
    };
    Ok(match kind {
        Kind::Latency { bytes } => of("latency", bytes, 2000, 5),
        Kind::Send { bytes } => of("send", bytes, 2000, 5),
        Kind::Asleep { bytes } => of("asleep", bytes, 100, 2),
        Kind::Stream => of("stream", STREAM_CALL_BYTES, 2048, 2),
        Kind::Operation { .. } | Kind::Kernel(_) | Kind::IdleConnection => bail!("esp_perf does not measure this"),
    })
}

/// Makes a command at a host that starts a program as the rival wants it.
pub fn command(hosts: &Hosts, host: usize, rival: Rival, program: &str) -> Result<Command> {
    let program = built(program)?;
    Ok(match rival {
        Rival::Esp => {
            let mut command = hosts.command(host, &built("esp-run")?);
            command.arg("--never-fall-back").arg(program);
            command
        }
        Rival::Tcp | Rival::TcpPlain => hosts.command(host, &program),
    })
}

/// The answering side of one rival, which ends with this value.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(hosts: &Hosts, rival: Rival) -> Result<Self> {
        // From the end: Open MPI's ranks take the first ports, and leave connections there in TIME_WAIT that keep others out.
        let address = format!("{}:{}", THERE.1, PORTS.end - 1 - rival as u16);
        let mut command = command(hosts, 1, rival, "esp_perf")?;
        command
            .args(["server", &address])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start esp_perf")?;
        let said = child.stdout.take().context("no pipe")?;
        let server = Self { child, address };
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        ensure!(line.starts_with("listening"), "the server esp_perf ended early");
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A process that has ended already needs no signal.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What `esp_perf --json` prints.
#[derive(Debug, Deserialize)]
struct Figures {
    median_us: Option<f64>,
    mbit_per_s: Option<f64>,
}

/// Measures a figure of rivals that take turns, and returns the samples of each.
pub fn measure(hosts: &Hosts, frames: &mut Frames, works: &[Work]) -> Result<Vec<Vec<Sample>>> {
    let manner = manner(works.first().context("an empty turn")?.figure.kind)?;
    let mut servers = Vec::new();
    for work in works {
        servers.push(Server::start(hosts, work.rival)?);
    }
    let mut samples = vec![Vec::new(); works.len()];
    for _ in 0..manner.runs {
        for ((work, server), samples) in works.iter().zip(&servers).zip(&mut samples) {
            samples.push(Sample::new(run_client(hosts, frames, work.rival, server, &manner)?));
        }
    }
    Ok(samples)
}

fn run_client(hosts: &Hosts, frames: &mut Frames, rival: Rival, server: &Server, manner: &Manner) -> Result<f64> {
    let before = frames.so_far()?;
    let mut command = command(hosts, 0, rival, "esp_perf")?;
    command
        .args(["client", &server.address, "--json", "--test", manner.test])
        .args([
            "--size",
            &manner.bytes.to_string(),
            "--count",
            &manner.messages.to_string(),
        ]);
    let output = hosts.output(&mut command)?;
    ensure!(
        output.status.success(),
        "esp_perf over {} failed ({}): {}",
        rival.name(),
        output.status,
        last_lines(&output.stderr)
    );
    let result: Figures = serde_json::from_slice(&output.stdout).context("esp_perf printed no result")?;
    // Of a stream only acknowledgements come, and with offloads few of them.
    let least = if manner.test == "stream" {
        1
    } else {
        u64::from(manner.messages)
    };
    frames.check(before, rival.frames_of(), rival.name(), least)?;
    let value = match (result.median_us, result.mbit_per_s) {
        (Some(us), _) => us * 1e3,
        (_, Some(mbit_per_s)) => mbit_per_s * 1e6 / 8.0,
        _ => bail!("esp_perf printed no figure"),
    };
    Ok(value)
}
