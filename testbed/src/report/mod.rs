//! How results are shown: tables on a terminal, JSON for programs, bar charts in files. This module knows nothing of
//! the results, except for the words of cables and VLANs, which tables and pictures share.

pub mod cable;
pub mod chart;
pub mod file;
pub mod progress;
pub mod table;
pub mod vlan;

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Prints a message that is not a result: a line on standard error, if that is open.
pub fn say(text: impl Display) {
    _ = writeln!(io::stderr(), "{text}");
}
