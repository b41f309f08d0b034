//! Watchers: clients that learn of every change of a setting as it happens, one JSON line per change.
//!
//! The data plane writes the line itself, before the client that asked for the change gets an answer: bytes in a socket outlive
//! this process, so a change that a client was told of is never lost to a watcher. The data plane never waits for a watcher.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::net::{SendFlags, Shutdown, send, shutdown};

/// Whose settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The port with this index.
    Port(usize),
    /// The trunk with this index.
    Trunk(usize),
    /// The multicast group of this number.
    Group(u16),
}

/// A watcher.
struct Watcher {
    id: u64,
    socket: OwnedFd,
    /// Everything that is not in `missed` was written; the data plane may write what changes.
    caught_up: bool,
    /// What changed before the watcher caught up.
    missed: BTreeSet<Subject>,
}

/// All watchers.
#[derive(Default)]
pub struct Watchers(Vec<Watcher>);

impl Watchers {
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a watcher that has missed everything so far. Returns its number.
    pub fn add(&mut self, socket: OwnedFd, missed: BTreeSet<Subject>) -> u64 {
        let id = self.0.iter().map(|watcher| watcher.id + 1).max().unwrap_or(0);
        self.0.push(Watcher {
            id,
            socket,
            caught_up: false,
            missed,
        });
        id
    }

    /// The watcher of this number is gone.
    pub fn remove(&mut self, id: u64) {
        self.0.retain(|watcher| watcher.id != id);
    }

    /// What the watcher of this number has missed. If that is nothing, it has caught up, and is told so by `line`.
    pub fn take_missed(&mut self, id: u64, line: &str) -> Option<BTreeSet<Subject>> {
        let watcher = self.0.iter_mut().find(|watcher| watcher.id == id)?;
        let missed = std::mem::take(&mut watcher.missed);
        if missed.is_empty() {
            watcher.caught_up = true;
            watcher.tell(line);
            return None;
        }
        Some(missed)
    }

    /// Tells all watchers that have caught up of a change; the others miss it for now.
    pub fn changed(&mut self, subject: Subject, line: &str) {
        for watcher in &mut self.0 {
            if watcher.caught_up {
                watcher.tell(line);
            } else {
                watcher.missed.insert(subject);
            }
        }
    }
}

impl Watcher {
    /// Writes a line, now or never.
    fn tell(&mut self, line: &str) {
        if send(&self.socket, line.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) != Ok(line.len()) {
            // It does not read, or is gone: it must begin anew. The thread that serves it notices.
            let _ = shutdown(&self.socket, Shutdown::Both);
            self.caught_up = false;
        }
    }
}
