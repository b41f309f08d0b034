//! What is measured of all transports, and the bar of the comparison.

use crate::{
    harness::{Bar, Cell, Limit, Measurement, Plan, Unit},
    mpi::imb::length_text,
};

/// Pairs of turns that it takes to judge the bar.
const ROUNDS_MIN: u32 = 5;

/// Number of the provider in the plan.
pub(super) const MX: usize = 0;
/// Number of ESP in the plan.
pub(super) const ESP: usize = 1;
/// Number of TCP in the plan.
pub(super) const TCP: usize = 2;

/// An operation that is measured, by its name in `imb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum Operation {
    /// Messages there and back between two ranks.
    PingPong,
    /// A message to the right neighbour and one from the left.
    SendRecv,
    /// A message from each rank to each.
    Alltoall,
    /// Sums over all ranks.
    Allreduce,
    /// A message from one rank to all.
    Bcast,
    /// Waiting for all ranks.
    Barrier,
}

impl Operation {
    /// Returns the name of the operation.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PingPong => "PingPong",
            Self::SendRecv => "SendRecv",
            Self::Alltoall => "Alltoall",
            Self::Allreduce => "Allreduce",
            Self::Bcast => "Bcast",
            Self::Barrier => "Barrier",
        }
    }

    /// Returns whether the operation is measured with messages of this length: only PingPong has empty ones, and Barrier has none.
    const fn has(self, bytes: usize) -> bool {
        match self {
            Self::PingPong => true,
            Self::Barrier => bytes == 0,
            Self::SendRecv | Self::Alltoall | Self::Allreduce | Self::Bcast => bytes > 0,
        }
    }
}

/// One figure of all transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figure {
    pub operation: Operation,
    pub bytes: usize,
}

impl Figure {
    /// Time of an empty message, which the bar is about.
    pub(super) const LATENCY: Self = Self {
        operation: Operation::PingPong,
        bytes: 0,
    };

    fn labels(self) -> Vec<String> {
        let length = match self.operation {
            Operation::Barrier => String::new(),
            _ => length_text(self.bytes),
        };
        vec![self.operation.name().to_owned(), length]
    }
}

/// Returns the figures for these operations and lengths, each once.
pub(super) fn figures(operations: &[Operation], lengths: &[usize]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for &operation in operations {
        // It has no messages, whatever lengths are wanted.
        let lengths = if operation == Operation::Barrier { &[0] } else { lengths };
        for &bytes in lengths.iter().filter(|bytes| operation.has(**bytes)) {
            let figure = Figure { operation, bytes };
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        }
    }
    figures
}

/// Makes the plan: the transports take turns, and empty messages must be quicker over the provider than over TCP.
pub(super) fn plan(rounds: u32, figures: &[Figure]) -> Plan {
    let mut plan = Plan::new(rounds, ROUNDS_MIN);
    plan.rivals = ["mx", "ESP", "TCP"].map(str::to_owned).to_vec();
    let unit = Unit {
        name: "ns",
        show: |value| format!("{:.0} µs", value / 1e3),
    };
    plan.measurements = figures
        .iter()
        .map(|figure| Measurement {
            labels: figure.labels(),
            ..Measurement::new("", unit)
        })
        .collect();
    let cell = |measurement, rival| Cell { measurement, rival };
    plan.bars = figures
        .iter()
        .enumerate()
        .map(|(measurement, figure)| {
            let limit = match *figure {
                Figure::LATENCY => Limit::RatioMax(1.0),
                _ => Limit::Shown,
            };
            Bar::must(cell(measurement, MX), cell(measurement, TCP), limit)
        })
        .collect();
    let esp = |measurement| Bar::must(cell(measurement, ESP), cell(measurement, TCP), Limit::Shown);
    plan.bars.extend((0..figures.len()).map(esp));
    let turn = |rival| (0..figures.len()).map(|measurement| cell(measurement, rival)).collect();
    plan.groups = vec![[MX, ESP, TCP].map(turn).to_vec()];
    plan
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_plan_is_that_of_the_issue() {
        let figures = figures(Operation::value_variants(), &[0, 16, 4096, 65536, 16]);
        let plan = plan(5, &figures);
        let names: Vec<_> = plan
            .measurements
            .iter()
            .map(|measured| measured.labels.join(" "))
            .collect();
        assert_eq!(
            names,
            [
                "PingPong 0 B",
                "PingPong 16 B",
                "PingPong 4 KiB",
                "PingPong 64 KiB",
                "SendRecv 16 B",
                "SendRecv 4 KiB",
                "SendRecv 64 KiB",
                "Alltoall 16 B",
                "Alltoall 4 KiB",
                "Alltoall 64 KiB",
                "Allreduce 16 B",
                "Allreduce 4 KiB",
                "Allreduce 64 KiB",
                "Bcast 16 B",
                "Bcast 4 KiB",
                "Bcast 64 KiB",
                "Barrier ",
            ]
        );
        let limits = plan.bars.iter().filter(|bar| bar.limit != Limit::Shown);
        let limits: Vec<_> = limits.map(|bar| (bar.ours, bar.against, bar.limit)).collect();
        let cell = |rival| Cell { measurement: 0, rival };
        assert_eq!(limits, [(cell(MX), Some(cell(TCP)), Limit::RatioMax(1.0))]);
        let turns = &plan.groups[0];
        assert_eq!(turns.len(), 3, "one of each transport");
        for (rival, turn) in turns.iter().enumerate() {
            assert!(turn.iter().all(|cell| cell.rival == rival) && turn.len() == figures.len());
        }
        assert_eq!((plan.rounds, plan.rounds_min), (5, 5));
    }

    #[test]
    fn figures_that_are_not_wanted_are_left_out() {
        assert_eq!(figures(&[Operation::Barrier], &[16, 64]).len(), 1);
        assert!(figures(&[Operation::Bcast], &[0]).is_empty());
        assert_eq!(plan(1, &figures(&[Operation::SendRecv], &[16])).judged().count(), 2);
    }
}
