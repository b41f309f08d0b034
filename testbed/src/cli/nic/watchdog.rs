//! `weft nic watchdog`: the polling watchdog of cards, set and counted.

use anyhow::Result;
use serde::Serialize;

use super::{super::args::Cli, super::args::WatchdogDelay, ports};
use crate::{
    cli::client,
    lab::units::Span,
    report::table::{self, Columns},
    supervisor::protocol::Request,
    vnicd_client::report::{CoalescingChange, CoalescingSettings, WatchdogStats},
};

#[derive(Serialize)]
struct Row {
    nic: String,
    /// 0 = off.
    watchdog_ns: u64,
    #[serde(flatten)]
    counted: WatchdogStats,
    /// Packets that the guest had processed before any interrupt announced them.
    polled: u64,
}

/// Sets the watchdog of the cards that are meant, if a delay is given, and shows it.
pub(in crate::cli) fn watchdog(cli: &Cli, target: &str, delay: Option<WatchdogDelay>) -> Result<()> {
    let change = CoalescingChange {
        watchdog_ns: delay.map(|delay| delay.0),
        ..CoalescingChange::default()
    };
    let client = client(cli)?;
    let mut rows = Vec::new();
    for port in ports(&client, Some(target))? {
        let request = Request::Coalesce {
            port: port.name.clone(),
            change: change.clone(),
        };
        let settings = client.request::<CoalescingSettings>(&request)?;
        for stats in client.vnicd()?.stats(Some(&port.name))? {
            rows.push(Row {
                nic: stats.name,
                watchdog_ns: settings.watchdog_ns,
                counted: stats.watchdog,
                polled: stats.interrupts.polled,
            });
        }
    }
    let columns = Columns::<Row>::default()
        .words("NIC", |row| row.nic.clone())
        .numbers("WATCHDOG", |row| match row.watchdog_ns {
            0 => "off".to_owned(),
            ns => Span(ns).to_string(),
        })
        .numbers("STARTED", |row| row.counted.started.to_string())
        .numbers("CANCELLED", |row| row.counted.cancelled.to_string())
        .numbers("DISABLED", |row| row.counted.restarted_disabled.to_string())
        .numbers("PROGRESS", |row| row.counted.restarted_progress.to_string())
        .numbers("FIRED", |row| row.counted.fired.to_string())
        .numbers("POLLED", |row| row.polled.to_string())
        .numbers("LATEST US", |row| (row.counted.late_max_ns / 1_000).to_string());
    table::print(cli.json, &rows, &columns)
}
