//! Two network namespaces without names, joined by a veth pair, and a process in each. All of it goes with the first process:
//! it is the first one of a process namespace, and its files lie in a mount of its own.

use std::{
    env, fs,
    io::{BufRead, BufReader, Lines, Write},
    os::unix::{net::UnixDatagram, process::CommandExt},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use ether::MacAddr;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    bare, messages, tcp,
    work::{Way, Work},
};

/// Interface and address of the side that measures, and of the other one.
pub const HERE: (&str, &str) = ("weft0", "10.77.9.1");
pub const THERE: (&str, &str) = ("weft1", "10.77.9.2");

/// Offloads that let TCP hand the interface more than a frame at once.
const OFFLOADS: [&str; 3] = ["tso", "gso", "gro"];

/// What the other side is asked.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// Address of the interface of the side that measures.
    Begin { here: MacText },
    /// Interface and authority for this MTU; TCP's offloads on or off.
    Prepare { mtu: usize, offloads: bool },
    /// Serve a measurement.
    Serve(Work),
}

type MacText = String;

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Done { figure: Option<f64> },
    Ready { port: u16 },
    Error(String),
}

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

/// One side's interface and its authority.
struct Side {
    interface: &'static str,
    authority: Option<Child>,
    prepared: Option<(usize, bool)>,
}

impl Side {
    const fn new(interface: &'static str) -> Self {
        Self {
            interface,
            authority: None,
            prepared: None,
        }
    }

    fn prepare(&mut self, mtu: usize, offloads: bool) -> anyhow::Result<()> {
        if self.prepared == Some((mtu, offloads)) {
            return Ok(());
        }
        let text = mtu.to_string();
        run("ip", &["link", "set", self.interface, "mtu", &text, "up"])?;
        for name in OFFLOADS {
            let state = if offloads { "on" } else { "off" };
            run("ethtool", &["-K", self.interface, name, state])?;
        }
        if self.prepared.is_none_or(|(before, _)| before != mtu) {
            self.end_authority();
            self.authority = Some(start_authority(self.interface)?);
        }
        self.prepared = Some((mtu, offloads));
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
fn start_authority(interface: &str) -> anyhow::Result<Child> {
    let program = env::current_exe()?.with_file_name("omxd");
    let notify = format!("/run/notify-{interface}");
    _ = fs::remove_file(&notify);
    let notified = UnixDatagram::bind(&notify).with_context(|| format!("cannot listen on {notify}"))?;
    notified.set_read_timeout(Some(crate::work::PATIENCE))?;
    let child = Command::new(&program)
        .args(["--interface", interface])
        .env("NOTIFY_SOCKET", &notify)
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
        Order::Prepare { mtu, offloads } => side.prepare(mtu, offloads).map(|()| None),
        Order::Serve(work) => {
            let other = other.context("nobody said whom to serve")?;
            let ready = || say(&Answer::Ready { port: 0 });
            match work.way {
                Way::OpenMx => messages::serve(side.interface, work.task, ready),
                Way::Bare => bare::serve(side.interface, other, (work.task, work.mtu), ready),
                Way::Tcp | Way::TcpPlain => {
                    let listener = tcp::listen(THERE.1)?;
                    let port = listener.local_addr()?.port();
                    say(&Answer::Ready { port })?;
                    tcp::serve(&listener, work.task).map(|()| None)
                }
            }
        }
    }
}

/// Both sides, seen from the one that measures.
pub struct World {
    side: Side,
    other: MacAddr,
    // Its input is closed before it is waited for.
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl World {
    pub fn build(cores: &[usize]) -> anyhow::Result<Self> {
        // The authorities meet programs in a folder that nobody else sees.
        run("mount", &["-t", "tmpfs", "weft", "/run"])?;
        // The one that is there shows the interfaces of the namespace it was mounted in.
        run("mount", &["-t", "sysfs", "weft", "/sys"])?;
        run("ip", &["link", "add", HERE.0, "type", "veth", "peer", "name", THERE.0])?;
        let (here, other) = (mac_of(HERE.0)?, mac_of(THERE.0)?);
        let cores_text = cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut child = unshare(&["--fork"])
            .arg(env::current_exe()?)
            .args(["--other-side", "--cores", &cores_text])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the other side")?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let mut world = Self {
            side: Side::new(HERE.0),
            other,
            orders,
            answers,
            child,
        };
        world.give_interface()?;
        run("ip", &["addr", "add", &format!("{}/24", HERE.1), "dev", HERE.0])?;
        run("ip", &["link", "set", HERE.0, "addrgenmode", "none", "up"])?;
        world.order(&Order::Begin { here: here.to_string() })?;
        stay_on(cores[0])?;
        Ok(world)
    }

    /// Moves one end of the pair into the other side's namespace, which is there once `unshare` has made it.
    fn give_interface(&self) -> anyhow::Result<()> {
        let own = fs::read_link("/proc/self/ns/net")?;
        let pid = self.child.id().to_string();
        let theirs = format!("/proc/{pid}/ns/net");
        while fs::read_link(&theirs).context("the other side ended")? == own {
            std::thread::yield_now();
        }
        run("ip", &["link", "set", THERE.0, "netns", &pid])
    }

    fn order(&mut self, order: &Order) -> anyhow::Result<Option<f64>> {
        self.tell(order)?;
        self.done()
    }

    fn tell(&mut self, order: &Order) -> anyhow::Result<()> {
        let orders = self.orders.as_mut().context("the other side has ended")?;
        writeln!(orders, "{}", serde_json::to_string(order)?).context("the other side has ended")
    }

    fn hear<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let line = self.answers.next().context("the other side has ended")??;
        serde_json::from_str(&line).with_context(|| format!("the other side said {line}"))
    }

    fn done(&mut self) -> anyhow::Result<Option<f64>> {
        match self.hear()? {
            Answer::Done { figure } => Ok(figure),
            Answer::Error(sentence) => bail!("the other side: {sentence}"),
            Answer::Ready { .. } => bail!("the other side is out of step"),
        }
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
        let offloads = work.way != Way::TcpPlain;
        self.side.prepare(work.mtu, offloads)?;
        self.order(&Order::Prepare {
            mtu: work.mtu,
            offloads,
        })?;
        let before = self.frames()?;
        self.tell(&Order::Serve(work))?;
        let port = match self.hear()? {
            Answer::Ready { port } => port,
            Answer::Error(sentence) => bail!("the other side: {sentence}"),
            Answer::Done { .. } => bail!("the other side is out of step"),
        };
        let interface = self.side.interface;
        let own = match work.way {
            Way::OpenMx => messages::measure(interface, self.other, work.task),
            Way::Bare => bare::measure(interface, self.other, work.task, work.mtu),
            Way::Tcp | Way::TcpPlain => tcp::measure(THERE.1, port, work.task).map(Some),
        }?;
        let theirs = self.done()?;
        let frames = self.frames()? - before;
        let least = frames_min(work);
        ensure!(
            frames >= least,
            "{frames} frames were on the wire where {least} belong: this was not measured over the interface"
        );
        own.or(theirs).context("nothing was measured")
    }

    /// What the interface may do for TCP, as `ethtool -k` shows it.
    pub fn features(&self) -> anyhow::Result<String> {
        let output = Command::new("ethtool").args(["-k", HERE.0]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.orders = None;
        _ = self.child.wait();
    }
}

/// Frames that a measurement needs at least if its messages are on the wire: none but TCP puts two into one.
fn frames_min(work: Work) -> u64 {
    use crate::work::*;
    if matches!(work.way, Way::Tcp | Way::TcpPlain) {
        return 1;
    }
    let count = match work.task {
        Task::PingPong { blocking, .. } => 2 * (WARM_UP + trips(blocking)) as usize,
        Task::Rate => RATE_MESSAGES as usize,
        Task::Bandwidth => BANDWIDTH_MESSAGES as usize * BANDWIDTH_LENGTH.div_ceil(work.mtu),
        Task::Incast { senders } => INCAST_MESSAGES / senders * senders * INCAST_LENGTH.div_ceil(work.mtu),
        Task::WakeUp => WAKE_UPS as usize,
        Task::Idle => 0,
    };
    count as u64
}
