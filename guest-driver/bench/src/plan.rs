//! What is measured, in which order, and what must come out of it.

use std::collections::BTreeMap;

use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    Options,
    work::{Task, Way, Work},
    world::World,
};

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Half round trips of short messages, both sides spinning.
    Latency,
    /// The same with blocking waits.
    Blocking,
    /// Messages of 128 bytes per second.
    Rate,
    /// Messages of 4 MiB at MTU 1500 and 9000.
    Bandwidth,
    /// Fifteen senders against one.
    Incast,
    /// Messages inside one host.
    Inside,
    /// From the post of a message to the return of a receiver that slept.
    WakeUp,
    /// CPU of a sleeping receiver.
    Idle,
}

/// Lengths of short messages in bytes.
const SHORT: [usize; 4] = [0, 16, 64, 128];
const MTU_USUAL: usize = 1500;
const MTU_JUMBO: usize = 9000;
const SENDERS: usize = 15;

/// All samples.
#[derive(Debug)]
pub struct Record {
    pub rounds: u32,
    pub samples: BTreeMap<Work, Vec<f64>>,
    /// In the order of the parts.
    pub works: Vec<Work>,
    pub bars: Vec<Bar>,
    pub features: String,
}

/// What must be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    pub ours: Work,
    pub limit: Limit,
}

/// See [`Bar`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Our figure divided by the rival's, at least.
    RatioMin(Work, f64),
    /// The same at most.
    RatioMax(Work, f64),
    /// Our figure minus the rival's, at most.
    MoreMax(Work, f64),
    /// Our figure, at most.
    Max(f64),
}

/// A rival, and what is to be reached against its measurement.
type Against = (Way, fn(Work) -> Limit);

fn work(task: Task, way: Way, mtu: usize) -> Work {
    Work { task, way, mtu }
}

/// Works and bars of a part.
fn plan(part: Part) -> (Vec<Work>, Vec<Bar>) {
    let mut works = Vec::new();
    let mut bars = Vec::new();
    let mut rivals = |task, mtu, limits: &[Against]| {
        let ours = work(task, Way::OpenMx, mtu);
        works.push(ours);
        for (way, limit) in limits {
            let rival = work(task, *way, mtu);
            if !works.contains(&rival) {
                works.push(rival);
            }
            bars.push(Bar {
                ours,
                limit: limit(rival),
            });
        }
    };
    match part {
        Part::Latency => {
            for length in SHORT {
                let blocking = false;
                let task = Task::PingPong { length, blocking };
                rivals(
                    task,
                    MTU_USUAL,
                    &[
                        (Way::Tcp, |tcp| Limit::RatioMax(tcp, 0.5)),
                        (Way::Bare, |bare| Limit::MoreMax(bare, 600.0)),
                    ],
                );
            }
        }
        Part::Blocking => {
            for length in SHORT {
                let blocking = true;
                let task = Task::PingPong { length, blocking };
                rivals(task, MTU_USUAL, &[(Way::Tcp, |tcp| Limit::RatioMax(tcp, 0.95))]);
            }
        }
        Part::Rate => {
            rivals(Task::Rate, MTU_USUAL, &[(Way::Bare, |bare| Limit::RatioMin(bare, 0.8))]);
            // What rests alone are worth: without a bar.
            works.push(work(Task::Rate, Way::BareResting, MTU_USUAL));
        }
        Part::Bandwidth => {
            for (mtu, to_tcp) in [
                (MTU_JUMBO, (|tcp| Limit::RatioMin(tcp, 1.0)) as fn(Work) -> Limit),
                (MTU_USUAL, |tcp| Limit::RatioMin(tcp, 0.75)),
            ] {
                let to_bare: fn(Work) -> Limit = |bare| Limit::RatioMin(bare, 0.9);
                rivals(Task::Bandwidth, mtu, &[(Way::TcpPlain, to_tcp), (Way::Bare, to_bare)]);
            }
            works.extend([MTU_JUMBO, MTU_USUAL].map(|mtu| work(Task::Bandwidth, Way::Tcp, mtu)));
        }
        Part::Incast => {
            let single = work(Task::Incast { senders: 1 }, Way::OpenMx, MTU_USUAL);
            let many = work(Task::Incast { senders: SENDERS }, Way::OpenMx, MTU_USUAL);
            works.extend([single, many]);
            bars.push(Bar {
                ours: many,
                limit: Limit::RatioMin(single, 0.8),
            });
        }
        Part::Inside => {
            let lengths = SHORT.map(|length| {
                (
                    Task::PingPong {
                        length,
                        blocking: false,
                    },
                    Some(500.0),
                )
            });
            for (task, more_ns) in lengths.into_iter().chain([(Task::Bandwidth, None)]) {
                let [ours, rival] = [Way::OpenMxInside, Way::BareInside].map(|way| work(task, way, MTU_USUAL));
                works.extend([ours, rival]);
                let limit = match more_ns {
                    Some(more_ns) => Limit::MoreMax(rival, more_ns),
                    None => Limit::RatioMin(rival, 0.9),
                };
                bars.push(Bar { ours, limit });
            }
        }
        Part::WakeUp => {
            let ours = work(Task::WakeUp { tuned: true }, Way::OpenMx, MTU_USUAL);
            works.push(ours);
            // Without tuning it is up to the machine how soon an idle processor wakes up: bare frames show what it takes for anybody.
            let untuned = Task::WakeUp { tuned: false };
            works.extend([Way::OpenMx, Way::Bare].map(|way| work(untuned, way, MTU_USUAL)));
            bars.push(Bar {
                ours,
                limit: Limit::Max(50e3),
            });
        }
        Part::Idle => {
            for tuned in [true, false] {
                let ours = work(Task::Idle { tuned }, Way::OpenMx, MTU_USUAL);
                works.push(ours);
                bars.push(Bar {
                    ours,
                    limit: Limit::Max(10e6),
                });
            }
        }
    }
    (works, bars)
}

/// Runs all rounds.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let mut world = World::build(&options.cores)?;
    let mut record = Record {
        rounds: options.rounds,
        samples: BTreeMap::new(),
        works: Vec::new(),
        bars: Vec::new(),
        features: world.features()?,
    };
    for part in &options.parts {
        let (works, bars) = plan(*part);
        record
            .works
            .extend(works.into_iter().filter(|work| options.ways.contains(&work.way)));
        record.bars.extend(bars);
    }
    let progress = ProgressBar::new(u64::from(options.rounds) * record.works.len() as u64);
    progress.set_style(ProgressStyle::with_template(
        "[{elapsed}] {wide_bar} {pos}/{len} {msg}",
    )?);
    for round in 1..=options.rounds {
        for works in record.works.chunk_by(|a, b| a.takes_turns_with(*b)) {
            let name = crate::table::name(works[0]);
            progress.set_message(format!("round {round}, {name}"));
            progress.tick();
            let figures = world.measure(works).map_err(|error| {
                let ways: Vec<_> = works.iter().map(|work| work.way.name()).collect();
                error.context(format!("round {round}, {name}, {}", ways.join(", ")))
            })?;
            for (work, figures) in works.iter().zip(figures) {
                record.samples.entry(*work).or_default().extend(figures);
            }
            progress.inc(works.len() as u64);
        }
    }
    progress.finish_and_clear();
    Ok(record)
}
