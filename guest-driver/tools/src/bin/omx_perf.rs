//! `omx_perf`: ping-pong of MX messages between two endpoints.

use std::process::ExitCode;

use clap::Parser;
use tools::perf::{Arguments, main as perf};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run_omx("omx_perf", arguments.json(), || perf(&arguments))
}
