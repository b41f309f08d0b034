//! Tables: columns for people and JSON for programs, from common rows.

use std::{collections::BTreeMap, io::Write};

use anyhow::Result;
use comfy_table::{CellAlignment, Table as Grid, presets};
use serde::Serialize;

/// The columns of a table with rows `R`, from left to right.
pub struct Columns<R>(Vec<Column<R>>);

struct Column<R> {
    heading: &'static str,
    cell: Box<dyn Fn(&R) -> String>,
    numeric: bool,
}

impl<R> Default for Columns<R> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<R> Columns<R> {
    /// Adds a column of words, aligned to the left.
    #[must_use]
    pub fn words(mut self, heading: &'static str, cell: impl Fn(&R) -> String + 'static) -> Self {
        self.0.push(Column {
            heading,
            cell: Box::new(cell),
            numeric: false,
        });
        self
    }

    /// Adds a column of numbers, aligned to the right.
    #[must_use]
    pub fn numbers(mut self, heading: &'static str, cell: impl Fn(&R) -> String + 'static) -> Self {
        self.0.push(Column {
            heading,
            cell: Box::new(cell),
            numeric: true,
        });
        self
    }
}

impl<R> Columns<R> {
    /// Returns the headings, and whether numbers are below them.
    pub fn heads(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.0.iter().map(|column| (column.heading, column.numeric))
    }

    /// Returns the cells of a row, and whether they are numbers.
    pub fn cells(&self, row: &R) -> impl Iterator<Item = (String, bool)> {
        self.0.iter().map(|column| ((column.cell)(row), column.numeric))
    }
}

/// Renders the table as text, headings first, without a frame: easy to read and to cut with other tools.
#[must_use]
pub fn text<R>(rows: &[R], columns: &Columns<R>) -> String {
    let mut grid = Grid::new();
    grid.load_preset(presets::NOTHING);
    grid.set_header(columns.0.iter().map(|column| column.heading));
    for row in rows {
        grid.add_row(columns.0.iter().map(|column| (column.cell)(row)));
    }
    let last = columns.0.len().saturating_sub(1);
    for (index, column) in columns.0.iter().enumerate() {
        if let Some(cells) = grid.column_mut(index) {
            cells.set_padding((0, if index == last { 0 } else { 2 }));
            if column.numeric {
                cells.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    grid.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Prints rows to standard output, as a table or as JSON.
///
/// # Errors
/// Fails when standard output is closed.
pub fn print<R: Serialize>(json: bool, rows: &[R], columns: &Columns<R>) -> Result<()> {
    if json {
        return print_json(&rows);
    }
    write!(std::io::stdout().lock(), "{}", text(rows, columns))?;
    Ok(())
}

/// Renders a value in a cell, or a dash where there is none.
#[must_use]
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Renders counts in one cell by the names that JSON has for them, without those that are 0: `loss 3, queue_full 70`.
pub fn counts(counts: &BTreeMap<String, u64>) -> String {
    let counted = counts.iter().filter(|(_, count)| **count > 0);
    let words: Vec<_> = counted.map(|(name, count)| format!("{name} {count}")).collect();
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(", ")
    }
}

/// Prints one value as JSON to standard output.
///
/// # Errors
/// Fails when standard output is closed.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_show_what_was_counted() {
        let of =
            |pairs: &[(&str, u64)]| counts(&pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect());
        assert_eq!(
            of(&[("same_port", 0), ("reserved_address", 70), ("loss", 3)]),
            "loss 3, reserved_address 70"
        );
        assert_eq!(of(&[("loss", 0)]), "-");
    }

    #[test]
    fn columns_line_up_and_numbers_end_at_the_same_place() {
        let columns = Columns::<(&str, u32)>::default()
            .words("NODE", |row| row.0.to_owned())
            .numbers("MIB", |row| row.1.to_string());
        assert_eq!(
            text(&[("n1", 128), ("longer", 64)], &columns),
            "NODE    MIB\nn1      128\nlonger   64\n"
        );
    }
}
