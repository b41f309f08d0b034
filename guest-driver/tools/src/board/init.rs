//! `omx_init`: starts and stops the daemons of this host's boards, as the reference's script starts and stops its driver. There is
//! no driver to load here: a board is in use while its `omxd` runs, and discovery is part of it.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use clap::{Parser, ValueEnum};
use netif::Interface;
use omx::Board;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use weft_authority::{BoardStatus, NumberedInterface, Session, Settings, Started};

use super::{BOARDS_MAX, peers::read as read_peers};
use crate::run::{print_line, say};

/// A daemon that is asked to end closes some files; one that needs longer than this is stuck.
const END_LIMIT: Duration = Duration::from_secs(5);
/// What `status` ends with when nothing runs, as start scripts do.
const NOT_RUNNING: u8 = 3;

/// Starts and stops the daemons (omxd) of this host's boards. Only root may. Boards are the Ethernet interfaces that OMX_IFACES
/// names, in the environment or in /etc/open-mx/open-mx.conf, where settings of omxd may stand, too; by default all that are up and
/// have an MTU of at least 1486. Where systemd starts `omxd@INTERFACE`, this is not needed.
#[derive(Debug, Parser)]
#[command(name = "omx_init", version)]
pub struct Arguments {
    /// What to do
    #[arg(value_enum)]
    action: Action,
    /// With start: `ifnames=eth2,eth3` starts for these alone; `+eth2` does, too, `-eth2` stops one whose endpoints are closed,
    /// `--eth2` stops it anyway; `userrights=1` lets others than root clear counters, 2 name the board, 4 change the peer table;
    /// `ifaces=2`, `endpoints=8` and `peers=100` limit the boards, the endpoints and the peers of each. A limit counts for daemons
    /// that this starts. What the reference's driver has beyond these is about its kernel module (pages, pinning, copy engines) or
    /// its test knobs (packet loss: OMX_PACKET_LOSS in a program's environment) and has no effect
    #[arg(value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// Take as peers only those in the file (an address and a name per line) and those that root names later
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    static_peers: Option<Option<PathBuf>>,
    /// Take hosts that announce themselves as peers (default); no program is needed for that
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, require_equals = true, conflicts_with = "static_peers")]
    dynamic_peers: Option<Option<PathBuf>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Starts daemons that do not run, and shows the boards
    Start,
    /// Stops all, unless an endpoint is open
    Stop,
    /// Both, one after the other
    Restart,
    /// Stops all daemons, even those in use
    Kill,
    /// Shows which daemons run; exits with 3 if none does
    Status,
    /// Nothing to do: discovery is part of the daemon
    StartDiscovery,
    /// Not possible alone: `restart --static-peers` does without discovery
    StopDiscovery,
    /// Nothing to do: a daemon begins with discovery
    RestartDiscovery,
    /// As stop-discovery
    KillDiscovery,
}

/// Runs `omx_init`.
///
/// # Errors
/// A daemon that does not start or end, an interface that does not exist, open endpoints.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(Some(program)) = &arguments.dynamic_peers {
        bail!(
            "{}: discovery is part of omxd here; no other program can take its place",
            program.display()
        );
    }
    let settings = Settings::read()?;
    match arguments.action {
        Action::Start => start(arguments, &settings)?,
        Action::Stop => stop_all(&settings, false)?,
        Action::Kill => stop_all(&settings, true)?,
        Action::Restart => {
            stop_all(&settings, false)?;
            start(arguments, &settings)?;
        }
        Action::Status => return status(&settings),
        Action::StartDiscovery | Action::RestartDiscovery => {
            print_line("discovery is part of omxd, which does it while it runs")?
        }
        Action::StopDiscovery | Action::KillDiscovery => {
            bail!(
                "discovery is part of omxd and cannot be stopped alone; `omx_init restart --static-peers` does without it"
            )
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the interfaces that have numbers, boards or not.
fn interfaces(settings: &Settings) -> anyhow::Result<Vec<NumberedInterface>> {
    Ok(weft_authority::interfaces(settings.get("OMX_IFACES").as_deref())?)
}

/// One word of `ifnames`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change<'a> {
    Attach(&'a str),
    Detach(&'a str),
    DetachAnyway(&'a str),
}

fn changes(names: &str) -> impl Iterator<Item = Change<'_>> {
    names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|word| {
            if let Some(name) = word.strip_prefix("--") {
                Change::DetachAnyway(name)
            } else if let Some(name) = word.strip_prefix('-') {
                Change::Detach(name)
            } else {
                Change::Attach(word.strip_prefix('+').unwrap_or(word))
            }
        })
}

fn start(arguments: &Arguments, settings: &Settings) -> anyhow::Result<()> {
    let from_file = settings.get("OMX_MODULE_PARAMS").unwrap_or_default();
    let mut names = None;
    let mut boards_max = BOARDS_MAX;
    let mut options: Vec<OsString> = vec!["--log".into(), weft_authority::log_file().into()];
    if arguments.static_peers.is_some() {
        options.push("--static-peers".into());
    }
    for parameter in from_file
        .split_whitespace()
        .chain(arguments.parameters.iter().map(String::as_str))
    {
        match parameter.split_once('=') {
            Some(("ifnames", value)) => names = Some(value.to_owned()),
            Some(("userrights", value)) => options.extend(["--user-rights".into(), value.into()]),
            Some(("endpoints", value)) => options.extend(["--endpoints-max".into(), value.into()]),
            Some(("peers", value)) => options.extend(["--peers-max".into(), value.into()]),
            Some(("ifaces", value)) => {
                boards_max = value
                    .parse()
                    .ok()
                    .filter(|boards| (1..=BOARDS_MAX).contains(boards))
                    .with_context(|| format!("ifaces={value}: expected 1 to {BOARDS_MAX}"))?;
            }
            Some((name, _)) => say("omx_init", &format!("{name} has no effect: there is no kernel module")),
            None => bail!("{parameter:?} is no parameter like ifnames=eth2,eth3"),
        }
    }
    let variables = settings.of_omxd();
    let start_one = |interface: &Interface| start_one(arguments, &options, &variables, interface);
    let mut attached = Vec::new();
    match &names {
        Some(names) => {
            for change in changes(names) {
                match change {
                    Change::Attach(name) => {
                        ensure!(
                            attached.len() < boards_max,
                            "{name} is one board more than ifaces={boards_max}"
                        );
                        start_one(&Interface::find(name)?)?;
                        attached.push(name.to_owned());
                    }
                    Change::Detach(name) => stop_one(&Interface::find(name)?, false)?,
                    Change::DetachAnyway(name) => stop_one(&Interface::find(name)?, true)?,
                }
            }
        }
        None => attached = start_all(settings, boards_max, start_one)?,
    }
    show(&attached)
}

/// Starts an omxd for every board, at most `boards_max`, and returns the names of their interfaces.
fn start_all(
    settings: &Settings,
    boards_max: usize,
    start_one: impl Fn(&Interface) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let (mut attached, mut failed) = (Vec::new(), false);
    let named = settings.get("OMX_IFACES").is_some_and(|names| names.trim() != "all");
    for NumberedInterface {
        interface, left_out, ..
    } in interfaces(settings)?
    {
        if let Some(why) = left_out {
            say("omx_init", &format!("{} is left out: {why}", interface.name));
            continue;
        }
        if attached.len() == boards_max {
            say(
                "omx_init",
                &format!("{} is left out: ifaces={boards_max}", interface.name),
            );
            continue;
        }
        match start_one(&interface) {
            Ok(()) => attached.push(interface.name),
            // Of all interfaces, some are no use for messages; of those that are named, each must be.
            Err(error) if !named => {
                failed = true;
                say("omx_init", &format!("{}: {error:#}", interface.name));
            }
            Err(error) => return Err(error.context(interface.name)),
        }
    }
    ensure!(!failed || !attached.is_empty(), "no interface has an omxd");
    Ok(attached)
}

/// Shows the boards for which an omxd runs, by `omx_info`.
fn show(attached: &[String]) -> anyhow::Result<()> {
    if attached.is_empty() {
        return Ok(());
    }
    let beside = env::current_exe()?.with_file_name("omx_info");
    let info = if beside.is_file() { beside } else { "omx_info".into() };
    let mut shows = Command::new(&info);
    // Boards whose omxd this did not start are left out: it is not to be started here either.
    let boards = Board::all()?.into_iter();
    if !boards
        .map(|board| board.interface().name.clone())
        .eq(attached.iter().cloned())
    {
        shows.env("OMX_IFACES", attached.join(","));
    }
    let shown = shows.arg("-q").status();
    let shown = shown.with_context(|| format!("cannot run {}", info.display()))?;
    ensure!(shown.success(), "omx_info: {shown}");
    Ok(())
}

fn start_one(
    arguments: &Arguments,
    options: &[OsString],
    variables: &[(String, String)],
    interface: &Interface,
) -> anyhow::Result<()> {
    ensure!(
        interface.up,
        "it is down (`ip link set {} up` switches it on)",
        interface.name
    );
    let options: Vec<&OsStr> = options.iter().map(OsString::as_os_str).collect();
    let started = weft_authority::start_in_background(&interface.name, &options, variables)?;
    print_line(&match started {
        Started::Now => format!("{}: omxd started", interface.name),
        Started::Before => format!("{}: omxd runs already", interface.name),
    })?;
    if let Some(Some(file)) = &arguments.static_peers {
        name_peers(&Board::named(&interface.name)?, file)?;
    }
    Ok(())
}

fn name_peers(board: &Board, file: &Path) -> anyhow::Result<()> {
    for (mac, name) in read_peers(file)? {
        board.set_name(Some(mac), &name)?;
    }
    Ok(())
}

/// Returns the status of the omxd that runs for an interface.
fn running(interface: &Interface) -> anyhow::Result<Option<BoardStatus>> {
    match Session::connect_to_running(interface)? {
        Some(session) => Ok(Some(session.status()?.0)),
        None => Ok(None),
    }
}

fn stop_all(settings: &Settings, anyway: bool) -> anyhow::Result<()> {
    // One that is left out now may have been a board when its daemon started.
    for board in interfaces(settings)? {
        stop_one(&board.interface, anyway)?;
    }
    Ok(())
}

fn stop_one(interface: &Interface, anyway: bool) -> anyhow::Result<()> {
    let name = &interface.name;
    let Some(status) = running(interface)? else {
        if weft_authority::forget_killed(interface).with_context(|| format!("cannot look after {name}"))? {
            print_line(&format!(
                "{name}: omxd was killed; programs do not wait for it any more"
            ))?;
        }
        return Ok(());
    };
    let open: Vec<_> = status.endpoints.iter().chain(&status.raw).collect();
    if let Some(user) = open.first().filter(|_| !anyway) {
        bail!(
            "{name}: {} endpoints are open, one by process {} ({}); `omx_init kill` stops omxd all the same",
            open.len(),
            user.pid,
            user.command
        );
    }
    let pid = i32::try_from(status.pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("omxd says a strange process number")?;
    let watched = pidfd_open(pid, PidfdFlags::empty()).with_context(|| format!("cannot watch omxd of {name}"))?;
    kill_process(pid, Signal::TERM).with_context(|| format!("cannot stop omxd of {name}"))?;
    let limit = Timespec::try_from(END_LIMIT)?;
    let ended = poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&limit))?;
    ensure!(ended > 0, "omxd of {name} (process {}) does not end", status.pid);
    print_line(&format!("{name}: omxd ended"))
}

fn status(settings: &Settings) -> anyhow::Result<ExitCode> {
    let mut any = false;
    for NumberedInterface {
        interface, left_out, ..
    } in interfaces(settings)?
    {
        let name = &interface.name;
        print_line(&match running(&interface)? {
            Some(status) => {
                any = true;
                format!(
                    "{name}: omxd is process {}, {} sizes on the wire, {} of {} endpoints open",
                    status.pid,
                    status.preset,
                    status.endpoints.len(),
                    status.endpoints_max
                )
            }
            None => match left_out {
                Some(why) => format!("{name}: no omxd ({why})"),
                None => format!("{name}: no omxd"),
            },
        })?;
    }
    Ok(if any {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NOT_RUNNING)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ifnames_attach_and_detach() {
        let all: Vec<Change<'_>> = changes("eth1,+eth2, -eth3,--eth4,").collect();
        assert_eq!(
            all,
            [
                Change::Attach("eth1"),
                Change::Attach("eth2"),
                Change::Detach("eth3"),
                Change::DetachAnyway("eth4")
            ]
        );
    }
}
