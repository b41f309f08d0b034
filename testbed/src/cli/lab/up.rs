//! `weft up`: starts a lab, or reconciles a running one with its file.

use std::path::PathBuf;

use anyhow::Result;

use super::{
    background, import,
    keep::{keep, leave_terminal},
    reconcile::{reconcile, show_plan},
    restore::restore,
};
use crate::{
    cli::common::{CommonOptions, GuestArgs, here_as_json},
    lab::{Lab, plan},
    lab_file, prepare,
    report::progress::Progress,
    state::StateDir,
    supervisor::Supervisor,
    supervisor_client::client::Client,
};

/// Start a lab and keep it until Ctrl-C, or with -d in the background. Update a lab that is already running.
///
/// A running lab is compared with its file, and the plan is shown. Nodes, switches and trunks are added and removed, settings are
/// changed, and everything else keeps running. Settings that were changed meanwhile (`weft link set`, `nicctl`) return to those of
/// the file. Nodes whose guests would see a change (memory, MTU, …) are restarted.
#[derive(Debug, clap::Args)]
#[command(add = here_as_json(&[
    ("weft up", "start the lab of lab.toml; Ctrl-C ends it"),
    ("weft up -d course.toml", "leave it running"),
    ("weft up --dry-run", "show what a changed file would change"),
    ("weft up -d --accel tcg", "emulate the guests even if KVM works"),
    ("weft up -d --restore pair.save", "continue a saved lab"),
]))]
pub(in crate::cli) struct UpArgs {
    /// The lab file.
    #[arg(default_value = "lab.toml")]
    pub(super) file: PathBuf,
    /// Return when the lab is up, and leave it running.
    #[arg(short, long)]
    pub(super) detach: bool,
    /// Show what would be started or changed, and do nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Update a running lab of this name even if it was started from another file.
    #[arg(long)]
    pub(super) reconcile: bool,
    /// Continue a saved lab (`weft save`) instead of starting one, with the same QEMU and accelerator.
    ///
    /// The folder must stay for as long as the lab runs. Restore only saves that you trust, as with any virtual machine.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["file", "dry_run", "reconcile"])]
    pub(super) restore: Option<PathBuf>,
    /// How guests run.
    #[command(flatten)]
    pub(super) guests: GuestArgs,
    /// Be the supervisor behind `up --detach`.
    #[arg(long, hide = true)]
    pub(super) supervise: bool,
}

/// Starts a lab, or reconciles one that runs with its file.
pub(in crate::cli) fn run(options: &CommonOptions, args: &UpArgs) -> Result<()> {
    if let Some(folder) = &args.restore {
        return restore(options, args, folder);
    }
    let lab = lab_file::load(&args.file)?;
    if !args.supervise && lab_file::is_containerlab(&args.file) {
        import::tell(&lab_file::translated(&args.file)?, &args.file);
    }
    let running = Client::new(StateDir::of(&lab.name));
    if !args.supervise && running.state().is_alive() {
        return reconcile(options, args, &running, &lab);
    }
    if args.dry_run {
        let nothing = Lab {
            nodes: Vec::new(),
            switches: Vec::new(),
            trunks: Vec::new(),
            ..lab.clone()
        };
        return show_plan(
            options,
            &plan::between(&nothing, &lab, &[]),
            "it is not running; `weft up` starts",
        );
    }
    if args.detach {
        return background::start(options, args, &lab.name);
    }
    leave_terminal(args)?;
    let progress = Progress::new(0);
    let means = prepare::means(&lab, args.guests.accel, &progress)?;
    let supervisor = Supervisor::start(lab, means, Some(std::path::absolute(&args.file)?))?;
    keep(options, args, supervisor, &progress)
}
