//! The measurements that both sides are asked for. One side starts a measurement, the other one serves it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use testbed::harness::{Unit, stats::median};

/// A path is how two processes exchange data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Endpoints of `omx`.
    OpenMx,
    /// A TCP connection with TCP_NODELAY.
    Tcp,
    /// A TCP connection with TCP_NODELAY, without segmentation and receive offloads of the interface.
    TcpPlain,
    /// Frames over a packet socket with a TPACKET_V2 ring, without a protocol.
    Bare,
    /// Bare frames with a receiver that backs off after each frame, as an endpoint of `omx` does that sends nothing.
    #[value(alias = "bare-resting")]
    BareBackOff,
    /// Two endpoints of `omx` on one interface, which use shared memory.
    OpenMxInside,
    /// A flag in shared memory, or `process_vm_readv`, without a protocol.
    BareInside,
    /// LCI with retransmission on the host.
    Lci,
}

impl Path {
    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMx => "Open-MX",
            Self::Tcp => "TCP",
            Self::TcpPlain => "TCP, no offloads",
            Self::Bare => "bare frames",
            Self::BareBackOff => "bare frames, back-off",
            Self::OpenMxInside => "Open-MX, one host",
            Self::BareInside => "bare memory",
            Self::Lci => "LCI-host",
        }
    }

    /// Returns whether the path stays within one host.
    pub const fn is_inside(self) -> bool {
        matches!(self, Self::OpenMxInside | Self::BareInside)
    }
}

/// The kinds of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Half of the round trip of messages of so many bytes, in nanoseconds.
    PingPong { length: usize, blocking: bool },
    /// Messages of 128 bytes that the other program receives per second.
    Rate,
    /// Bytes per second of messages of 4 MiB, each answered by an empty one.
    Bandwidth,
    /// Bytes per second that one endpoint receives in messages of 1 MiB from `senders` senders.
    Incast { senders: usize },
    /// Median of the nanoseconds from the post of a message until a sleeping receiver has returned with it; with
    /// `tuned`, idle processors do not halt (papers.md M-OM10, power saving off).
    WakeUp { tuned: bool },
    /// CPU nanoseconds of a process that sleeps in a wait for 10 s.
    Idle { tuned: bool },
}

impl Task {
    /// Returns whether the authority keeps idle processors from halting.
    pub const fn is_tuned(self) -> bool {
        matches!(self, Self::WakeUp { tuned: true } | Self::Idle { tuned: true })
    }

    /// Returns the unit of the figures.
    pub const fn unit(self) -> Unit {
        let (name, show): (_, fn(f64) -> String) = match self {
            Self::PingPong { .. } | Self::WakeUp { .. } => ("ns", |value| format!("{:.2} µs", value / 1e3)),
            Self::Idle { .. } => ("ns", |value| format!("{:.2} ms", value / 1e6)),
            Self::Rate => ("messages/s", |value| format!("{:.3} M/s", value / 1e6)),
            Self::Bandwidth | Self::Incast { .. } => ("bytes/s", |value| format!("{:.2} Gbit/s", value * 8e-9)),
        };
        Unit { name, show }
    }
}

/// A measurement over one path, at one MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Work {
    pub task: Task,
    pub path: Path,
    pub mtu: usize,
}

pub const RATE_LENGTH: usize = 128;
pub const RATE_MESSAGES: u32 = 300_000;
pub const BANDWIDTH_LENGTH: usize = 4 << 20;
pub const INCAST_LENGTH: usize = 1 << 20;
pub const INCAST_MESSAGES: usize = 120;
pub const WAKE_UPS: u32 = 200;
pub const IDLE: Duration = Duration::from_secs(10);

/// Time that an idle partner is waited for.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A transfer there and back, which is repeated on each path.
#[derive(Clone, Copy, Debug)]
pub struct Trip {
    /// Bytes there.
    pub length: usize,
    /// Bytes back.
    pub answer: usize,
    /// Whether both sides sleep until it is their turn.
    pub blocking: bool,
}

impl Work {
    /// Names what is measured, without the path.
    pub fn name(self) -> String {
        let tuning = |tuned| if tuned { ", tuned" } else { "" };
        let mtu = self.mtu;
        match self.task {
            Task::PingPong { length, blocking } => {
                let how = if blocking { "blocking" } else { "spinning" };
                format!("half round trip, {length} B, {how}")
            }
            Task::Rate => "messages of 128 B per second".to_owned(),
            Task::Bandwidth if self.path.is_inside() => "4 MiB one way, inside".to_owned(),
            Task::Bandwidth => format!("4 MiB one way, MTU {mtu}"),
            Task::Incast { senders: 1 } => "1 MiB messages from one sender".to_owned(),
            Task::Incast { senders } => format!("1 MiB messages from {senders} senders"),
            Task::WakeUp { tuned } => format!("post to return of a sleeper{}", tuning(tuned)),
            Task::Idle { tuned } => format!("CPU of 10 s asleep in a wait{}", tuning(tuned)),
        }
    }

    /// Returns the transfer of tasks whose paths [take turns](super::turns).
    pub const fn trip(self) -> Option<Trip> {
        let (length, answer, blocking) = match self.task {
            Task::PingPong { length, blocking } => (length, length, blocking),
            Task::Bandwidth => (BANDWIDTH_LENGTH, 0, false),
            _ => return None,
        };
        Some(Trip {
            length,
            answer,
            blocking,
        })
    }

    /// Returns whether both works are measured in turns.
    pub fn takes_turns_with(self, other: Self) -> bool {
        let kind = |work: Self| (work.task, work.mtu, work.path.is_inside());
        let offloads = |work: Self| match work.path {
            Path::Tcp => Some(true),
            Path::TcpPlain => Some(false),
            _ => None,
        };
        let fit = offloads(self).is_none() || offloads(other).is_none() || offloads(self) == offloads(other);
        self.trip().is_some() && kind(self) == kind(other) && fit
    }
}

/// Reads a clock that both processes share, in nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Wakes the other side's thread up repeatedly, each time that it has gone to sleep, with the time at which it did.
pub fn wake_up(thread: u32, mut send: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut sleeps = None;
    for _ in 0..WAKE_UPS {
        sleeps = Some(await_sleep(thread, sleeps)?);
        send(&now_ns().to_ne_bytes())?;
    }
    Ok(())
}

/// Waits until a thread that had gone to sleep `before` times is asleep once more, and returns how often it has gone to
/// sleep now.
fn await_sleep(thread: u32, before: Option<u64>) -> anyhow::Result<u64> {
    let begin_ns = now_ns();
    loop {
        match asleep_now(thread)? {
            Some(sleeps) if Some(sleeps) != before => return Ok(sleeps),
            _ => anyhow::ensure!(
                now_ns() - begin_ns < PATIENCE.as_nanos() as u64,
                "the receiver does not go to sleep"
            ),
        }
    }
}

/// Returns how often a thread has gone to sleep, if it is asleep.
fn asleep_now(thread: u32) -> anyhow::Result<Option<u64>> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))
        .map_err(|error| anyhow::anyhow!("the receiver is gone: {error}"))?;
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    if !value("State:").is_some_and(|state| state.trim_start().starts_with('S')) {
        return Ok(None);
    }
    let sleeps = value("voluntary_ctxt_switches:").and_then(|count| count.trim().parse().ok());
    anyhow::Context::context(sleeps.map(Some), "/proc does not say how often a thread slept")
}

/// Is woken up repeatedly, and returns the median time until then in nanoseconds.
pub fn be_woken(mut receive: impl FnMut() -> anyhow::Result<[u8; 8]>) -> anyhow::Result<f64> {
    let mut late_ns = Vec::new();
    for _ in 0..WAKE_UPS {
        let sent_ns = u64::from_ne_bytes(receive()?);
        late_ns.push(now_ns().saturating_sub(sent_ns) as f64);
    }
    anyhow::Context::context(median(late_ns), "nothing was measured")
}
