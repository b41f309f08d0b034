//! The rival without MPI: `omx_perf` between the two hosts.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    hosts::{Hosts, built},
    launch::last_lines,
};
use crate::scenarios::openmx::HERE;
use testbed::harness::{Sample, fields, stats::median};

/// Runs of a turn, each with so many messages of which the first ones are not timed, as the rounds of `imb`.
const RUNS: u32 = 5;
const MESSAGES: &str = "10000";
const WARM_UP: &str = "1000";

/// The receiver, which serves one sender after the other until it is dropped.
struct Receiver {
    child: Child,
    address: String,
}

impl Receiver {
    fn start(hosts: &Hosts) -> Result<Self> {
        let mut command = hosts.command_there(&built("omx_perf")?);
        let mut child = command
            .args(["--json", "-s"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run omx_perf")?;
        let mut line = String::new();
        let out = child.stdout.take().context("no pipe")?;
        let mut receiver = Self {
            child,
            address: String::new(),
        };
        BufReader::new(out).read_line(&mut line)?;
        let hello: Value = serde_json::from_str(&line).context("omx_perf does not serve")?;
        hello["mac"]
            .as_str()
            .context("omx_perf does not tell its address")?
            .clone_into(&mut receiver.address);
        Ok(receiver)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // A process that has ended already needs no signal.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Measures half the round trip of an empty message.
pub fn measure(hosts: &Hosts) -> Result<Sample> {
    let receiver = Receiver::start(hosts)?;
    let mut times_us = Vec::new();
    for _ in 0..RUNS {
        let mut command = Command::new(built("omx_perf")?);
        command.args(["--interface", HERE.0, "--json", "-d", &receiver.address]);
        command.args(["-S", "0", "-E", "1", "-P", "0", "-N", MESSAGES, "-W", WARM_UP]);
        let output = hosts.output(&mut command)?;
        ensure!(
            output.status.success(),
            "omx_perf failed: {}",
            last_lines(&output.stderr)
        );
        let result: Value = serde_json::from_slice(&output.stdout).context("omx_perf printed no JSON")?;
        times_us.push(result["us"].as_f64().context("omx_perf printed no time")?);
    }
    let value = median(times_us.iter().copied()).context("nothing was measured")? * 1e3;
    Ok(Sample {
        more: fields(json!({ "runs_us": times_us })),
        ..Sample::new(value)
    })
}
