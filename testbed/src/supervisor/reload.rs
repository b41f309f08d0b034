//! Swaps in a rebuilt `vnicd` under running guests: tries the new program, drains the old one, and goes back to the old
//! program if the new one fails. The module `vnicd_process` starts and keeps `vnicd`, which connects to the guests'
//! QEMUs by itself.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::fd::AsRawFd;

use super::{LabState, Shared, vnicd_process::Vnicd};
use crate::{
    digest::digest_of,
    supervisor_client::protocol::{LabPhase, ReloadReport, VnicdBuild},
    vnicd_client::{Drained, Info, config::Config},
};

/// Time that the old `vnicd` may take to end, and the new one to start, or the old one again.
const SWAP_TIMEOUT: Duration = Duration::from_secs(90);

/// Time that guests are waited for: a new `vnicd` connects to their QEMUs immediately, and they to their guests when
/// these allow it.
const RETURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which `vnicd` is polled for guests that have come back.
const RETURN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Number of bytes of a program's digest that are shown: enough to distinguish two builds.
const DIGEST_BYTES: usize = 6;

/// The program that `vnicd` is started from, and the swap in progress.
#[derive(Debug)]
pub(super) struct State {
    program: Program,
    /// The former program during a swap, until the new one has started.
    before: Option<Program>,
    in_progress: bool,
    /// Reason why the new program did not start.
    failure: Option<String>,
    /// Number that grows with every `vnicd` that was started.
    starts: u64,
}

/// A program, named by its path or, where that may name another one by now, by a handle of the file.
#[derive(Debug)]
enum Program {
    Path(PathBuf),
    Open(File),
}

impl State {
    /// Starts with the program beside this one.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            program: Program::Path(crate::programs::find("vnicd")?),
            before: None,
            in_progress: false,
            failure: None,
            starts: 0,
        })
    }

    /// Returns a path that starts the program in force.
    pub(super) fn program(&self) -> PathBuf {
        match &self.program {
            Program::Path(path) => path.clone(),
            // The path contains our number instead of "self", since our child opens it.
            Program::Open(file) => format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into(),
        }
    }

    /// Returns whether `vnicd` ends because it is swapped.
    pub(super) fn is_in_progress(&self) -> bool {
        self.in_progress
    }

    /// Puts the program from before the swap in force again, if there is one.
    pub(super) fn go_back(&mut self, why: &anyhow::Error) -> bool {
        match self.before.take() {
            Some(before) => {
                self.program = before;
                self.failure = Some(format!("{why:#}"));
                true
            }
            None => false,
        }
    }

    /// Notes that the program in force has started.
    pub(super) fn started(&mut self) {
        self.before = None;
        self.in_progress = false;
        self.starts += 1;
    }

    fn give_up(&mut self) {
        if let Some(before) = self.before.take() {
            self.program = before;
        }
        self.in_progress = false;
    }
}

/// Carries out [`Request::Reload`](crate::supervisor_client::protocol::Request::Reload).
pub(super) fn reload(shared: &Arc<Shared>, program: &Path) -> Result<ReloadReport> {
    // This lock is kept while the lab is changed or saved.
    let _turn = shared.file.lock();
    let old_pid = begin(shared)?;
    let report = swap(shared, program, old_pid);
    end(shared, old_pid, report.is_err());
    report
}

fn swap(shared: &Arc<Shared>, program: &Path, old_pid: u32) -> Result<ReloadReport> {
    let new_file = File::open(program).with_context(|| format!("cannot read {}", program.display()))?;
    // This is the file behind the running process, whatever its path names by now.
    let old_file = File::open(format!("/proc/{old_pid}/exe")).context("cannot get hold of the running vnicd")?;
    let (old_digest, new_digest) = (digest(&old_file)?, digest(&new_file)?);
    let config = shared.settings().vnicd_config(&shared.lab(), &shared.state)?;
    let tried = trial(shared, program, config).context("the new vnicd does not start, so the old one continues")?;

    let Handover {
        info,
        drained,
        began,
        went_back,
    } = hand_over(shared, |inner| {
        let before = std::mem::replace(&mut inner.reload.program, Program::Path(program.to_owned()));
        // A path that still names the running file is better to show than a handle.
        let before = match before {
            Program::Path(path) if is_same_file(&path, &old_file) => Program::Path(path),
            _ => Program::Open(old_file),
        };
        inner.reload.before = Some(before);
    })?;
    let served = served(&info);
    let Return { now, missing, at } = wait_for_guests(shared, &served)?;
    let digest = if went_back.is_some() { &old_digest } else { &new_digest };
    let version = if went_back.is_some() {
        &info.version
    } else {
        &tried.version
    };
    Ok(ReloadReport {
        old: VnicdBuild {
            version: info.version.clone(),
            digest: old_digest.clone(),
            pid: old_pid,
        },
        new: VnicdBuild {
            version: version.clone(),
            digest: digest.clone(),
            pid: now.pid,
        },
        went_back,
        lost_frames: drained.on_links + drained.in_dma,
        cards: served.len(),
        missing,
        pause_ms: u64::try_from((at - began).as_millis()).unwrap_or(u64::MAX),
    })
}

/// A handover: one `vnicd` has ended in order, and the next one has started.
struct Handover {
    /// Description that the old one gave of itself.
    info: Info,
    drained: Drained,
    began: Instant,
    /// Reason why the next one is of the old program again.
    went_back: Option<String>,
}

/// Ends the running `vnicd` in order and waits for the next one, which `next` prepares under the lock.
fn hand_over(shared: &Shared, next: impl FnOnce(&mut LabState)) -> Result<Handover> {
    let mut vnicd = shared.vnicd()?;
    let info = vnicd.info()?;
    let starts = shared.inner().reload.starts;
    let began = Instant::now();
    let drained = vnicd.drain()?;
    shared.settings().hand_over(&drained);
    shared.update(next);
    vnicd.shutdown()?;
    drop(vnicd);
    let again = |inner: &mut LabState| match inner.phase {
        LabPhase::Stopping => Some(None),
        _ => (inner.reload.starts > starts).then(|| Some(inner.reload.failure.take())),
    };
    let went_back = match shared.wait_for(Some(Instant::now() + SWAP_TIMEOUT), again) {
        Some(Some(failure)) => failure,
        Some(None) => bail!("the lab is being ended"),
        None => bail!("no vnicd has started within {} s", SWAP_TIMEOUT.as_secs()),
    };
    Ok(Handover {
        info,
        drained,
        began,
        went_back,
    })
}

/// Restarts the program in force with the current settings and lab, under running guests; returns when those that had a
/// `vnicd` before have it again.
pub(super) fn restart_vnicd(shared: &Arc<Shared>) -> Result<()> {
    let pid = begin(shared)?;
    let outcome = hand_over(shared, |_| ());
    end(shared, pid, outcome.is_err());
    let lab = shared.lab();
    let mut stays = served(&outcome?.info);
    stays.retain(|card| {
        lab.ports()
            .any(|(name, node, _)| name == card.name && super::guest_process::runs(shared, &node.name))
    });
    let Return { missing, .. } = wait_for_guests(shared, &stays)?;
    ensure!(
        missing.is_empty(),
        "these cards have not found their guests again: {}",
        missing.join(", ")
    );
    Ok(())
}

/// Checks that the program in force accepts this configuration.
pub(super) fn trial_of_settings(shared: &Shared, config: Config) -> Result<()> {
    let program = shared.inner().reload.program();
    trial(shared, &program, config).map(|_| ())
}

/// Notes that `vnicd` is about to be replaced in order; returns the process of the running one.
fn begin(shared: &Shared) -> Result<u32> {
    shared.update(|inner| {
        ensure!(inner.phase != LabPhase::Stopping, "the lab is being ended");
        ensure!(!inner.reload.in_progress, "a reload is in progress already");
        let pid = inner.vnicd_pid.context("vnicd is just being started")?;
        inner.reload.in_progress = true;
        inner.reload.failure = None;
        Ok(pid)
    })
}

/// Notes the end of a swap; if nothing was started, the old `vnicd` with that process continues.
fn end(shared: &Shared, old_pid: u32, failed: bool) {
    shared.update(|inner| {
        if failed && inner.vnicd_pid == Some(old_pid) {
            inner.reload.give_up();
        }
    });
}

/// Starts the program beside the running one, with that configuration and sockets without a listener, and ends it
/// again.
fn trial(shared: &Shared, program: &Path, mut config: Config) -> Result<Info> {
    for (number, port) in config.ports.iter_mut().enumerate() {
        let socket = shared.state.socket(&format!("trial.{number}.sock"))?;
        port.connect = Some(socket);
    }
    let outcome = Vnicd::start_at(shared, program, "trial", &config, None);
    let info = outcome.map(|(vnicd, info)| {
        drop(vnicd);
        info
    });
    // The program was killed at the end, and leaves its socket behind.
    for path in ["trial.json", "trial.sock", "trial.log"].map(|name| shared.state.file(name)) {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %path.display(), "left behind by the trial of a vnicd");
            }
            _ => {}
        }
    }
    info
}

/// A card that had a guest whose driver used it, and how many of its rings ran: frames flow only over those.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Served {
    name: String,
    rings: u32,
}

/// The cards with rings that run. One without a driver has no traffic to come back.
fn served(info: &Info) -> Vec<Served> {
    let running = info
        .ports
        .iter()
        .filter(|port| port.connected && port.rings_started > 0);
    let card = |port: &vnicd_protocol::PortInfo| Served {
        name: port.name.clone(),
        rings: port.rings_started,
    };
    running.map(card).collect()
}

/// Returns the names of those cards whose rings do not all run, as they did `before`. A QEMU that is stopped is connected, and no more.
fn not_back(before: &[Served], info: &Info) -> Vec<String> {
    let now = served(info);
    let is_back = |card: &Served| {
        now.iter()
            .any(|found| found.name == card.name && found.rings >= card.rings)
    };
    let missing = before.iter().filter(|card| !is_back(card));
    missing.map(|card| card.name.clone()).collect()
}

/// The end of the wait for the guests of cards.
struct Return {
    /// Description that `vnicd` gave of itself at last.
    now: Info,
    /// Names of the cards whose guests have not come back.
    missing: Vec<String>,
    /// When the last of the others came back.
    at: Instant,
}

/// Waits until `vnicd` serves the guests of all these cards again, but not for ever.
fn wait_for_guests(shared: &Shared, before: &[Served]) -> Result<Return> {
    let deadline = Instant::now() + RETURN_TIMEOUT;
    let (mut missing_before, mut at) = (before.len(), Instant::now());
    loop {
        let now = shared.vnicd()?.info()?;
        let missing = not_back(before, &now);
        if missing.len() < missing_before {
            (missing_before, at) = (missing.len(), Instant::now());
        }
        if missing.is_empty() || Instant::now() > deadline {
            return Ok(Return { now, missing, at });
        }
        if shared.pause(RETURN_POLL_INTERVAL) {
            bail!("the lab is being ended");
        }
    }
}

fn is_same_file(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of_path = std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let of_file = file.metadata().map(|found| (found.dev(), found.ino()));
    matches!((of_path, of_file), (Ok(a), Ok(b)) if a == b)
}

/// Returns the first bytes of the file's SHA-256, in hexadecimal.
fn digest(file: &File) -> Result<String> {
    let mut digest = digest_of(file).context("cannot read a vnicd")?;
    digest.truncate(2 * DIGEST_BYTES);
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            program: Program::Path("/new/vnicd".into()),
            before: Some(Program::Path("/old/vnicd".into())),
            in_progress: true,
            failure: None,
            starts: 1,
        }
    }

    #[test]
    fn a_program_that_does_not_start_is_left_for_the_one_before_and_only_once() {
        let why = anyhow::anyhow!("it ended immediately");
        let mut swapped = state();
        assert!(swapped.go_back(&why));
        assert_eq!(swapped.program(), Path::new("/old/vnicd"));
        assert_eq!(swapped.failure.as_deref(), Some("it ended immediately"));
        assert!(!swapped.go_back(&why), "there is none before that");

        let mut swapped = state();
        swapped.started();
        assert!(!swapped.is_in_progress() && swapped.starts == 2);
        assert!(!swapped.go_back(&why), "once it has started, it is the one");
        assert_eq!(swapped.program(), Path::new("/new/vnicd"));
    }

    /// What a `vnicd` says of cards by name, whether they are connected, and running rings.
    fn info(cards: &[(&str, bool, u32)]) -> Info {
        let port = |&(name, connected, rings): &(&str, bool, u32)| {
            serde_json::json!({
                "name": name, "switch": "s1", "mac": null, "mac_in_use": null, "socket": "/s", "mode": "connect",
                "connected": connected, "link_up": true, "rings_started": rings, "failed": null, "features": [],
                "queue_pairs": 1, "mtu": 1500,
            })
        };
        let ports: Vec<_> = cards.iter().map(port).collect();
        let said = serde_json::json!({
            "version": "0", "pid": 1, "uptime_ns": 1, "ports": ports, "strategies": [],
        });
        serde_json::from_value(said).expect("what vnicd says")
    }

    #[test]
    fn a_card_is_back_when_its_rings_run_and_is_named_otherwise() {
        let before = served(&info(&[
            ("a", true, 2),
            ("b", true, 2),
            ("no-driver", true, 0),
            ("off", false, 0),
        ]));
        assert_eq!(
            before.len(),
            2,
            "a guest that boots, and one that is off, are not counted as back"
        );
        let stopped = info(&[
            ("a", true, 2),
            ("b", true, 0),
            ("no-driver", true, 0),
            ("off", false, 0),
        ]);
        assert_eq!(
            not_back(&before, &stopped),
            ["b"],
            "connected, and its QEMU does nothing"
        );
        let gone = info(&[
            ("a", false, 0),
            ("b", true, 2),
            ("no-driver", false, 0),
            ("off", false, 0),
        ]);
        assert_eq!(not_back(&before, &gone), ["a"]);
        let all = info(&[
            ("a", true, 2),
            ("b", true, 2),
            ("no-driver", true, 2),
            ("off", false, 0),
        ]);
        assert!(not_back(&before, &all).is_empty());
    }

    #[test]
    fn a_file_whose_path_names_another_one_by_now_can_still_be_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        weft_guest_driver_testkit::copy_program(Path::new("/bin/true"), &path);
        let open = File::open(&path).expect("it is there");
        assert!(is_same_file(&path, &open));
        let before = digest(&open).expect("readable");
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "something else").expect("written");
        assert!(!is_same_file(&path, &open));
        assert_eq!(before.len(), 2 * DIGEST_BYTES);
        assert_ne!(digest(&File::open(&path).expect("there")).expect("readable"), before);
        let mut swapped = state();
        swapped.program = Program::Open(open);
        let status = std::process::Command::new(swapped.program())
            .status()
            .expect("it starts");
        assert!(status.success());
    }
}
