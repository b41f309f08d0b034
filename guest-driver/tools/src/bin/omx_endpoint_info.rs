//! `omx_endpoint_info`: shows which programs have which endpoints open.

use std::process::ExitCode;

use clap::Parser;
use tools::board::endpoints::{Arguments, main as endpoints};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run_omx("omx_endpoint_info", arguments.json, || endpoints(&arguments))
}
