//! All tools in one program, for guest images, where each byte costs boot time: which of them runs is the name it is called by.

use std::{env, path::Path, process::ExitCode};

use clap::Parser;
use tools::{board, info, nicctl, perf, run, run_omx};

/// A tool: its name, and what it does.
type Tool = (&'static str, fn(&'static str) -> ExitCode);

const TOOLS: [Tool; 11] = [
    ("nicctl", |name| {
        let arguments = nicctl::Arguments::parse();
        run(name, arguments.json(), || nicctl::main(&arguments))
    }),
    ("omx_check", |name| {
        let arguments = board::check::Arguments::parse();
        run_omx(name, arguments.json, || board::check::main(&arguments))
    }),
    ("omx_counters", |name| {
        let arguments = board::counters::Arguments::parse();
        run_omx(name, arguments.json, || board::counters::main(&arguments))
    }),
    ("omx_endpoint_info", |name| {
        let arguments = board::endpoints::Arguments::parse();
        run_omx(name, arguments.json, || board::endpoints::main(&arguments))
    }),
    ("omx_hostname", |name| {
        let arguments = board::hostname::Arguments::parse();
        run_omx(name, false, || board::hostname::main(&arguments))
    }),
    ("omx_info", |name| {
        let arguments = info::Arguments::parse();
        run_omx(name, arguments.json, || info::main(&arguments))
    }),
    ("omx_init", |name| {
        let arguments = board::init::Arguments::parse();
        run_omx(name, false, || board::init::main(&arguments))
    }),
    ("omx_init_peers", |name| {
        let arguments = board::peers::Arguments::parse();
        run_omx(name, false, || board::peers::main(&arguments))
    }),
    ("omx_perf", |name| {
        let arguments = perf::Arguments::parse();
        run_omx(name, arguments.json(), || perf::main(&arguments))
    }),
    ("omx_prepare_binding", |name| {
        let arguments = board::binding::Arguments::parse();
        run_omx(name, false, || board::binding::main(&arguments))
    }),
    ("omx_tune", |name| {
        let arguments = board::tune::Arguments::parse();
        run_omx(name, arguments.json, || board::tune::main(&arguments))
    }),
];

fn main() -> ExitCode {
    let called = env::args_os().next().unwrap_or_default();
    let called = Path::new(&called).file_name().unwrap_or_default();
    if let Some((name, tool)) = TOOLS.iter().find(|(name, _)| called == *name) {
        return tool(name);
    }
    let names: Vec<_> = TOOLS.iter().map(|(name, _)| *name).collect();
    tools::say(
        "guest-tools",
        &format!("call it by one of its names: {}", names.join(", ")),
    );
    ExitCode::FAILURE
}
