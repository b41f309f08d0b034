//! Speed comparisons of Weft with its rivals: scenarios that plug into the harness of `testbed`.
//!
//! To add a scenario, write a module under `scenarios` that makes a `testbed::harness::Plan` (rivals, measurements, bars), implements
//! `testbed::harness::Scenario` (one turn), and gives it a subcommand here.

mod scenarios;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use testbed::harness::Interrupted;

use scenarios::{dataplane, esp, guests, links, mpi, openmx};

/// The exit status when a bar is missed, or when fewer rounds count than are needed to judge it.
const EXIT_BAR_MISSED: u8 = 3;

/// The exit status after Ctrl-C, as shells count signals.
const EXIT_INTERRUPTED: u8 = 130;

/// Compares the speed of Weft with that of its rivals, which take turns in one run.
///
/// Exit status: 0 when every bar is met, 3 when one is missed or too few rounds count to judge it, 1 on failure, 130 after
/// Ctrl-C.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    Dataplane(dataplane::Options),
    #[command(subcommand)]
    Links(links::Part),
    Guests(guests::Options),
    Openmx(openmx::Options),
    Mpi(mpi::Options),
    Esp(esp::Options),
}

/// Runs the whole program.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().scenario {
        Scenario::Dataplane(options) => dataplane::compare(&options),
        Scenario::Links(part) => links::compare(&part),
        Scenario::Guests(options) => guests::compare(&options),
        Scenario::Openmx(options) => openmx::compare(&options),
        Scenario::Mpi(options) => mpi::compare(&options),
        Scenario::Esp(options) => esp::compare(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => EXIT_BAR_MISSED.into(),
        Err(error) if error.is::<Interrupted>() => EXIT_INTERRUPTED.into(),
        Err(error) => {
            // Standard error may be closed; then the message has no reader.
            _ = writeln!(io::stderr(), "weft-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
