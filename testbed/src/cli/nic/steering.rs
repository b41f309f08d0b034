//! `weft nic steering`: shows and changes which receive queue a frame goes to.

use std::fmt::Write;

use anyhow::{Context, Result};

use crate::{
    cli::common::{CommonOptions, Named, client, ports, show, with_cable},
    lab::SteeringMode,
    report::table::{self, Columns},
    vnicd_client::report::{QueueTable, SteeringChange, SteeringSettings},
};

/// Show or change which receive queue a frame goes to.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft nic steering n1", "what is set"),
    ("weft nic steering n1 endpoint --endpoints 0,1", "by MX endpoint"),
]))]
pub(in crate::cli) struct SteeringArgs {
    /// `NODE` or `NODE.ethN`.
    nic: String,
    /// How frames are distributed.
    mode: Option<SteeringMode>,
    /// Queues of the endpoints 0, 1, …, such as 0,1,1 (repeated beyond the end), or even.
    #[arg(long, value_name = "QUEUES", value_parser = queue_list_argument)]
    endpoints: Option<QueueList>,
    /// Queues of the 128 values of the flow hash (repeated beyond the end), or even.
    #[arg(long, value_name = "QUEUES", value_parser = queue_list_argument)]
    indirection: Option<QueueList>,
}

/// A list of queues on the command line; an empty one means an even distribution.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QueueList(Vec<u8>);

impl QueueList {
    /// Returns the table that the list stands for.
    fn table<const LEN: usize>(&self, name: &str) -> Result<QueueTable<LEN>> {
        let len = self.0.len();
        QueueTable::repeating(&self.0).with_context(|| format!("{name} must be at most {LEN} queues, not {len}"))
    }
}

/// Parses `even` or queue numbers separated by commas.
fn queue_list_argument(text: &str) -> Result<QueueList, String> {
    if text == "even" {
        return Ok(QueueList(Vec::new()));
    }
    let queues: Result<_, _> = text.split(',').map(str::parse).collect();
    queues
        .map(QueueList)
        .map_err(|_| "neither even nor queue numbers such as 0,1,1".to_owned())
}

/// Renders queues such as `0,1,1`, shortened if there are many.
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

pub(in crate::cli) fn run(options: &CommonOptions, args: &SteeringArgs) -> Result<()> {
    let change = SteeringChange {
        mode: args.mode.map(Into::into),
        endpoints: args
            .endpoints
            .as_ref()
            .map(|list| list.table("endpoints"))
            .transpose()?,
        indirection: (args.indirection.as_ref())
            .map(|list| list.table("indirection"))
            .transpose()?,
    };
    let client = client(options)?;
    let mut rows = Vec::new();
    for port in with_cable(ports(&client, Some(&args.nic))?) {
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
    table::print(options.json, &rows, &columns)
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
