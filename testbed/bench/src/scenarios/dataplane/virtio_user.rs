//! A cross-check with DPDK's virtio-user ports as guests instead of the test frontends: one testpmd keeps frames
//! circulating through the forwarder in both directions and reports its receive rate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weft_vnic_testkit::Service;

use super::Dataplane;
use crate::scenarios::forwarder::wait;
use testbed::harness::Stop;

/// Bursts of 32 frames that each port sends at first; afterwards those frames only circulate. They are few enough for a
/// ring of 256.
const BURSTS: u16 = 6;
/// Time that frames circulate before the rate is read, and time over which it is read.
const SETTLE: Duration = Duration::from_millis(1000);
const READ: Duration = Duration::from_millis(2000);
/// Longest wait for testpmd to become ready, and for its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// Data room of testpmd's default buffers, less their headroom.
const BUFFER_LEN: usize = 2048;

/// Measures the frames per second that the forwarder carries, both directions together.
pub fn frames_per_s(dataplane: &Dataplane<'_>, sockets: &[PathBuf], size: usize) -> Result<f64> {
    let Dataplane { options, stop, .. } = dataplane;
    let log = dataplane.folder.join("virtio-user.log");
    let command = command(dataplane, sockets, size);
    let mut service = Service::spawn(command, &[options.cores.frontend_core], &log)
        .with_context(|| format!("cannot start {}", options.programs.testpmd.display()))?;
    service.type_in(&format!("set txpkts {size}\nstart tx_first {BURSTS}\n"))?;
    await_output(&log, stop, |text| text.contains("packet forwarding - ports="))?;
    wait(SETTLE, stop)?;
    service.type_in("show port stats all\n")?;
    wait(READ, stop)?;
    // The rate covers the time since the last command.
    service.type_in("show port stats all\n")?;
    await_output(&log, stop, |text| reports(text, sockets.len()).len() >= 2)?;
    Ok(reports(&fs::read_to_string(&log)?, sockets.len())[1])
}

fn await_output(log: &Path, stop: &Stop, ready: impl Fn(&str) -> bool) -> Result<()> {
    let step = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    loop {
        let text = fs::read_to_string(log).unwrap_or_default();
        if ready(&text) {
            return Ok(());
        }
        if waited > ANSWER_WAIT {
            let end: Vec<_> = text.lines().collect();
            bail!(
                "testpmd with virtio-user ports gives no answer: {}",
                end[end.len().saturating_sub(8)..].join("\n")
            );
        }
        wait(step, stop)?;
        waited += step;
    }
}

fn command(dataplane: &Dataplane<'_>, sockets: &[PathBuf], size: usize) -> Command {
    let (options, ring) = (dataplane.options, dataplane.options.rings.ring);
    let core = options.cores.frontend_core;
    // The output goes to a file, and without `stdbuf` it would stay in a buffer until the end.
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(&options.programs.testpmd);
    command.args([
        "--lcores",
        &format!("0@{core},1@{core}"),
        "--main-lcore",
        "0",
        "--no-pci",
        "-m",
        "512",
    ]);
    command.args(["--in-memory", "--file-prefix", "weft-bench-guests"]);
    command.arg(if dataplane.pages.available {
        "--single-file-segments"
    } else {
        "--no-huge"
    });
    for (port, socket) in sockets.iter().enumerate() {
        let (path, mac) = (socket.display(), station(port));
        command.args([
            "--vdev",
            &format!("net_virtio_user{port},path={path},queue_size={ring},mac={mac}"),
        ]);
    }
    // Each frame bears the addresses of its sender and receiver; otherwise a learning switch would see stations jump
    // between ports.
    command.args(["--", "--interactive", "--forward-mode=mac", "--nb-cores=1"]);
    for port in 0..sockets.len() {
        command.arg(format!("--eth-peer={port},{}", station(port ^ 1)));
    }
    command.arg(format!("--txd={ring}")).arg(format!("--rxd={ring}"));
    command.arg("--total-num-mbufs=16384");
    if size > BUFFER_LEN {
        command.arg(format!("--mbuf-size={}", (size + 128).next_multiple_of(64)));
        command.arg(format!("--max-pkt-len={}", size + 4));
    }
    command
}

fn station(port: usize) -> String {
    format!("02:00:00:00:0b:{port:02x}")
}

/// Returns the receive rate of all ports together, one value per report.
fn reports(log: &str, ports: usize) -> Vec<f64> {
    let rates = log.lines().filter_map(|line| line.trim().strip_prefix("Rx-pps:"));
    let rates: Vec<f64> = rates
        .filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
        .collect();
    rates.chunks_exact(ports).map(|chunk| chunk.iter().sum()).collect()
}
