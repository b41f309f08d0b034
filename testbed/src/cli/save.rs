//! `weft save`, and `weft up --restore`, which goes on with what it wrote.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::{
    args::{Cli, SaveArgs, UpArgs},
    client, lab,
};
use crate::{
    qemu::Qemu,
    report::{progress::Progress, say, table},
    save::Saved,
    state::StateDir,
    supervisor::{Supervisor, means_of_saved, protocol::Request},
};

pub(super) fn save(cli: &Cli, args: &SaveArgs) -> Result<()> {
    let client = client(cli)?;
    let folder = args.folder.clone();
    let folder = folder.unwrap_or_else(|| PathBuf::from(format!("{}.save", client.state().lab())));
    let request = Request::Save {
        // The supervisor has a working directory of its own.
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
    if cli.json {
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
    say(format_args!("weft up --restore {} goes on with it", folder.display()));
    Ok(())
}

/// Goes on with a saved lab.
pub(super) fn restore(cli: &Cli, args: &UpArgs, folder: &Path) -> Result<()> {
    let saved = Saved::open(folder)?;
    let name = &saved.manifest().lab.name;
    ensure!(
        args.supervise || !StateDir::of(name).is_alive(),
        "the lab {name} is running already: `weft down --lab {name}` ends it"
    );
    let qemu = Qemu::discover()?;
    saved.check_means(qemu.version(), args.guests.accel)?;
    if args.detach {
        return lab::up_detached(cli, args, name);
    }
    lab::leave_terminal(args)?;
    let progress = Progress::new(0);
    saved.verify(&mut |file| {
        progress.say(&format!(
            "checking {} ({} MiB)",
            file.name,
            file.bytes.div_ceil(1 << 20)
        ))
    })?;
    let supervisor = Supervisor::restore(&saved, means_of_saved(&saved, qemu))?;
    lab::keep(cli, args, supervisor, &progress)
}
