//! The one process that owns a running lab: `vnicd`, the QEMUs, their sockets and the settings in force. Everything ends
//! with it. What verbs may ask of it is in `protocol`; this module starts and stops, the others do the work.

mod apply;
mod boots;
mod carrier;
pub mod client;
mod console;
mod guest;
mod guest_files;
mod memory;
mod node;
pub mod protocol;
pub mod reaper;
mod reload;
mod restore;
mod save;
mod server;
mod settings;
mod vnicd;

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

pub use memory::memory_available_mib;
pub use restore::means as means_of_saved;
pub use settings::Settings;

use self::{
    client::Client,
    guest::Guest,
    protocol::{LabPhase, LabStatus, NodePhase, NodeStatus},
    reaper::Reaper,
};
use crate::{
    accel::Accel,
    image::Image,
    lab::{ImageSpec, Lab, Node},
    qemu::Qemu,
    save::Saved,
    state::{Lock, StateDir},
    vnicd_client::VnicdClient,
};

/// Pause between two attempts to watch a `vnicd` that is not there yet.
const WATCH_PAUSE: Duration = Duration::from_millis(5);

/// How long reading what a killed `vnicd` wrote may take: it is in a socket's buffer already.
const WATCH_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long QEMU may take to end itself before it is killed.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A guest that goes on and on without ever being ready is given up after so many times what a silent one is given.
pub(crate) const BOOT_PATIENCE_FACTOR: u32 = 10;

/// Characters of a guest's last line that an error quotes.
const LAST_LINE_CHARS_MAX: usize = 200;

/// What guests run with, found out before a lab starts.
#[derive(Clone, Debug)]
pub struct Means {
    /// The QEMU.
    pub qemu: Qemu,
    /// What runs the guests' instructions.
    pub accel: Accel,
    /// The images of the nodes that boot a recipe.
    pub images: BTreeMap<ImageSpec, Image>,
    /// The agent, if a node gets it from cloud-init.
    pub agent: Option<PathBuf>,
}

/// A running lab. [`Supervisor::stop`] ends it; so does the end of this process, whatever its cause.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
    lock: Lock,
}

/// What all threads of a supervisor see.
#[derive(Debug)]
struct Shared {
    /// What the lab file says; replaced as a whole when the lab is changed.
    lab: RwLock<Arc<Lab>>,
    state: StateDir,
    /// What guests run with; replaced with the lab.
    means: RwLock<Arc<Means>>,
    /// The lab file that the lab is of, held while the lab is changed. None: it is of no file, and is never changed.
    file: Mutex<Option<PathBuf>>,
    /// Held while a save of the lab is written.
    saving: Mutex<()>,
    inner: Mutex<Inner>,
    changed: Condvar,
    settings: Mutex<Settings>,
    carriers: carrier::Carriers,
    restore: restore::Restore,
    reaper: Mutex<Option<Reaper>>,
}

/// What changes while a lab runs.
#[derive(Debug)]
struct Inner {
    phase: LabPhase,
    /// Why the lab is being stopped, if that is a failure.
    failure: Option<String>,
    /// Stopped by Ctrl-C or SIGTERM.
    interrupted: bool,
    vnicd_pid: Option<u32>,
    /// To signal `vnicd` without the risk that its number names another process by now.
    vnicd: Option<OwnedFd>,
    vnicd_restarts: u32,
    /// The program that `vnicd` is started from, and what is under way with it.
    reload: reload::State,
    /// We are told of every change of a setting, and have not read all of it to its end.
    watching: bool,
    nodes: BTreeMap<String, Guest>,
    /// Grows with every change, for those who watch.
    version: u64,
}

impl Inner {
    /// When a guest that boots, and shows nothing from now on, will have been waited for long enough.
    fn next_deadline(&self, patience: Duration) -> Instant {
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
    /// What the lab file says now. Whoever keeps it over a change of the lab goes on with what was said before.
    fn lab(&self) -> Arc<Lab> {
        Arc::clone(&self.lab.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What guests that are started now run with.
    fn means(&self) -> Arc<Means> {
        Arc::clone(&self.means.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes `lab` what the lab file says, and `means` what guests are started with.
    fn replace(&self, lab: Arc<Lab>, means: Means) {
        *self.means.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(means);
        *self.lab.write().unwrap_or_else(PoisonError::into_inner) = lab;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what everybody sees and wakes those who wait for a change.
    fn update<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner();
        let result = change(&mut inner);
        inner.version += 1;
        self.changed.notify_all();
        result
    }

    /// Looks, and perhaps changes something that nobody waits for.
    fn update_quietly<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.inner())
    }

    fn update_guest(&self, name: &str, change: impl FnOnce(&mut Guest)) {
        self.update(|inner| inner.nodes.get_mut(name).map(change));
    }

    /// Waits until `done` gives something; no longer than `deadline`, if given.
    fn wait_for<T>(&self, deadline: Option<Instant>, mut done: impl FnMut(&mut Inner) -> Option<T>) -> Option<T> {
        let mut inner = self.inner();
        loop {
            if let Some(result) = done(&mut inner) {
                return Some(result);
            }
            inner = match deadline {
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline
                        .checked_duration_since(Instant::now())
                        .filter(|left| !left.is_zero())?;
                    self.changed
                        .wait_timeout(inner, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    fn is_stopping(&self) -> bool {
        self.inner().phase == LabPhase::Stopping
    }

    /// Begins the end of the lab because something cannot go on.
    fn fail(&self, why: anyhow::Error) {
        tracing::error!(error = %format!("{why:#}"), "the lab cannot go on");
        self.update(|inner| {
            if inner.phase != LabPhase::Stopping {
                inner.phase = LabPhase::Stopping;
                inner.failure = Some(format!("{why:#}"));
            }
        });
    }

    /// Tells the reaper of a child process.
    fn watch_child(&self, pid: u32) {
        if let Some(reaper) = self.reaper.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            reaper.watch(pid);
        }
    }

    fn vnicd(&self) -> Result<VnicdClient> {
        Ok(VnicdClient::connect(&self.state.vnicd_socket()?)?)
    }

    fn status(&self, inner: &Inner) -> LabStatus {
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

/// The last line of what a guest printed, without what could command a terminal.
fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let printable = line.unwrap_or_default().chars().filter(|c| !c.is_control());
    printable.take(LAST_LINE_CHARS_MAX).collect()
}

impl Supervisor {
    /// Takes the lab's folder and starts everything; returns when all processes run, before guests have booted. `file` is the
    /// full path of the lab file, which `weft up` may make the running lab follow later.
    ///
    /// # Errors
    /// One sentence; then nothing is left running.
    pub fn start(lab: Lab, means: Means, file: Option<PathBuf>) -> Result<Self> {
        let settings = Settings::of(&lab);
        Self::begin(lab, means, file, settings, restore::Restore::default())
    }

    /// Starts everything as it was saved; returns when all processes run, before the guests have gone on. `means` are
    /// [`means_of_saved`]. What was saved must stay as long as the lab runs.
    ///
    /// # Errors
    /// One sentence; then nothing is left running.
    pub fn restore(saved: &Saved, means: Means) -> Result<Self> {
        let (manifest, settings) = (saved.manifest(), restore::settings(saved));
        let (lab, file) = (manifest.lab.clone(), manifest.file.clone());
        Self::begin(lab, means, file, settings, restore::Restore::of(saved))
    }

    fn begin(
        lab: Lab,
        means: Means,
        file: Option<PathBuf>,
        settings: Settings,
        restore: restore::Restore,
    ) -> Result<Self> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot ask for signals")?;
        memory::check_memory(&lab)?;
        let state = StateDir::of(&lab.name);
        // Said before anything runs: the longest names are those of QEMU's and vnicd's sockets.
        for name in node::socket_names(&lab).chain(["vnicd.sock".to_owned()]) {
            state.socket(&name)?;
        }
        let reload = reload::State::new()?;
        let lock = state.claim()?;
        let nodes = lab
            .nodes
            .iter()
            .map(|node| (node.name.clone(), Guest::of(node)))
            .collect();
        let inner = Inner {
            phase: LabPhase::Starting,
            failure: None,
            interrupted: false,
            vnicd_pid: None,
            vnicd: None,
            vnicd_restarts: 0,
            reload,
            watching: false,
            nodes,
            version: 0,
        };
        let shared = Arc::new(Shared {
            lab: RwLock::new(Arc::new(lab)),
            state,
            means: RwLock::new(Arc::new(means)),
            file: Mutex::new(file),
            saving: Mutex::new(()),
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            settings: Mutex::new(settings),
            carriers: carrier::Carriers::default(),
            restore,
            reaper: Mutex::new(None),
        });
        let supervisor = Self { shared, lock };
        match supervisor.start_all(signals) {
            Ok(()) => Ok(supervisor),
            Err(error) => {
                // The sentence is the caller's: nothing is logged beside it.
                supervisor.shared.update(|inner| inner.phase = LabPhase::Stopping);
                supervisor.end_everything(false)?;
                Err(error)
            }
        }
    }

    fn start_all(&self, mut signals: Signals) -> Result<()> {
        let shared = &self.shared;
        *shared.reaper.lock().unwrap_or_else(PoisonError::into_inner) = Some(Reaper::start(&shared.state)?);
        let stopper = Arc::clone(shared);
        thread("signals", move || {
            for _ in signals.forever() {
                stopper.update(|inner| (inner.phase, inner.interrupted) = (LabPhase::Stopping, true));
            }
        })?;
        server::listen(Arc::clone(shared))?;
        let vnicd = vnicd::Vnicd::start(shared)?;
        let keeper = Arc::clone(shared);
        thread("vnicd", move || vnicd::keep(&keeper, vnicd))?;
        let watcher = Arc::clone(shared);
        thread("watch", move || watch(&watcher))?;
        let boots = Arc::clone(shared);
        thread("boots", move || boots::watch(&boots))?;
        restore::start(shared)?;
        for node in &shared.lab().nodes {
            let (shared, node) = (Arc::clone(shared), node.clone());
            thread("node", move || node::keep(&shared, &node))?;
        }
        Ok(())
    }

    /// Waits until every guest is ready, or runs as far as one without our agent can show; `progress` hears of every change. A
    /// guest that goes on is waited for, whatever it does: it prints, is reset, or its turn to boot has not come.
    ///
    /// # Errors
    /// When a guest shows nothing for `patience`, takes ten times as long, or ends, or the lab is stopped.
    pub fn wait_up(&self, patience: Duration, mut progress: impl FnMut(&LabStatus)) -> Result<LabStatus> {
        let mut seen = None;
        let shared = &self.shared;
        loop {
            let next_look = shared.inner().next_deadline(patience);
            let news = |inner: &mut Inner| (seen != Some(inner.version)).then(|| (inner.version, shared.status(inner)));
            let Some((version, status)) = shared.wait_for(Some(next_look), news) else {
                self.check_patience(patience)?;
                continue;
            };
            seen = Some(version);
            progress(&status);
            if status.phase == LabPhase::Stopping {
                return Err(self.why_stopped());
            }
            if let Some(stopped) = status.nodes.iter().find(|node| node.phase == NodePhase::Stopped) {
                let why = stopped.note.as_deref().unwrap_or("it is switched off");
                bail!("{} did not boot: {why}", stopped.name);
            }
            // One may have ended since that status was made.
            let up = |inner: &mut Inner| {
                let all = inner.nodes.values().all(Guest::is_up);
                if all && inner.phase == LabPhase::Starting {
                    inner.phase = LabPhase::Up;
                }
                all.then(|| shared.status(inner))
            };
            if let Some(status) = shared.update_quietly(up) {
                return Ok(status);
            }
        }
    }

    /// Whether all guests that boot have shown something lately.
    fn check_patience(&self, patience: Duration) -> Result<()> {
        let inner = self.shared.inner();
        let silent = |guest: &&Guest| guest.silent_for().is_some_and(|silent| silent >= patience);
        let late = |guest: &&Guest| {
            guest
                .booting_for()
                .is_some_and(|booting| booting >= patience * BOOT_PATIENCE_FACTOR)
        };
        let names = |which: &dyn Fn(&&Guest) -> bool| -> Vec<String> {
            let nodes = inner.nodes.values().filter(which);
            nodes.map(|guest| guest.status.name.clone()).collect()
        };
        let (silent, late) = (names(&silent), names(&late));
        let Some(first) = silent.first().or(late.first()) else {
            return Ok(());
        };
        let said = last_line(&vnicd::last_words(&self.shared.state.file(&format!("{first}.log"))));
        let said = match said.as_str() {
            "" => format!("{first} has printed nothing"),
            said => format!("what {first}'s console said last: {said}"),
        };
        match silent.is_empty() {
            false => bail!(
                "no sign of life for {} s: {}; {said}",
                patience.as_secs(),
                silent.join(", ")
            ),
            true => bail!(
                "not ready after {} s: {}; {said}",
                (patience * BOOT_PATIENCE_FACTOR).as_secs(),
                late.join(", ")
            ),
        }
    }

    fn why_stopped(&self) -> anyhow::Error {
        let inner = self.shared.inner();
        match &inner.failure {
            Some(why) => anyhow::anyhow!("{why}"),
            None if inner.interrupted => anyhow::Error::new(Interrupted),
            None => anyhow::anyhow!("the lab was ended meanwhile"),
        }
    }

    /// The lab's folder.
    #[must_use]
    pub fn state(&self) -> &StateDir {
        &self.shared.state
    }

    /// Waits until somebody ends the lab: a signal, `weft down`, or a failure.
    pub fn wait_for_end(&self) {
        self.shared
            .wait_for(None, |inner| (inner.phase == LabPhase::Stopping).then_some(()));
    }

    /// Does `work` in a thread beside the lab; returns when it is done or the lab is being ended.
    ///
    /// # Errors
    /// What `work` says, or why the lab is being ended.
    pub fn run_beside<T: Send + 'static>(&self, work: impl FnOnce(Client) -> Result<T> + Send + 'static) -> Result<T> {
        let shared = Arc::clone(&self.shared);
        let outcome = Arc::new(Mutex::new(None));
        let place = Arc::clone(&outcome);
        thread("work", move || {
            let result = work(Client::new(shared.state.clone()));
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            shared.update(|_| ());
        })?;
        let finished = |inner: &mut Inner| {
            let result = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
            // A lab that is being ended fails all work in it: why it ends is the better sentence.
            if inner.phase == LabPhase::Stopping {
                Some(None)
            } else {
                result.map(Some)
            }
        };
        match self.shared.wait_for(None, finished).flatten() {
            Some(result) => result,
            None => Err(self.why_stopped()),
        }
    }

    /// Ends everything and removes the lab's folder. What was logged is kept if the lab ended because something failed.
    ///
    /// # Errors
    /// Why the lab ended, if that was a failure; or what could not be removed.
    pub fn stop(self) -> Result<()> {
        let failure = self.shared.update(|inner| {
            inner.phase = LabPhase::Stopping;
            inner.failure.take()
        });
        match failure {
            Some(why) => Err(self.give_up(anyhow::anyhow!("{why}"))),
            None => self.end_everything(false).map(drop),
        }
    }

    /// Ends everything because of `why`, which comes back with where the logs are kept. Nothing is kept of a lab that somebody
    /// interrupted.
    #[must_use]
    pub fn give_up(self, why: anyhow::Error) -> anyhow::Error {
        self.shared.update(|inner| inner.phase = LabPhase::Stopping);
        match self.end_everything(!why.is::<Interrupted>()) {
            Ok(Some(kept)) => anyhow::anyhow!("{why:#}; logs are in {} until `weft clean`", kept.display()),
            Ok(None) => why,
            Err(error) => anyhow::anyhow!("{why:#}; {error:#}"),
        }
    }

    /// Gives the folder with the logs, if they were to be kept and there are any.
    fn end_everything(self, keep_logs: bool) -> Result<Option<PathBuf>> {
        let Self { shared, lock } = self;
        node::signal_all(&shared, Signal::TERM);
        let all_off = |inner: &mut Inner| inner.nodes.values().all(|guest| guest.process.is_none()).then_some(());
        if shared.wait_for(Some(Instant::now() + QUIT_TIMEOUT), all_off).is_none() {
            node::signal_all(&shared, Signal::KILL);
            shared.wait_for(Some(Instant::now() + QUIT_TIMEOUT), all_off);
        }
        vnicd::end(&shared);
        // One that is under way has heard of the end by now: its guests are gone, and it removes what it wrote.
        drop(shared.saving.lock().unwrap_or_else(PoisonError::into_inner));
        let kept = keep_logs.then(|| shared.state.keep_logs()).flatten();
        let removed = shared.state.remove(lock);
        let reaper = shared.reaper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reaper) = reaper {
            reaper.finish();
        }
        removed.map(|()| kept)
    }
}

/// The lab was ended by Ctrl-C or SIGTERM.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// A handle of a child process that has not been waited for, so that its number is still its own.
fn handle_of(pid: u32) -> Result<OwnedFd> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .context("no process number")?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).context("cannot get hold of a child process")
}

/// Keeps the remembered settings those in force, whoever changed them. `vnicd` tells us of a change before it answers whoever
/// asked for it, and what it wrote can be read after its end: so no change that a guest knows of is lost when it is killed.
fn watch(shared: &Shared) {
    let stopping = |inner: &mut Inner| (inner.phase == LabPhase::Stopping).then_some(());
    while shared.wait_for(Some(Instant::now() + WATCH_PAUSE), stopping).is_none() {
        let Ok(watch) = shared.vnicd().and_then(|client| Ok(client.watch()?)) else {
            continue;
        };
        shared.update(|inner| inner.watching = true);
        for event in watch {
            shared.settings().set(event);
        }
        shared.update(|inner| inner.watching = false);
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .with_context(|| format!("cannot start the thread {name}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_guest_cannot_command_a_terminal() {
        assert_eq!(last_line("one\r\ntwo\r\n\r\n  \n"), "two");
        assert_eq!(last_line("\x1b[2Jpanic\x07: not syncing"), "[2Jpanic: not syncing");
        assert_eq!(last_line(""), "");
        assert_eq!(last_line(&"x".repeat(1_000)).len(), LAST_LINE_CHARS_MAX);
    }
}
