//! `omx_init_peers`: puts hosts into the peer tables.

use std::process::ExitCode;

use clap::Parser;
use tools::board::peers::{Arguments, main as peers};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run_omx("omx_init_peers", false, || peers(&arguments))
}
