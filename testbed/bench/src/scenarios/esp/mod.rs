//! Stream sockets over ESP against TCP, between two network namespaces joined by a veth pair: the same programs with and without
//! `esp-run`.

mod connections;
mod figure;
mod mpi;
mod perf;
mod plan;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use self::figure::{Figure, Kind, Rival};
use super::mpi::alone::Watch;
use super::mpi::frames::Frames;
use super::mpi::hosts::Hosts;
use super::openmx::enter;
use testbed::harness::table::{bars, figures};
use testbed::harness::{Cell, Record, Report, Sample, Scenario, Turn, conclude, fields, others, run, until_stopped};

/// Compares stream sockets over ESP with TCP, by the same programs with and without esp-run.
///
/// Exit status: 0 when every bar is met, 3 when one is missed or there are fewer than 7 rounds, 1 on failure.
#[derive(Debug, Args)]
pub struct Options {
    /// Number of rounds; figures are medians over them
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Cores of the two hosts
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    cores: Vec<usize>,
    /// What to measure
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "latency,send,asleep,stream,operations,kernels,connections"
    )]
    parts: Vec<plan::Part>,
    /// Print JSON with every sample instead of the tables
    #[arg(long)]
    json: bool,
    /// Set by this program for itself once it runs in a namespace of its own.
    #[arg(long, hide = true)]
    inside: bool,
}

/// One figure of one rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    rival: Rival,
    figure: Figure,
}

/// Measures, prints the result, and returns whether every bar is met.
pub fn compare(options: &Options) -> Result<bool> {
    ensure!(options.cores.len() == 2, "--cores wants two numbers, such as 0,1");
    if !options.inside {
        // Nothing exists yet that a signal could leave behind.
        return Err(enter());
    }
    until_stopped(|stop| {
        let (plan, works) = plan::plan(options);
        let hosts = Hosts::build(&options.cores, stop)?;
        let mut rivals = Rivals {
            frames: Frames::count()?,
            hosts,
            works,
        };
        let record = run(plan, &mut rivals, stop)?;
        conclude(&record, report(&record), options.json)
    })
}

struct Rivals {
    hosts: Hosts,
    frames: Frames,
    works: BTreeMap<Cell, Work>,
}

impl Scenario for Rivals {
    fn measure(&mut self, _round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let work = |cell| self.works.get(cell).copied().context("a cell without work");
        let works: Vec<_> = turn.iter().map(work).collect::<Result<_>>()?;
        let Work { rival, figure } = *works.first().context("an empty turn")?;
        if figure.kind == Kind::IdleConnection {
            return Ok(vec![(turn[0], Sample::new(connections::bytes_of_one()?))]);
        }
        self.hosts
            .prepare(figure.mtu, works.iter().all(|work| work.rival.has_offloads()))?;
        let watch = Watch::begin()?;
        let samples = if figure.kind.is_of_mpi() {
            let figures: Vec<_> = works.iter().map(|work| work.figure).collect();
            let samples = mpi::measure(&self.hosts, &mut self.frames, rival, &figures)?;
            samples.into_iter().map(|sample| vec![sample]).collect()
        } else {
            perf::measure(&self.hosts, &mut self.frames, &works)?
        };
        let disturbed = watch.cores_of_others()?;
        let of_cell = |(cell, samples): (&Cell, Vec<Sample>)| {
            let cell = *cell;
            samples
                .into_iter()
                .map(move |sample| (cell, Sample { disturbed, ..sample }))
        };
        Ok(turn.iter().zip(samples).flat_map(of_cell).collect())
    }
}

fn report(record: &Record) -> Report {
    let mut text = format!(
        "{}{}Medians of {} rounds over a veth pair, each host on a core of its own; what is put against each other is of the same turn\n\
         or the same round. TCP has TCP_NODELAY and, but for \"TCP, no offloads\", all that the interface offers. The frames that came over\n\
         the interface were counted: over ESP no TCP segment of the programs was among them, over TCP no frame of ESP.\n",
        figures(record),
        bars(record, "ESP"),
        record.plan.rounds,
    );
    let cores_of_others = others::cores_of_others(record);
    text += &others::not_alone(cores_of_others);
    Report {
        text,
        conditions: fields(json!({ "cores_of_others": cores_of_others })),
    }
}
