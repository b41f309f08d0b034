//! Verbs about a card's receive queues: nic steering and nic queues; and nic misorder, about the marks that it moves.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use super::{
    Cli, client,
    nic::{Named, ports, with_cable},
};
use crate::{
    lab::SteeringMode,
    report::table::{self, Columns},
    vnicd_client::report::{MisorderChange, QueueStats, QueueTable, SteeringChange, SteeringSettings},
};

/// Queues on the command line; empty = evenly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueList(Vec<u8>);

impl QueueList {
    /// The table that the list stands for.
    fn table<const LEN: usize>(&self, name: &str) -> Result<QueueTable<LEN>> {
        let len = self.0.len();
        QueueTable::repeating(&self.0).with_context(|| format!("{name} must be at most {LEN} queues, not {len}"))
    }
}

/// Reads `even` or queue numbers with commas between them.
///
/// # Errors
/// One sentence.
pub fn queue_list_argument(text: &str) -> Result<QueueList, String> {
    if text == "even" {
        return Ok(QueueList(Vec::new()));
    }
    let queues: Result<_, _> = text.split(',').map(str::parse).collect();
    queues
        .map(QueueList)
        .map_err(|_| "neither even nor queue numbers such as 0,1,1".to_owned())
}

/// `0,1,1`, shortened where it is long.
fn list(queues: &[u8]) -> String {
    const SHOWN_MAX: usize = 16;
    if queues.is_empty() {
        return "even".to_owned();
    }
    let mut text = String::new();
    for (number, queue) in queues.iter().take(SHOWN_MAX).enumerate() {
        let comma = if number == 0 { "" } else { "," };
        // Writing to a string does not fail.
        _ = write!(text, "{comma}{queue}");
    }
    if queues.len() > SHOWN_MAX {
        _ = write!(text, ",… ({} in all)", queues.len());
    }
    text
}

pub(super) fn steering(
    cli: &Cli,
    target: &str,
    mode: Option<SteeringMode>,
    endpoints: Option<&QueueList>,
    indirection: Option<&QueueList>,
) -> Result<()> {
    let change = SteeringChange {
        mode: mode.map(Into::into),
        endpoints: endpoints.map(|list| list.table("endpoints")).transpose()?,
        indirection: indirection.map(|list| list.table("indirection")).transpose()?,
    };
    let client = client(cli)?;
    let mut rows = Vec::new();
    for port in with_cable(ports(&client, Some(target))?) {
        let settings = client.vnicd()?.change(&port.name, &change);
        rows.push(Named {
            settings: settings.with_context(|| format!("cannot change {}", port.name))?,
            nic: port.name,
        });
    }
    let columns = Columns::<Named<SteeringSettings>>::default()
        .words("NIC", |row| row.nic.clone())
        .words("MODE", |row| row.settings.mode.to_string())
        .words("ENDPOINTS", |row| list(row.settings.endpoints.shortest()))
        .words("INDIRECTION", |row| list(row.settings.indirection.shortest()));
    table::print(cli.json, &rows, &columns)
}

#[derive(Serialize)]
struct MisorderRow {
    degree: u8,
    /// Messages whose mark left on an earlier fragment.
    moved: u64,
    /// Last fragments that lost theirs.
    cleared: u64,
    /// Messages that left as they were while the injector was on.
    kept: u64,
}

pub(super) fn misorder(cli: &Cli, target: &str, degree: Option<u8>) -> Result<()> {
    let client = client(cli)?;
    let mut rows = Vec::new();
    for port in with_cable(ports(&client, Some(target))?) {
        let settings = client.vnicd()?.change(&port.name, &MisorderChange { degree })?;
        for stats in client.vnicd()?.stats(Some(&port.name))? {
            let count = |name| stats.misorder.get(name).copied().unwrap_or(0);
            rows.push(Named {
                settings: MisorderRow {
                    degree: settings.degree,
                    moved: count("moved"),
                    cleared: count("cleared"),
                    kept: count("kept"),
                },
                nic: stats.name,
            });
        }
    }
    let columns = Columns::<Named<MisorderRow>>::default()
        .words("NIC", |row| row.nic.clone())
        .numbers("DEGREE", |row| match row.settings.degree {
            0 => "off".to_owned(),
            degree => degree.to_string(),
        })
        .numbers("MARKS MOVED", |row| row.settings.moved.to_string())
        .numbers("CLEARED", |row| row.settings.cleared.to_string())
        .numbers("KEPT", |row| row.settings.kept.to_string());
    table::print(cli.json, &rows, &columns)
}

pub(super) fn queues(cli: &Cli, target: Option<&str>) -> Result<()> {
    let client = client(cli)?;
    let mut rows = Vec::new();
    for port in ports(&client, target)? {
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
    table::print(cli.json, &rows, &columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_gf9_lists_of_queues_are_read_and_shown() {
        assert_eq!(queue_list_argument("even"), Ok(QueueList(Vec::new())));
        assert_eq!(queue_list_argument("0,1,1"), Ok(QueueList(vec![0, 1, 1])));
        for wrong in ["", "1,", "a", "256", "1;2"] {
            assert!(queue_list_argument(wrong).is_err(), "{wrong}");
        }
        assert_eq!((list(&[]), list(&[0, 1, 1])), ("even".to_owned(), "0,1,1".to_owned()));
        assert!(list(&[7; 256]).ends_with("7,… (256 in all)"));
    }
}
