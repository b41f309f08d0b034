//! The harness that all comparisons share: rounds in which rivals take turns, statistics of their samples, bars and
//! verdicts, tables, JSON, progress, and the end at Ctrl-C. A scenario provides a [`Plan`], measures a [`Turn`] on
//! request, and states what a reader of the table must know.

mod bar;
mod json;
pub mod others;
mod plan;
pub mod processor_time;
mod progress;
mod record;
mod rounds;
pub mod stats;
mod stop;
pub mod table;

use std::io::{self, Write};

use crate::report::table::print_json;
use anyhow::{Context, Result};
use serde_json::{Map, Value};

pub use bar::{Bar, Limit, Weight};
pub use json::json;
pub use plan::{Cell, Measurement, Pairing, Plan, Turn, Unit};
pub use record::{Record, Sample};
pub use rounds::{Scenario, run};
pub use stop::Stop;

pub use crate::interrupted::Interrupted;

/// A report is how a scenario shows its result.
pub struct Report {
    /// The tables, and what must be known to read them.
    pub text: String,
    /// Fields that JSON has in addition to the samples and bars.
    pub conditions: Map<String, Value>,
}

/// Prints the result and returns whether every bar that the exit status depends on is met.
pub fn conclude(record: &Record, report: Report, as_json: bool) -> Result<bool> {
    if as_json {
        print_json(&json(record, report.conditions))?;
    } else {
        write!(io::stdout().lock(), "{}", report.text).context("cannot print the table")?;
    }
    Ok(record.all_met())
}

/// Runs `compare` so that Ctrl-C, SIGTERM or SIGHUP ends it; what it started is then stopped and removed.
pub fn until_stopped<T>(compare: impl FnOnce(&Stop) -> Result<T>) -> Result<T> {
    let stop = Stop::at_signals()?;
    // An error after a signal is a consequence of the signal.
    compare(&stop).map_err(|error| if stop.is_asked() { Interrupted.into() } else { error })
}

/// Returns the fields of a JSON object.
pub fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
