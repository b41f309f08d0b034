//! `omx_init_peers`: puts hosts into the peer tables.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_omx, "omx_init_peers", tools::board::peers)
}
