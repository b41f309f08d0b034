//! The process that owns a running lab: `vnicd`, the QEMUs, their sockets and the settings in force. Everything ends
//! with it. The requests to it are in [`crate::supervisor_client`]; this module starts and stops, its submodules do the
//! rest.

mod boot_watch;
mod cable_carrier;
mod guest_files;
mod guest_process;
mod guest_state;
mod host_memory;
mod lab_key;
mod panic_detection;
pub mod reaper;
mod reconcile;
mod reload;
mod restore;
mod save;
mod server;
mod settings_watch;
mod shared;
mod vnicd_process;

use std::{
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::process::Signal;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

pub use host_memory::memory_available_mib;
pub use restore::means as means_of_saved;

use self::{
    guest_state::Guest,
    reaper::Reaper,
    shared::{LabState, Shared},
};
use crate::{
    interrupted::Interrupted,
    lab::Lab,
    prepare::Means,
    save::Saved,
    settings_in_force::Settings,
    state::{Lock, StateDir},
    supervisor_client::{
        client::Client,
        protocol::{BOOT_PATIENCE_FACTOR, LabPhase, LabStatus, NodePhase},
    },
};

/// Time for reading what a killed `vnicd` wrote, which is in a socket's buffer already.
const WATCH_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Time that QEMU may take to end itself before it is killed.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of characters of a guest's last line that an error quotes.
const LAST_LINE_CHARS_MAX: usize = 200;

/// A running lab. [`Supervisor::stop`] ends it; so does the end of this process, whatever its cause.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
    lock: Lock,
}

/// Returns the last line of a guest's output, without characters that a terminal would interpret.
fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let printable = line.unwrap_or_default().chars().filter(|c| !c.is_control());
    printable.take(LAST_LINE_CHARS_MAX).collect()
}

impl Supervisor {
    /// Takes the lab's folder and starts everything; returns when all processes run, before guests have booted. `file`
    /// is the full path of the lab file, which `weft up` may reconcile the running lab with later.
    ///
    /// # Errors
    /// Fails with one sentence; then nothing is left running.
    pub fn start(lab: Lab, means: Means, file: Option<PathBuf>) -> Result<Self> {
        let settings = Settings::of(&lab);
        Self::begin(lab, means, file, settings, restore::Restore::default())
    }

    /// Starts everything as it was saved; returns when all processes run, before the guests have continued. `means` are
    /// [`means_of_saved`]. The saved files must stay as long as the lab runs.
    ///
    /// # Errors
    /// Fails with one sentence; then nothing is left running.
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
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
        host_memory::check_memory(&lab)?;
        let state = StateDir::of(&lab.name);
        // This is checked before anything runs: the longest names are those of QEMU's and vnicd's sockets.
        for name in guest_process::socket_names(&lab).chain(["vnicd.sock".to_owned()]) {
            state.socket(&name)?;
        }
        let reload = reload::State::new()?;
        let lock = state.claim()?;
        let nodes = lab
            .nodes
            .iter()
            .map(|node| (node.name.clone(), Guest::of(node)))
            .collect();
        let inner = LabState {
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
            carriers: cable_carrier::Carriers::default(),
            restore,
            reaper: Mutex::new(None),
        });
        let supervisor = Self { shared, lock };
        match supervisor.start_all(signals) {
            Ok(()) => Ok(supervisor),
            Err(error) => {
                // The caller reports the sentence: nothing is logged in addition.
                supervisor.shared.update(|inner| inner.phase = LabPhase::Stopping);
                supervisor.end_everything(false)?;
                Err(error)
            }
        }
    }

    fn start_all(&self, mut signals: Signals) -> Result<()> {
        let shared = &self.shared;
        *shared.reaper.lock() = Some(Reaper::start(&shared.state)?);
        let stopper = Arc::clone(shared);
        thread("signals", move || {
            for _ in signals.forever() {
                stopper.update(|inner| (inner.phase, inner.interrupted) = (LabPhase::Stopping, true));
            }
        })?;
        server::listen(Arc::clone(shared))?;
        let vnicd = vnicd_process::Vnicd::start(shared)?;
        let keeper = Arc::clone(shared);
        thread("vnicd", move || vnicd_process::keep(&keeper, vnicd))?;
        let watcher = Arc::clone(shared);
        thread("watch", move || settings_watch::watch(&watcher))?;
        let boots = Arc::clone(shared);
        thread("boots", move || boot_watch::watch(&boots))?;
        restore::start(shared)?;
        for node in &shared.lab().nodes {
            let (shared, node) = (Arc::clone(shared), node.clone());
            thread("node", move || guest_process::keep(&shared, &node))?;
        }
        Ok(())
    }

    /// Waits until every guest is ready, or runs as far as that is visible without an agent; `progress` is called with
    /// every change. A guest that gives signs of life is waited for: it prints, is reset, or its turn to boot has not
    /// come.
    ///
    /// # Errors
    /// Fails when a guest shows nothing for `patience`, takes ten times as long, or ends, or the lab is stopped.
    pub fn wait_up(&self, patience: Duration, mut progress: impl FnMut(&LabStatus)) -> Result<LabStatus> {
        let mut seen = None;
        let shared = &self.shared;
        loop {
            let next_look = shared.inner().next_deadline(patience);
            let news =
                |inner: &mut LabState| (seen != Some(inner.version)).then(|| (inner.version, shared.status(inner)));
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
            // A guest may have ended since that status was made.
            let up = |inner: &mut LabState| {
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

    /// Checks that all booting guests have shown something lately.
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
        let said = last_line(&vnicd_process::last_words(
            &self.shared.state.file(&format!("{first}.log")),
        ));
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

    /// Returns the lab's folder.
    #[must_use]
    pub fn state(&self) -> &StateDir {
        &self.shared.state
    }

    /// Waits until the lab is to end: by a signal, `weft down`, or a failure.
    pub fn wait_for_end(&self) {
        self.shared
            .wait_for(None, |inner| (inner.phase == LabPhase::Stopping).then_some(()));
    }

    /// Does `work` in a thread beside the lab; returns when it is done or the lab is being ended.
    ///
    /// # Errors
    /// Fails with the error of `work`, or with the reason why the lab is being ended.
    pub fn run_beside<T: Send + 'static>(&self, work: impl FnOnce(Client) -> Result<T> + Send + 'static) -> Result<T> {
        let shared = Arc::clone(&self.shared);
        let outcome = Arc::new(Mutex::new(None));
        let place = Arc::clone(&outcome);
        thread("work", move || {
            let result = work(Client::new(shared.state.clone()));
            *place.lock() = Some(result);
            shared.update(|_| ());
        })?;
        let finished = |inner: &mut LabState| {
            let result = outcome.lock().take();
            // A lab that is being ended fails all work in it: the reason of its end is the better sentence.
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

    /// Ends everything and removes the lab's folder. The logs are kept if the lab ended because something failed.
    ///
    /// # Errors
    /// Fails with the reason why the lab ended, if that was a failure, or with what could not be removed.
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

    /// Ends everything because of `why`, which is returned with the place of the logs. Nothing is kept of a lab that
    /// was interrupted.
    #[must_use]
    pub fn give_up(self, why: anyhow::Error) -> anyhow::Error {
        self.shared.update(|inner| inner.phase = LabPhase::Stopping);
        match self.end_everything(!why.is::<Interrupted>()) {
            Ok(Some(kept)) => anyhow::anyhow!("{why:#}; logs are in {} until `weft clean`", kept.display()),
            Ok(None) => why,
            Err(error) => anyhow::anyhow!("{why:#}; {error:#}"),
        }
    }

    /// Ends everything, and returns the folder with the logs if they were to be kept and there are any.
    fn end_everything(self, keep_logs: bool) -> Result<Option<PathBuf>> {
        let Self { shared, lock } = self;
        guest_process::signal_all(&shared, Signal::TERM);
        let all_off = |inner: &mut LabState| inner.nodes.values().all(|guest| guest.process.is_none()).then_some(());
        if shared.wait_for(Some(Instant::now() + QUIT_TIMEOUT), all_off).is_none() {
            guest_process::signal_all(&shared, Signal::KILL);
            shared.wait_for(Some(Instant::now() + QUIT_TIMEOUT), all_off);
        }
        vnicd_process::end(&shared);
        // A save in progress has noticed the end by now: its guests are gone, and it removes what it wrote.
        drop(shared.saving.lock());
        let kept = keep_logs.then(|| shared.state.keep_logs()).flatten();
        let removed = shared.state.remove(lock);
        let reaper = shared.reaper.lock().take();
        if let Some(reaper) = reaper {
            reaper.finish();
        }
        removed.map(|()| kept)
    }
}

/// Makes a handle of a child process that has not been waited for, so that its number still belongs to it.
fn handle_of(pid: u32) -> Result<OwnedFd> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .context("no process number")?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).context("cannot get hold of a child process")
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
