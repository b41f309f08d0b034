//! `omx_hostname`: the name of a board.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_omx, "omx_hostname", tools::board::hostname)
}
