//! The events of flight recorders, as a picture for <https://ui.perfetto.dev> and as a list of lines. The module
//! `vnicd_client` reads the recorders.

pub mod perfetto;
mod text;

use firmware::{
    ReasonOf,
    recorder::{Record, RecordKind},
};
use vnicd_protocol::drops::{DropAt, drop_reason};

pub use text::write_text;

/// The records of one card.
#[derive(Clone, Debug)]
pub struct CardTrace {
    /// Name of the card: `node.ethN`.
    pub nic: String,
    /// Time 0 of the records, in nanoseconds since 1970.
    pub origin_unix_ns: u64,
    /// Names of the card's coalescing strategies, in the order of their codes.
    pub strategies: Vec<String>,
    /// Records in the order in which they were read.
    pub records: Vec<Record>,
}

impl CardTrace {
    /// Sorts the records by time; those of one instant keep their order.
    pub fn sort(&mut self) {
        self.records.sort_by_key(|record| record.at);
    }
}

/// Returns the earliest time in all traces, in nanoseconds; 0 without records.
#[must_use]
pub fn first_ns(traces: &[CardTrace]) -> u64 {
    let times = traces
        .iter()
        .flat_map(|trace| &trace.records)
        .map(|record| record.at.as_nanos());
    times.min().unwrap_or(0)
}

/// Returns the reason of an interrupt that a card with these strategies decided.
fn reason(record: &Record, strategies: &[String]) -> String {
    ReasonOf::name_of_code(record.detail, strategies)
}

/// Returns the direction of a dropped frame, and why it was dropped.
fn drop_words(record: &Record) -> (&'static str, &'static str) {
    match drop_reason(record.detail) {
        Some((DropAt::Rx, reason)) => ("to the guest", reason),
        Some((DropAt::Tx, reason)) => ("from the guest", reason),
        None => ("somewhere", "unknown"),
    }
}

/// Returns whether a record is about the card and none of its queues.
fn is_of_card(record: &Record) -> bool {
    matches!(record.kind, RecordKind::Forward | RecordKind::Drop)
}
