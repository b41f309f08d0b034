//! `weft nic copy-engine`: shows the copies of cards that are connected to themselves.

use anyhow::{Result, bail};
use serde::Serialize;

use crate::{
    cli::common::{
        nic_target::ports,
        options::CommonOptions,
        running_lab::client,
        verb_help::{VerbHelp, show},
    },
    report::table::{self, Columns},
    vnicd_client::report::Counts,
};

/// Show the copies of cards that are connected to themselves.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct CopyEngineArgs {
    /// `NODE` or `NODE.ethN` (default: all).
    nic: Option<String>,
}

pub(in crate::cli) const HELP: VerbHelp = show(
    "nic copy-engine",
    &[(
        "weft nic copy-engine",
        "copies of cards that are connected to themselves",
    )],
);

/// A table row: a card with the counters of its copy engine.
#[derive(Serialize)]
struct CopyEngineRow {
    nic: String,
    #[serde(flatten)]
    counts: Counts,
}

/// Shows the copy engines of the cards named.
pub(in crate::cli) fn run(options: &CommonOptions, args: &CopyEngineArgs) -> Result<()> {
    let target = args.nic.as_deref();
    let client = client(options)?;
    let mut rows = Vec::new();
    for port in ports(&client, target)? {
        let stats = client.vnicd()?.stats(Some(&port.name))?;
        rows.extend(stats.into_iter().filter_map(|row| {
            Some(CopyEngineRow {
                nic: row.name,
                counts: row.copy_engine?,
            })
        }));
    }
    if let (Some(target), true) = (target, rows.is_empty()) {
        bail!("{target} is not connected to itself, so it has no copy engine (loopback = true in the lab file)");
    }
    let count = |name: &'static str| move |row: &CopyEngineRow| row.counts.get(name).copied().unwrap_or(0).to_string();
    let columns = Columns::<CopyEngineRow>::default()
        .words("NIC", |row| row.nic.clone())
        .numbers("COPIES", count("submitted"))
        .numbers("COMPLETED", count("completed"))
        .numbers("GIVEN UP", count("failed"))
        .numbers("FORGOTTEN", count("cancelled"))
        .numbers("FRAMES", count("frames"))
        .numbers("BYTES", count("moved_bytes"))
        .words("REFUSED", |row| refused(&row.counts));
    table::print(options.json, &rows, &columns)
}

/// Renders why requests were refused, such as `overlap 2, queue_full 1`.
fn refused(counts: &Counts) -> String {
    let refused = counts
        .iter()
        .filter_map(|(name, count)| Some((name.strip_prefix("refused_")?, *count)));
    table::counts(&refused.map(|(reason, count)| (reason.to_owned(), count)).collect())
}
