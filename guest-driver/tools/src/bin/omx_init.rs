//! `omx_init`: starts and stops the daemons of this host's boards.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_omx, "omx_init", tools::board::init)
}
