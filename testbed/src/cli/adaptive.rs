//! The verb `nic adaptive`: what the cards' adaptive moderation measured and chose. Changes nothing; `nic coalesce` does.

use anyhow::Result;
use serde::Serialize;

use super::{args::Cli, client, nic::ports};
use crate::{
    lab::units::Span,
    report::table::{self, Columns},
    vnicd_client::report::AdaptiveStats,
};

/// A receive queue with the name of its card, flat in JSON.
#[derive(Serialize)]
struct Row {
    nic: String,
    #[serde(flatten)]
    state: AdaptiveStats,
}

pub(super) fn adaptive(cli: &Cli, target: Option<&str>) -> Result<()> {
    let client = client(cli)?;
    let mut rows = Vec::new();
    for port in ports(&client, target)? {
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
    table::print(cli.json, &rows, &columns)
}
