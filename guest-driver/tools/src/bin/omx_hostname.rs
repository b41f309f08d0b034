//! `omx_hostname`: the name of a board.

use std::process::ExitCode;

use clap::Parser;
use tools::board::hostname::{Arguments, main as hostname};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run_omx("omx_hostname", false, || hostname(&arguments))
}
