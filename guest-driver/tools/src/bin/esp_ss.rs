//! `esp_ss`: shows the ESP connections of this host.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run, "esp_ss", tools::esp_ss, json)
}
