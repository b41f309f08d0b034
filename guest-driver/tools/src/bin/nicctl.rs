//! `nicctl`: shows and sets what this machine's programmable card does.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run, "nicctl", tools::nicctl, json)
}
