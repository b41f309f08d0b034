//! What the comparisons with test frontends share: a forwarder under test, as a process on one core, and the two guests
//! that a thread on another core plays. Everything started here is stopped when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use weft_vnic_testkit::{
    F_EVENT_IDX, F_INDIRECT_DESC, F_MRG_RXBUF, Frontend, FrontendConfig, HEADER_LEN, Interrupts, ProcessUse, Service,
    load,
};

use testbed::harness::{Record, Sample, Stop, Unit, fields};

/// Share of a sample without the core that is usual on a quiet machine.
const DISTURBED_MAX: f64 = 0.02;

/// Longest wait for a forwarder's sockets, and the time between two checks.
const SOCKETS_WAIT: Duration = Duration::from_secs(20);
const SOCKETS_STEP: Duration = Duration::from_millis(100);

/// The unit of frames per second.
pub const FRAMES: Unit = Unit {
    name: "frames/s",
    show: |value| format!("{:.3} M/s", value / 1e6),
};

/// The unit of round-trip times.
pub const ROUND_TRIP: Unit = Unit {
    name: "ns",
    show: |value| format!("{:.2} µs", value / 1e3),
};

/// The cores that the processes run on.
#[derive(Clone, Copy, Debug, Args)]
pub struct Cores {
    /// Core of the forwarder
    #[arg(long, default_value_t = 0)]
    pub forwarder_core: usize,
    /// Core of the thread that plays both guests
    #[arg(long, default_value_t = 1)]
    pub frontend_core: usize,
}

/// A running forwarder and its sockets.
pub struct Forwarder {
    /// Process of the forwarder.
    pub service: Service,
    /// Sockets, one per port.
    pub sockets: Vec<PathBuf>,
    log: PathBuf,
}

impl Forwarder {
    /// Starts a forwarder called `name` on `core` with `ports` ports; its sockets and log are in `folder`.
    pub fn start(
        name: &str,
        core: usize,
        folder: &Path,
        ports: usize,
        command: impl FnOnce(&[PathBuf]) -> Result<Command>,
    ) -> Result<Self> {
        let socket = |port| folder.join(format!("{name}-{port}.sock"));
        let sockets: Vec<_> = (0..ports).map(socket).collect();
        for socket in sockets.iter().filter(|socket| socket.exists()) {
            fs::remove_file(socket)?;
        }
        let command = command(&sockets)?;
        let log = folder.join(format!("{name}.log"));
        let program = command.get_program().to_owned();
        let service =
            Service::spawn(command, &[core], &log).with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { service, sockets, log })
    }

    /// Waits until every port listens, since guests that connect by themselves give up immediately otherwise.
    pub fn wait_for_sockets(&self, stop: &Stop) -> Result<()> {
        let mut waited = Duration::ZERO;
        while !self.sockets.iter().all(|socket| socket.exists()) {
            ensure!(
                waited < SOCKETS_WAIT,
                "the forwarder opens no sockets: {}",
                self.last_words()
            );
            wait(SOCKETS_STEP, stop)?;
            waited += SOCKETS_STEP;
        }
        // A socket that is bound listens a moment later.
        wait(SOCKETS_STEP, stop)
    }

    /// Returns the end of what the forwarder printed, for error messages.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

/// Makes the command of a `vnicd` that listens at these sockets: `binary`, or the one beside this program.
pub fn vnicd(binary: Option<&Path>, sockets: &[PathBuf], arguments: &str) -> Result<Command> {
    let binary = match binary {
        Some(binary) => binary.to_owned(),
        None => std::env::current_exe()?.with_file_name("vnicd"),
    };
    if !binary.exists() {
        bail!("{} does not exist; build it or name it with --vnicd", binary.display());
    }
    let mut command = Command::new(binary);
    for socket in sockets {
        command.arg("--listen").arg(socket);
    }
    command.args(arguments.split_whitespace());
    Ok(command)
}

/// The properties of the two guests of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Guests {
    /// Longest frame in bytes.
    pub size: usize,
    /// Whether receive calls are wanted.
    pub interrupts: bool,
    /// Entries per ring.
    pub ring: u16,
    /// Bytes per receive buffer; with 0 the frame fits one buffer.
    pub rx_buffer: usize,
    /// Buffers each guest uses in turn per ring.
    pub buffers: usize,
    /// Whether EVENT_IDX is negotiated.
    pub event_idx: bool,
}

impl Guests {
    /// Guests that poll, with rings and buffers as drivers have them.
    pub const fn polling(size: usize) -> Self {
        Self {
            size,
            interrupts: false,
            ring: 256,
            rx_buffer: 0,
            buffers: 512,
            event_idx: true,
        }
    }

    /// Connects sender and receiver to the forwarder's first two ports.
    pub fn connect_two(self, forwarder: &Forwarder) -> Result<(Frontend, Frontend)> {
        Ok((self.connect(forwarder, 0)?, self.connect(forwarder, 1)?))
    }

    /// Connects a guest to one of the forwarder's ports.
    pub fn connect(self, forwarder: &Forwarder, port: usize) -> Result<Frontend> {
        let mut config = FrontendConfig::connect(&forwarder.sockets[port]);
        config.ring_size = self.ring;
        config.features = F_MRG_RXBUF | F_INDIRECT_DESC;
        if self.event_idx {
            config.features |= F_EVENT_IDX;
        }
        config.tx_buffer_len = HEADER_LEN + self.size;
        config.rx_buffer_len = match self.rx_buffer {
            0 => (HEADER_LEN + self.size).max(2048),
            bytes => bytes,
        };
        config.buffer_pool = self.buffers;
        if self.interrupts {
            config.rx_interrupts = Interrupts::Always;
        }
        Frontend::start(config).with_context(|| format!("the forwarder's last words: {}", forwarder.last_words()))
    }

    /// Measures frames per second in one direction.
    pub fn one_way(self, forwarder: &Forwarder, touch: load::Touch, duration: Duration) -> Result<Sample> {
        let (mut sender, mut receiver) = self.connect_two(forwarder)?;
        load::prepare(&mut sender, &mut receiver, self.size);
        let watch = Watch::begin(forwarder)?;
        let stream = load::one_way(&mut sender, &mut receiver, self.size, touch, duration);
        Ok(Sample {
            disturbed: watch.disturbed()?,
            more: fields(serde_json::json!({
                "sender_full": stream.sender_full,
                "receiver_starved": stream.receiver_starved,
                "received": stream.received,
                "lost": stream.lost,
                "calls": stream.calls,
            })),
            ..Sample::new(stream.frames_per_s)
        })
    }

    /// Measures the times of `count` round trips in nanoseconds, without those of lost frames, and the share of time
    /// that other programs had.
    pub fn ping_pong(self, forwarder: &Forwarder, count: u64) -> Result<(Vec<f64>, f64)> {
        let (mut left, mut right) = self.connect_two(forwarder)?;
        load::prepare(&mut left, &mut right, self.size);
        let mut times_ns = Vec::with_capacity(count as usize);
        let watch = Watch::begin(forwarder)?;
        load::ping_pong(&mut left, &mut right, self.size, count, |ns| times_ns.push(ns as f64));
        Ok((times_ns, watch.disturbed()?))
    }
}

/// Watches how long both ends wait for a core while a sample is taken.
pub struct Watch<'a> {
    forwarder: &'a Forwarder,
    waited_ns: [u64; 2],
    start: Instant,
}

impl<'a> Watch<'a> {
    fn waited_ns(forwarder: &Forwarder) -> Result<[u64; 2]> {
        Ok([
            forwarder.service.usage()?.waited_ns,
            ProcessUse::of(std::process::id())?.waited_ns,
        ])
    }

    /// Begins a sample.
    pub fn begin(forwarder: &'a Forwarder) -> Result<Self> {
        Ok(Self {
            forwarder,
            waited_ns: Self::waited_ns(forwarder)?,
            start: Instant::now(),
        })
    }

    /// Returns the time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the larger of the two shares of time in which a core was wanted but used by another program.
    pub fn disturbed(&self) -> Result<f64> {
        let elapsed_ns = self.start.elapsed().as_nanos() as f64;
        let now = Self::waited_ns(self.forwarder)?;
        let shares = now
            .iter()
            .zip(self.waited_ns)
            .map(|(now, before)| now.saturating_sub(before) as f64 / elapsed_ns);
        Ok(shares.fold(0.0, f64::max))
    }
}

/// Returns a line about other programs on the cores, if there were any.
pub fn not_alone(record: &Record) -> String {
    let worst = record.all().map(|sample| sample.disturbed).fold(0.0, f64::max);
    if worst <= DISTURBED_MAX {
        return String::new();
    }
    format!(
        "NOT ALONE: other programs used the cores for up to {:.0} % of a sample; repeat on a quiet machine.\n",
        worst * 100.0
    )
}

/// Waits, unless a signal comes.
pub fn wait(duration: Duration, stop: &Stop) -> Result<()> {
    let end = Instant::now() + duration;
    loop {
        stop.check()?;
        // How long nothing happens is what is measured here: no longer than was asked for.
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
