//! What is measured, in which order, and what must come out of it.

use std::collections::BTreeMap;

use super::{
    Options,
    work::{Task, Way, Work},
};
use crate::harness::{Bar, Cell, Limit, Measurement, Plan, Weight, fields};

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: u32 = 5;

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

/// What a work must reach.
#[derive(Clone, Copy, Debug)]
struct Goal {
    ours: Work,
    against: Option<Work>,
    limit: Limit,
}

/// All works in their order, and what they must reach.
#[derive(Debug, Default)]
struct Works {
    works: Vec<Work>,
    goals: Vec<Goal>,
}

const fn work(task: Task, way: Way, mtu: usize) -> Work {
    Work { task, way, mtu }
}

impl Works {
    /// Adds a work and its rivals, with what it must reach against each of them.
    fn add(&mut self, ours: Work, rivals: &[(Way, Limit)]) {
        self.works.push(ours);
        for (way, limit) in rivals {
            let rival = Work { way: *way, ..ours };
            self.works.push(rival);
            self.goals.push(Goal {
                ours,
                against: Some(rival),
                limit: *limit,
            });
        }
    }

    /// Adds a work that is judged alone.
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
            Part::Latency => self.add_round_trips(
                Way::OpenMx,
                false,
                &[(Way::Tcp, Limit::RatioMax(0.5)), (Way::Bare, Limit::MoreMax(600.0))],
            ),
            Part::Blocking => self.add_round_trips(Way::OpenMx, true, &[(Way::Tcp, Limit::RatioMax(0.95))]),
            Part::Rate => {
                let ours = work(Task::Rate, Way::OpenMx, MTU_USUAL);
                self.add(ours, &[(Way::Bare, Limit::RatioMin(0.8))]);
                // What the receiver's back-off alone is worth: without a bar.
                self.works.push(work(Task::Rate, Way::BareResting, MTU_USUAL));
            }
            Part::Bandwidth => self.add_bandwidth(),
            Part::Incast => {
                let incast = |senders| work(Task::Incast { senders }, Way::OpenMx, MTU_USUAL);
                let (single, many) = (incast(1), incast(SENDERS));
                self.works.extend([single, many]);
                self.goals.push(Goal {
                    ours: many,
                    against: Some(single),
                    limit: Limit::RatioMin(0.8),
                });
            }
            Part::Inside => {
                self.add_round_trips(Way::OpenMxInside, false, &[(Way::BareInside, Limit::MoreMax(500.0))]);
                let ours = work(Task::Bandwidth, Way::OpenMxInside, MTU_USUAL);
                self.add(ours, &[(Way::BareInside, Limit::RatioMin(0.9))]);
            }
            Part::WakeUp => {
                self.add_alone(work(Task::WakeUp { tuned: true }, Way::OpenMx, MTU_USUAL), 50e3);
                // Without tuning it is up to the machine how soon an idle processor wakes up: bare frames show what it takes for
                // any program.
                let untuned = |way| work(Task::WakeUp { tuned: false }, way, MTU_USUAL);
                self.works.extend([Way::OpenMx, Way::Bare].map(untuned));
            }
            Part::Idle => {
                for tuned in [true, false] {
                    self.add_alone(work(Task::Idle { tuned }, Way::OpenMx, MTU_USUAL), 10e6);
                }
            }
        }
    }

    fn add_round_trips(&mut self, ours: Way, blocking: bool, rivals: &[(Way, Limit)]) {
        for length in SHORT {
            self.add(work(Task::PingPong { length, blocking }, ours, MTU_USUAL), rivals);
        }
    }

    fn add_bandwidth(&mut self) {
        for (mtu, to_tcp) in [(MTU_JUMBO, 1.0), (MTU_USUAL, 0.75)] {
            let rivals = [
                (Way::TcpPlain, Limit::RatioMin(to_tcp)),
                (Way::Bare, Limit::RatioMin(0.9)),
            ];
            self.add(work(Task::Bandwidth, Way::OpenMx, mtu), &rivals);
        }
        // What TCP does with the interface's offloads: without a bar.
        self.works
            .extend([MTU_JUMBO, MTU_USUAL].map(|mtu| work(Task::Bandwidth, Way::Tcp, mtu)));
    }
}

/// The plan, and the work of each cell.
pub fn plan(options: &Options) -> (Plan, BTreeMap<Cell, Work>) {
    let mut wanted = Works::default();
    options.parts.iter().for_each(|part| wanted.add_part(*part));
    let mut plan = Plan::new(options.rounds, ROUNDS_MIN);
    let mut names = Vec::new();
    let mut ways = Vec::new();
    let mut cells = BTreeMap::new();
    for work in &wanted.works {
        if !names.contains(&work.name()) {
            names.push(work.name());
            plan.measurements.push(Measurement {
                more: fields(serde_json::json!({ "mtu": work.mtu })),
                ..Measurement::new(work.name(), work.task.unit())
            });
        }
        if !ways.contains(&work.way) {
            ways.push(work.way);
            plan.rivals.push(work.way.name().to_owned());
        }
    }
    let cell = |work: Work| {
        Some(Cell {
            measurement: names.iter().position(|name| *name == work.name())?,
            rival: ways.iter().position(|way| *way == work.way)?,
        })
    };
    let measured: Vec<_> = wanted
        .works
        .iter()
        .filter(|work| options.ways.contains(&work.way))
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
