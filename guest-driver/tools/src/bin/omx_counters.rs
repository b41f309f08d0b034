//! `omx_counters`: counters of boards.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_omx, "omx_counters", tools::board::counters, json)
}
