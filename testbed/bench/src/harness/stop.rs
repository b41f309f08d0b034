//! Ctrl-C and its relatives: the processes that were started are killed; the code that waits for one of them then fails and
//! clears up.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

/// What a comparison ends with after a signal.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Whether an end is wanted, and which processes must be ended then.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    asked: bool,
    /// Handles, not numbers: a number may name another process by now.
    children: Vec<OwnedFd>,
}

impl Stop {
    /// One that SIGINT, SIGTERM and SIGHUP ask.
    pub fn at_signals() -> Result<Self> {
        let stop = Self::default();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
        let asked = stop.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || signals.forever().for_each(|_| asked.ask()))
            .context("cannot catch signals")?;
        Ok(stop)
    }

    fn ask(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked = true;
        for child in state.children.drain(..) {
            // One that has ended needs no signal.
            _ = pidfd_send_signal(&child, Signal::KILL);
        }
    }

    /// Has the child `pid`, not yet waited for, ended at a signal too.
    pub fn also_end(&self, pid: u32) -> Result<()> {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .context("no process number")?;
        let child = pidfd_open(pid, PidfdFlags::empty()).context("cannot get hold of a child process")?;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.asked {
            _ = pidfd_send_signal(&child, Signal::KILL);
        }
        state.children.push(child);
        Ok(())
    }

    /// Whether a signal came.
    pub fn is_asked(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).asked
    }

    /// An error once a signal came.
    pub fn check(&self) -> Result<()> {
        match self.is_asked() {
            false => Ok(()),
            true => Err(Interrupted.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process::Command};

    use super::*;

    #[test]
    fn children_registered_before_and_after_the_signal_are_ended() {
        let stop = Stop::default();
        let mut sleep = Command::new("sleep");
        sleep.arg("1000");
        let mut before = sleep.spawn().unwrap();
        stop.also_end(before.id()).unwrap();
        stop.check().unwrap();
        stop.ask();
        assert_eq!(before.wait().unwrap().signal(), Some(9));
        assert!(stop.check().is_err());
        let mut after = sleep.spawn().unwrap();
        stop.also_end(after.id()).unwrap();
        assert_eq!(after.wait().unwrap().signal(), Some(9));
    }
}
