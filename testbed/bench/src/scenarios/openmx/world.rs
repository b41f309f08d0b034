//! Two unnamed network namespaces joined by a veth pair, with a process in each. All of it ends with the first process:
//! it is the first one of a process namespace, and its files lie in a private mount.

use std::{
    env, fs,
    io::{BufRead, Write},
    os::unix::{net::UnixDatagram, process::CommandExt},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use ether::MacAddr;
use netif::Interface;
use serde::{Deserialize, Serialize};

use super::{
    bare, lci, messages,
    partner::{Answer, Order, Partner, Reach},
    shared, tcp,
    turns::{self, End},
    work::{Path, Work},
};

/// Interface and address of the side that measures, and of the other side.
pub const HERE: (&str, &str) = ("weft0", "10.77.9.1");
pub const THERE: (&str, &str) = ("weft1", "10.77.9.2");

/// Offloads that let TCP hand more than a frame at a time to the interface.
const OFFLOADS: [&str; 3] = ["tso", "gso", "gro"];

/// Number of frames that the authorities may exchange while nothing goes over the interface.
const FRAMES_OF_OTHERS: u64 = 100;

/// Runs a program of the system, and fails with what it says if it fails.
pub fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        said.trim()
    );
    Ok(())
}

fn unshare(more: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--kill-child"]).args(more);
    command
}

/// Starts this program again in private namespaces; returns only when that fails.
pub fn enter() -> anyhow::Error {
    let mut command = unshare(&["--mount", "--pid", "--fork", "--mount-proc"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let own = env::current_exe();
    let error = match own {
        Ok(own) => command.arg(own).args(env::args_os().skip(1)).arg("--inside").exec(),
        Err(error) => error,
    };
    anyhow::Error::from(error).context("cannot make a network namespace with `unshare` (package util-linux)")
}

/// The setting that a measurement needs on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    mtu: usize,
    /// Whether TCP's offloads are on.
    offloads: bool,
    /// Whether the authority keeps idle processors from halting.
    tuned: bool,
}

impl Setting {
    /// Makes a setting with this MTU, with or without TCP's offloads, that leaves idle processors as they are.
    pub const fn new(mtu: usize, offloads: bool) -> Self {
        Self {
            mtu,
            offloads,
            tuned: false,
        }
    }

    fn of(works: &[Work]) -> Self {
        Self {
            mtu: works.iter().map(|work| work.mtu).max().unwrap_or_default(),
            offloads: works.iter().all(|work| work.path != Path::TcpPlain),
            tuned: works.iter().any(|work| work.task.is_tuned()),
        }
    }
}

/// One side's interface and its authority.
struct Side {
    interface: &'static str,
    authority: Option<Child>,
    prepared: Option<Setting>,
}

impl Side {
    const fn new(interface: &'static str) -> Self {
        Self {
            interface,
            authority: None,
            prepared: None,
        }
    }

    fn prepare(&mut self, setting: Setting) -> anyhow::Result<()> {
        if self.prepared == Some(setting) {
            return Ok(());
        }
        let text = setting.mtu.to_string();
        run("ip", &["link", "set", self.interface, "mtu", &text, "up"])?;
        for name in OFFLOADS {
            let state = if setting.offloads { "on" } else { "off" };
            run("ethtool", &["-K", self.interface, name, state])?;
        }
        let fits = |before: Setting| (before.mtu, before.tuned) == (setting.mtu, setting.tuned);
        if !self.prepared.is_some_and(fits) {
            self.end_authority();
            self.authority = Some(start_authority(self.interface, setting.tuned)?);
        }
        self.prepared = Some(setting);
        Ok(())
    }

    fn end_authority(&mut self) {
        if let Some(mut child) = self.authority.take() {
            // A process that has ended already needs no signal.
            _ = child.kill();
            _ = child.wait();
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.end_authority();
    }
}

/// Starts the authority as a service manager would, and waits until it reports that it serves.
fn start_authority(interface: &str, tuned: bool) -> anyhow::Result<Child> {
    let program = env::current_exe()?.with_file_name("omxd");
    let notify = format!("/run/notify-{interface}");
    _ = fs::remove_file(&notify);
    let notified = UnixDatagram::bind(&notify).with_context(|| format!("cannot listen on {notify}"))?;
    notified.set_read_timeout(Some(super::work::PATIENCE))?;
    let child = Command::new(&program)
        .args(["--interface", interface])
        .args(tuned.then_some(["--cpu-latency-us-max", "0"]).iter().flatten())
        .env("NOTIFY_SOCKET", &notify)
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    notified.recv(&mut [0; 64]).context("omxd does not serve")?;
    Ok(child)
}

fn mac_of(interface: &str) -> anyhow::Result<MacAddr> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/address"))?;
    text.trim().parse().context("the interface has no Ethernet address")
}

/// Pins this thread, and all threads that it starts later, to one core.
pub fn stay_on(core: usize) -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).with_context(|| format!("cannot run on core {core}"))
}

/// Runs the other side: carries out orders from standard input until it is closed.
pub fn serve(core: usize) -> anyhow::Result<()> {
    stay_on(core)?;
    let mut side = Side::new(THERE.0);
    let mut other = None;
    for line in std::io::stdin().lock().lines() {
        let order = serde_json::from_str(&line?).context("not an order")?;
        let answer = match obey(&mut side, &mut other, order) {
            Ok(figure) => Answer::Done { figure },
            Err(error) => Answer::Error(format!("{error:#}")),
        };
        say(&answer)?;
    }
    Ok(())
}

fn say(answer: &Answer) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer)?)?;
    Ok(out.flush()?)
}

/// Reports where this side can be reached.
fn reached_at(port: u16) -> anyhow::Result<()> {
    let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    say(&Answer::Ready(Reach { port, thread }))
}

/// Waits until the other side has connected to the answering end of one path.
type AwaitPeer = Box<dyn FnOnce() -> anyhow::Result<Box<dyn End>>>;

fn serve_turns(side: &Side, other: Option<MacAddr>, works: &[Work]) -> anyhow::Result<()> {
    let task = works.first().context("nothing to serve")?.task;
    let mut port = 0;
    let mut opened: Vec<AwaitPeer> = Vec::new();
    for work in works {
        let trip = work.trip().context("no round trips")?;
        opened.push(match work.path {
            Path::OpenMx | Path::OpenMxInside => {
                let interface = if work.path.is_inside() { HERE.0 } else { side.interface };
                let end = messages::open_end(interface, *work)?;
                Box::new(move || end.await_peer())
            }
            Path::Bare => {
                let other = other.context("the address of the side to serve is not known")?;
                let end = bare::open_end(side.interface, other, *work, true)?;
                Box::new(move || end.await_peer())
            }
            Path::BareBackOff => bail!("{:?} is not measured over {}", work.task, work.path.name()),
            Path::BareInside => {
                let end = shared::open_end(trip, true)?;
                Box::new(move || Ok(end))
            }
            Path::Lci => {
                let here = other.context("the address of the side to serve is not known")?;
                let nodes = [here, Interface::find(side.interface)?.mac];
                let interface = side.interface;
                Box::new(move || lci::open_end(interface, nodes, trip))
            }
            Path::Tcp | Path::TcpPlain => {
                let listener = tcp::listen(THERE.1)?;
                port = listener.local_addr()?.port();
                Box::new(move || tcp::accept_end(&listener, trip))
            }
        });
    }
    reached_at(port)?;
    // The ends wait in the order in which the other side connects.
    let ends = opened
        .into_iter()
        .map(|await_peer| await_peer())
        .collect::<anyhow::Result<_>>()?;
    turns::serve(task, ends)
}

fn obey(side: &mut Side, other: &mut Option<MacAddr>, order: Order) -> anyhow::Result<Option<f64>> {
    match order {
        Order::Begin { here } => {
            *other = Some(here.parse().context("not an address")?);
            let address = format!("{}/24", THERE.1);
            run("ip", &["addr", "add", &address, "dev", THERE.0])?;
            run("ip", &["link", "set", THERE.0, "addrgenmode", "none", "up"])?;
            Ok(None)
        }
        Order::Prepare(setting) => side.prepare(setting).map(|()| None),
        Order::ServeTurns(works) => serve_turns(side, *other, &works).map(|()| None),
        Order::Serve(work) => {
            let ready = || reached_at(0);
            let figure = match work.path {
                Path::OpenMx => messages::serve(side.interface, work, ready),
                Path::Bare | Path::BareBackOff => {
                    let other = other.context("the address of the side to serve is not known")?;
                    bare::serve(side.interface, other, work, ready)
                }
                path => bail!("{:?} is not measured over {}", work.task, path.name()),
            };
            figure.map(Some)
        }
    }
}

/// All sides, as seen from the one that measures.
pub struct World {
    side: Side,
    here: MacAddr,
    other: MacAddr,
    /// Process in a network namespace of its own, at the other end of the pair.
    away: Partner,
    /// Process in this network namespace.
    beside: Partner,
}

impl World {
    pub fn build(cores: &[usize]) -> anyhow::Result<Self> {
        // The authorities find programs in a folder that is private to this benchmark.
        run("mount", &["-t", "tmpfs", "weft", "/run"])?;
        // The existing mount shows the interfaces of the namespace it was mounted in.
        run("mount", &["-t", "sysfs", "weft", "/sys"])?;
        run("ip", &["link", "add", HERE.0, "type", "veth", "peer", "name", THERE.0])?;
        let (here, other) = (mac_of(HERE.0)?, mac_of(THERE.0)?);
        let own = env::current_exe()?;
        let mut away = unshare(&["--fork"]);
        away.arg(&own);
        let mut world = Self {
            side: Side::new(HERE.0),
            here,
            other,
            away: Partner::start(away, cores)?,
            beside: Partner::start(Command::new(&own), cores)?,
        };
        world.give_interface()?;
        run("ip", &["addr", "add", &format!("{}/24", HERE.1), "dev", HERE.0])?;
        run("ip", &["link", "set", HERE.0, "addrgenmode", "none", "up"])?;
        world.away.order(&Order::Begin { here: here.to_string() })?;
        stay_on(cores[0])?;
        Ok(world)
    }

    /// Returns the number of the process whose network namespace is the other side's.
    pub fn away(&self) -> u32 {
        self.away.id()
    }

    /// Moves one end of the pair into the other side's namespace, which exists once `unshare` has made it.
    fn give_interface(&self) -> anyhow::Result<()> {
        let own = fs::read_link("/proc/self/ns/net")?;
        let pid = self.away.id().to_string();
        let theirs = format!("/proc/{pid}/ns/net");
        while fs::read_link(&theirs).context("the other side ended")? == own {
            std::thread::yield_now();
        }
        run("ip", &["link", "set", THERE.0, "netns", &pid])
    }

    /// Returns the number of frames that the interface has carried in both directions.
    fn frames(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for path in ["rx_packets", "tx_packets"] {
            let text = fs::read_to_string(format!("/sys/class/net/{}/statistics/{path}", HERE.0))?;
            sum += text.trim().parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Measures a work, or several that take turns, and returns the figures of each.
    pub fn measure(&mut self, works: &[Work]) -> anyhow::Result<Vec<Vec<f64>>> {
        match works {
            [work, ..] if work.trip().is_some() => self.measure_turns(*work, works),
            [work] => Ok(vec![vec![self.measure_one(*work)?]]),
            _ => bail!("these do not take turns"),
        }
    }

    fn measure_turns(&mut self, first: Work, works: &[Work]) -> anyhow::Result<Vec<Vec<f64>>> {
        self.prepare(Setting::of(works))?;
        let before = self.frames()?;
        let inside = first.path.is_inside();
        let partner = if inside { &mut self.beside } else { &mut self.away };
        let Reach { port, .. } = partner.begin(&Order::ServeTurns(works.to_vec()))?;
        let mut ends = Vec::new();
        for work in works {
            let trip = work.trip().context("no round trips")?;
            ends.push(match work.path {
                Path::OpenMx => messages::connect_end(self.side.interface, self.other, *work)?,
                Path::OpenMxInside => messages::connect_end(self.side.interface, self.here, *work)?,
                Path::Bare => bare::open_end(self.side.interface, self.other, *work, false)?.await_peer()?,
                Path::BareBackOff => bail!("{:?} is not measured over {}", work.task, work.path.name()),
                Path::BareInside => shared::open_end(trip, false)?,
                Path::Lci => lci::open_end(self.side.interface, [self.here, self.other], trip)?,
                Path::Tcp | Path::TcpPlain => tcp::connect_end(THERE.1, port, trip)?,
            });
        }
        let figures = turns::measure(first.task, ends)?;
        partner.done()?;
        self.check_frames(before, works)?;
        Ok(figures)
    }

    /// Prepares interfaces and authorities of both sides.
    pub fn prepare(&mut self, setting: Setting) -> anyhow::Result<()> {
        self.side.prepare(setting)?;
        self.away.order(&Order::Prepare(setting)).map(drop)
    }

    fn check_frames(&self, before: u64, works: &[Work]) -> anyhow::Result<()> {
        let frames = self.frames()? - before;
        let expected = works.iter().copied().map(frames_expected);
        let (least, most) = expected.fold((0, 0), |sum: (u64, u64), one| {
            (sum.0 + one.0, sum.1.saturating_add(one.1))
        });
        ensure!(
            (least..=most).contains(&frames),
            "{frames} frames were on the wire where {least} to {most} belong: something else was measured"
        );
        Ok(())
    }

    fn measure_one(&mut self, work: Work) -> anyhow::Result<f64> {
        self.prepare(Setting::of(&[work]))?;
        let before = self.frames()?;
        let Reach { thread, .. } = self.away.begin(&Order::Serve(work))?;
        let interface = self.side.interface;
        match work.path {
            Path::OpenMx => messages::measure(interface, self.other, work, thread),
            Path::Bare | Path::BareBackOff => bare::measure(interface, self.other, work.task, thread),
            path => bail!("{:?} is not measured over {}", work.task, path.name()),
        }?;
        let figure = self.away.done()?;
        self.check_frames(before, &[work])?;
        figure.context("nothing was measured")
    }

    /// Returns the features of the interface that matter for TCP, as `ethtool -k` shows them.
    pub fn features(&self) -> anyhow::Result<String> {
        let output = Command::new("ethtool").args(["-k", HERE.0]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the least and most frames of a measurement: only TCP puts two messages into one frame, and a path within the
/// host has no frames.
fn frames_expected(work: Work) -> (u64, u64) {
    use super::work::*;
    if work.path.is_inside() {
        return (0, FRAMES_OF_OTHERS);
    }
    if matches!(work.path, Path::Tcp | Path::TcpPlain) {
        return (1, u64::MAX);
    }
    let count = match work.task {
        Task::PingPong { .. } => 2 * turns::trips(work.task) as usize,
        Task::Rate => RATE_MESSAGES as usize,
        Task::Bandwidth => turns::trips(work.task) as usize * BANDWIDTH_LENGTH.div_ceil(work.mtu),
        Task::Incast { senders } => INCAST_MESSAGES / senders * senders * INCAST_LENGTH.div_ceil(work.mtu),
        Task::WakeUp { .. } => WAKE_UPS as usize,
        Task::Idle { .. } => 0,
    };
    (count as u64, u64::MAX)
}
