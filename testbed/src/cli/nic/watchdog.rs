//! `weft nic watchdog`: shows and sets the polling watchdog of cards.

use anyhow::Result;
use serde::Serialize;

use crate::{
    cli::common::{CommonOptions, client, ports, show},
    lab::units::Span,
    report::table::{self, Columns},
    supervisor_client::protocol::Request,
    vnicd_client::report::{CoalescingChange, CoalescingSettings, QueueCoalescing, WatchdogStats},
};

/// Show or set the polling watchdog, which interrupts a guest only if it does not poll.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft nic watchdog n1", "settings and counters"),
    ("weft nic watchdog n1 100us", "instead of the timeout"),
    ("weft nic watchdog n1 off", "back to the timeout"),
]))]
pub(in crate::cli) struct WatchdogArgs {
    /// `NODE` or `NODE.ethN`.
    nic: String,
    /// When it checks after an arrival; `off` for no watchdog.
    #[arg(value_name = "TIME|off", value_parser = watchdog_delay)]
    delay: Option<WatchdogDelay>,
}

/// The delay of a watchdog in nanoseconds; 0 means off.
#[derive(Clone, Copy, Debug)]
struct WatchdogDelay(u64);

fn watchdog_delay(text: &str) -> Result<WatchdogDelay, String> {
    if text == "off" {
        return Ok(WatchdogDelay(0));
    }
    text.parse::<Span>().map(|span| WatchdogDelay(span.0))
}

#[derive(Serialize)]
struct Row {
    nic: String,
    /// Delay in nanoseconds; 0 means off.
    watchdog_ns: u64,
    /// Queues whose delay differs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queues: Vec<QueueRow>,
    #[serde(flatten)]
    counted: WatchdogStats,
    /// Packets that the guest had processed before any interrupt announced them.
    polled: u64,
}

#[derive(Serialize)]
struct QueueRow {
    queue: u16,
    watchdog_ns: u64,
}

/// Renders a delay, and those of queues that differ: `off, 1: 300us`.
fn delays(row: &Row) -> String {
    let delay = |ns| match ns {
        0 => "off".to_owned(),
        ns => Span(ns).to_string(),
    };
    let queues = row.queues.iter();
    let others: String = queues
        .map(|other| format!(", {}: {}", other.queue, delay(other.watchdog_ns)))
        .collect();
    delay(row.watchdog_ns) + &others
}

/// Sets the watchdog of the cards named, if a delay is given, and shows it.
pub(in crate::cli) fn run(options: &CommonOptions, args: &WatchdogArgs) -> Result<()> {
    let change = CoalescingChange {
        watchdog_ns: args.delay.map(|delay| delay.0),
        ..CoalescingChange::default()
    };
    let client = client(options)?;
    let mut rows = Vec::new();
    for port in ports(&client, Some(&args.nic))? {
        let request = Request::Coalesce {
            port: port.name.clone(),
            change: change.clone(),
        };
        let settings = client.request::<CoalescingSettings>(&request)?;
        for stats in client.vnicd()?.stats(Some(&port.name))? {
            let differ = |queue: &&QueueCoalescing| queue.watchdog_ns != settings.watchdog_ns;
            rows.push(Row {
                nic: stats.name,
                watchdog_ns: settings.watchdog_ns,
                queues: (settings.queues.iter().filter(differ))
                    .map(|queue| QueueRow {
                        queue: queue.queue,
                        watchdog_ns: queue.watchdog_ns,
                    })
                    .collect(),
                counted: stats.watchdog,
                polled: stats.interrupts.polled,
            });
        }
    }
    let columns = Columns::<Row>::default()
        .words("NIC", |row| row.nic.clone())
        .numbers("WATCHDOG", delays)
        .numbers("STARTED", |row| row.counted.started.to_string())
        .numbers("CANCELLED", |row| row.counted.cancelled.to_string())
        .numbers("DISABLED", |row| row.counted.restarted_disabled.to_string())
        .numbers("PROGRESS", |row| row.counted.restarted_progress.to_string())
        .numbers("FIRED", |row| row.counted.fired.to_string())
        .numbers("POLLED", |row| row.polled.to_string())
        .numbers("LATEST US", |row| (row.counted.lateness.max_ns() / 1_000).to_string());
    table::print(options.json, &rows, &columns)
}
