//! The measurements, their order, and the bars that they must reach.

use std::collections::BTreeMap;

use super::{
    Options,
    work::{Path, Task, Work},
};
use testbed::harness::{Bar, Cell, Limit, Measurement, Plan, Weight, fields};

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: u32 = 5;

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Half round trips of short messages while both sides spin.
    Latency,
    /// Half round trips of short messages with blocking waits.
    Blocking,
    /// Messages of 128 bytes per second.
    Rate,
    /// Messages of 4 MiB at MTU 1500 and 9000.
    Bandwidth,
    /// Fifteen senders against one.
    Incast,
    /// Messages within one host.
    Inside,
    /// Time from the post of a message to the return of a receiver that slept.
    WakeUp,
    /// CPU time of a sleeping receiver.
    Idle,
}

/// Lengths of short messages in bytes.
const SHORT: [usize; 4] = [0, 16, 64, 128];
const MTU_USUAL: usize = 1500;
const MTU_JUMBO: usize = 9000;
const SENDERS: usize = 15;

/// The limit that a work must reach.
#[derive(Clone, Copy, Debug)]
struct Goal {
    ours: Work,
    against: Option<Work>,
    limit: Limit,
}

/// All works in their order, with the limits they must reach.
#[derive(Debug, Default)]
struct Works {
    works: Vec<Work>,
    goals: Vec<Goal>,
}

const fn work(task: Task, path: Path, mtu: usize) -> Work {
    Work { task, path, mtu }
}

impl Works {
    /// Adds a work and its rivals, with the limit it must reach against each of them.
    fn add(&mut self, ours: Work, rivals: &[(Path, Limit)]) {
        self.works.push(ours);
        for (path, limit) in rivals {
            let rival = Work { path: *path, ..ours };
            self.works.push(rival);
            self.goals.push(Goal {
                ours,
                against: Some(rival),
                limit: *limit,
            });
        }
    }

    /// Adds a work that is judged without a rival.
    fn add_alone(&mut self, ours: Work, max: f64) {
        self.works.push(ours);
        self.goals.push(Goal {
            ours,
            against: None,
            limit: Limit::Max(max),
        });
    }

    fn add_part(&mut self, part: Part) {
        match part {
            Part::Latency => {
                for length in SHORT {
                    let round_trips = |path| {
                        work(
                            Task::PingPong {
                                length,
                                blocking: false,
                            },
                            path,
                            MTU_USUAL,
                        )
                    };
                    let rivals = [(Path::Tcp, Limit::RatioMax(0.5)), (Path::Bare, Limit::MoreMax(600.0))];
                    self.add(round_trips(Path::OpenMx), &rivals);
                    let ours = round_trips(Path::Lci);
                    self.works.push(ours);
                    self.goals.push(Goal {
                        ours,
                        against: Some(round_trips(Path::Tcp)),
                        limit: if length == 0 {
                            Limit::RatioMax(0.6)
                        } else {
                            Limit::Shown
                        },
                    });
                }
            }
            Part::Blocking => self.add_round_trips(Path::OpenMx, true, &[(Path::Tcp, Limit::RatioMax(0.95))]),
            Part::Rate => {
                let ours = work(Task::Rate, Path::OpenMx, MTU_USUAL);
                self.add(ours, &[(Path::Bare, Limit::RatioMin(0.8))]);
                // The effect of the receiver's back-off alone is measured without a bar.
                self.works.push(work(Task::Rate, Path::BareBackOff, MTU_USUAL));
            }
            Part::Bandwidth => self.add_bandwidth(),
            Part::Incast => {
                let incast = |senders| work(Task::Incast { senders }, Path::OpenMx, MTU_USUAL);
                let (single, many) = (incast(1), incast(SENDERS));
                self.works.extend([single, many]);
                self.goals.push(Goal {
                    ours: many,
                    against: Some(single),
                    limit: Limit::RatioMin(0.8),
                });
            }
            Part::Inside => {
                self.add_round_trips(Path::OpenMxInside, false, &[(Path::BareInside, Limit::MoreMax(500.0))]);
                let ours = work(Task::Bandwidth, Path::OpenMxInside, MTU_USUAL);
                self.add(ours, &[(Path::BareInside, Limit::RatioMin(0.9))]);
            }
            Part::WakeUp => {
                self.add_alone(work(Task::WakeUp { tuned: true }, Path::OpenMx, MTU_USUAL), 50e3);
                // Without tuning the machine determines how soon an idle processor wakes up: bare frames show what it
                // takes for any program.
                let untuned = |path| work(Task::WakeUp { tuned: false }, path, MTU_USUAL);
                self.works.extend([Path::OpenMx, Path::Bare].map(untuned));
            }
            Part::Idle => {
                for tuned in [true, false] {
                    self.add_alone(work(Task::Idle { tuned }, Path::OpenMx, MTU_USUAL), 10e6);
                }
            }
        }
    }

    fn add_round_trips(&mut self, ours: Path, blocking: bool, rivals: &[(Path, Limit)]) {
        for length in SHORT {
            self.add(work(Task::PingPong { length, blocking }, ours, MTU_USUAL), rivals);
        }
    }

    fn add_bandwidth(&mut self) {
        for (mtu, to_tcp) in [(MTU_JUMBO, 1.0), (MTU_USUAL, 0.75)] {
            let rivals = [
                (Path::TcpPlain, Limit::RatioMin(to_tcp)),
                (Path::Bare, Limit::RatioMin(0.9)),
            ];
            self.add(work(Task::Bandwidth, Path::OpenMx, mtu), &rivals);
        }
        // TCP with the interface's offloads is measured without a bar.
        self.works
            .extend([MTU_JUMBO, MTU_USUAL].map(|mtu| work(Task::Bandwidth, Path::Tcp, mtu)));
    }
}

/// Makes the plan, and the work of each cell.
pub fn plan(options: &Options) -> (Plan, BTreeMap<Cell, Work>) {
    let mut wanted = Works::default();
    options.parts.iter().for_each(|part| wanted.add_part(*part));
    let mut plan = Plan::new(options.rounds, ROUNDS_MIN);
    let mut names = Vec::new();
    let mut paths = Vec::new();
    let mut cells = BTreeMap::new();
    for work in &wanted.works {
        if !names.contains(&work.name()) {
            names.push(work.name());
            plan.measurements.push(Measurement {
                more: fields(serde_json::json!({ "mtu": work.mtu })),
                ..Measurement::new(work.name(), work.task.unit())
            });
        }
        if !paths.contains(&work.path) {
            paths.push(work.path);
            plan.rivals.push(work.path.name().to_owned());
        }
    }
    let cell = |work: Work| {
        Some(Cell {
            measurement: names.iter().position(|name| *name == work.name())?,
            rival: paths.iter().position(|path| *path == work.path)?,
        })
    };
    let measured: Vec<_> = wanted
        .works
        .iter()
        .filter(|work| options.paths.contains(&work.path))
        .collect();
    for works in measured.chunk_by(|a, b| a.takes_turns_with(**b)) {
        let turn: Vec<_> = works.iter().filter_map(|work| Some((cell(**work)?, **work))).collect();
        plan.groups.push(vec![turn.iter().map(|(cell, _)| *cell).collect()]);
        cells.extend(turn);
    }
    for goal in &wanted.goals {
        let Some(ours) = cell(goal.ours) else { continue };
        plan.bars.push(Bar {
            ours,
            against: goal.against.and_then(cell),
            limit: goal.limit,
            weight: Weight::Must,
        });
    }
    (plan, cells)
}
