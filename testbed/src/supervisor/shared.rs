//! The state that all threads of a supervisor share: the lab, what its guests run with, its settings, and what changes
//! while it runs.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use super::{cable_carrier, guest_state::Guest, reaper::Reaper, reload, restore};
use crate::{
    lab::{Lab, Node},
    prepare::Means,
    settings_in_force::Settings,
    state::StateDir,
    supervisor_client::protocol::{BOOT_PATIENCE_FACTOR, LabPhase, LabStatus, NodeStatus},
    vnicd_client::VnicdClient,
};

/// The state that all threads of a supervisor share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Lab as the lab file describes it; replaced as a whole when the lab is changed.
    pub(super) lab: RwLock<Arc<Lab>>,
    pub(super) state: StateDir,
    /// Means that guests run with; replaced with the lab.
    pub(super) means: RwLock<Arc<Means>>,
    /// Lab file of the lab, locked while the lab is changed. `None` for a lab without file, which never changes.
    pub(super) file: Mutex<Option<PathBuf>>,
    /// Lock that is taken while a save of the lab is written.
    pub(super) saving: Mutex<()>,
    pub(super) inner: Mutex<LabState>,
    pub(super) changed: Condvar,
    pub(super) settings: Mutex<Settings>,
    pub(super) carriers: cable_carrier::Carriers,
    pub(super) restore: restore::Restore,
    pub(super) reaper: Mutex<Option<Reaper>>,
}

/// The state that changes while a lab runs.
#[derive(Debug)]
pub(super) struct LabState {
    pub(super) phase: LabPhase,
    /// Reason why the lab is being stopped, if that is a failure.
    pub(super) failure: Option<String>,
    /// Whether Ctrl-C or SIGTERM stopped the lab.
    pub(super) interrupted: bool,
    pub(super) vnicd_pid: Option<u32>,
    /// Handle to signal `vnicd`, since its number may name another process by now.
    pub(super) vnicd: Option<OwnedFd>,
    pub(super) vnicd_restarts: u32,
    /// Program that `vnicd` is started from, and the swap in progress.
    pub(super) reload: reload::State,
    /// Whether changes of settings are being reported, and not all reports have been read.
    pub(super) watching: bool,
    pub(super) nodes: BTreeMap<String, Guest>,
    /// Number that grows with every change, for those who watch.
    pub(super) version: u64,
}

impl LabState {
    /// Returns when the patience for a booting guest ends if it shows nothing from now on.
    pub(super) fn next_deadline(&self, patience: Duration) -> Instant {
        let now = Instant::now();
        let left = |guest: &Guest| {
            let silence = patience.saturating_sub(guest.silent_for()?);
            Some(silence.min((patience * BOOT_PATIENCE_FACTOR).saturating_sub(guest.booting_for()?)))
        };
        let least = self.nodes.values().filter_map(left).min();
        now + least.unwrap_or(patience)
    }
}

impl Shared {
    /// Returns the lab as the lab file describes it now. A caller that keeps it over a change of the lab continues with
    /// the old one.
    pub(super) fn lab(&self) -> Arc<Lab> {
        Arc::clone(&self.lab.read())
    }

    /// Returns what guests that are started now run with.
    pub(super) fn means(&self) -> Arc<Means> {
        Arc::clone(&self.means.read())
    }

    /// Replaces the lab of the lab file, and the means that guests are started with.
    pub(super) fn replace(&self, lab: Arc<Lab>, means: Means) {
        *self.means.write() = Arc::new(means);
        *self.lab.write() = lab;
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, LabState> {
        self.inner.lock()
    }

    pub(super) fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock()
    }

    /// Changes the shared state and wakes the threads that wait for a change.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut LabState) -> T) -> T {
        let mut inner = self.inner();
        let result = change(&mut inner);
        inner.version += 1;
        self.changed.notify_all();
        result
    }

    /// Reads the state, and perhaps changes a part that no thread waits for.
    pub(super) fn update_quietly<T>(&self, change: impl FnOnce(&mut LabState) -> T) -> T {
        change(&mut self.inner())
    }

    pub(super) fn update_guest(&self, name: &str, change: impl FnOnce(&mut Guest)) {
        self.update(|inner| inner.nodes.get_mut(name).map(change));
    }

    /// Waits until `done` returns something; no longer than `deadline`, if given.
    pub(super) fn wait_for<T>(
        &self,
        deadline: Option<Instant>,
        mut done: impl FnMut(&mut LabState) -> Option<T>,
    ) -> Option<T> {
        let mut inner = self.inner();
        loop {
            if let Some(result) = done(&mut inner) {
                return Some(result);
            }
            match deadline {
                None => self.changed.wait(&mut inner),
                Some(deadline) if deadline <= Instant::now() => return None,
                Some(deadline) => _ = self.changed.wait_until(&mut inner, deadline),
            }
        }
    }

    /// Waits for a while; returns whether the lab is being ended, immediately if so.
    pub(super) fn pause(&self, duration: Duration) -> bool {
        let stopping = |inner: &mut LabState| (inner.phase == LabPhase::Stopping).then_some(());
        self.wait_for(Some(Instant::now() + duration), stopping).is_some()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.inner().phase == LabPhase::Stopping
    }

    /// Begins the end of the lab because something cannot continue.
    pub(super) fn fail(&self, why: anyhow::Error) {
        tracing::error!(error = %format!("{why:#}"), "the lab cannot continue");
        self.update(|inner| {
            if inner.phase != LabPhase::Stopping {
                inner.phase = LabPhase::Stopping;
                inner.failure = Some(format!("{why:#}"));
            }
        });
    }

    /// Tells the reaper of a child process.
    pub(super) fn watch_child(&self, pid: u32) {
        if let Some(reaper) = self.reaper.lock().as_mut() {
            reaper.watch(pid);
        }
    }

    pub(super) fn vnicd(&self) -> Result<VnicdClient> {
        Ok(VnicdClient::connect(&self.state.vnicd_socket()?)?)
    }

    pub(super) fn status(&self, inner: &LabState) -> LabStatus {
        let (lab, means) = (self.lab(), self.means());
        let of_node = |node: &Node| {
            let guest = inner.nodes.get(&node.name)?;
            let silent = guest.silent_for();
            Some(NodeStatus {
                labels: node.labels.clone(),
                silent_ms: silent.map(|silent| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX)),
                ..guest.status.clone()
            })
        };
        LabStatus {
            lab: lab.name.clone(),
            phase: inner.phase,
            accel: means.accel,
            qemu: means.qemu.version().to_string(),
            pid: std::process::id(),
            vnicd_pid: inner.vnicd_pid,
            vnicd_restarts: inner.vnicd_restarts,
            nodes: lab.nodes.iter().filter_map(of_node).collect(),
        }
    }
}
