//! `weft deploy`: starts a lab in the background, as containerlab spells it.

use std::path::PathBuf;

use anyhow::Result;

use super::up::{self, UpArgs};
use crate::cli::common::{CommonOptions, GuestArgs, here};

/// Start a lab in the background: `up -d`.
///
/// A topology of containerlab (`.yml`) is translated as `weft import` does.
#[derive(Debug, clap::Args)]
#[command(add = here(&[
    ("weft deploy lab.toml", "start a lab in the background"),
    ("weft deploy -t frr.clab.yml", "translate a topology of containerlab, and start it"),
]))]
pub(in crate::cli) struct DeployArgs {
    /// The lab file (default: lab.toml).
    file: Option<PathBuf>,
    /// The lab file, spelled as in containerlab.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    topo: Option<PathBuf>,
    /// How guests run.
    #[command(flatten)]
    guests: GuestArgs,
}

impl DeployArgs {
    /// Returns the arguments of `up` that do the same.
    fn detached(&self) -> UpArgs {
        UpArgs {
            file: (self.file.as_ref().or(self.topo.as_ref()))
                .cloned()
                .unwrap_or_else(|| PathBuf::from("lab.toml")),
            detach: true,
            dry_run: false,
            reconcile: false,
            restore: None,
            guests: self.guests.clone(),
            supervise: false,
        }
    }
}

/// Starts the lab.
pub(in crate::cli) fn run(options: &CommonOptions, args: &DeployArgs) -> Result<()> {
    up::run(options, &args.detached())
}
