//! The cost of the settings of cables: `settings` between two test frontends, `delays` between two guests.

mod delays;
mod settings;

use anyhow::Result;
use clap::Subcommand;

/// Measures what the settings of cables cost.
#[derive(Debug, Subcommand)]
pub enum Part {
    Settings(settings::Options),
    Delays(delays::Options),
}

/// Measures, prints the result, and returns whether every bar is met.
pub fn compare(part: &Part) -> Result<bool> {
    match part {
        Part::Settings(options) => settings::compare(options),
        Part::Delays(options) => delays::compare(options),
    }
}
