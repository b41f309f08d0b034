//! `weft nic queues`: shows the counters of each receive queue.

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, Named, NicArgs, client, stats},
    report::table::{self, Columns},
    vnicd_client::report::QueueStats,
};

pub(in crate::cli) fn run(options: &CommonOptions, args: &NicArgs) -> Result<()> {
    let mut rows = Vec::new();
    for card in stats(&client(options)?, args.nic.as_deref())? {
        let named = |settings| Named {
            nic: card.name.clone(),
            settings,
        };
        rows.extend(card.queues.into_iter().map(named));
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
