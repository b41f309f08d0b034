//! Keeps `vnicd` alive: starts it with the remembered settings, notices its end, starts it again. The module
//! `settings_in_force` knows the settings; guests reconnect by themselves.

use std::{
    fs::File,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, pidfd_send_signal};

use super::{Shared, cable_carrier};
use crate::{
    log_tail::read_tail,
    qemu::spawn_bound,
    vnicd_client::{Info, VnicdClient, config::Config},
};

/// Time that a new `vnicd` may take until its control socket answers.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause between two attempts to connect to a control socket that does not exist yet.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);

/// Lifetime below which a `vnicd` counts as failing: after several in a row, another start is useless.
const SHORT_LIFE: Duration = Duration::from_secs(5);
/// Number of consecutive lives shorter than [`SHORT_LIFE`] that are tolerated: more than a user kills by hand.
const SHORT_LIVES_MAX: u32 = 30;

/// Number of bytes of its log that are shown when it fails.
const LAST_WORDS_LEN_MAX: u64 = 1500;

/// A running `vnicd`.
pub(super) struct Vnicd {
    child: Child,
}

impl Vnicd {
    /// Starts `vnicd` with the remembered settings and waits until it answers.
    pub(super) fn start(shared: &Shared) -> Result<Self> {
        let lab = shared.lab();
        let mut config = shared.settings().vnicd_config(&lab, &shared.state)?;
        let running = lab
            .ports()
            .map(|(_, node, _)| super::guest_process::runs(shared, &node.name));
        for (port, runs) in config.ports.iter_mut().zip(running) {
            port.returns = runs;
        }
        let program = shared.inner().reload.program();
        let metrics = shared.state.socket("metrics.sock")?;
        let (vnicd, _) = Self::start_at(shared, &program, "vnicd", &config, Some(&metrics))?;
        let (pid, handle) = (vnicd.child.id(), super::handle_of(vnicd.child.id())?);
        shared.update(|inner| (inner.vnicd_pid, inner.vnicd) = (Some(pid), Some(handle)));
        Ok(vnicd)
    }

    /// Starts `program` with this configuration, and files in the lab's folder that begin with `name`; waits until it
    /// answers.
    pub(super) fn start_at(
        shared: &Shared,
        program: &Path,
        name: &str,
        config: &Config,
        metrics: Option<&Path>,
    ) -> Result<(Self, Info)> {
        let config_path = shared.state.file(&format!("{name}.json"));
        // A path that is no text is the one thing in it that JSON cannot say.
        let bytes = serde_json::to_vec_pretty(config).context("the folder of the lab is not named in UTF-8")?;
        std::fs::write(&config_path, bytes).with_context(|| format!("cannot write {}", config_path.display()))?;
        let control = shared.state.socket(&format!("{name}.sock"))?;
        let log_path = shared.state.file(&format!("{name}.log"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log_path)
            .with_context(|| format!("cannot write {}", log_path.display()))?;
        let logged = log.metadata().map_or(0, |found| found.len());
        let mut command = Command::new(program);
        command
            .arg0("vnicd")
            .arg("--config")
            .arg(&config_path)
            .arg("--control")
            .arg(&control);
        if let Some(metrics) = metrics {
            command.arg("--metrics-socket").arg(metrics);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = spawn_bound(command).with_context(|| format!("cannot start {}", program.display()))?;
        let mut vnicd = Self { child };
        shared.watch_child(vnicd.child.id());
        let info = vnicd.wait_until_it_answers(&control, (&log_path, logged))?;
        Ok((vnicd, info))
    }

    fn wait_until_it_answers(&mut self, control: &Path, (log, logged): (&Path, u64)) -> Result<Info> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "vnicd ended immediately ({}): {}",
                    describe(status),
                    words_since(log, logged)
                );
            }
            // A `vnicd` that was killed may have left a socket file: only an answer from this one counts.
            let answer = VnicdClient::connect(control).and_then(|mut client| client.info());
            if let Ok(info) = answer
                && info.pid == self.child.id()
            {
                return Ok(info);
            }
            if Instant::now() > deadline {
                bail!(
                    "vnicd does not answer after {} s: {}",
                    START_TIMEOUT.as_secs(),
                    words_since(log, logged)
                );
            }
            std::thread::sleep(CONNECT_PAUSE);
        }
    }
}

impl Drop for Vnicd {
    fn drop(&mut self) {
        // Either it was waited for already, or it must not be left behind.
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            _ = self.child.wait();
        }
    }
}

/// Ends `vnicd` at the end of a lab, first with SIGTERM, so that it removes its sockets.
pub(super) fn end(shared: &Shared) {
    for signal in [Signal::TERM, Signal::KILL] {
        let inner = shared.inner();
        let Some(handle) = &inner.vnicd else { return };
        _ = pidfd_send_signal(handle, signal);
        drop(inner);
        let ended = |inner: &mut super::LabState| inner.vnicd.is_none().then_some(());
        if shared
            .wait_for(Some(Instant::now() + super::QUIT_TIMEOUT), ended)
            .is_some()
        {
            return;
        }
    }
}

/// Runs the thread that starts `vnicd` again whenever it ends; gives up with a sentence when that does not help.
pub(super) fn keep(shared: &Arc<Shared>, mut vnicd: Vnicd) {
    let mut short_lives = 0;
    let mut started = Instant::now();
    loop {
        let ended = vnicd.child.wait();
        shared.update(|inner| (inner.vnicd_pid, inner.vnicd) = (None, None));
        if shared.is_stopping() {
            return;
        }
        let how = ended.map_or_else(|error| error.to_string(), describe);
        let reloads = shared.inner().reload.is_in_progress();
        short_lives = if reloads {
            0
        } else if started.elapsed() < SHORT_LIFE {
            short_lives + 1
        } else {
            0
        };
        if !reloads {
            tracing::warn!(%how, "vnicd has ended: starting it again");
        }
        // The next one begins with every change that this one reported.
        let drained = |inner: &mut super::LabState| (!inner.watching).then_some(());
        shared.wait_for(Some(Instant::now() + super::WATCH_DRAIN_TIMEOUT), drained);
        let again = if short_lives < SHORT_LIVES_MAX {
            started = Instant::now();
            match Vnicd::start(shared) {
                // A program that is on trial does not start, so the former program does.
                Err(error) if shared.update(|inner| inner.reload.go_back(&error)) => Vnicd::start(shared),
                outcome => outcome,
            }
        } else {
            let log = shared.state.file("vnicd.log");
            Err(anyhow::anyhow!("vnicd ends repeatedly ({how}): {}", last_words(&log)))
        };
        match again {
            Ok(new) => {
                vnicd = new;
                shared.settings().handed_over();
                shared.update(|inner| {
                    inner.vnicd_restarts += u32::from(!reloads);
                    inner.reload.started();
                });
                if let Err(error) = cable_carrier::keep_pulled(shared) {
                    return shared.fail(error);
                }
            }
            Err(error) => return shared.fail(error),
        }
    }
}

/// Describes how a process ended.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "for no known reason".to_owned(),
    }
}

/// Returns the end of a log file, from the start of a line.
pub(super) fn last_words(log: &Path) -> String {
    words_since(log, 0)
}

/// Returns the end of what was written to a log file behind its first `start` bytes.
fn words_since(log: &Path, start: u64) -> String {
    let bytes = read_tail(log, start, LAST_WORDS_LEN_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    if text.is_empty() {
        "it printed nothing".to_owned()
    } else {
        text.to_owned()
    }
}
