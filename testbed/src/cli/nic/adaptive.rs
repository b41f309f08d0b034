//! `weft nic adaptive`: shows what the adaptive moderation of cards measured and chose. It changes nothing; `nic
//! coalesce` does.

use anyhow::Result;
use serde::Serialize;

use crate::{
    cli::common::{
        nic_target::ports,
        options::CommonOptions,
        running_lab::client,
        verb_help::{VerbHelp, show},
    },
    lab::units::Span,
    report::table::{self, Columns},
    vnicd_client::report::AdaptiveStats,
};

/// Show what adaptive moderation measured and chose, for each receive queue that uses it.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct AdaptiveArgs {
    /// `NODE` or `NODE.ethN` (default: all).
    nic: Option<String>,
}

pub(in crate::cli) const HELP: VerbHelp = show("nic adaptive", &[("weft nic adaptive n1", "rate and delay in force")]);

/// A receive queue with the name of its card, which is flat in JSON.
#[derive(Serialize)]
struct Row {
    nic: String,
    #[serde(flatten)]
    state: AdaptiveStats,
}

pub(in crate::cli) fn run(options: &CommonOptions, args: &AdaptiveArgs) -> Result<()> {
    let client = client(options)?;
    let mut rows = Vec::new();
    for port in ports(&client, args.nic.as_deref())? {
        for stats in client.vnicd()?.stats(Some(&port.name))? {
            rows.extend(stats.adaptive.into_iter().map(|state| Row {
                nic: port.name.clone(),
                state,
            }));
        }
    }
    let columns = Columns::<Row>::default()
        .words("NIC", |row| row.nic.clone())
        .numbers("QUEUE", |row| row.state.queue.to_string())
        .numbers("DELAY NOW", |row| Span(row.state.state.delay_ns).to_string())
        .numbers("AT MOST", |row| Span(row.state.longest_ns).to_string())
        .numbers("PACKETS/S", |row| row.state.state.packets_per_s.to_string())
        .numbers("LONGER", |row| row.state.state.longer.to_string())
        .numbers("SHORTER", |row| row.state.state.shorter.to_string());
    table::print(options.json, &rows, &columns)
}
