//! What flight recorders told, as a picture for <https://ui.perfetto.dev> and as a list of lines. Reading the recorders is
//! `vnicd_client`'s business.

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
    /// `node.ethN`.
    pub nic: String,
    /// What time 0 of the records is, in nanoseconds since 1970.
    pub origin_unix_ns: u64,
    /// Names of the card's coalescing strategies, in the order of their codes.
    pub strategies: Vec<String>,
    /// What happened, in the order in which it was read.
    pub records: Vec<Record>,
}

impl CardTrace {
    /// Puts the records in the order of time; those of one instant stay as they were written.
    pub fn sort(&mut self) {
        self.records.sort_by_key(|record| record.at);
    }
}

/// The earliest time in all traces, in nanoseconds; 0 if nothing happened.
#[must_use]
pub fn first_ns(traces: &[CardTrace]) -> u64 {
    let times = traces
        .iter()
        .flat_map(|trace| &trace.records)
        .map(|record| record.at.as_nanos());
    times.min().unwrap_or(0)
}

/// The reason of an interrupt that a card with these strategies decided.
fn reason(record: &Record, strategies: &[String]) -> String {
    ReasonOf::name_of_code(record.detail, strategies)
}

/// Which way a dropped frame went, and why it was dropped.
fn drop_words(record: &Record) -> (&'static str, &'static str) {
    match drop_reason(record.detail) {
        Some((DropAt::Rx, reason)) => ("to the guest", reason),
        Some((DropAt::Tx, reason)) => ("from the guest", reason),
        None => ("somewhere", "unknown"),
    }
}

/// Whether a record is about the card and none of its queues.
fn is_of_card(record: &Record) -> bool {
    matches!(record.kind, RecordKind::Forward | RecordKind::Drop)
}
