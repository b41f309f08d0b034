//! The measurements of each rival, their order, and the bars that they must reach.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    Options,
    figure::{Figure, Kind},
    rival::Rival,
};
use testbed::harness::{Bar, Cell, Limit, Measurement, Plan, Weight, fields};

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: u32 = 7;

/// The operations of four ranks, with the gain over TCP at 16 bytes that the paper reports for sixteen, in percent (R-OM5).
pub const OPERATIONS: [(&str, f64); 10] = [
    ("SendRecv", 107.0),
    ("Exchange", 143.0),
    ("Allreduce", 87.9),
    ("Reduce", 64.7),
    ("Allgather", 79.2),
    ("Gather", 72.5),
    ("Scatter", 86.3),
    ("Alltoall", 47.0),
    ("Bcast", 44.6),
    ("Barrier", 73.7),
];
/// The operation without a message.
const BARRIER: &str = "Barrier";
/// Lengths of the messages of four ranks.
pub const LENGTHS: [usize; 3] = [16, 4 << 10, 128 << 10];
/// Length of long messages.
const LONG: usize = 4 << 20;

/// The operations of four ranks that are measured over the lengths around the rendezvous threshold.
pub const SIZED: [&str; 6] = [
    "Allreduce",
    "Alltoall",
    "Reduce",
    "Reduce_scatter",
    "Allgather",
    "SendRecv",
];
/// The shortest and the longest of these lengths; each one between them is twice the one before.
const SIZES: [usize; 2] = [4 << 10, 1 << 20];
/// Where the length doubles, the time may grow by half as much again. More is a step, where another protocol begins.
const STEP_MAX: f64 = 3.0;
const OVER_TCP_MAX: f64 = 1.2;
const OVER_MEMORY_MAX: f64 = 2.0;
/// What several threads of two ranks do at once, with the length of their messages.
pub const THREADED: [(&str, usize); 2] = [("Sendrecv", 16 << 20), ("Receivers", 200_000)];

const MTU_USUAL: usize = 1500;
pub const MTU_JUMBO: usize = 9000;

const NANOSECONDS_OVER_OMX_PERF_MAX: f64 = 500.0;
const BYTES_OVER_TCP_MAX: f64 = 24.0 * 1024.0 * 1024.0;
const HIDDEN_PERCENT_MIN: f64 = 80.0;

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Messages there and back between two namespaces: empty ones, and 4 MiB at MTU 1500 and 9000.
    PingPong,
    /// Ten operations of four ranks, two in each namespace.
    Operations,
    /// Six operations of four ranks, two in each namespace, with messages of 4 KiB to 1 MiB at MTU 9000 and 1500.
    Sizes,
    /// Those operations of four ranks within one namespace.
    SizesInside,
    /// Messages of several threads of two ranks at once.
    Threads,
    /// Empty messages there and back within one namespace.
    Inside,
    /// Resident memory of a rank that has exchanged a message with every other one.
    Memory,
    /// The share of a transfer of 4 MiB that computation hides.
    Overlap,
}

/// One figure of one rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub rival: Rival,
    pub figure: Figure,
}

/// Returns the figure of an operation of four ranks.
pub fn operation(benchmark: &'static str, length: usize) -> Figure {
    let bytes = if benchmark == BARRIER { 0 } else { length };
    Figure {
        part: Part::Operations,
        mtu: MTU_USUAL,
        kind: Kind::Time { benchmark, bytes },
    }
}

struct Builder {
    plan: Plan,
    figures: Vec<Figure>,
    rivals: Vec<Rival>,
    works: BTreeMap<Cell, Work>,
}

impl Builder {
    /// Returns the cell of a work, which is added to the plan where it is new.
    fn cell(&mut self, work: Work) -> Cell {
        let figure = work.figure;
        let measurement = self
            .figures
            .iter()
            .position(|known| *known == figure)
            .unwrap_or_else(|| {
                self.figures.push(figure);
                self.plan.measurements.push(Measurement {
                    more: fields(json!({ "mtu": figure.mtu })),
                    ..Measurement::new(figure.name(), figure.unit())
                });
                self.figures.len() - 1
            });
        let rival = self
            .rivals
            .iter()
            .position(|known| *known == work.rival)
            .unwrap_or_else(|| {
                self.rivals.push(work.rival);
                self.plan.rivals.push(work.rival.name().to_owned());
                self.rivals.len() - 1
            });
        let cell = Cell { measurement, rival };
        self.works.insert(cell, work);
        cell
    }

    /// Adds a group of turns, each with the figures of one rival.
    fn group(&mut self, turns: &[(Rival, &[Figure])]) {
        let turns = turns.iter().map(|(rival, figures)| {
            let works = figures.iter().map(|figure| Work {
                rival: *rival,
                figure: *figure,
            });
            works.map(|work| self.cell(work)).collect()
        });
        let turns = turns.collect();
        self.plan.groups.push(turns);
    }

    /// Adds a bar for the provider.
    fn bar(&mut self, figure: Figure, against: Option<Rival>, limit: Limit, weight: Weight) {
        let cell = |rival| Work { rival, figure };
        let ours = self.cell(cell(Rival::Mx));
        let against = against.map(|rival| self.cell(cell(rival)));
        self.plan.bars.push(Bar {
            ours,
            against,
            limit,
            weight,
        });
    }

    fn ping_pong(&mut self) {
        let kind = Kind::Time {
            benchmark: "PingPong",
            bytes: 0,
        };
        let figure = |mtu, kind| Figure {
            part: Part::PingPong,
            mtu,
            kind,
        };
        let empty = figure(MTU_USUAL, kind);
        for against in [Rival::Tcp, Rival::LibfabricTcp] {
            self.bar(empty, Some(against), Limit::RatioMax(0.6), Weight::Must);
            self.bar(empty, Some(against), Limit::RatioMax(0.45), Weight::Aim);
        }
        let to_omx_perf = Limit::MoreMax(NANOSECONDS_OVER_OMX_PERF_MAX);
        self.bar(empty, Some(Rival::OmxPerf), to_omx_perf, Weight::Must);
        let [usual, jumbo] = [MTU_USUAL, MTU_JUMBO].map(|mtu| figure(mtu, Kind::Rate { bytes: LONG }));
        for (long, must, aim) in [(jumbo, 0.95, 1.1), (usual, 0.7, 0.9)] {
            for against in [Rival::TcpPlain, Rival::LibfabricTcpPlain] {
                self.bar(long, Some(against), Limit::RatioMin(must), Weight::Must);
                self.bar(long, Some(against), Limit::RatioMin(aim), Weight::Aim);
            }
        }
        self.group(&[
            (Rival::Mx, &[empty, usual]),
            (Rival::Tcp, &[empty, usual]),
            (Rival::Esp, &[empty, usual]),
            (Rival::LibfabricTcp, &[empty, usual]),
            (Rival::TcpPlain, &[usual]),
            (Rival::LibfabricTcpPlain, &[usual]),
            (Rival::OmxPerf, &[empty]),
        ]);
        self.group(&[
            (Rival::Mx, &[jumbo]),
            (Rival::TcpPlain, &[jumbo]),
            (Rival::LibfabricTcpPlain, &[jumbo]),
            (Rival::Tcp, &[jumbo]),
            (Rival::Esp, &[jumbo]),
            (Rival::LibfabricTcp, &[jumbo]),
        ]);
    }

    fn operations(&mut self) {
        let mut figures = Vec::new();
        for (benchmark, _) in OPERATIONS {
            let lengths = LENGTHS.iter().map(|length| operation(benchmark, *length));
            figures.extend(lengths);
            let shortest = operation(benchmark, LENGTHS[0]);
            self.bar(shortest, Some(Rival::Tcp), Limit::RatioMax(1.0), Weight::Must);
        }
        figures.dedup();
        let rivals = [Rival::Mx, Rival::Tcp, Rival::TcpAndMemory, Rival::EspAndMemory];
        self.group(&rivals.map(|rival| (rival, &*figures)));
    }

    /// Adds the operations over all lengths, at an MTU, with the rivals and how far behind each of them the provider may be.
    fn sizes(&mut self, part: Part, mtu: usize, rivals: &[(Rival, Limit, Weight)]) {
        let mut figures = Vec::new();
        for benchmark in SIZED {
            let figure = |bytes| Figure {
                part,
                mtu,
                kind: Kind::Time { benchmark, bytes },
            };
            let lengths = std::iter::successors(Some(SIZES[0]), |bytes| Some(2 * bytes));
            let of_lengths: Vec<_> = lengths.take_while(|bytes| *bytes <= SIZES[1]).map(figure).collect();
            for figure in &of_lengths {
                for (rival, limit, weight) in rivals {
                    self.bar(*figure, Some(*rival), *limit, *weight);
                }
            }
            for pair in of_lengths.windows(2) {
                let [shorter, longer] = [pair[0], pair[1]].map(|figure| {
                    let rival = Rival::Mx;
                    self.cell(Work { rival, figure })
                });
                self.plan
                    .bars
                    .push(Bar::must(longer, shorter, Limit::RatioMax(STEP_MAX)));
            }
            figures.extend(of_lengths);
        }
        let all = [Rival::Mx].into_iter().chain(rivals.iter().map(|(rival, ..)| *rival));
        let turns: Vec<_> = all.map(|rival| (rival, &*figures)).collect();
        self.group(&turns);
    }

    fn threads(&mut self) {
        let figures = THREADED.map(|(benchmark, bytes)| Figure {
            part: Part::Threads,
            mtu: MTU_JUMBO,
            kind: Kind::Time { benchmark, bytes },
        });
        for figure in figures {
            self.bar(figure, Some(Rival::Tcp), Limit::RatioMax(OVER_TCP_MAX), Weight::Must);
        }
        self.group(&[(Rival::Mx, &figures), (Rival::Tcp, &figures)]);
    }

    fn inside(&mut self) {
        let empty = Figure {
            part: Part::Inside,
            mtu: MTU_USUAL,
            kind: Kind::Time {
                benchmark: "PingPong",
                bytes: 0,
            },
        };
        self.bar(empty, Some(Rival::Memory), Limit::RatioMax(2.0), Weight::Must);
        self.group(&[(Rival::Mx, &[empty]), (Rival::Memory, &[empty])]);
    }

    fn memory(&mut self, ranks: usize) {
        let memory = Figure {
            part: Part::Memory,
            mtu: MTU_USUAL,
            kind: Kind::Memory { peers: ranks - 1 },
        };
        self.bar(
            memory,
            Some(Rival::Tcp),
            Limit::MoreMax(BYTES_OVER_TCP_MAX),
            Weight::Must,
        );
        self.group(&[(Rival::Mx, &[memory]), (Rival::Tcp, &[memory])]);
    }

    fn overlap(&mut self) {
        let figures = [0, 1].map(|rank| Figure {
            part: Part::Overlap,
            mtu: MTU_USUAL,
            kind: Kind::Hidden { rank, bytes: LONG },
        });
        for figure in figures {
            self.bar(figure, None, Limit::Min(HIDDEN_PERCENT_MIN), Weight::Must);
        }
        self.group(&[(Rival::Mx, &figures), (Rival::MxWithoutHelper, &figures)]);
    }
}

/// Makes the plan, and the work of each cell.
pub fn plan(options: &Options) -> (Plan, BTreeMap<Cell, Work>) {
    let mut builder = Builder {
        plan: Plan::new(options.rounds, ROUNDS_MIN),
        figures: Vec::new(),
        rivals: Vec::new(),
        works: BTreeMap::new(),
    };
    for part in &options.parts {
        match part {
            Part::PingPong => builder.ping_pong(),
            Part::Operations => builder.operations(),
            Part::Sizes => {
                let tcp = Limit::RatioMax(OVER_TCP_MAX);
                let rivals = [(Rival::Tcp, tcp, Weight::Must), (Rival::TcpAndMemory, tcp, Weight::Aim)];
                for mtu in [MTU_JUMBO, MTU_USUAL] {
                    builder.sizes(*part, mtu, &rivals);
                }
            }
            Part::SizesInside => {
                let memory = (Rival::Memory, Limit::RatioMax(OVER_MEMORY_MAX), Weight::Must);
                builder.sizes(*part, MTU_JUMBO, &[memory]);
            }
            Part::Threads => builder.threads(),
            Part::Inside => builder.inside(),
            Part::Memory => builder.memory(options.ranks.into()),
            Part::Overlap => builder.overlap(),
        }
    }
    (builder.plan, builder.works)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        options: Options,
    }

    fn planned(arguments: &[&str]) -> (Plan, BTreeMap<Cell, Work>) {
        let arguments = ["bench"].iter().chain(arguments);
        plan(&Program::parse_from(arguments).options)
    }

    #[test]
    fn every_turn_has_one_rival_and_one_setting_and_every_bar_is_judged() {
        let (plan, works) = planned(&[]);
        for turn in plan.groups.iter().flatten() {
            let setting = |cell| {
                let Work { rival, figure } = works[cell];
                (rival, figure.part, figure.mtu)
            };
            assert!(turn.iter().all(|cell| setting(cell) == setting(&turn[0])), "{turn:?}");
        }
        assert_eq!(plan.judged().count(), plan.bars.len());
        assert!(plan.rounds >= plan.rounds_min);
    }

    #[test]
    fn the_bars_are_those_of_the_issue() {
        let (plan, works) = planned(&[]);
        let musts = plan.bars.iter().filter(|bar| bar.weight == Weight::Must);
        let mut lines: Vec<_> = musts
            .map(|bar| {
                let Work { figure, .. } = works[&bar.ours];
                let against = bar.against.map_or("", |cell| works[&cell].rival.name());
                let line = format!("{} {} {against}", figure.name(), bar.limit.text(figure.unit()));
                line.trim_end().to_owned()
            })
            .collect();
        assert_eq!(lines.iter().filter(|line| line.ends_with("≤ 1.00 TCP")).count(), 10);
        lines.retain(|line| !line.ends_with("≤ 1.00 TCP"));
        // Six operations of nine lengths, on two hosts at two MTUs, and on one.
        let of_sizes = |line: &str| line.starts_with(|first: char| first.is_alphabetic()) && line.contains(" ranks");
        let with = |end: &str| {
            lines
                .iter()
                .filter(|line| of_sizes(line) && line.ends_with(end))
                .count()
        };
        assert_eq!(with("≤ 1.20 TCP"), 6 * 9 * 2);
        assert_eq!(with("≤ 2.00 shared memory"), 6 * 9);
        assert_eq!(with("≤ 3.00 mx"), 6 * 8 * 3);
        lines.retain(|line| !of_sizes(line));
        assert_eq!(
            lines,
            [
                "PingPong 0 B ≤ 0.60 TCP",
                "PingPong 0 B ≤ 0.60 libfabric's tcp",
                "PingPong 0 B ≤ + 0.50 µs omx_perf",
                "PingPong 4 MiB, MTU 9000 ≥ 0.95 TCP, no offloads",
                "PingPong 4 MiB, MTU 9000 ≥ 0.95 libfabric's tcp, no offloads",
                "PingPong 4 MiB, MTU 1500 ≥ 0.70 TCP, no offloads",
                "PingPong 4 MiB, MTU 1500 ≥ 0.70 libfabric's tcp, no offloads",
                "Sendrecv 16 MiB, threads ≤ 1.20 TCP",
                "Receivers 195 KiB, threads ≤ 1.20 TCP",
                "PingPong 0 B, inside a host ≤ 2.00 shared memory",
                "memory of a rank with 63 peers ≤ + 24.0 MiB TCP",
                "4 MiB hidden, sender ≥ 80.0 %",
                "4 MiB hidden, receiver ≥ 80.0 %",
            ]
        );
    }

    #[test]
    fn parts_that_are_not_wanted_are_left_out() {
        let (plan, works) = planned(&["--parts", "memory", "--ranks", "16"]);
        let names: Vec<_> = plan.measurements.iter().map(Measurement::name).collect();
        assert_eq!(names, ["memory of a rank with 15 peers"]);
        assert_eq!((plan.groups.len(), plan.bars.len(), works.len()), (1, 1, 2));
    }
}
