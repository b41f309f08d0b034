//! `nicctl`: shows and sets what this machine's programmable card does.

use std::process::ExitCode;

use clap::Parser;
use tools::nicctl::{Arguments, main as control};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run("nicctl", arguments.json(), || control(&arguments))
}
