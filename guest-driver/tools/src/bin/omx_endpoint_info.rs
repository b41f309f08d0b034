//! `omx_endpoint_info`: shows which programs have which endpoints open.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_omx, "omx_endpoint_info", tools::board::endpoints, json)
}
