//! `weft`: parses the command line, does the work through the other modules, and reports the result. Every failure is
//! one sentence on standard error and an exit code that `--help` documents. Each verb is in the file of its name: its
//! arguments, its help, its action and its output.

mod capture;
mod check;
mod command_line;
mod common;
mod completion;
mod console;
mod cp;
mod demo;
mod exec;
mod graph;
mod help;
mod inventory;
mod lab;
mod link;
mod logs;
mod nic;
mod node;
mod pingall;
mod switch;
mod trunk;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use anyhow::Result;

pub use self::{command_line::Cli, help::json_examples};

use self::{
    command_line::Verb,
    common::{CommonOptions, failure},
};
use crate::supervisor::reaper;

/// Runs the whole program.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(reaped) = reaper::asked_for() {
        start_logging(0);
        return reaped.map_or_else(|error| failure::report(&error), |()| ExitCode::SUCCESS);
    }
    if completion::answered() {
        return ExitCode::SUCCESS;
    }
    let (cli, meant) = help::parse();
    start_logging(cli.options.verbose);
    match meant.and_then(|()| run(&cli.options, &cli.verb)) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}

/// Sends logs to standard error; `RUST_LOG` allows more detail than `-v`.
fn start_logging(verbose: u8) {
    use tracing_subscriber::EnvFilter;
    let default = ["weft=warn,testbed=warn", "weft=info,testbed=info", "debug"][usize::from(verbose.min(2))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // A log on a full disk loses its lines and the lab continues: printing the reason would end the process.
        .log_internal_errors(false)
        .with_target(false)
        .init();
}

fn run(options: &CommonOptions, verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Check(_) => return check::run(options),
        Verb::Init(args) => lab::init::run(args)?,
        Verb::Up(args) => lab::up::run(options, args)?,
        Verb::Deploy(args) => lab::deploy::run(options, args)?,
        Verb::Wait(args) => lab::wait::run(options, args)?,
        Verb::Ps(_) => lab::ps::run(options)?,
        Verb::Exec(args) => return Ok(exec::run(options, args)),
        Verb::Cp(args) => cp::run(options, args)?,
        Verb::Console(args) => return console::run(options, args),
        Verb::Logs(args) => logs::run(options, args)?,
        Verb::Stop(args) => node::stop::run(options, args)?,
        Verb::Start(args) => node::start::run(options, args)?,
        Verb::Restart(args) => node::restart::run(options, args)?,
        Verb::Pingall(args) => return pingall::run(options, args),
        Verb::Inventory(args) => inventory::run(options, args)?,
        Verb::Graph(args) => graph::run(options, args)?,
        Verb::Nic(args) => nic::run(options, args)?,
        Verb::Link(args) => link::run(options, args)?,
        Verb::Trunk(args) => trunk::run(options, args)?,
        Verb::Switch(args) => switch::run(options, args)?,
        Verb::Capture(args) => capture::run(options, args)?,
        Verb::Down(args) => lab::down::run(options, args)?,
        Verb::Save(args) => lab::save::run(options, args)?,
        Verb::Clean(args) => lab::clean::run(args)?,
        Verb::Demo(args) => demo::run(options, args)?,
        Verb::Completion(args) => completion::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
