//! How results are shown: tables on a terminal, JSON for programs, bar charts in files. Knows nothing of what is shown, but for
//! the words of what is set on a cable or about VLANs, which tables and pictures share.

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

/// Tells the user something that is no result: a line on standard error, if somebody listens there.
pub fn say(text: impl Display) {
    _ = writeln!(io::stderr(), "{text}");
}
