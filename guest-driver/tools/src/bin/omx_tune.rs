//! `omx_tune`: checks whether an interface is fit for messages.

use std::process::ExitCode;

use clap::Parser;
use tools::board::tune::{Arguments, main as tune};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tools::run_omx("omx_tune", arguments.json, || tune(&arguments))
}
