//! `mxoe-gen`: makes MXoE traffic between two machines and times it.

use std::process::ExitCode;

use clap::Parser;
use tools::generator::{Arguments, main as generate};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run("mxoe-gen", arguments.json(), || generate(&arguments))
}
