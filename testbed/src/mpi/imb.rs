//! What the program `imb` of the MPI workloads reports.

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

/// One result of a program, by the names of its fields.
#[derive(Clone, Debug)]
pub struct Row(Map<String, Value>);

impl Row {
    /// Makes a result of these fields.
    #[must_use]
    pub const fn new(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// Returns the field of this name where it is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    /// Returns the name of what was measured.
    #[must_use]
    pub fn benchmark(&self) -> &str {
        self.0.get("benchmark").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the length of the messages.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.number("bytes").unwrap_or_default()
    }

    /// Returns all fields.
    #[must_use]
    pub const fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Counts the operations that were timed.
    #[must_use]
    pub fn operations(&self) -> u64 {
        let count = |name| self.0.get(name).and_then(Value::as_u64).unwrap_or(1);
        count("repetitions") * count("rounds")
    }
}

/// Parses the file that `imb --json` writes.
///
/// # Errors
/// Fails when it holds no results.
pub fn rows(text: &str) -> Result<Vec<Row>> {
    let rows: Vec<Map<String, Value>> = serde_json::from_str(text).context("imb wrote no JSON")?;
    ensure!(!rows.is_empty(), "imb measured nothing");
    Ok(rows.into_iter().map(Row).collect())
}

/// Returns a length of messages as tables show it.
#[must_use]
pub fn length_text(bytes: usize) -> String {
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
