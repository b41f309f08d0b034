//! `nicctl steering`: shows and sets which receive queue of the card a frame goes to. The card itself makes the choice.

use std::fmt;

use clap::{Args, builder::PossibleValuesParser};
use firmware::{
    ENDPOINTS, INDIRECTION_LEN, SteeringChange, SteeringCounters, SteeringMode, SteeringTable, TABLE_ENTRIES_MAX,
    TableChange, TableEntries, control::Request,
};
use netif::Netif;
use serde::Serialize;
use weft_card_control::{Card, CardError, ask};

/// Entries of a table that are shown to people before it goes on with `…`.
const SHOWN_MAX: usize = 16;

/// Options of `nicctl steering`.
#[derive(Debug, Args)]
pub(super) struct Steering {
    /// How frames are sorted: off (all to the first queue), flow (IP by its addresses and ports), endpoint (MXoE by its
    /// endpoint, IP by flow)
    #[arg(value_parser = mode_names())]
    mode: Option<String>,
    /// Queues of the endpoints 0, 1, …, such as 0,1,1, repeated behind the end; or even
    #[arg(long, value_name = "QUEUES", value_parser = queue_list)]
    endpoints: Option<QueueList>,
    /// Queues of the 128 values of the flow hash, repeated behind the end; or even
    #[arg(long, value_name = "QUEUES", value_parser = queue_list)]
    indirection: Option<QueueList>,
}

/// Queues on the command line; empty = evenly.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QueueList(Vec<u8>);

fn mode_names() -> PossibleValuesParser {
    PossibleValuesParser::new(SteeringMode::ALL.map(SteeringMode::name))
}

fn queue_list(text: &str) -> Result<QueueList, String> {
    if text == "even" {
        return Ok(QueueList(Vec::new()));
    }
    let queues: Result<_, _> = text.split(',').map(str::parse).collect();
    queues
        .map(QueueList)
        .map_err(|_| "neither even nor queue numbers such as 0,1,1".to_owned())
}

/// Returns the changes that repeat these queues over a whole table, which may take more than one request.
fn changes(table: SteeringTable, len: usize, queues: &QueueList) -> Vec<SteeringChange> {
    let change = |change| SteeringChange {
        table: Some((table, change)),
        ..SteeringChange::default()
    };
    if queues.0.is_empty() {
        return vec![change(TableChange::Even)];
    }
    let whole: Vec<u8> = queues.0.iter().copied().cycle().take(len).collect();
    let pieces = (0..).step_by(TABLE_ENTRIES_MAX).zip(whole.chunks(TABLE_ENTRIES_MAX));
    pieces
        .filter_map(|(first, piece)| TableEntries::new(first, piece))
        .map(|entries| change(TableChange::Entries(entries)))
        .collect()
}

/// Makes the changes that are asked for, and returns what is in force then.
///
/// # Errors
/// The card's refusal or silence; changes before the one that was refused have been made.
pub(super) fn run(card: &mut Card<'_, impl Netif>, arguments: &Steering) -> Result<SteeringOutput, CardError> {
    let mut all = Vec::new();
    for (table, len, queues) in [
        (SteeringTable::Endpoints, ENDPOINTS, &arguments.endpoints),
        (SteeringTable::Indirection, INDIRECTION_LEN, &arguments.indirection),
    ] {
        if let Some(queues) = queues {
            all.extend(changes(table, len, queues));
        }
    }
    // Only names of modes pass the command line's check.
    if let Some(mode) = arguments.mode.as_ref().and_then(|name| name.parse().ok()) {
        all.push(SteeringChange {
            mode: Some(mode),
            ..SteeringChange::default()
        });
    }
    for change in all {
        ask!(card, &Request::SetSteering { change }, SetSteering)?;
    }
    let (mut endpoints, mut indirection) = (Vec::new(), Vec::new());
    let mut last = None;
    for (table, len, place) in [
        (SteeringTable::Endpoints, ENDPOINTS, &mut endpoints),
        (SteeringTable::Indirection, INDIRECTION_LEN, &mut indirection),
    ] {
        while place.len() < len {
            let first = place.len() as u16;
            let report = ask!(card, &Request::GetSteering { table, first }, GetSteering)?;
            if (report.table, report.entries.first()) != (table, first) {
                return Err(CardError::Unexpected);
            }
            place.extend_from_slice(report.entries.queues());
            last = Some(report);
        }
    }
    let report = last.ok_or(CardError::Unexpected)?;
    Ok(SteeringOutput {
        mode: report.mode.name(),
        queue_pairs: report.queue_pairs,
        ready: report.ready,
        endpoints_even: report.endpoints_even,
        endpoints,
        indirection_even: report.indirection_even,
        indirection,
        steered: report.counters,
    })
}

/// `nicctl steering`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SteeringOutput {
    /// `off`, `flow` or `endpoint`.
    pub mode: &'static str,
    /// Number of receive queues.
    pub queue_pairs: u16,
    /// How many of them the driver uses.
    pub ready: u16,
    /// Endpoints are spread evenly; otherwise by a table.
    pub endpoints_even: bool,
    /// The queue of each endpoint now.
    pub endpoints: Vec<u8>,
    /// Flows are spread evenly; otherwise by a table.
    pub indirection_even: bool,
    /// The queue of each value of the flow hash now.
    pub indirection: Vec<u8>,
    /// What was steered.
    pub steered: SteeringCounters,
}

impl fmt::Display for SteeringOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "steering     {}, {} of {} receive queues in use",
            self.mode, self.ready, self.queue_pairs
        )?;
        for (name, even, table) in [
            ("endpoints   ", self.endpoints_even, &self.endpoints),
            ("indirection ", self.indirection_even, &self.indirection),
        ] {
            write!(f, "{name} {}", if even { "evenly:" } else { "set:" })?;
            table
                .iter()
                .take(SHOWN_MAX)
                .try_for_each(|queue| write!(f, " {queue}"))?;
            writeln!(f, " …")?;
        }
        write!(
            f,
            "steered      {} by endpoint, {} by flow, {} to the first queue",
            self.steered.by_endpoint, self.steered.by_flow, self.steered.to_first
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_gf9_a_list_of_queues_fills_the_whole_table() {
        let changes = changes(SteeringTable::Endpoints, ENDPOINTS, &QueueList(vec![2, 0, 1]));
        let pieces = changes.iter().map(|change| match change.table {
            Some((SteeringTable::Endpoints, TableChange::Entries(entries))) => entries,
            other => panic!("{other:?}"),
        });
        let pieces: Vec<_> = pieces.collect();
        assert_eq!(pieces.iter().map(TableEntries::first).collect::<Vec<_>>(), [0, 128]);
        assert_eq!(pieces[1].queues()[..4], [1, 2, 0, 1], "entry 128 is 128 modulo 3");
        assert!(queue_list("1,").is_err() && queue_list("").is_err());
    }
}
