//! `weft nic queues`: shows the counters of each receive queue.

use anyhow::Result;

use crate::{
    cli::common::{
        nic_target::{Named, ports},
        options::CommonOptions,
        running_lab::client,
        verb_help::{VerbHelp, show},
    },
    report::table::{self, Columns},
    vnicd_client::report::QueueStats,
};

/// Show the counters of each receive queue.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct QueuesArgs {
    /// `NODE` or `NODE.ethN` (default: all).
    nic: Option<String>,
}

pub(in crate::cli) const HELP: VerbHelp = show(
    "nic queues",
    &[("weft nic queues n1", "counters of each receive queue")],
);

pub(in crate::cli) fn run(options: &CommonOptions, args: &QueuesArgs) -> Result<()> {
    let client = client(options)?;
    let mut rows = Vec::new();
    for port in ports(&client, args.nic.as_deref())? {
        for stats in client.vnicd()?.stats(Some(&port.name))? {
            let named = |settings| Named {
                nic: stats.name.clone(),
                settings,
            };
            rows.extend(stats.queues.iter().cloned().map(named));
        }
    }
    let columns = Columns::<Named<QueueStats>>::default()
        .words("NIC", |row| row.nic.clone())
        .numbers("QUEUE", |row| row.settings.queue.to_string())
        .words("STATE", |row| {
            if row.settings.ready { "in use" } else { "not used" }.to_owned()
        })
        .numbers("RX FRAMES", |row| row.settings.frames.to_string())
        .numbers("RX BYTES", |row| row.settings.bytes.to_string())
        .numbers("MARKED", |row| row.settings.marked.to_string())
        .numbers("INTERRUPTS", |row| row.settings.decided.to_string())
        .numbers("SIGNALLED", |row| row.settings.signalled.to_string());
    table::print(options.json, &rows, &columns)
}
