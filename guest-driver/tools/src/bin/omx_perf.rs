//! `omx_perf`: ping-pong of MX messages between two endpoints.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_omx, "omx_perf", tools::perf, json)
}
