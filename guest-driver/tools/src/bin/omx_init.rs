//! `omx_init`: starts and stops the daemons of this host's boards.

use std::process::ExitCode;

use clap::Parser;
use tools::board::init::{Arguments, main as init};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run_omx("omx_init", false, || init(&arguments))
}
