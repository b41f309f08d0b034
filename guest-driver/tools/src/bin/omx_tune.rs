//! `omx_tune`: checks whether an interface is fit for messages.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_omx, "omx_tune", tools::board::tune, json)
}
