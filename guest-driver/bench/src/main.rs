//! `openmx-bench`: Open-MX against TCP and bare packet sockets, between two network namespaces joined by a veth pair, one
//! process per core, alternating in one run. Called by `scripts/bench openmx`, which builds what is needed.

mod bare;
mod messages;
mod partner;
mod plan;
mod shared;
mod table;
mod tcp;
mod turns;
mod work;
mod world;

use std::process::ExitCode;

use clap::Parser;

/// Exit status when a bar is missed, or fewer rounds were made than it takes to judge it.
const EXIT_BAR_MISSED: u8 = 3;

/// Compares Open-MX with TCP and with bare packet sockets over a veth pair between two network namespaces.
///
/// Exit status: 0 when every bar is met, 3 when one is missed or there are fewer than 5 rounds, 1 on failure.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Options {
    /// Rounds; figures are medians over them
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Cores of the two sides
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    cores: Vec<usize>,
    /// What to measure
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "latency,blocking,rate,bandwidth,incast,inside,wake-up,idle"
    )]
    parts: Vec<plan::Part>,
    /// Ways to measure; a bar against one that is left out is not judged
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "open-mx,tcp,tcp-plain,bare,bare-resting,open-mx-inside,bare-inside"
    )]
    ways: Vec<work::Way>,
    /// Print JSON with every sample instead of the table
    #[arg(long)]
    json: bool,
    /// Given by this program to itself once it is in a namespace of its own.
    #[arg(long, hide = true)]
    inside: bool,
    /// Given by this program to itself: it is the other side.
    #[arg(long, hide = true)]
    other_side: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = if options.cores.len() != 2 {
        Err(anyhow::anyhow!("--cores wants two numbers, such as 0,1"))
    } else if options.other_side {
        world::serve(options.cores[1]).map(|()| true)
    } else if options.inside {
        compare(&options)
    } else {
        Err(world::enter())
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => EXIT_BAR_MISSED.into(),
        Err(error) => {
            eprintln!("openmx-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints; whether every bar is met.
fn compare(options: &Options) -> anyhow::Result<bool> {
    let record = plan::run(options)?;
    if options.json {
        println!("{}", table::json(&record));
    } else {
        print!("{}", table::text(&record));
    }
    Ok(table::all_met(&record))
}
