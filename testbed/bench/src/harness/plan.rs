//! What a scenario measures: its rivals, measurements and bars, and who takes turns with whom.

use serde_json::{Map, Value};

use super::bar::{Bar, Limit};

/// A unit of figures.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// The name of the unit of bare figures, as in JSON.
    pub name: &'static str,
    /// A figure as people read it, which may be in a larger unit.
    pub show: fn(f64) -> String,
}

/// Something that is measured of every rival, or of some.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// What is measured, in as many words as the table has columns for them.
    pub labels: Vec<String>,
    /// The unit of its figures.
    pub unit: Unit,
    /// What programs that read JSON want to know of it beside its name.
    pub more: Map<String, Value>,
}

impl Measurement {
    /// One with a single label and nothing more to know.
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self {
            labels: vec![name.into()],
            unit,
            more: Map::new(),
        }
    }

    /// The name in messages and in JSON.
    pub fn name(&self) -> String {
        self.labels.join(", ")
    }
}

/// One measurement of one rival, by their numbers in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Number of the measurement.
    pub measurement: usize,
    /// Number of the rival.
    pub rival: usize,
}

/// Cells that are measured at a time: all that one rival is measured for, or several rivals between which the scenario itself
/// goes to and fro.
pub type Turn = Vec<Cell>;

/// What is put against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Samples of the same turn; the figure is the median of what comes out. A machine that changes its speed hits both.
    SameTurn,
    /// The medians of all rounds, where figures of single rounds may be 0.
    Medians,
}

/// What a scenario measures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rounds to make.
    pub rounds: u32,
    /// Rounds that must count before a bar is judged.
    pub rounds_min: u32,
    /// Names of the rivals.
    pub rivals: Vec<String>,
    /// What is measured.
    pub measurements: Vec<Measurement>,
    /// Turns by groups. Within a group each round begins with another turn, so that it is of no advantage to be the first
    /// after a change; groups follow each other in this order.
    pub groups: Vec<Vec<Turn>>,
    /// What must be reached.
    pub bars: Vec<Bar>,
    /// What is put against each other.
    pub pairing: Pairing,
}

impl Plan {
    /// A plan without rivals and measurements.
    pub const fn new(rounds: u32, rounds_min: u32) -> Self {
        Self {
            rounds,
            rounds_min,
            rivals: Vec::new(),
            measurements: Vec::new(),
            groups: Vec::new(),
            bars: Vec::new(),
            pairing: Pairing::SameTurn,
        }
    }

    /// Whether a cell is measured at all.
    pub fn has(&self, cell: Cell) -> bool {
        self.groups.iter().flatten().flatten().any(|measured| *measured == cell)
    }

    /// The bars whose cells are measured: one that speaks of a rival that is left out is not judged.
    pub fn judged(&self) -> impl Iterator<Item = &Bar> {
        let is_there = |bar: &&Bar| {
            [Some(bar.ours), bar.against]
                .into_iter()
                .flatten()
                .all(|cell| self.has(cell))
        };
        self.bars.iter().filter(is_there)
    }

    /// The bar of a cell that has one, and else the ratio that is shown of it.
    pub fn bar_of(&self, ours: Cell) -> Option<&Bar> {
        let of_cell = || self.judged().filter(|bar| bar.ours == ours);
        of_cell()
            .find(|bar| bar.limit != Limit::Shown)
            .or_else(|| of_cell().next())
    }

    /// What a turn measures, in messages: its measurement, if there is one alone, and its rivals.
    pub fn name_of(&self, turn: &Turn) -> String {
        let distinct = |of: fn(&Cell) -> usize| {
            let mut numbers: Vec<_> = turn.iter().map(of).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        let rivals: Vec<_> = distinct(|cell| cell.rival)
            .into_iter()
            .map(|rival| &*self.rivals[rival])
            .collect();
        match distinct(|cell| cell.measurement)[..] {
            [measurement] => format!("{}, {}", self.measurements[measurement].name(), rivals.join(", ")),
            _ => rivals.join(", "),
        }
    }
}
