//! `icopy_perf`: copies by a card that is wired to itself, against copies by the processor.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run, "icopy_perf", tools::copies, json)
}
