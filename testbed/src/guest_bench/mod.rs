//! `scripts/bench guests`: the same two guests over `vnicd` and over tap devices on a Linux bridge, in alternating rounds.
//! Finds out what is wanted, moves into a network namespace of its own, measures, shows. Decides nothing about frames.
//! `scripts/bench links` compares cables with `netem` between the same guests.

mod bridge;
mod cpu;
mod delays;
mod measure;
mod rig;
mod stop;
mod table;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};

use self::{
    measure::{Part, Record, Rival},
    rig::{Rig, Second},
    stop::Stop,
};
use crate::{
    image::{self, Cache, GuestBinaries, Image, Recipe, Step},
    qemu::Qemu,
    report::{progress::Progress, table::print_json},
};

/// Exit code after Ctrl-C, as shells count signals.
const EXIT_INTERRUPTED: u8 = 130;

/// Exit code when a bar is missed, or fewer rounds were made than it takes to judge it.
const EXIT_BAR_MISSED: u8 = 3;

/// Compares two emulated guests over vnicd with the same guests over tap devices on a Linux bridge.
///
/// Both guests boot once, with a card on each. In every round each way is measured, so that drifts of the machine hit
/// all alike; figures are medians over the rounds. The tap devices are QEMU's own, without vhost-net. Needs two cores that have nothing else to do.
///
/// Exit status: 0 when vnicd as shipped meets every bar, 3 when one is missed or there are fewer than 5 rounds, 1 on failure.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 110,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    bridge: Options,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// Other comparisons.
#[derive(Debug, Subcommand)]
enum Verb {
    Delays(delays::DelayOptions),
}

/// Options of the comparison with a bridge.
#[derive(Args, Debug)]
struct Options {
    /// Alternating rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds that TCP and UDP send in each round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Pings in each round
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pings: u32,
    /// What to measure
    #[arg(long, value_delimiter = ',', default_value = "ping,tcp,udp")]
    parts: Vec<Part>,
    /// Measure vnicd with these further arguments too, split at blanks (may be given many times)
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    vnicd_args: Vec<String>,
    /// Print JSON with every sample instead of the table
    #[arg(long)]
    json: bool,
    /// Kernel and initramfs; given by this program to itself once it is in its namespace.
    #[arg(long, hide = true, num_args = 2)]
    in_namespace: Option<Vec<PathBuf>>,
}

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { bridge: options, verb } = Cli::parse();
    // Before the comparison with a bridge is in its namespace, nothing exists that a signal could leave behind.
    let stop = match options.in_namespace.is_some() || verb.is_some() {
        false => None,
        true => match Stop::at_signals() {
            Ok(stop) => Some(stop),
            Err(error) => return failed(&error),
        },
    };
    let outcome = match (&options.in_namespace, &verb, &stop) {
        (_, Some(Verb::Delays(options)), Some(stop)) => delays::compare(options, stop),
        (Some(boot), None, Some(stop)) => compare(&options, boot, stop),
        _ => prepare(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => EXIT_BAR_MISSED.into(),
        // What fails after a signal fails because of it.
        Err(_) if stop.is_some_and(|stop| stop.is_asked()) => EXIT_INTERRUPTED.into(),
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    // Standard error may be closed; then nobody wants the sentence.
    _ = writeln!(io::stderr(), "guest-bench: {error:#}");
    ExitCode::FAILURE
}

/// Makes what needs the outer network (the guest image, which may be downloaded), then starts this program again in a
/// namespace of its own. Returns only when that fails.
fn prepare() -> Result<bool> {
    bridge::check()?;
    let image = guest_image()?;
    Err(bridge::enter_namespace(&[
        "--in-namespace".as_ref(),
        image.kernel.as_ref(),
        image.initramfs.as_ref(),
    ]))
}

/// The image that both guests boot, which may have to be downloaded and made.
fn guest_image() -> Result<Image> {
    crate::programs::find("vnicd")?;
    Qemu::discover()?;
    let progress = Progress::new(0);
    let mut say = |step: Step| progress.say(&step.to_string());
    let image = image::build(
        &Recipe::minimal(),
        &Cache::open_default()?,
        &GuestBinaries::locate()?,
        &mut say,
    )?;
    progress.finish();
    Ok(image)
}

/// Measures and prints; whether every bar is met.
fn compare(options: &Options, boot: &[PathBuf], stop: &Stop) -> Result<bool> {
    let [kernel, initramfs] = boot else {
        anyhow::bail!("--in-namespace wants a kernel and an initramfs");
    };
    bridge::build()?;
    let rivals = Rival::all(&options.vnicd_args);
    let progress = Progress::new(0);
    progress.say("booting two guests");
    let mut rig = Rig::boot(kernel, initramfs, Second::Tap, stop)?;
    progress.finish();
    let mut record = Record::begin(&rivals, &rig)?;
    let steps = u64::from(options.rounds) * rivals.len() as u64;
    let progress = Progress::new(steps);
    for round in 0..options.rounds as usize {
        // Each round begins with another one: who comes first after a change has no lasting advantage.
        for step in 0..rivals.len() {
            let index = (step + round) % rivals.len();
            let rival = &rivals[index];
            progress.say(&format!("round {} of {}: {}", round + 1, options.rounds, rival.name()));
            stop.check()?;
            let sample = measure::sample(&mut rig, rival, options, stop)
                .with_context(|| format!("round {}, {}", round + 1, rival.name()))?;
            record.add(index, sample);
            progress.step();
        }
    }
    progress.finish();
    record.end(&rig)?;
    ensure!(!stop.is_asked(), "interrupted");
    drop(rig);
    if options.json {
        print_json(&table::json(&record))?;
    } else {
        write!(io::stdout().lock(), "{}", table::text(&record)).context("cannot print the table")?;
    }
    Ok(record.all_met())
}
