//! `vnicd`: programmable network cards for QEMU guests, joined by an emulated switch, in one process.
//!
//! It reads the command line, starts the parts, waits for the end and stops them. It decides nothing about frames.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};
use vnic::dataplane::{Fabric, FabricSettings, TrunkOptions};
use vnic::device::Device;
use vnic::events::{EventThread, Subscription};
use vnic::session::socket::{ClaimError, check_path};
use vnic::session::{Sessions, quick_end};
use vnicd_protocol::config::{Config, ConfigError, GroupEntry, SwitchEntry};
use vnicd_protocol::{MTU_DEFAULT, PortSettings, SocketMode};

/// Switch of the ports that the command line names.
const COMMAND_LINE_SWITCH: &str = "switch0";

/// Exit code for a failure while starting or running.
const EXIT_FAILURE: u8 = 1;
/// Exit code for a wrong command line or configuration, as clap gives it too.
const EXIT_USAGE: u8 = 2;

/// Programmable network cards for QEMU guests, joined by an emulated switch.
///
/// Each port is a vhost-user socket: QEMU connects to it with
/// "-chardev socket,id=c0,path=PATH,reconnect=1 -netdev vhost-user,id=n0,chardev=c0 -device virtio-net-pci,netdev=n0"
/// and guest memory shared with "share=on".
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Args {
    /// Add a port and listen for its guest on PATH (may be given many times; NAME is the file's stem if left out)
    #[arg(long, value_name = "[NAME=]PATH")]
    listen: Vec<String>,
    /// Add a port and connect to PATH, where QEMU listens (server=on)
    #[arg(long, value_name = "[NAME=]PATH")]
    connect: Vec<String>,
    /// Read switches, ports and trunks from a JSON file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve the control socket on PATH (JSON lines, mode 0600)
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Serve Prometheus metrics over HTTP on a Unix socket
    #[arg(long, value_name = "PATH")]
    metrics_socket: Option<PathBuf>,
    /// Serve Prometheus metrics over HTTP on a TCP port
    #[arg(long, value_name = "ADDR:PORT")]
    metrics_listen: Option<SocketAddr>,
    /// Poll for at most N microseconds after the last frame before sleeping; for less where polling does not pay off
    #[arg(long, value_name = "N", default_value_t = FabricSettings::POLL_NS_DEFAULT / 1000,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    poll_us: u64,
    /// Poll for at most N microseconds after the last copy by a card that is wired to itself
    #[arg(long, value_name = "N", default_value_t = FabricSettings::COPIES_POLL_NS_DEFAULT / 1000,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    copies_poll_us: u64,
    #[command(flatten)]
    coalescing: CoalescingArgs,
    /// Queue pairs of ports named here
    #[arg(long, value_name = "N", default_value_t = 1)]
    queue_pairs: u16,
    /// Largest payload that ports named here take
    #[arg(long, value_name = "BYTES", default_value_t = MTU_DEFAULT)]
    mtu: u32,
    /// Disable checksum and segmentation offloads on ports named here (a guest that loads XDP needs this)
    #[arg(long)]
    no_offloads: bool,
    /// Let guests of ports named here be behind an IOMMU of their own (QEMU: "intel-iommu", "iommu_platform=on")
    #[arg(long)]
    iommu: bool,
    /// Format of the log on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// Log more (-v: sessions message by message, -vv: everything)
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Interrupt coalescing of ports that the command line names.
#[derive(Debug, clap::Args)]
struct CoalescingArgs {
    #[arg(long, value_name = "S", default_value = "disabled", help = strategy_help())]
    strategy: String,
    /// Print the names of the strategies, one a line, and end
    #[arg(long, exclusive = true)]
    strategies: bool,
    /// Longest time a packet waits for its interrupt, in microseconds
    #[arg(long, value_name = "N", default_value_t = 75, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    delay_us: u64,
    /// Number of waiting packets that raises an interrupt at once (0: no limit)
    #[arg(long, value_name = "N", default_value_t = 0)]
    frames: u32,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    /// Plain lines of text
    Text,
    /// JSON lines
    Json,
}

/// A failure with the exit code that tells its kind.
struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure {
            code: EXIT_FAILURE,
            error: error.into(),
        }
    }
}

fn usage(error: impl Into<anyhow::Error>) -> Failure {
    Failure {
        code: EXIT_USAGE,
        error: error.into(),
    }
}

/// What the firmware registers is what there is.
fn strategy_help() -> String {
    let names = firmware::StrategyKind::NAMES.join(", ");
    format!("Interrupt coalescing of ports named here: {names}")
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.coalescing.strategies {
        println!("{}", firmware::StrategyKind::NAMES.join("\n"));
        return ExitCode::SUCCESS;
    }
    return_large_buffers();
    start_log(&args);
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, error }) => {
            eprintln!("vnicd: {}", sentence(&error));
            ExitCode::from(code)
        }
    }
}

/// Has buffers from 256 KiB on go back to the system when they are freed, whichever thread does that: by itself, the allocator would
/// begin to keep them for the thread that made them.
fn return_large_buffers() {
    // SAFETY: changes a parameter of the allocator. If it does not, memory is kept, and nothing else.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10) };
}

/// The error with its causes, each once: many an error names its cause itself.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn start_log(args: &Args) {
    let level = match args.verbose {
        0 => "info",
        1 => "info,vnic=debug,vnicd=debug",
        _ => "trace",
    };
    let wanted = std::env::var("VNICD_LOG").ok().and_then(|wanted| wanted.parse().ok());
    let filter: Targets = wanted.or_else(|| level.parse().ok()).unwrap_or_default();
    // A log that cannot be written (a full disk) costs its lines, not the guests' network: an internal error would be
    // printed where the line could not be, which ends the process.
    let log = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    match args.log_format {
        LogFormat::Text => log.with_target(false).with_ansi(false).finish().with(filter).init(),
        LogFormat::Json => log.json().finish().with(filter).init(),
    }
}

fn run(args: Args) -> Result<(), Failure> {
    let started = Instant::now();
    let config = configuration(&args)?;
    raise_file_limit();

    // Signals are caught before the first socket exists, so that none is left behind.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot catch signals")?;
    let fabric = Fabric::new(FabricSettings {
        poll_ns: args.poll_us * 1000,
        copies_poll_ns: args.copies_poll_us * 1000,
        ..FabricSettings::default()
    })
    .context("cannot start the switch")?;
    let result = serve(&args, &config, &fabric, started, &mut signals);
    fabric.shutdown();
    result
}

/// Everything between the fabric's start and its end.
fn serve(
    args: &Args,
    config: &Config,
    fabric: &Fabric,
    started: Instant,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let events = EventThread::start().context("cannot start the thread of the control plane")?;
    let mut ports = start_ports(config, fabric, &events)?;
    let _metrics_unix = args
        .metrics_socket
        .as_ref()
        .map(|path| vnic::metrics::serve_unix(&events, path, fabric.clone()))
        .transpose()?;
    let _metrics_tcp = args
        .metrics_listen
        .map(|address| vnic::metrics::serve_tcp(&events, address, fabric.clone()))
        .transpose()?;
    // Last: once it answers, everything else is there.
    let _control = match &args.control {
        Some(path) => {
            let handle = signals.handle();
            let on_shutdown = Arc::new(move || handle.close());
            Some(vnic::control::serve(
                &events,
                path,
                fabric.clone(),
                started,
                on_shutdown,
            )?)
        }
        None => None,
    };

    tracing::info!(
        ports = ports.len(),
        version = env!("CARGO_PKG_VERSION"),
        "vnicd is ready"
    );
    match signals.forever().next() {
        Some(signal) => tracing::info!(signal, "stopping"),
        None => tracing::info!("stopping, as the control socket was asked to"),
    }
    // All at once: the slowest connection decides how long it takes, not their number.
    ports.iter_mut().for_each(Subscription::ask_to_end);
    Ok(())
}

/// The configuration file and the ports of the command line, checked.
fn configuration(args: &Args) -> Result<Config, Failure> {
    let mut config = match &args.config {
        Some(path) => Config::read(path).map_err(usage)?,
        None => Config::default(),
    };
    if args.config.is_none() && args.listen.is_empty() && args.connect.is_empty() {
        return Err(usage(anyhow::anyhow!(
            "there is no port: name one with --listen, --connect or --config"
        )));
    }
    let named = args.listen.iter().map(|text| (text, SocketMode::Listen));
    let named: Vec<_> = named
        .chain(args.connect.iter().map(|text| (text, SocketMode::Connect)))
        .collect();
    if !named.is_empty() && !config.switches.iter().any(|switch| switch.name == COMMAND_LINE_SWITCH) {
        config.switches.push(SwitchEntry::named(COMMAND_LINE_SWITCH));
    }
    for (text, mode) in named {
        config.ports.push(port_of(args, text, mode).map_err(usage)?);
    }
    let own = args.control.iter().chain(&args.metrics_socket).map(PathBuf::as_path);
    let of_ports = config.ports.iter().filter_map(|port| port.socket());
    let paths: Vec<_> = of_ports.map(|(path, _)| path).chain(own).collect();
    for path in &paths {
        check_path(path).map_err(usage)?;
    }
    config.check().map_err(usage)?;
    let mut seen = HashSet::new();
    if let Some(twice) = paths.iter().find(|path| !seen.insert(**path)) {
        let path = twice.display();
        return Err(usage(anyhow::anyhow!("{path} is given to two sockets of this vnicd")));
    }
    Ok(config)
}

/// A port from `[NAME=]PATH`.
fn port_of(args: &Args, text: &str, mode: SocketMode) -> Result<PortSettings, ConfigError> {
    let (name, path) = match text.split_once('=') {
        // A path may have a "=" of its own.
        Some((name, path)) if !name.contains('/') => (name.to_owned(), path),
        _ => {
            let stem = Path::new(text).file_stem().unwrap_or_default();
            (stem.to_string_lossy().into_owned(), text)
        }
    };
    if path.is_empty() {
        return Err(ConfigError::Contradiction(format!(
            "port {name:?} needs the path of a socket"
        )));
    }
    let path = PathBuf::from(path);
    let (listen, connect) = match mode {
        SocketMode::Listen => (Some(path), None),
        SocketMode::Connect => (None, Some(path)),
    };
    let mut port = PortSettings {
        name,
        switch: COMMAND_LINE_SWITCH.to_owned(),
        listen,
        connect,
        queue_pairs: args.queue_pairs,
        mtu: args.mtu,
        offloads: !args.no_offloads,
        iommu: args.iommu,
        ..PortSettings::default()
    };
    port.coalescing.all.strategy.clone_from(&args.coalescing.strategy);
    port.coalescing.all.delay_ns = args.coalescing.delay_us * 1000;
    port.coalescing.all.frames_max = args.coalescing.frames;
    Ok(port)
}

fn start_ports(config: &Config, fabric: &Fabric, events: &EventThread) -> Result<Vec<Subscription>, Failure> {
    let mut switches = std::collections::BTreeMap::new();
    for entry in &config.switches {
        let switch = fabric.add_switch(&entry.name);
        let context = || format!("switch {:?}", entry.name);
        fabric
            .set_switch(switch, &entry.settings)
            .with_context(context)
            .map_err(usage)?;
        switches.insert(entry.name.as_str(), switch);
    }
    for trunk in &config.trunks {
        let ends = switches.get(trunk.a.as_str()).zip(switches.get(trunk.b.as_str()));
        let (a, b) = ends.ok_or_else(|| usage(anyhow::anyhow!("a trunk ends at an unknown switch")))?;
        let context = || format!("the trunk {} - {}", trunk.a, trunk.b);
        let options = TrunkOptions {
            vlans: trunk.vlans.clone(),
            aggregate: trunk.aggregate.clone(),
            stp_cost: trunk.stp_cost,
        };
        fabric
            .add_trunk_with(*a, *b, &trunk.link, &options)
            .with_context(context)
            .map_err(usage)?;
    }
    for GroupEntry { group, tree } in &config.groups {
        let context = || format!("multicast group {group}");
        fabric.set_tree(*group, tree).with_context(context).map_err(usage)?;
    }
    // All ports are made before the first socket is bound: a mistake in the last one leaves nothing behind.
    let mut devices = Vec::new();
    for port in &config.ports {
        let parts = switches.get(port.switch.as_str()).zip(port.socket());
        let (switch, socket) = parts.ok_or_else(|| usage(anyhow::anyhow!("port {:?} is incomplete", port.name)))?;
        let context = || format!("port {:?}", port.name);
        let device = fabric
            .add_port(*switch, port.clone())
            .with_context(context)
            .map_err(usage)?;
        devices.push((Device::new(device), socket));
    }
    let sessions = Sessions::new(events)?;
    if let Err(error) = quick_end::prepare() {
        tracing::warn!(%error, "guests would notice some 30 ms later than need be that this process was killed");
    }
    let mut ports = Vec::new();
    for (device, (path, mode)) in devices {
        let session = match mode {
            SocketMode::Listen => sessions.listen(device, path),
            SocketMode::Connect => sessions.connect(device, path),
        };
        ports.push(session.map_err(|error| match error {
            ClaimError::TooLong { .. } => usage(error),
            _ => error.into(),
        })?);
    }
    Ok(ports)
}

/// Every memory region of a guest and every ring costs file descriptors: as many as the system lets us have.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("the limit of open files stays as it is: {error}");
    }
}
