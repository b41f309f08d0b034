//! `omx_info`: boards of this host and the peers they know.

use std::process::ExitCode;

use clap::Parser;
use tools::info::{Arguments, main as info};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run_omx("omx_info", arguments.json, || info(&arguments))
}
