//! The process that keeps a lab: it waits until the lab is up, and then for its end.

use std::{
    fs::File,
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{ps::show_up, up::UpArgs};
use crate::{
    cli::common::CommonOptions,
    report::{progress::Progress, say},
    supervisor::Supervisor,
    supervisor_client::protocol::{LabStatus, NodePhase},
};

/// Word that the supervisor behind `up --detach` prints when the lab is up.
pub(super) const UP_WORD: &str = "up";

/// Moves the supervisor behind `up --detach` to a session of its own, since the terminal it was started from may close.
pub(super) fn leave_terminal(args: &UpArgs) -> Result<()> {
    if args.supervise {
        rustix::process::setsid().context("cannot leave the terminal")?;
    }
    Ok(())
}

/// Waits until a lab that was started is up, and keeps it until its end.
pub(super) fn keep(options: &CommonOptions, args: &UpArgs, supervisor: Supervisor, progress: &Progress) -> Result<()> {
    let name = supervisor.state().lab().to_owned();
    let patience = Duration::from_nanos(args.guests.boot_timeout.0);
    let status = match supervisor.wait_up(patience, |status| {
        progress.say(&boot_progress(status, args.restore.is_some()))
    }) {
        Ok(status) => status,
        Err(error) => {
            progress.finish();
            return Err(supervisor.give_up(error));
        }
    };
    progress.finish();
    if args.supervise {
        return serve_detached(supervisor);
    }
    show_up(options, status, "Ctrl-C")?;
    supervisor.wait_for_end();
    say(format_args!("ending lab {name}"));
    supervisor.stop()
}

fn boot_progress(status: &LabStatus, restored: bool) -> String {
    let of = |phase| status.nodes.iter().filter(|node| node.phase == phase).count();
    let count = status.nodes.len();
    let nodes = if count == 1 { "node" } else { "nodes" };
    let what = if restored { "restoring" } else { "booting" };
    let mut text = format!(
        "{what} {count} {nodes} under {}: {} ready",
        status.accel,
        of(NodePhase::Ready)
    );
    for phase in [NodePhase::NoAgent, NodePhase::Booting] {
        if of(phase) > 0 {
            text += &format!(", {} {}", of(phase), phase.name());
        }
    }
    text
}

/// Serves a lab behind `up --detach` once it is up: the supervisor detaches from the verb that started it.
fn serve_detached(supervisor: Supervisor) -> Result<()> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(supervisor.state().file("weft.log"))?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{UP_WORD}")?;
    stdout.flush()?;
    rustix::stdio::dup2_stdout(&log)?;
    rustix::stdio::dup2_stderr(&log)?;
    supervisor.wait_for_end();
    let state = supervisor.state().clone();
    let ended = supervisor.stop();
    if let Err(why) = &ended {
        // The log is gone with its folder, and the output of this process has no reader.
        state.note_end(&format!("{why:#}"))?;
    }
    ended
}
