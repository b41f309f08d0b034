//! The texts of a record in the cells of tables.

use super::Record;
use crate::harness::bar::Bar;
use crate::harness::plan::{Cell, Measurement};

fn shown(measurement: &Measurement, value: Option<f64>) -> String {
    value.map_or_else(String::new, measurement.unit.show)
}

impl Record {
    /// Returns the measurement that a cell belongs to.
    pub fn measurement(&self, cell: Cell) -> &Measurement {
        &self.plan.measurements[cell.measurement]
    }

    /// Returns the median of a cell as tables show it; empty where no sample counts.
    pub fn median_text(&self, cell: Cell) -> String {
        shown(self.measurement(cell), self.median(cell))
    }

    /// Returns two quantiles of a cell as tables show a spread.
    pub fn spread_text(&self, cell: Cell, [low, high]: [f64; 2]) -> String {
        let [low, high] = [low, high].map(|share| shown(self.measurement(cell), self.quantile(cell, share)));
        format!("{low} … {high}")
    }

    /// Returns ratio, bar and verdict of a cell, as the last three columns of a table show them.
    pub fn judged_text(&self, cell: Cell) -> [String; 3] {
        let bar = self.plan.bar_of(cell);
        let mut ratios = self
            .plan
            .judged()
            .filter(|bar| bar.ours == cell && bar.limit.is_ratio());
        let ratio = ratios.next().and_then(|bar| self.value(bar));
        [
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            bar.map_or_else(String::new, |bar| bar.limit.text(self.measurement(cell).unit)),
            bar.map_or_else(String::new, |bar| self.verdict_text(bar)),
        ]
    }

    /// Returns the verdict on a bar as tables show it; empty for a ratio that is only shown.
    pub fn verdict_text(&self, bar: &Bar) -> String {
        let verdict = self.verdict(bar);
        verdict.map_or_else(String::new, |verdict| verdict.text(self.plan.rounds_min))
    }
}
