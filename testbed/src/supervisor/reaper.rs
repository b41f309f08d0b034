//! The process that outlives a supervisor by a moment: when the supervisor is gone, however it ended, it kills the
//! remaining processes of the lab and removes its folder. It does nothing else, so that there is no reason to kill it.

use std::{
    io::{self, BufRead, Write},
    os::fd::OwnedFd,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use crate::state::StateDir;

/// Message of a supervisor that has cleaned up itself.
const NOTHING_LEFT: &str = "nothing left";

/// Word by which `weft` starts itself as a reaper; it is not a verb for users, so their command line does not have it.
pub const VERB: &str = "reap";

/// The supervisor's end: it names every child process; the reaper acts when this end closes.
#[derive(Debug)]
pub struct Reaper {
    child: Child,
    names: ChildStdin,
}

impl Reaper {
    /// Starts the reaper for `state`, in a process group of its own, so that it survives when the supervisor's group is
    /// killed.
    ///
    /// # Errors
    /// Fails when this program cannot be started a second time.
    pub fn start(state: &StateDir) -> Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("weft")
            .arg(VERB)
            .arg(state.path())
            .arg(std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start the process that clears up behind a lab")?;
        let names = child.stdin.take().context("the clearing process has no input")?;
        Ok(Self { child, names })
    }

    /// Tells the reaper of a child process.
    pub fn watch(&mut self, pid: u32) {
        // A killed reaper is no reason to end the lab: children die with the supervisor anyway.
        if let Err(error) = writeln!(self.names, "{pid}") {
            tracing::warn!(%error, "the process that clears up behind this lab is gone");
        }
    }

    /// Ends the reaper when nothing is left to clean up.
    pub fn finish(self) {
        let Self { mut child, mut names } = self;
        // A killed reaper cannot be told, and need not be.
        _ = writeln!(names, "{NOTHING_LEFT}");
        drop(names);
        if let Err(error) = child.wait() {
            tracing::warn!(%error, "the process that clears up behind this lab cannot be waited for");
        }
    }
}

/// Runs this process as a reaper, if it was started as one.
#[must_use]
pub fn asked_for() -> Option<Result<()>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [verb, folder, supervisor] if verb == VERB => {
            let supervisor = supervisor.to_str()?.parse().ok()?;
            Some(run(Path::new(folder), supervisor))
        }
        _ => None,
    }
}

/// Runs the reaper until it has cleaned up.
///
/// # Errors
/// Fails when the folder cannot be removed.
fn run(folder: &Path, supervisor: i32) -> Result<()> {
    let supervisor = Pid::from_raw(supervisor);
    let handle = supervisor.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // The handle is certainly the supervisor's only while that is still the parent; otherwise it has ended already.
    let handle = handle.filter(|_| rustix::process::getppid() == supervisor);
    let Some(children) = children_until_eof(io::stdin().lock()) else {
        return Ok(());
    };
    // The lock is certainly released once the supervisor has ended, but not when its pipe closes.
    if let Some(handle) = handle {
        wait_for_end(&handle)?;
    }
    for child in &children {
        _ = pidfd_send_signal(child, Signal::KILL);
        wait_for_end(child)?;
    }
    StateDir::at(folder).remove_if_dead()?;
    Ok(())
}

/// Returns handles of the processes named on `names`, without those that have ended meanwhile; `None` when the
/// supervisor reports that nothing is left. A handle stays with its process even when the number is used again.
fn children_until_eof(names: impl BufRead) -> Option<Vec<OwnedFd>> {
    let mut children: Vec<OwnedFd> = Vec::new();
    for line in names.lines() {
        let Ok(line) = line else { break };
        if line == NOTHING_LEFT {
            return None;
        }
        children.retain(|child| !has_ended(child));
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        children.extend(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()));
    }
    Some(children)
}

fn has_ended(process: &OwnedFd) -> bool {
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)), Ok(1..))
}

fn wait_for_end(process: &OwnedFd) -> io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(process, PollFlags::IN)], None) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(drop).map_err(io::Error::from),
        }
    }
}
