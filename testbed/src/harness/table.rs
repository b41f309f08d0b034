//! The tables of results: their style, and the layouts that scenarios choose from.

use std::fmt;

use comfy_table::{CellAlignment, Table as Grid, presets};

use super::bar::{Limit, Weight};
use super::plan::Cell;
use super::record::Record;

/// A style says whether a table has lines around its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Lines separate columns; headings are printed unchanged.
    Framed,
    /// Only blanks separate columns, which other tools can cut easily; headings are in capitals.
    Plain,
}

/// A table under construction.
pub struct Table {
    style: Style,
    grid: Grid,
    numeric: Vec<bool>,
}

impl Table {
    /// Makes a table with these columns: their headings, and whether numbers stand below them.
    pub fn new(style: Style, columns: &[(String, bool)]) -> Self {
        let mut grid = Grid::new();
        grid.load_preset(match style {
            Style::Framed => presets::UTF8_FULL_CONDENSED,
            Style::Plain => presets::NOTHING,
        });
        grid.set_header(columns.iter().map(|(heading, _)| match style {
            Style::Framed => heading.clone(),
            Style::Plain => heading.to_uppercase(),
        }));
        Self {
            style,
            grid,
            numeric: columns.iter().map(|(_, numeric)| *numeric).collect(),
        }
    }

    /// Adds a row, one text per column.
    pub fn row(&mut self, cells: Vec<String>) {
        self.grid.add_row(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut grid = self.grid.clone();
        let last = self.numeric.len().saturating_sub(1);
        for (index, numeric) in self.numeric.iter().enumerate() {
            let Some(cells) = grid.column_mut(index) else { continue };
            if self.style == Style::Plain {
                cells.set_padding((0, if index == last { 0 } else { 2 }));
            }
            if *numeric {
                cells.set_cell_alignment(CellAlignment::Right);
            }
        }
        grid.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
    }
}

/// Makes a column of words with a heading.
pub fn words(heading: impl Into<String>) -> (String, bool) {
    (heading.into(), false)
}

/// Makes a column of numbers with a heading.
pub fn numbers(heading: impl Into<String>) -> (String, bool) {
    (heading.into(), true)
}

/// Returns the last three columns of a table.
fn judged() -> [(String, bool); 3] {
    [numbers("ratio"), words("bar"), words("met")]
}

/// A rival column is one that each rival has: its heading for a rival's name, and the text of its cells.
pub struct RivalColumn {
    /// Makes the heading for a rival's name.
    pub heading: fn(&str) -> String,
    /// Makes the text of a cell.
    pub cell: fn(&Record, Cell) -> String,
}

/// Makes a table with a row for each measurement and the rivals beside each other; `ours` is the rival whose bars are
/// shown.
pub fn across(record: &Record, style: Style, labels: &[(String, bool)], rivals: &[RivalColumn], ours: usize) -> Table {
    let all: Vec<_> = (0..record.plan.rivals.len()).collect();
    beside(record, style, labels, rivals, &all, ours)
}

/// Makes a table as [`across`] does of some rivals: with a row for each measurement that is taken of one of them. The bars of the
/// first one are shown.
pub fn among(
    record: &Record,
    style: Style,
    labels: &[(String, bool)],
    rivals: &[RivalColumn],
    shown: &[usize],
) -> Table {
    beside(record, style, labels, rivals, shown, shown[0])
}

fn beside(
    record: &Record,
    style: Style,
    labels: &[(String, bool)],
    rivals: &[RivalColumn],
    shown: &[usize],
    ours: usize,
) -> Table {
    let plan = &record.plan;
    let per_rival = shown.iter().flat_map(|rival| {
        rivals
            .iter()
            .map(|column| numbers((column.heading)(&plan.rivals[*rival])))
    });
    let columns: Vec<_> = labels.iter().cloned().chain(per_rival).chain(judged()).collect();
    let mut table = Table::new(style, &columns);
    for (measurement, measured) in plan.measurements.iter().enumerate() {
        let cell = |rival| Cell { measurement, rival };
        if !shown.iter().any(|rival| plan.has(cell(*rival))) {
            continue;
        }
        let mut row = measured.labels.clone();
        for rival in shown {
            row.extend(rivals.iter().map(|column| (column.cell)(record, cell(*rival))));
        }
        row.extend(record.judged_text(cell(ours)));
        table.row(row);
    }
    table
}

/// Makes a table with a row for each rival of each measurement, with the bar of that rival.
pub fn down(record: &Record, style: Style) -> Table {
    let columns = [
        words("what"),
        words("over"),
        numbers("median"),
        words("unit"),
        words("least … most"),
    ];
    let mut table = Table::new(style, &[&columns[..], &judged()].concat());
    for cell in cells(record).filter(|cell| record.samples(*cell).next().is_some()) {
        let measured = record.measurement(cell);
        let mut row = vec![
            measured.name(),
            record.plan.rivals[cell.rival].clone(),
            record.median_text(cell),
            measured.unit.name.to_owned(),
            record.spread_text(cell, [0.0, 1.0]),
        ];
        row.extend(record.judged_text(cell));
        table.row(row);
    }
    table
}

fn cells(record: &Record) -> impl Iterator<Item = Cell> {
    let rivals = record.plan.rivals.len();
    (0..record.plan.measurements.len())
        .flat_map(move |measurement| (0..rivals).map(move |rival| Cell { measurement, rival }))
        .filter(|cell| record.plan.has(*cell))
}

/// Makes a table of every figure with its spread, in the order of the turns.
pub fn figures(record: &Record) -> Table {
    let columns = [words("what"), words("over"), numbers("median"), numbers("10 % … 90 %")];
    let mut table = Table::new(Style::Framed, &columns);
    for cell in record.plan.groups.iter().flatten().flatten() {
        table.row(vec![
            record.measurement(*cell).name(),
            record.plan.rivals[cell.rival].clone(),
            record.median_text(*cell),
            record.spread_text(*cell, [0.1, 0.9]),
        ]);
    }
    table
}

/// Makes a table of every bar with its value. `ours` names the rival that the bars are about; where those of several are about the
/// same measurement, each says whose it is.
pub fn bars(record: &Record, ours: &str) -> Table {
    let columns = [
        words(ours),
        words("against"),
        numbers("figure"),
        numbers("bar"),
        words("met"),
    ];
    let mut table = Table::new(Style::Framed, &columns);
    for bar in record.plan.judged() {
        let against = bar.against.map_or_else(String::new, |against| {
            if against.rival == bar.ours.rival {
                record.measurement(against).name()
            } else {
                record.plan.rivals[against.rival].clone()
            }
        });
        let measured = record.measurement(bar.ours);
        let (value, times) = (
            record.value(bar).unwrap_or(f64::NAN),
            if bar.limit.is_ratio() { " ×" } else { "" },
        );
        let figure = match bar.limit {
            Limit::RatioMin(_) | Limit::RatioMax(_) | Limit::Shown => format!("{value:.2}"),
            Limit::MoreMax(_) => format!("+ {}", (measured.unit.show)(value)),
            Limit::Max(_) | Limit::Min(_) => (measured.unit.show)(value),
        };
        let aim = if bar.weight == Weight::Aim { "aim " } else { "" };
        let is_shared = record
            .plan
            .judged()
            .any(|other| other.ours.measurement == bar.ours.measurement && other.ours.rival != bar.ours.rival);
        let whose = match is_shared {
            true => format!(", {}", record.plan.rivals[bar.ours.rival]),
            false => String::new(),
        };
        let limit = match bar.limit {
            Limit::Shown => String::new(),
            limit => format!("{aim}{}{times}", limit.text(measured.unit)),
        };
        table.row(vec![
            measured.name() + &whose,
            against,
            figure + times,
            limit,
            record.verdict_text(bar),
        ]);
    }
    table
}
