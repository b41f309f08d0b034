//! The forwarders under comparison: how each is started between sockets in a folder. What is reserved here is given
//! back when dropped.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};

use super::Options;
use crate::scenarios::forwarder::{Forwarder, vnicd};
use testbed::harness::Stop;

/// The kinds of forwarder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// `vnicd` with its defaults.
    Vnicd,
    /// DPDK's testpmd, with io forwarding between vhost ports.
    Testpmd,
    /// `vnicd` with the flight recorders of all its cards switched on and read as `weft nic trace` does.
    Recorded,
}

impl Kind {
    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Vnicd => "vnicd",
            Kind::Testpmd => "testpmd",
            Kind::Recorded => "recorded",
        }
    }

    /// Starts the forwarder with `ports` ports, its sockets and log in `folder`.
    pub fn start(
        self,
        options: &Options,
        pages: &HugePages,
        folder: &Path,
        ports: usize,
        stop: &Stop,
    ) -> Result<Forwarder> {
        let core = options.cores.forwarder_core;
        let programs = &options.programs;
        let vnicd = |sockets: &[PathBuf]| vnicd(programs.vnicd.as_deref(), sockets, &programs.vnicd_args);
        let forwarder = Forwarder::start(self.name(), core, folder, ports, |sockets| match self {
            Kind::Vnicd => vnicd(sockets),
            Kind::Testpmd => Ok(testpmd(options, pages, sockets)),
            Kind::Recorded => {
                let mut command = vnicd(sockets)?;
                command.arg("--control").arg(control_of(folder));
                Ok(command)
            }
        })?;
        if self == Kind::Recorded {
            forwarder.wait_for_sockets(stop)?;
            for port in 0..ports {
                read_recorder(&control_of(folder), &format!("{}-{port}", self.name()))?;
            }
        }
        Ok(forwarder)
    }
}

/// 2-MiB pages for each testpmd (512 MiB hold its buffer pools).
const HUGE_PAGES: u64 = 256;
const HUGE_PAGES_FILE: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages for testpmd, given back when dropped. Without the right to reserve them testpmd runs on ordinary pages.
#[derive(Debug)]
pub struct HugePages {
    pub before: Option<u64>,
    /// Whether testpmd can use them.
    pub available: bool,
}

impl HugePages {
    /// Reserves the pages that are missing for `processes` testpmds.
    pub fn reserve(processes: u64) -> Self {
        let wanted = processes * HUGE_PAGES;
        let read = || fs::read_to_string(HUGE_PAGES_FILE).ok()?.trim().parse::<u64>().ok();
        let Some(before) = read() else {
            return HugePages {
                before: None,
                available: false,
            };
        };
        if before >= wanted {
            return HugePages {
                before: None,
                available: true,
            };
        }
        let raised = fs::write(HUGE_PAGES_FILE, wanted.to_string()).is_ok();
        let available = read().is_some_and(|now| now >= wanted);
        HugePages {
            before: raised.then_some(before),
            available,
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = fs::write(HUGE_PAGES_FILE, before.to_string())
        {
            eprintln!("cannot give huge pages back ({error}); set vm.nr_hugepages={before} by hand");
        }
    }
}

fn control_of(folder: &Path) -> PathBuf {
    folder.join("control.sock")
}

/// Switches the flight recorder of the card `port` on, and reads it in a separate thread until vnicd ends.
fn read_recorder(control: &Path, port: &str) -> Result<()> {
    let mut socket = UnixStream::connect(control).context("vnicd has no control socket")?;
    writeln!(socket, r#"{{"op":"trace","port":"{port}"}}"#)?;
    let mut reader = BufReader::new(socket);
    let mut answer = String::new();
    reader.read_line(&mut answer)?;
    ensure!(
        answer.contains("record_version"),
        "the flight recorder is not read: {answer}"
    );
    thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    Ok(())
}

fn testpmd(options: &Options, pages: &HugePages, sockets: &[PathBuf]) -> Command {
    let core = options.cores.forwarder_core;
    let mut command = Command::new(&options.programs.testpmd);
    // Main thread and forwarding thread both run on the forwarder's core: the main one sleeps.
    command.args([
        "--lcores",
        &format!("0@{core},1@{core}"),
        "--main-lcore",
        "0",
        "--no-pci",
        "--in-memory",
        "--file-prefix",
        "weft-bench",
        "-m",
        "512",
    ]);
    if pages.available {
        command.arg("--single-file-segments");
    } else {
        command.arg("--no-huge");
    }
    for (port, socket) in sockets.iter().enumerate() {
        command.args([
            "--vdev",
            &format!("net_vhost{port},iface={},queues=1", socket.display()),
        ]);
    }
    command.args([
        "--",
        "--forward-mode=io",
        "--auto-start",
        "--nb-cores=1",
        "--total-num-mbufs=16384",
    ]);
    command
}
