//! `up --detach`: runs the supervisor as another process than the verb that starts it.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{keep::UP_WORD, ps::show_up, up::UpArgs};
use crate::{
    cli::common::{CommonOptions, failure::EXIT_INTERRUPTED},
    state::StateDir,
    supervisor_client::client::Client,
};

/// Starts the supervisor of `lab` as a separate process, and waits until the lab is up.
pub(super) fn start(options: &CommonOptions, args: &UpArgs, lab: &str) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    let mut command = Command::new(std::env::current_exe().context("cannot find the running weft")?);
    command.args(["up", "--supervise", "--accel", args.guests.accel.name()]);
    command.args(["--boot-timeout", &args.guests.boot_timeout.to_string()]);
    match &args.restore {
        Some(folder) => command.arg("--restore").arg(folder),
        None => command.arg(&args.file),
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the supervisor")?;
    let said = child.stdout.take().context("the supervisor has no output")?;
    let pid = rustix::process::Pid::from_child(&child);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            // The supervisor ends everything that it has started so far, and then this process ends too.
            _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    })?;
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    if line.trim() != UP_WORD {
        // The supervisor's sentence is on standard error already.
        let status = child.wait()?;
        std::process::exit(status.code().unwrap_or(EXIT_INTERRUPTED.into()));
    }
    let status = Client::new(StateDir::of(lab)).status()?;
    show_up(options, status, "`weft down`")
}
