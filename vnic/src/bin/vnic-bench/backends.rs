//! The forwarders under comparison: how each is started between sockets in a folder of its own.
//! Everything started or reserved here is stopped and given back when dropped.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use weft_vnic_testkit::Service;

use crate::Options;
use crate::dataplane::wait;

/// Which forwarder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// This project's, with its defaults.
    Vnicd,
    /// DPDK's, io forwarding between vhost ports.
    Testpmd,
    /// This project's again, with the flight recorders of all its cards on, and read as `weft nic trace` does.
    Recorded,
}

impl Kind {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Vnicd => "vnicd",
            Kind::Testpmd => "testpmd",
            Kind::Recorded => "recorded",
        }
    }
}

/// 2-MiB pages each testpmd gets (512 MiB: its buffer pools fit).
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
    /// Reserves what is missing for `processes` testpmds.
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

/// Longest wait for a forwarder's sockets, and the time between two looks.
const SOCKETS_WAIT: Duration = Duration::from_secs(20);
const SOCKETS_STEP: Duration = Duration::from_millis(100);

/// A running forwarder and its sockets.
pub struct Backend {
    /// The process.
    pub service: Service,
    /// One socket per port.
    pub sockets: Vec<PathBuf>,
    log: PathBuf,
}

impl Backend {
    /// Starts a forwarder with `ports` ports, its sockets and log in `folder`.
    pub fn start(
        kind: Kind,
        options: &Options,
        pages: &HugePages,
        folder: &Path,
        ports: usize,
    ) -> anyhow::Result<Self> {
        let sockets: Vec<_> = (0..ports)
            .map(|port| folder.join(format!("{}-{port}.sock", kind.name())))
            .collect();
        for socket in &sockets {
            if socket.exists() {
                fs::remove_file(socket)?;
            }
        }
        let command = match kind {
            Kind::Vnicd => vnicd(options, &sockets)?,
            Kind::Testpmd => testpmd(options, pages, &sockets),
            Kind::Recorded => {
                let mut command = vnicd(options, &sockets)?;
                command.arg("--control").arg(control_of(folder));
                command
            }
        };
        let log = folder.join(format!("{}.log", kind.name()));
        let program = command.get_program().to_owned();
        let service = Service::spawn(command, &[options.forwarder_core], &log)
            .with_context(|| format!("cannot start {}", program.display()))?;
        let backend = Backend { service, sockets, log };
        if kind == Kind::Recorded {
            backend.wait_for_sockets()?;
            for port in 0..ports {
                read_recorder(&control_of(folder), &format!("{}-{port}", kind.name()))?;
            }
        }
        Ok(backend)
    }

    /// Waits until every port listens (guests that connect by themselves give up at once otherwise).
    pub fn wait_for_sockets(&self) -> anyhow::Result<()> {
        let mut waited = Duration::ZERO;
        while !self.sockets.iter().all(|socket| socket.exists()) {
            anyhow::ensure!(
                waited < SOCKETS_WAIT,
                "the forwarder opens no sockets: {}",
                self.last_words()
            );
            wait(SOCKETS_STEP)?;
            waited += SOCKETS_STEP;
        }
        // Bound is not listening yet, a moment later it is.
        wait(SOCKETS_STEP)
    }

    /// The end of what the forwarder printed, for error messages.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

fn control_of(folder: &Path) -> PathBuf {
    folder.join("control.sock")
}

/// Switches the recorder of the card `port` on, and reads it in a thread of its own until vnicd ends.
fn read_recorder(control: &Path, port: &str) -> anyhow::Result<()> {
    let mut socket = UnixStream::connect(control).context("vnicd has no control socket")?;
    writeln!(socket, r#"{{"op":"trace","port":"{port}"}}"#)?;
    let mut reader = BufReader::new(socket);
    let mut answer = String::new();
    reader.read_line(&mut answer)?;
    anyhow::ensure!(answer.contains("record_version"), "the recorder is not read: {answer}");
    thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    Ok(())
}

fn vnicd(options: &Options, sockets: &[PathBuf]) -> anyhow::Result<Command> {
    let beside = std::env::current_exe()?.with_file_name("vnicd");
    let binary = options.vnicd.clone().unwrap_or(beside);
    if !binary.exists() {
        bail!("{} does not exist; build it or name it with --vnicd", binary.display());
    }
    let mut command = Command::new(binary);
    for socket in sockets {
        command.arg("--listen").arg(socket);
    }
    command.args(options.vnicd_args.split_whitespace());
    Ok(command)
}

fn testpmd(options: &Options, pages: &HugePages, sockets: &[PathBuf]) -> Command {
    let core = options.forwarder_core;
    let mut command = Command::new(&options.testpmd);
    // Main thread and forwarding thread both on the forwarder's core: the main one sleeps.
    command.args([
        "--lcores",
        &format!("0@{core},1@{core}"),
        "--main-lcore",
        "0",
        "--no-pci",
        "--in-memory",
        "--file-prefix",
        "vnic-bench",
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
