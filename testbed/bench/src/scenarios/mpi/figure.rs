//! The figures that are measured: their names and units, and how they follow from what a program reported.

use anyhow::{Context, Result};

use testbed::{
    harness::{Sample, Unit},
    mpi::imb::{Row, length_text},
};

use super::plan::{MTU_JUMBO, Part};

/// The kinds of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Time of an operation, in nanoseconds.
    Time { benchmark: &'static str, bytes: usize },
    /// Bytes per second of messages there and back.
    Rate { bytes: usize },
    /// Resident memory of a rank after a message to and from each peer, in bytes, as the mean over the ranks.
    Memory { peers: usize },
    /// Share of the transfer that computation hides from this rank, in percent.
    Hidden { rank: usize, bytes: usize },
}

/// A figure of one part of the comparison, at one MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    pub part: Part,
    pub mtu: usize,
    pub kind: Kind,
}

impl Figure {
    /// Names the figure without the rival.
    pub fn name(self) -> String {
        match self.kind {
            Kind::Time { benchmark, bytes: 0 } if self.part == Part::Operations => benchmark.to_owned(),
            Kind::Time { benchmark, bytes } => {
                let place = match (self.part, self.mtu) {
                    (Part::Inside, _) => ", inside a host",
                    (Part::Sizes, MTU_JUMBO) => ", 2 + 2 ranks, MTU 9000",
                    (Part::Sizes, _) => ", 2 + 2 ranks",
                    (Part::SizesInside, _) => ", 4 ranks inside a host",
                    (Part::Threads, _) => ", threads",
                    _ => "",
                };
                format!("{benchmark} {}{place}", length_text(bytes))
            }
            Kind::Rate { bytes } => format!("PingPong {}, MTU {}", length_text(bytes), self.mtu),
            Kind::Memory { peers } => format!("memory of a rank with {peers} peers"),
            Kind::Hidden { rank, bytes } => {
                let side = if rank == 0 { "sender" } else { "receiver" };
                format!("{} hidden, {side}", length_text(bytes))
            }
        }
    }

    /// Returns the unit of the figure.
    pub const fn unit(self) -> Unit {
        let (name, show): (_, fn(f64) -> String) = match self.kind {
            Kind::Time { .. } => ("ns", |value| format!("{:.2} µs", value / 1e3)),
            Kind::Rate { .. } => ("bytes/s", |value| format!("{:.2} Gbit/s", value * 8e-9)),
            Kind::Memory { .. } => ("bytes", |value| format!("{:.1} MiB", value / f64::from(1 << 20))),
            Kind::Hidden { .. } => ("%", |value| format!("{value:.1} %")),
        };
        Unit { name, show }
    }

    /// Returns the benchmark and the length of message that a program is asked for.
    pub const fn asked(self) -> (&'static str, usize) {
        match self.kind {
            Kind::Time { benchmark, bytes } => (benchmark, bytes),
            Kind::Rate { bytes } => ("PingPong", bytes),
            Kind::Memory { .. } => ("memory", 0),
            Kind::Hidden { bytes, .. } => ("Overlap", bytes),
        }
    }

    /// Finds the figure in what a program reported.
    pub fn sample(self, rows: &[Row]) -> Result<Sample> {
        let (benchmark, bytes) = self.asked();
        let is_it = |row: &&Row| {
            let rank_fits = match self.kind {
                Kind::Hidden { rank, .. } => row.number("rank") == Some(rank as f64),
                _ => true,
            };
            row.benchmark() == benchmark && row.bytes() == bytes as f64 && rank_fits
        };
        let value = |row: &Row| {
            Some(match self.kind {
                Kind::Time { .. } => row.number("median_us")? * 1e3,
                Kind::Rate { .. } => bytes as f64 * 1e6 / row.number("median_us")?,
                Kind::Memory { .. } => row.number("peers_rss_kib")? * 1024.0,
                Kind::Hidden { .. } => row.number("hidden_percent")?,
            })
        };
        let row = rows.iter().find(is_it);
        let (row, value) = row
            .and_then(|row| Some((row, value(row)?)))
            .with_context(|| format!("the result of {benchmark} at {bytes} bytes is missing"))?;
        Ok(Sample {
            more: row.fields().clone(),
            ..Sample::new(value)
        })
    }
}
