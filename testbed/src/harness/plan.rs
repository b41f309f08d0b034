//! The plan of a scenario: its rivals, measurements and bars, and which rivals take turns.

use serde_json::{Map, Value};

use super::bar::{Bar, Limit};

/// A unit of figures.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// Name of the unit of unscaled figures, as in JSON.
    pub name: &'static str,
    /// Formats a figure for people, perhaps in a larger unit.
    pub show: fn(f64) -> String,
}

/// A measurement is taken of every rival, or of some.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Labels that say what is measured, one for each column of words in the table.
    pub labels: Vec<String>,
    /// Unit of the figures.
    pub unit: Unit,
    /// Further fields for programs that read JSON.
    pub more: Map<String, Value>,
}

impl Measurement {
    /// Makes a measurement with a single label and no further fields.
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self {
            labels: vec![name.into()],
            unit,
            more: Map::new(),
        }
    }

    /// Returns the name used in messages and in JSON.
    pub fn name(&self) -> String {
        self.labels.join(", ")
    }
}

/// A cell is one measurement of one rival, by their numbers in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Number of the measurement.
    pub measurement: usize,
    /// Number of the rival.
    pub rival: usize,
}

/// A turn is the set of cells that are measured at a time: all measurements of one rival, or several rivals between
/// which the scenario itself alternates.
pub type Turn = Vec<Cell>;

/// A pairing says which samples are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Samples of one turn are compared, and the figure is the median of the results, so that a machine that changes
    /// its speed affects both sides.
    SameTurn,
    /// The medians of all rounds are compared, for figures that may be 0 in single rounds.
    Medians,
}

/// A plan is everything that a scenario measures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of rounds to run.
    pub rounds: u32,
    /// Number of rounds that must count before a bar is judged.
    pub rounds_min: u32,
    /// Names of the rivals.
    pub rivals: Vec<String>,
    /// Measurements to take.
    pub measurements: Vec<Measurement>,
    /// Turns in groups. Within a group each round begins with another turn, so that no rival profits from being the
    /// first after a change; groups follow each other in the order given here.
    pub groups: Vec<Vec<Turn>>,
    /// Bars to reach.
    pub bars: Vec<Bar>,
    /// Samples that are compared with each other.
    pub pairing: Pairing,
}

impl Plan {
    /// Makes a plan without rivals and measurements.
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

    /// Returns whether a cell is measured at all.
    pub fn has(&self, cell: Cell) -> bool {
        self.groups.iter().flatten().flatten().any(|measured| *measured == cell)
    }

    /// Returns the bars whose cells are measured: a bar about a rival that is left out is not judged.
    pub fn judged(&self) -> impl Iterator<Item = &Bar> {
        let is_there = |bar: &&Bar| {
            [Some(bar.ours), bar.against]
                .into_iter()
                .flatten()
                .all(|cell| self.has(cell))
        };
        self.bars.iter().filter(is_there)
    }

    /// Returns the bar of a cell, or else the ratio that is shown for it.
    pub fn bar_of(&self, ours: Cell) -> Option<&Bar> {
        let of_cell = || self.judged().filter(|bar| bar.ours == ours);
        of_cell()
            .find(|bar| bar.limit != Limit::Shown)
            .or_else(|| of_cell().next())
    }

    /// Names what a turn measures, for messages: its measurement, if there is only one, and its rivals.
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
