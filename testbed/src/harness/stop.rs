//! The end at Ctrl-C, SIGTERM or SIGHUP: started processes are killed; code that waits for one of them then fails and
//! cleans up.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::interrupted::Interrupted;

/// A stop says whether an end was requested, and which processes to end then.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    asked: bool,
    /// Handles instead of process numbers, since a number may name another process by now.
    children: Vec<OwnedFd>,
}

impl Stop {
    /// Makes a stop that SIGINT, SIGTERM and SIGHUP trigger.
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
            // A process that has ended needs no signal.
            _ = pidfd_send_signal(&child, Signal::KILL);
        }
    }

    /// Adds the child process `pid`, which has not been waited for, to those that a signal ends.
    pub fn also_end(&self, pid: u32) -> Result<()> {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .context("no process number")?;
        let child = pidfd_open(pid, PidfdFlags::empty()).context("cannot get hold of a child process")?;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A comparison may start thousands of processes one after the other.
        state.children.retain(|child| !has_ended(child));
        if state.asked {
            _ = pidfd_send_signal(&child, Signal::KILL);
        }
        state.children.push(child);
        Ok(())
    }

    /// Returns whether a signal came.
    pub fn is_asked(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).asked
    }

    /// Fails once a signal came.
    pub fn check(&self) -> Result<()> {
        match self.is_asked() {
            false => Ok(()),
            true => Err(Interrupted.into()),
        }
    }
}

/// Returns whether the process of this handle has ended.
fn has_ended(child: &OwnedFd) -> bool {
    let mut ready = [PollFd::new(child, PollFlags::IN)];
    poll(&mut ready, Some(&Timespec::default())).is_ok_and(|count| count > 0)
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

    #[test]
    fn children_that_have_ended_are_forgotten() {
        let stop = Stop::default();
        for _ in 0..3 {
            let mut child = Command::new("true").spawn().unwrap();
            stop.also_end(child.id()).unwrap();
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(stop.0.lock().unwrap().children.len(), 1);
    }
}
