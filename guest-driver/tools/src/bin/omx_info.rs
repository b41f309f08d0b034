//! `omx_info`: boards of this host and the peers they know.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_omx, "omx_info", tools::info, json)
}
