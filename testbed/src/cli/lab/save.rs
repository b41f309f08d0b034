//! `weft save`: writes a running lab to a folder.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
};

use anyhow::{Context, Result};

use crate::{
    cli::common::{CommonOptions, client, show},
    report::{progress::Progress, say, table},
    supervisor_client::protocol::Request,
};

/// Save a running lab in a folder, for `weft up --restore`.
///
/// The folder holds the guests, the settings of cards and cables, and what the guests boot. All guests are stopped at
/// the same time, written to the folder one after the other, and resumed (or with --stop, ended). Frames in flight
/// arrive before that, unless a cable delays them by more than half a second: those are lost, as with a cable that is
/// pulled.
///
/// A restored lab has its guests with their memory, processes, open connections and timers, and the settings that were in force.
/// Counters start at 0, switches learn addresses and build their spanning trees again, captures and traces are not there, commands of
/// `weft exec` have ended, and connections to the outside (`uplink`) are gone. The clocks of the guests continue from where they
/// stopped: `weft exec all -- date -s @$(date +%s)` sets them.
///
/// Nodes that boot a disk of their own, or that mount folders of this machine, cannot be saved.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft save", "save to LAB.save and keep running"),
    ("weft save --stop before-the-exam", "save and stop the lab"),
    ("weft save --force", "replace the previous save"),
]))]
pub(in crate::cli) struct SaveArgs {
    /// The folder to write (default: LAB.save). It needs about as much space as the guests' memory.
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Replace the folder if it contains a saved lab.
    #[arg(long)]
    force: bool,
    /// Stop the lab after saving instead of resuming the guests.
    #[arg(long)]
    stop: bool,
}

pub(in crate::cli) fn run(options: &CommonOptions, args: &SaveArgs) -> Result<()> {
    let client = client(options)?;
    let folder = args.folder.clone();
    let folder = folder.unwrap_or_else(|| PathBuf::from(format!("{}.save", client.state().lab())));
    let request = Request::Save {
        // The supervisor has a different working directory.
        target: std::path::absolute(&folder).with_context(|| format!("cannot write {}", folder.display()))?,
        replace: args.force,
        stop: args.stop,
    };
    let progress = Progress::new(0);
    let report = client.save(&request, |what, bytes| {
        // A terminal shows one line that changes; elsewhere each change would be a line.
        let moving = io::stderr().is_terminal() && bytes > 0;
        progress.say(&if moving {
            format!("{what} ({} MiB)", bytes >> 20)
        } else {
            what.to_owned()
        });
    })?;
    progress.finish();
    if options.json {
        return table::print_json(&report);
    }
    let lost = match report.lost_frames {
        0 => String::new(),
        1 => ", 1 frame on a cable was lost".to_owned(),
        frames => format!(", {frames} frames on cables were lost"),
    };
    say(format_args!(
        "lab {} is saved in {} ({} {}, {} MiB){}{lost}",
        report.lab,
        folder.display(),
        report.nodes.len(),
        if report.nodes.len() == 1 { "node" } else { "nodes" },
        report.bytes.div_ceil(1 << 20),
        if report.ended {
            " and has ended".to_owned()
        } else {
            format!("; its guests were stopped for {:.1} s", report.paused_ms as f64 / 1e3)
        }
    ));
    say(format_args!("weft up --restore {} continues it", folder.display()));
    Ok(())
}
