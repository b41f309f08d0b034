//! Stock Open MPI over the provider `mx`, over TCP, over ESP and over shared memory, between two network namespaces joined by a veth pair
//! and within one.

pub mod alone;
mod figure;
pub mod frames;
pub mod hosts;
pub mod launch;
mod perf;
mod plan;
mod results;
mod rival;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use self::alone::Watch;
use self::frames::Frames;
use self::hosts::Hosts;
use self::plan::{LENGTHS, OPERATIONS, Work};
use self::rival::Rival;
use super::openmx::enter;
use testbed::harness::table::{Style, Table, bars, figures, numbers, words};
use testbed::harness::{
    Bar, Cell, Limit, Record, Report, Sample, Scenario, Turn, conclude, fields, others, run, until_stopped,
};
use testbed::mpi::imb::length_text;

/// Compares stock Open MPI over the provider mx with TCP, with ESP, with libfabric's tcp and with shared memory.
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
        default_value = "ping-pong,operations,sizes,sizes-inside,threads,inside,memory,overlap"
    )]
    parts: Vec<plan::Part>,
    /// Number of ranks whose memory is measured
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(2..=256))]
    ranks: u16,
    /// Print JSON with every sample instead of the tables
    #[arg(long)]
    json: bool,
    /// Set by this program for itself once it runs in a namespace of its own.
    #[arg(long, hide = true)]
    inside: bool,
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
        let versions = launch::versions()?;
        let hosts = Hosts::build(&options.cores, stop)?;
        let mut transports = Transports {
            frames: Frames::count()?,
            hosts,
            works,
            memory_ranks: options.ranks.into(),
        };
        let record = run(plan, &mut transports, stop)?;
        conclude(&record, report(&record, &transports.works, &versions), options.json)
    })
}

struct Transports {
    hosts: Hosts,
    frames: Frames,
    works: BTreeMap<Cell, Work>,
    memory_ranks: usize,
}

impl Scenario for Transports {
    fn measure(&mut self, _round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let work = |cell| self.works.get(cell).copied().context("a cell without work");
        let works: Vec<_> = turn.iter().map(work).collect::<Result<_>>()?;
        let Work { rival, figure } = *works.first().context("an empty turn")?;
        self.hosts.prepare(figure.mtu, rival.has_offloads())?;
        let watch = Watch::begin()?;
        let samples: Vec<_> = if rival == Rival::OmxPerf {
            vec![perf::measure(&self.hosts)?]
        } else {
            let figures: Vec<_> = works.iter().map(|work| work.figure).collect();
            let rows = launch::measure(&self.hosts, &mut self.frames, rival, &figures, self.memory_ranks)?;
            figures
                .iter()
                .map(|figure| figure.sample(&rows))
                .collect::<Result<_>>()?
        };
        let disturbed = watch.cores_of_others()?;
        let samples = turn.iter().zip(samples);
        Ok(samples
            .map(|(cell, sample)| (*cell, Sample { disturbed, ..sample }))
            .collect())
    }
}

/// Returns how much faster the provider is than a rival in one operation, in percent, as the paper counts.
fn gain(
    record: &Record,
    works: &BTreeMap<Cell, Work>,
    against: Rival,
    benchmark: &'static str,
    length: usize,
) -> Option<f64> {
    let figure = plan::operation(benchmark, length);
    let cell = |rival| {
        let wanted = Work { rival, figure };
        works.iter().find_map(|(cell, work)| (*work == wanted).then_some(*cell))
    };
    let bar = Bar::must(cell(Rival::Mx)?, cell(against)?, Limit::Shown);
    Some((1.0 / record.value(&bar)? - 1.0) * 100.0)
}

/// Makes the table of the paper: what the operations of four ranks gain over TCP.
fn gains(record: &Record, works: &BTreeMap<Cell, Work>) -> Table {
    let mut columns = vec![words("mx with 4 ranks is faster"), words("than")];
    columns.extend(LENGTHS.map(|length| numbers(length_text(length))));
    columns.push(numbers("16 B, the paper's"));
    let mut table = Table::new(Style::Framed, &columns);
    for (benchmark, of_paper) in OPERATIONS {
        for rival in [Rival::Tcp, Rival::TcpAndMemory, Rival::EspAndMemory] {
            let mut row = vec![benchmark.to_owned(), rival.name().to_owned()];
            row.extend(LENGTHS.map(|length| {
                // An operation without messages stands below the shortest ones.
                let is_repeated = length != LENGTHS[0]
                    && plan::operation(benchmark, length) == plan::operation(benchmark, LENGTHS[0]);
                let gain = gain(record, works, rival, benchmark, length).filter(|_| !is_repeated);
                gain.map_or_else(String::new, |gain| format!("{gain:+.0} %"))
            }));
            row.push(if rival == Rival::Tcp {
                format!("{of_paper:+.1} %")
            } else {
                String::new()
            });
            table.row(row);
        }
    }
    table
}

fn report(record: &Record, works: &BTreeMap<Cell, Work>, [mpi, libfabric]: &[String; 2]) -> Report {
    let mut text = format!("{}{}", figures(record), bars(record, "mx"));
    if works.values().any(|work| work.figure.part == plan::Part::Operations) {
        text += &gains(record, works).to_string();
    }
    text += &format!(
        "Open MPI {mpi}, libfabric {libfabric}. Medians of {} rounds over a veth pair, each host on a core of its own; what is put against\n\
         each other is of the same round. Two ranks spin, four and more yield. The provider's counters say that it carried the messages,\n\
         and with ESP no TCP segment of the ranks came over the interface.\n",
        record.plan.rounds,
    );
    let cores_of_others = others::cores_of_others(record);
    text += &others::not_alone(cores_of_others);
    let conditions = json!({ "open_mpi": mpi, "libfabric": libfabric, "cores_of_others": cores_of_others });
    Report {
        text,
        conditions: fields(conditions),
    }
}
