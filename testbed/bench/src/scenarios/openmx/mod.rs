//! Open-MX against TCP and bare packet sockets, between two network namespaces joined by a veth pair, with one process per core.

mod bare;
mod lci;
mod messages;
mod partner;
mod plan;
mod shared;
mod tcp;
mod turns;
mod work;
mod world;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use self::work::Work;
pub use self::world::{HERE, Setting, THERE, World, enter, run};
use testbed::harness::table::{bars, figures};
use testbed::harness::{self, Cell, Record, Report, Sample, Scenario, Turn, conclude, fields, until_stopped};

/// Compares Open-MX with TCP and with bare packet sockets over a veth pair between two network namespaces.
///
/// Exit status: 0 when every bar is met, 3 when one is missed or there are fewer than 5 rounds, 1 on failure.
#[derive(Debug, Args)]
pub struct Options {
    /// Number of rounds; figures are medians over them
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
    /// Paths to measure; a bar against one that is left out is not judged
    #[arg(
        long,
        alias = "ways",
        value_delimiter = ',',
        default_value = "open-mx,tcp,tcp-plain,bare,bare-back-off,open-mx-inside,bare-inside,lci"
    )]
    paths: Vec<work::Path>,
    /// Print JSON with every sample instead of the table
    #[arg(long)]
    json: bool,
    /// Set by this program for itself once it runs in a namespace of its own.
    #[arg(long, hide = true)]
    inside: bool,
    /// Set by this program for itself when it is the other side.
    #[arg(long, hide = true)]
    other_side: bool,
}

/// Measures, prints the result, and returns whether every bar is met.
pub fn compare(options: &Options) -> Result<bool> {
    ensure!(options.cores.len() == 2, "--cores wants two numbers, such as 0,1");
    if options.other_side {
        return world::serve(options.cores[1]).map(|()| true);
    }
    if !options.inside {
        // Nothing exists yet that a signal could leave behind.
        return Err(enter());
    }
    until_stopped(|stop| {
        let (plan, works) = plan::plan(options);
        let mut sides = Sides {
            world: World::build(&options.cores)?,
            works,
        };
        let features = sides.world.features()?;
        let record = harness::run(plan, &mut sides, stop)?;
        conclude(&record, report(&record, &features), options.json)
    })
}

struct Sides {
    world: World,
    works: BTreeMap<Cell, Work>,
}

impl Scenario for Sides {
    fn measure(&mut self, _round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let work = |cell| self.works.get(cell).copied().context("a cell without work");
        let works: Vec<_> = turn.iter().map(work).collect::<Result<_>>()?;
        let figures = self.world.measure(&works)?;
        let of_cell = |(cell, figures): (&Cell, Vec<f64>)| {
            let cell = *cell;
            figures.into_iter().map(move |figure| (cell, Sample::new(figure)))
        };
        Ok(turn.iter().zip(figures).flat_map(of_cell).collect())
    }
}

fn report(record: &Record, features: &str) -> Report {
    let on: Vec<_> = features
        .lines()
        .filter(|line| line.ends_with(": on"))
        .map(str::trim)
        .collect();
    let text = format!(
        "{}{}Medians of {} rounds over a veth pair, each side on a core of its own. Round trips and messages of 4 MiB: rivals take\n\
         turns within milliseconds, and what is put against each other is of the same turn; else of the same round. The frames of\n\
         every measurement were counted on the interface. Tuned: idle processors do not halt (`omxd --cpu-latency-us-max 0`).\nethtool -k: {}\n",
        figures(record),
        bars(record, "Open-MX"),
        record.plan.rounds,
        on.join(", ").replace(": on", "")
    );
    Report {
        text,
        conditions: fields(json!({ "ethtool": features })),
    }
}
