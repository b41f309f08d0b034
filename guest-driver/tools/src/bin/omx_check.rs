//! `omx_check`: self-test of an installation.

use std::process::ExitCode;

use clap::Parser;
use tools::board::check::{Arguments, main as check};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run_omx("omx_check", arguments.json, || check(&arguments))
}
