//! How results are shown: tables on a terminal, JSON for programs, bar charts in files. Knows nothing of what is shown.

pub mod chart;
pub mod progress;
pub mod table;
