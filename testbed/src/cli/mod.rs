//! `weft`: parses the command line, does the work through the other modules, and reports the result. Every failure is
//! one sentence on standard error and an exit code that `--help` documents. Each verb is in the file of its name: its
//! arguments, its help, its action and its output; a verb whose arguments others have too has its help in the list of
//! verbs.

mod bench;
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
mod mpirun;
mod nic;
mod node;
mod pingall;
mod switch;
mod trunk;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

pub use self::{command_line::Cli, help::json_examples};

use self::{command_line::Verb, common::failure};
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
    match meant.and_then(|()| Verb::run(&cli.options, &cli.verb)) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}

/// Sends logs to standard error; `RUST_LOG` allows more detail than `-v`.
fn start_logging(verbose: u8) {
    use tracing_subscriber::{
        filter::{LevelFilter, Targets},
        layer::SubscriberExt,
        util::SubscriberInitExt,
    };
    let default = ["weft=warn,testbed=warn", "weft=info,testbed=info", "debug"][usize::from(verbose.min(2))];
    let wanted = std::env::var("RUST_LOG").ok().and_then(|wanted| wanted.parse().ok());
    let filter: Targets = wanted.or_else(|| default.parse().ok()).unwrap_or_default();
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // A log on a full disk loses its lines and the lab continues: printing the reason would end the process.
        .log_internal_errors(false)
        .with_target(false)
        .finish()
        .with(filter)
        .init();
}
