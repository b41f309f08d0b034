//! `esp_ping`: asks a host whether it speaks ESP.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::tool!(run_ping, "esp_ping", tools::esp_ping, json)
}
