//! `omx_check`: self-test of an installation.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_omx, "omx_check", tools::board::check, json)
}
