//! All tools and `omxd` in one program, for guest images, where each byte costs boot time: which of them runs is the name it is called by.

use std::{env, path::Path, process::ExitCode};

use tools::{board, copies, esp_ping, esp_ss, info, nicctl, perf};

/// A tool: its name, and what it does.
type Tool = (&'static str, fn() -> ExitCode);

const TOOLS: [Tool; 15] = [
    ("esp_ping", || tools::tool!(run_ping, "esp_ping", esp_ping, json)),
    ("esp_ss", || tools::tool!(run, "esp_ss", esp_ss, json)),
    ("icopy_perf", || tools::tool!(run, "icopy_perf", copies, json)),
    ("nicctl", || tools::tool!(run, "nicctl", nicctl, json)),
    ("omx_check", || tools::tool!(run_omx, "omx_check", board::check, json)),
    ("omx_counters", || {
        tools::tool!(run_omx, "omx_counters", board::counters, json)
    }),
    ("omx_endpoint_info", || {
        tools::tool!(run_omx, "omx_endpoint_info", board::endpoints, json)
    }),
    ("omx_hostname", || {
        tools::tool!(run_omx, "omx_hostname", board::hostname)
    }),
    ("omx_info", || tools::tool!(run_omx, "omx_info", info, json)),
    ("omx_init", || tools::tool!(run_omx, "omx_init", board::init)),
    ("omx_init_peers", || {
        tools::tool!(run_omx, "omx_init_peers", board::peers)
    }),
    ("omx_perf", || tools::tool!(run_omx, "omx_perf", perf, json)),
    ("omx_prepare_binding", || {
        tools::tool!(run_omx, "omx_prepare_binding", board::binding)
    }),
    ("omxd", omxd::program::main),
    ("omx_tune", || tools::tool!(run_omx, "omx_tune", board::tune, json)),
];

fn main() -> ExitCode {
    let called = env::args_os().next().unwrap_or_default();
    let called = Path::new(&called).file_name().unwrap_or_default();
    if let Some((_, tool)) = TOOLS.iter().find(|(name, _)| called == *name) {
        return tool();
    }
    let names: Vec<_> = TOOLS.iter().map(|(name, _)| *name).collect();
    tools::say(
        "guest-tools",
        &format!("call it by one of its names: {}", names.join(", ")),
    );
    ExitCode::FAILURE
}
