//! The command line of `mxoe-gen`.

use std::{
    io,
    os::fd::AsFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use ether::{EtherType, MacAddr};
use mxoe::wire::Preset;
use netif::{AfPacket, AfPacketOptions, BURST_MAX, NetifError};
use serde::Serialize;
use serde_json::json;

use super::{Client, ClientOptions, PingKind, Server};
use crate::{
    Stop,
    run::{Switch, print, print_line},
};

/// How often a server whose interface went down looks whether it is back.
const REOPEN_EVERY: Duration = Duration::from_millis(200);
/// Exit code of a client that a signal ended early; what it had measured is printed.
const INTERRUPTED: u8 = 130;

/// Makes MXoE traffic between two machines and times it.
///
/// Start `mxoe-gen serve` on one machine and small, medium or stream on the other. Needs CAP_NET_RAW. Times are taken
/// with the monotonic clock of the machine that waits; nothing is sent again, lost messages are counted.
#[derive(Debug, Parser)]
#[command(name = "mxoe-gen", version)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    /// Whether the result is wanted as JSON.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Serve { common } => common.json,
            Command::Small { client, .. } | Command::Medium { client, .. } | Command::Stream { client, .. } => {
                client.common.json
            }
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer pings, count streams, answer medium messages; runs until SIGTERM or Ctrl-C
    Serve {
        #[command(flatten)]
        common: Common,
    },
    /// Ping-pong of small messages, marked on both ways
    Small {
        #[command(flatten)]
        client: ClientArguments,
        /// Messages to send
        #[arg(long, default_value_t = 1000)]
        count: u64,
        /// Bytes per message, up to 128
        #[arg(long, default_value_t = 16)]
        size: usize,
        /// Stop after this time even if messages are left
        #[arg(long, value_parser = seconds)]
        seconds: Option<Duration>,
    },
    /// Medium messages: fragments sent in one system call, the last one marked; answered by one small message
    Medium {
        #[command(flatten)]
        client: ClientArguments,
        /// Messages to send
        #[arg(long, default_value_t = 300)]
        count: u64,
        /// Bytes per message; 32 KiB are 23 fragments with the preset native-1500
        #[arg(long, default_value_t = 32768)]
        size: usize,
        /// Stop after this time even if messages are left
        #[arg(long, value_parser = seconds)]
        seconds: Option<Duration>,
    },
    /// Small messages one way as fast as they go; the receiver counts
    Stream {
        #[command(flatten)]
        client: ClientArguments,
        /// Bytes per message, up to 128
        #[arg(long, default_value_t = 128)]
        size: usize,
        /// How long to send
        #[arg(long, default_value = "5", value_parser = seconds)]
        seconds: Duration,
        /// Messages per system call
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=BURST_MAX as i64))]
        burst: u16,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// Network interface
    #[arg(short, long, default_value = "eth0")]
    interface: String,
    /// Sizes of frames and fragments, the same at both ends: wire, native-1500 or native-9000
    #[arg(long, default_value_t = Preset::Native1500)]
    preset: Preset,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ClientArguments {
    #[command(flatten)]
    common: Common,
    /// Address of the machine that runs `mxoe-gen serve`
    #[arg(long, value_name = "MAC")]
    peer: MacAddr,
    /// Whether latency-sensitive frames carry the mark
    #[arg(long, value_enum, default_value_t = Switch::On)]
    marks: Switch,
    /// A message without an answer for so long is lost
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
    /// How many seconds to wait for the server to answer at all
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    connect_timeout: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    /// A week: nothing waits longer on purpose.
    const MAX: f64 = 604_800.0;
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= MAX => Ok(Duration::from_secs_f64(value)),
        _ => Err(format!("not a number of seconds above 0 and up to {MAX}")),
    }
}

/// Runs the tool.
///
/// # Errors
/// One sentence that says what is wrong.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let stop = Stop::on_signals().context("cannot take over signals")?;
    match &arguments.command {
        Command::Serve { common } => serve(common, &stop),
        Command::Small {
            client,
            count,
            size,
            seconds,
        } => with_client(client, &stop, |link| {
            let report = link.ping(PingKind::Small, *size, *count, *seconds)?;
            let interrupted = report.interrupted;
            Ok((report, interrupted))
        }),
        Command::Medium {
            client,
            count,
            size,
            seconds,
        } => with_client(client, &stop, |link| {
            let report = link.ping(PingKind::Medium, *size, *count, *seconds)?;
            let interrupted = report.interrupted;
            Ok((report, interrupted))
        }),
        Command::Stream {
            client,
            size,
            seconds,
            burst,
        } => with_client(client, &stop, |link| {
            let report = link.stream(*size, usize::from(*burst), *seconds)?;
            let interrupted = report.interrupted;
            Ok((report, interrupted))
        }),
    }
}

fn open(common: &Common) -> Result<AfPacket, NetifError> {
    AfPacket::open(&common.interface, EtherType::MXOE, &AfPacketOptions::default())
}

fn with_client<R: Serialize + std::fmt::Display>(
    arguments: &ClientArguments,
    stop: &Stop,
    run: impl FnOnce(&mut Client<'_, AfPacket>) -> anyhow::Result<(R, bool)>,
) -> anyhow::Result<ExitCode> {
    let common = &arguments.common;
    let mut port = open(common)?;
    let options = ClientOptions {
        peer: arguments.peer,
        preset: common.preset,
        marks: arguments.marks.is_on(),
        timeout: Duration::from_millis(arguments.timeout_ms),
        connect_timeout: arguments.connect_timeout,
    };
    let mut client = Client::connect(&mut port, options, stop.as_fd())?;
    let (report, interrupted) = run(&mut client)?;
    print(common.json, &report)?;
    Ok(if interrupted {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::SUCCESS
    })
}

fn serve(common: &Common, stop: &Stop) -> anyhow::Result<ExitCode> {
    use netif::Netif;
    let mut port = open(common)?;
    let mac = port.mac();
    let mut server = Server::new(mac, common.preset);
    let text = if common.json {
        json!({ "serving": common.interface, "mac": mac.to_string(), "preset": common.preset.name() }).to_string()
    } else {
        format!(
            "serving MXoE ({}) on {}, address {mac}",
            common.preset, common.interface
        )
    };
    // Whoever started the server waits for this line.
    print_line(&text)?;
    loop {
        match server.run(&mut port, stop.as_fd()) {
            Ok(()) => break,
            Err(error @ NetifError::Down { .. }) => {
                eprintln!("mxoe-gen: {error}; waiting for it");
                match reopen(common, stop)? {
                    Some(reopened) => port = reopened,
                    None => break,
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    print(common.json, &server.report())?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the interface once it is up again; `None` when told to end before.
fn reopen(common: &Common, stop: &Stop) -> anyhow::Result<Option<AfPacket>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut next = Instant::now();
    loop {
        match open(common) {
            Ok(port) => return Ok(Some(port)),
            Err(NetifError::Down { .. } | NetifError::NoSuchInterface { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        next += REOPEN_EVERY;
        let left = next.saturating_duration_since(Instant::now());
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, Some(&pause)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(None),
            Err(error) => return Err(io::Error::from(error)).context("cannot wait for the interface"),
        }
    }
}
