//! `weft demo`: the options of the demo, which itself is the module `demo` of this crate.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;

use super::common::{CommonOptions, GuestArgs, here_as_json};
use crate::demo::{self, DemoOptions};

/// Measure seven interrupt settings between two guests, and explain the result.
#[derive(Debug, clap::Args)]
#[command(add = here_as_json(&[
    ("weft demo", "measure and explain; takes minutes"),
    ("weft demo --rounds 1 --output quick", "a short one"),
]))]
pub(super) struct DemoArgs {
    /// Folder for the results: text, JSON and charts.
    #[arg(short, long, default_value = "weft-demo", value_name = "FOLDER")]
    output: PathBuf,
    /// Also write the frames of the first round as pcapng (TCP is then measured only in the other rounds).
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Rounds in which the strategies alternate; those that would end later than 155 s after the begin are left out, and the output says so.
    #[arg(long, default_value_t = demo::ROUNDS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// How guests run.
    #[command(flatten)]
    guests: GuestArgs,
}

/// Runs the demo.
pub(super) fn run(options: &CommonOptions, args: &DemoArgs) -> Result<()> {
    let demo = DemoOptions {
        output: args.output.clone(),
        capture: args.capture.clone(),
        rounds: args.rounds,
        accel: args.guests.accel,
        boot_timeout: Duration::from_nanos(args.guests.boot_timeout.0),
    };
    demo::run(&demo, options.json)
}
