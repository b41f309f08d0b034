//! `omx_counters`: counters of boards.

use std::process::ExitCode;

use clap::Parser;
use tools::board::counters::{Arguments, main as counters};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run_omx("omx_counters", arguments.json, || counters(&arguments))
}
