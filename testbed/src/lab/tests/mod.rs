//! Tests of what a lab file may say, what it results in, and the message for each mistake. They are divided as the model
//! is.

mod cable;
mod domains;
mod error;
mod file;
mod nics;
mod nodes;
mod schema;
mod setup;
mod switch;

use std::path::Path;

use super::{topology::Topology, *};
use vnicd_protocol::{JitterDistribution, LinkSettings, QueueLevel};

fn parse(text: &str) -> Result<Lab, LabError> {
    let folder = LabFolder::new(Path::new("/nowhere"), &crate::lab_file::at_path);
    Lab::parse_in(text, "lab.toml", "lab", folder, None)
}

/// Returns the first mistake found in `text`, as `line:column: message = help`.
fn mistake(text: &str) -> String {
    let error = parse(text).expect_err("this lab file has a mistake");
    let problem = &error.problems()[0];
    let (line, column) = error.position(problem.span.start);
    format!("{line}:{column}: {} = {}", problem.message, problem.help)
}
