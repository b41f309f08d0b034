//! `weft bench card`: the options of the comparison, which itself is the module `card_comparison` of this crate.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;

use crate::{
    card_comparison,
    cli::common::{CommonOptions, GuestArgs, show},
    programs,
};

/// Exit code when a bar is missed, or too few rounds count to judge it.
const EXIT_BAR_MISSED: u8 = 3;

/// Compare cards that programs drive themselves with the kernel's.
///
/// MX messages between two guests go over a card with `bypass`, over the kernel's card, and TCP goes over the latter, in turns. Copies by a
/// card that is wired to itself are compared with copies by the guest's processor, and so are receives of large messages whose data such a card
/// copies. Then programs over LCI run on eight guests, with multicast by their cards and by themselves. The comparison starts labs of its own and
/// ends them. Exit status 3: a bar is missed, or too few rounds were measured: 5 are enough for LCI, the others need 7. LCI-host without such a card
/// is in `scripts/bench openmx`, and what a frame of the ordinary path costs is counted by `cargo bench -p weft-vnic`.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft bench card", "7 rounds, about six minutes"),
    ("weft bench card --only lci --rounds 5", "only programs over LCI"),
    ("weft bench card --rounds 1 --chart card.svg", "a first look, with a chart"),
]))]
pub(in crate::cli) struct BenchCardArgs {
    /// Rounds in which the rivals take turns.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write a chart of the result here, as SVG.
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Compare only this part.
    #[arg(long, value_name = "PART")]
    only: Option<card_comparison::Part>,
    /// How guests run.
    #[command(flatten)]
    guests: GuestArgs,
}

/// Runs the comparison, and reports by the exit status whether its bars are met.
pub(in crate::cli) fn run(options: &CommonOptions, args: &BenchCardArgs) -> Result<ExitCode> {
    programs::want_full_profile();
    let wanted = card_comparison::Options {
        rounds: args.rounds,
        chart: args.chart.clone(),
        only: args.only,
        accel: args.guests.accel,
        boot_timeout: Duration::from_nanos(args.guests.boot_timeout.0),
    };
    Ok(match card_comparison::compare(&wanted, options.json)? {
        true => ExitCode::SUCCESS,
        false => EXIT_BAR_MISSED.into(),
    })
}
