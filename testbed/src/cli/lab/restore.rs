//! `weft up --restore`: continues a lab that `weft save` wrote.

use std::path::Path;

use anyhow::{Result, ensure};

use super::{
    background,
    keep::{keep, leave_terminal},
    up::UpArgs,
};
use crate::{
    cli::common::CommonOptions,
    qemu::Qemu,
    report::progress::Progress,
    save::Saved,
    state::StateDir,
    supervisor::{Supervisor, means_of_saved},
};

/// Continues a saved lab.
pub(super) fn restore(options: &CommonOptions, args: &UpArgs, folder: &Path) -> Result<()> {
    let saved = Saved::open(folder)?;
    let name = &saved.manifest().lab.name;
    ensure!(
        args.supervise || !StateDir::of(name).is_alive(),
        "the lab {name} is running already: `weft down --lab {name}` ends it"
    );
    let qemu = Qemu::discover()?;
    saved.check_means(qemu.version(), args.guests.accel)?;
    if args.detach {
        return background::start(options, args, name);
    }
    leave_terminal(args)?;
    let progress = Progress::new(0);
    saved.verify(&mut |file| {
        progress.say(&format!(
            "checking {} ({} MiB)",
            file.name,
            file.bytes.div_ceil(1 << 20)
        ))
    })?;
    let supervisor = Supervisor::restore(&saved, means_of_saved(&saved, qemu))?;
    keep(options, args, supervisor, &progress)
}
