//! The measurements, their order, and the bars that they must reach.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    Options, Work,
    figure::{Figure, Kernel, Kind, Rival},
};
use testbed::harness::{Bar, Cell, Limit, Measurement, Plan, Weight, fields};

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: u32 = 7;

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Half round trips of 1 to 128 bytes with default settings.
    Latency,
    /// The time that a call takes which sends 1 to 1024 bytes.
    Send,
    /// Half round trips with pauses that let both sides fall asleep.
    Asleep,
    /// Streams at MTU 1500 and 9000.
    Stream,
    /// Four operations of MPI with four ranks.
    Operations,
    /// Kernels of computations with four ranks.
    Kernels,
    /// Memory of idle connections.
    Connections,
}

/// Bytes of the messages of each part.
const LATENCY_BYTES: [u32; 4] = [1, 16, 64, 128];
const SEND_BYTES: [u32; 4] = [1, 64, 256, 1024];
const ASLEEP_BYTES: [u32; 2] = [1, 128];
const OPERATION_BYTES: [usize; 5] = [16, 128, 1 << 10, 8 << 10, 64 << 10];
/// Longest messages of operations that must be quicker than over TCP.
const OPERATION_BYTES_JUDGED_MAX: usize = 1 << 10;
const OPERATIONS: [&str; 4] = ["PingPong", "Alltoall", "Allgather", "Allreduce"];
const MTU_USUAL: usize = 1500;
const MTU_JUMBO: usize = 9000;
/// Bytes of memory of an idle connection at most.
const IDLE_BYTES_MAX: f64 = 2048.0;

struct Builder {
    plan: Plan,
    figures: Vec<Figure>,
    rivals: Vec<Rival>,
    works: BTreeMap<Cell, Work>,
}

/// Returns the place of a value in a list, to which it is added where it is new.
fn place<T: PartialEq>(list: &mut Vec<T>, value: T) -> (usize, bool) {
    let known = list.iter().position(|known| *known == value);
    known.map_or_else(
        || {
            list.push(value);
            (list.len() - 1, true)
        },
        |at| (at, false),
    )
}

impl Builder {
    fn cell(&mut self, rival: Rival, figure: Figure) -> Cell {
        let (measurement, is_new) = place(&mut self.figures, figure);
        if is_new {
            self.plan.measurements.push(Measurement {
                more: fields(json!({ "mtu": figure.mtu })),
                ..Measurement::new(figure.name(), figure.unit())
            });
        }
        let (rival_at, is_new) = place(&mut self.rivals, rival);
        if is_new {
            self.plan.rivals.push(rival.name().to_owned());
        }
        let cell = Cell {
            measurement,
            rival: rival_at,
        };
        self.works.insert(cell, Work { rival, figure });
        cell
    }

    fn bar(&mut self, figure: Figure, against: Rival, limit: Limit, weight: Weight) {
        let ours = self.cell(Rival::Esp, figure);
        let against = Some(self.cell(against, figure));
        self.plan.bars.push(Bar {
            ours,
            against,
            limit,
            weight,
        });
    }

    /// Adds figures of messages, for which ESP and TCP take turns.
    fn messages(&mut self, kinds: impl Iterator<Item = Kind>, must: f64, aim: f64) {
        for kind in kinds {
            let figure = usual(kind);
            self.bar(figure, Rival::Tcp, Limit::RatioMax(must), Weight::Must);
            self.bar(figure, Rival::Tcp, Limit::RatioMax(aim), Weight::Aim);
            let turn = [Rival::Esp, Rival::Tcp].map(|rival| self.cell(rival, figure));
            self.plan.groups.push(vec![turn.to_vec()]);
        }
    }

    fn streams(&mut self) {
        for mtu in [MTU_USUAL, MTU_JUMBO] {
            let figure = Figure {
                kind: Kind::Stream,
                mtu,
            };
            self.bar(figure, Rival::TcpPlain, Limit::RatioMin(0.8), Weight::Must);
            self.bar(figure, Rival::TcpPlain, Limit::RatioMin(1.1), Weight::Aim);
            self.bar(figure, Rival::Tcp, Limit::Shown, Weight::Aim);
            let turn = [Rival::Esp, Rival::TcpPlain].map(|rival| self.cell(rival, figure));
            let with_offloads = vec![self.cell(Rival::Tcp, figure)];
            self.plan.groups.push(vec![turn.to_vec(), with_offloads]);
        }
    }

    fn operations(&mut self) {
        let figures: Vec<_> = OPERATIONS
            .iter()
            .flat_map(|benchmark| OPERATION_BYTES.map(|bytes| usual(Kind::Operation { benchmark, bytes })))
            .collect();
        for figure in &figures {
            let is_judged = matches!(figure.kind, Kind::Operation { bytes, .. } if bytes <= OPERATION_BYTES_JUDGED_MAX);
            let weight = if is_judged { Weight::Must } else { Weight::Aim };
            self.bar(*figure, Rival::Tcp, Limit::RatioMax(1.0), weight);
        }
        let turns =
            [Rival::Esp, Rival::Tcp].map(|rival| figures.iter().map(|figure| self.cell(rival, *figure)).collect());
        self.plan.groups.push(turns.to_vec());
    }

    fn kernels(&mut self) {
        for (kernel, aim) in [(Kernel::Lu, 1.08), (Kernel::Sp, 1.16), (Kernel::PlaneWave, 1.16)] {
            let figure = usual(Kind::Kernel(kernel));
            self.bar(figure, Rival::Tcp, Limit::RatioMin(1.0), Weight::Must);
            self.bar(figure, Rival::Tcp, Limit::RatioMin(aim), Weight::Aim);
            self.bar(figure, Rival::TcpPlain, Limit::Shown, Weight::Aim);
            let turns = [Rival::Esp, Rival::Tcp, Rival::TcpPlain].map(|rival| vec![self.cell(rival, figure)]);
            self.plan.groups.push(turns.to_vec());
        }
    }

    fn connections(&mut self) {
        let ours = self.cell(Rival::Esp, usual(Kind::IdleConnection));
        self.plan.bars.push(Bar::alone(ours, IDLE_BYTES_MAX));
        self.plan.groups.push(vec![vec![ours]]);
    }
}

const fn usual(kind: Kind) -> Figure {
    Figure { kind, mtu: MTU_USUAL }
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
            Part::Latency => builder.messages(
                LATENCY_BYTES.map(|bytes| Kind::Latency { bytes }).into_iter(),
                0.75,
                0.5,
            ),
            Part::Send => builder.messages(SEND_BYTES.map(|bytes| Kind::Send { bytes }).into_iter(), 0.5, 0.35),
            Part::Asleep => builder.messages(ASLEEP_BYTES.map(|bytes| Kind::Asleep { bytes }).into_iter(), 1.0, 0.9),
            Part::Stream => builder.streams(),
            Part::Operations => builder.operations(),
            Part::Kernels => builder.kernels(),
            Part::Connections => builder.connections(),
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
    fn every_turn_has_one_setting_and_every_bar_is_judged() {
        let (plan, works) = planned(&[]);
        for turn in plan.groups.iter().flatten() {
            let Work { figure, rival } = works[&turn[0]];
            assert!(turn.iter().all(|cell| works[cell].figure.mtu == figure.mtu), "{turn:?}");
            let is_of_one = |cell| works[cell].rival == rival;
            assert!(!figure.kind.is_of_mpi() || turn.iter().all(is_of_one), "{turn:?}");
        }
        assert_eq!(plan.judged().count(), plan.bars.len());
        assert!(plan.rounds >= plan.rounds_min);
    }

    #[test]
    fn the_bars_are_those_of_the_issue() {
        let (plan, works) = planned(&[]);
        let musts = plan.bars.iter().filter(|bar| bar.weight == Weight::Must);
        let lines: Vec<_> = musts
            .map(|bar| {
                let Work { figure, .. } = works[&bar.ours];
                let against = bar.against.map_or("", |cell| works[&cell].rival.name());
                let line = format!("{} {} {against}", figure.name(), bar.limit.text(figure.unit()));
                line.trim_end().to_owned()
            })
            .collect();
        let of = |end: &str| lines.iter().filter(|line| line.ends_with(end)).count();
        assert_eq!((of("≤ 0.75 TCP"), of("≤ 0.50 TCP")), (4, 4));
        assert_eq!((of("≤ 1.00 TCP"), of("≥ 1.00 TCP")), (2 + 12, 3));
        assert_eq!(lines[0], "half round trip, 1 B ≤ 0.75 TCP");
        assert!(lines.contains(&"stream, MTU 1500 ≥ 0.80 TCP, no offloads".to_owned()));
        assert!(lines.contains(&"stream, MTU 9000 ≥ 0.80 TCP, no offloads".to_owned()));
        assert!(lines.contains(&"idle connection of 10,000 ≤ 2048 B".to_owned()));
        assert_eq!(lines.len(), 28);
    }

    #[test]
    fn parts_that_are_not_wanted_are_left_out() {
        let (plan, works) = planned(&["--parts", "connections"]);
        let names: Vec<_> = plan.measurements.iter().map(Measurement::name).collect();
        assert_eq!(names, ["idle connection of 10,000"]);
        assert_eq!((plan.groups.len(), plan.bars.len(), works.len()), (1, 1, 1));
    }
}
