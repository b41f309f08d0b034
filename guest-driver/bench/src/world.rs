//! Two network namespaces without names, joined by a veth pair, and a process in each. All of it goes with the first process:
//! it is the first one of a process namespace, and its files lie in a mount of its own.

use std::{
    env, fs,
    io::{BufRead, Write},
    os::unix::{net::UnixDatagram, process::CommandExt},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, ensure};
use ether::MacAddr;
use serde::{Deserialize, Serialize};

use crate::{
    bare, messages,
    partner::{Answer, Order, Partner, Reach},
    shared, tcp,
    work::{Way, Work},
};

/// Interface and address of the side that measures, and of the other one.
pub const HERE: (&str, &str) = ("weft0", "10.77.9.1");
pub const THERE: (&str, &str) = ("weft1", "10.77.9.2");

/// Offloads that let TCP hand the interface more than a frame at once.
const OFFLOADS: [&str; 3] = ["tso", "gso", "gro"];

/// Frames that the authorities may exchange while nothing goes over the interface.
const FRAMES_OF_OTHERS: u64 = 100;

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
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

/// Starts this program again in namespaces of its own; returns only when that fails.
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

/// What a measurement wants of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    mtu: usize,
    /// TCP's offloads are on.
    offloads: bool,
    /// The authority keeps idle processors from halting.
    tuned: bool,
}

impl Setting {
    fn of(work: Work) -> Self {
        Self {
            mtu: work.mtu,
            offloads: work.way != Way::TcpPlain,
            tuned: work.task.is_tuned(),
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
            // One that has ended already needs no signal.
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

/// Starts it as a service manager would, and waits until it says that it serves.
fn start_authority(interface: &str, tuned: bool) -> anyhow::Result<Child> {
    let program = env::current_exe()?.with_file_name("omxd");
    let notify = format!("/run/notify-{interface}");
    _ = fs::remove_file(&notify);
    let notified = UnixDatagram::bind(&notify).with_context(|| format!("cannot listen on {notify}"))?;
    notified.set_read_timeout(Some(crate::work::PATIENCE))?;
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

/// Runs on one core from now on, with all threads that are started later.
pub fn stay_on(core: usize) -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).with_context(|| format!("cannot run on core {core}"))
}

/// The other side: obeys orders on standard input until it is closed.
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
        Order::Serve(work) => {
            let reached_at = |port| {
                let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
                say(&Answer::Ready(Reach { port, thread }))
            };
            let ready = || reached_at(0);
            match work.way {
                Way::OpenMx => messages::serve(side.interface, work, ready),
                Way::OpenMxInside => messages::serve(HERE.0, work, ready),
                Way::Bare => {
                    let other = other.context("nobody said whom to serve")?;
                    bare::serve(side.interface, other, (work.task, work.mtu), ready)
                }
                Way::BareInside => shared::serve(work.task, ready).map(|()| None),
                Way::Tcp | Way::TcpPlain => {
                    let listener = tcp::listen(THERE.1)?;
                    let port = listener.local_addr()?.port();
                    reached_at(port)?;
                    tcp::serve(&listener, work.task).map(|()| None)
                }
            }
        }
    }
}

/// All sides, seen from the one that measures.
pub struct World {
    side: Side,
    here: MacAddr,
    other: MacAddr,
    /// In a network namespace of its own, at the other end of the pair.
    away: Partner,
    /// In this network namespace.
    beside: Partner,
}

impl World {
    pub fn build(cores: &[usize]) -> anyhow::Result<Self> {
        // The authorities meet programs in a folder that nobody else sees.
        run("mount", &["-t", "tmpfs", "weft", "/run"])?;
        // The one that is there shows the interfaces of the namespace it was mounted in.
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

    /// Moves one end of the pair into the other side's namespace, which is there once `unshare` has made it.
    fn give_interface(&self) -> anyhow::Result<()> {
        let own = fs::read_link("/proc/self/ns/net")?;
        let pid = self.away.id().to_string();
        let theirs = format!("/proc/{pid}/ns/net");
        while fs::read_link(&theirs).context("the other side ended")? == own {
            std::thread::yield_now();
        }
        run("ip", &["link", "set", THERE.0, "netns", &pid])
    }

    /// Frames that the interface has carried, both ways.
    fn frames(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for way in ["rx_packets", "tx_packets"] {
            let text = fs::read_to_string(format!("/sys/class/net/{}/statistics/{way}", HERE.0))?;
            sum += text.trim().parse::<u64>()?;
        }
        Ok(sum)
    }

    /// One measurement.
    pub fn measure(&mut self, work: Work) -> anyhow::Result<f64> {
        let setting = Setting::of(work);
        self.side.prepare(setting)?;
        self.away.order(&Order::Prepare(setting))?;
        let before = self.frames()?;
        let partner = if work.way.is_inside() {
            &mut self.beside
        } else {
            &mut self.away
        };
        let Reach { port, thread } = partner.begin(&Order::Serve(work))?;
        let interface = self.side.interface;
        let own = match work.way {
            Way::OpenMx => messages::measure(interface, self.other, work, thread),
            Way::OpenMxInside => messages::measure(interface, self.here, work, thread),
            Way::Bare => bare::measure(interface, self.other, (work.task, work.mtu), thread),
            Way::BareInside => shared::measure(work.task).map(Some),
            Way::Tcp | Way::TcpPlain => tcp::measure(THERE.1, port, work.task).map(Some),
        }?;
        let theirs = partner.done()?;
        let frames = self.frames()? - before;
        let (least, most) = frames_expected(work);
        ensure!(
            (least..=most).contains(&frames),
            "{frames} frames were on the wire where {least} to {most} belong: something else was measured"
        );
        own.or(theirs).context("nothing was measured")
    }

    /// What the interface may do for TCP, as `ethtool -k` shows it.
    pub fn features(&self) -> anyhow::Result<String> {
        let output = Command::new("ethtool").args(["-k", HERE.0]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Frames of a measurement at least and at most: none but TCP puts two messages into one, and none inside the host has any.
fn frames_expected(work: Work) -> (u64, u64) {
    use crate::work::*;
    if work.way.is_inside() {
        return (0, FRAMES_OF_OTHERS);
    }
    if matches!(work.way, Way::Tcp | Way::TcpPlain) {
        return (1, u64::MAX);
    }
    let count = match work.task {
        Task::PingPong { blocking, .. } => 2 * (WARM_UP + trips(blocking)) as usize,
        Task::Rate => RATE_MESSAGES as usize,
        Task::Bandwidth => BANDWIDTH_MESSAGES as usize * BANDWIDTH_LENGTH.div_ceil(work.mtu),
        Task::Incast { senders } => INCAST_MESSAGES / senders * senders * INCAST_LENGTH.div_ceil(work.mtu),
        Task::WakeUp { .. } => WAKE_UPS as usize,
        Task::Idle { .. } => 0,
    };
    (count as u64, u64::MAX)
}
