//! The samples of all rounds and what is derived from them: medians, spreads, the values of bars, verdicts.

mod text;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::bar::{Bar, Limit, Verdict, Weight};
use super::plan::{Cell, Pairing, Plan};
use super::stats::{median, quantile};

/// One sample of a cell.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The figure, in the unit of its measurement.
    pub value: f64,
    /// Whether the figure says something about what is measured; a figure that was limited by the load generator does
    /// not.
    pub counts: bool,
    /// Share that other programs had in the sample, in a measure of the scenario's choice.
    pub disturbed: f64,
    /// Further figures of the sample, by their names in JSON.
    pub more: Map<String, Value>,
}

impl Sample {
    /// Makes a sample that counts, without further figures.
    pub fn new(value: f64) -> Self {
        Self {
            value,
            counts: true,
            disturbed: 0.0,
            more: Map::new(),
        }
    }

    /// Returns the further figure of this name, if there is one.
    pub fn further(&self, name: &str) -> Option<f64> {
        self.more.get(name)?.as_f64()
    }
}

/// A record holds the samples of all rounds of a plan.
#[derive(Debug)]
pub struct Record {
    /// The plan that was measured.
    pub plan: Plan,
    /// Samples with their rounds, in the order of their turns.
    samples: BTreeMap<Cell, Vec<(u32, Sample)>>,
}

impl Record {
    /// Makes a record without samples.
    pub const fn new(plan: Plan) -> Self {
        Self {
            plan,
            samples: BTreeMap::new(),
        }
    }

    /// Adds a sample of a round.
    pub fn add(&mut self, round: u32, cell: Cell, sample: Sample) {
        self.samples.entry(cell).or_default().push((round, sample));
    }

    /// Returns the samples of a cell with their rounds.
    pub fn rounds_of(&self, cell: Cell) -> &[(u32, Sample)] {
        self.samples.get(&cell).map_or(&[], Vec::as_slice)
    }

    /// Returns the samples of a cell.
    pub fn samples(&self, cell: Cell) -> impl Iterator<Item = &Sample> {
        self.rounds_of(cell).iter().map(|(_, sample)| sample)
    }

    /// Returns the samples of all cells.
    pub fn all(&self) -> impl Iterator<Item = &Sample> {
        self.samples.values().flatten().map(|(_, sample)| sample)
    }

    /// Returns the figures of a cell that count.
    fn values(&self, cell: Cell) -> impl Iterator<Item = f64> {
        self.samples(cell)
            .filter(|sample| sample.counts)
            .map(|sample| sample.value)
    }

    /// Returns the median of the figures that count.
    pub fn median(&self, cell: Cell) -> Option<f64> {
        median(self.values(cell))
    }

    /// Returns the quantile `share` of the figures that count.
    pub fn quantile(&self, cell: Cell, share: f64) -> Option<f64> {
        quantile(self.values(cell), share)
    }

    /// Returns pairs of figures from one turn that both count, with their rounds.
    fn pairs(&self, ours: Cell, against: Cell) -> impl Iterator<Item = (u32, f64, f64)> {
        let both = self.rounds_of(ours).iter().zip(self.rounds_of(against));
        both.filter(|((_, ours), (_, theirs))| ours.counts && theirs.counts)
            .map(|((round, ours), (_, theirs))| (*round, ours.value, theirs.value))
    }

    /// Computes the value that a bar is about.
    pub fn value(&self, bar: &Bar) -> Option<f64> {
        let Some(against) = bar.against else {
            return self.median(bar.ours);
        };
        let with = |ours: f64, theirs: f64| match bar.limit.is_ratio() {
            true => ours / theirs,
            false => ours - theirs,
        };
        match self.plan.pairing {
            Pairing::SameTurn => median(
                self.pairs(bar.ours, against)
                    .map(|(_, ours, theirs)| with(ours, theirs)),
            ),
            Pairing::Medians => {
                let value = with(self.median(bar.ours)?, self.median(against)?);
                value.is_finite().then_some(value)
            }
        }
    }

    /// Counts the rounds that count for both cells of a bar.
    fn counted(&self, bar: &Bar) -> usize {
        let mut rounds: Vec<_> = match bar.against {
            Some(against) => self.pairs(bar.ours, against).map(|(round, ..)| round).collect(),
            None => {
                let samples = self.rounds_of(bar.ours).iter();
                samples
                    .filter(|(_, sample)| sample.counts)
                    .map(|(round, _)| *round)
                    .collect()
            }
        };
        rounds.dedup();
        rounds.len()
    }

    /// Returns the verdict on a bar; `None` for a ratio that is only shown.
    pub fn verdict(&self, bar: &Bar) -> Option<Verdict> {
        if bar.limit == Limit::Shown {
            return None;
        }
        let enough = self.counted(bar) >= self.plan.rounds_min as usize;
        Some(match self.value(bar).filter(|_| enough) {
            None => Verdict::TooFew,
            Some(value) if bar.limit.is_met_by(value) => Verdict::Met,
            Some(_) => Verdict::Missed,
        })
    }

    /// Returns whether every bar that the exit status depends on is met.
    pub fn all_met(&self) -> bool {
        let mut musts = self.plan.judged().filter(|bar| bar.weight == Weight::Must);
        musts.all(|bar| self.verdict(bar).is_none_or(|verdict| verdict == Verdict::Met))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::plan::{Measurement, Unit};

    const OURS: Cell = Cell {
        measurement: 0,
        rival: 0,
    };
    const THEIRS: Cell = Cell {
        measurement: 0,
        rival: 1,
    };

    fn record(limit: Limit, rounds_min: u32) -> Record {
        let unit = Unit {
            name: "bit/s",
            show: |value| value.to_string(),
        };
        let mut plan = Plan::new(7, rounds_min);
        plan.rivals = ["cable", "netem"].map(str::to_owned).to_vec();
        plan.measurements = vec![Measurement::new("TCP", unit)];
        plan.groups = vec![vec![vec![OURS], vec![THEIRS]]];
        plan.bars = vec![Bar::must(OURS, THEIRS, limit)];
        Record::new(plan)
    }

    fn add(record: &mut Record, round: u32, ours: f64, theirs: f64) {
        record.add(round, OURS, Sample::new(ours));
        record.add(round, THEIRS, Sample::new(theirs));
    }

    fn verdict(record: &Record) -> Option<Verdict> {
        record.verdict(&record.plan.bars[0])
    }

    #[test]
    fn a_bar_is_judged_by_the_rounds_ratios_and_by_enough_of_them() {
        let rounds = [
            (90.0, 100.0),
            (9.0, 10.0),
            (90.0, 100.0),
            (9.0, 10.0),
            (9.0, 10.0),
            (9.0, 10.0),
        ];
        for (factor, judged) in [(1.0, Verdict::Met), (0.99, Verdict::Missed)] {
            let mut record = record(Limit::RatioMin(0.9), 7);
            for (round, (ours, theirs)) in rounds.into_iter().enumerate() {
                add(&mut record, round as u32, ours * factor, theirs);
            }
            assert_eq!(verdict(&record), Some(Verdict::TooFew));
            assert!(!record.all_met());
            add(&mut record, 6, 9.0 * factor, 10.0);
            assert_eq!(
                verdict(&record),
                Some(judged),
                "at the edge, however fast the machine was"
            );
            assert_eq!(record.all_met(), judged == Verdict::Met);
        }
    }

    #[test]
    fn rounds_count_once_and_only_where_both_samples_do() {
        let mut record = record(Limit::RatioMax(1.0), 2);
        for _ in 0..5 {
            add(&mut record, 0, 1.0, 2.0);
        }
        assert_eq!(
            verdict(&record),
            Some(Verdict::TooFew),
            "one round, however many turns it had"
        );
        record.add(1, OURS, Sample::new(1.0));
        let limited = Sample {
            counts: false,
            ..Sample::new(0.1)
        };
        record.add(1, THEIRS, limited);
        assert_eq!(verdict(&record), Some(Verdict::TooFew));
        assert_eq!(record.median(THEIRS), Some(2.0));
        add(&mut record, 2, 1.0, 2.0);
        assert_eq!(verdict(&record), Some(Verdict::Met));
    }

    #[test]
    fn a_bar_against_what_is_not_measured_is_not_judged_and_an_aim_fails_nothing() {
        let mut record = record(Limit::RatioMin(9.0), 1);
        add(&mut record, 0, 1.0, 1.0);
        assert!(!record.all_met());
        record.plan.bars[0].weight = Weight::Aim;
        assert!(record.all_met() && verdict(&record) == Some(Verdict::Missed));
        record.plan.bars[0].weight = Weight::Must;
        record.plan.groups[0].pop();
        assert!(record.all_met() && record.plan.bar_of(OURS).is_none());
    }

    #[test]
    fn figures_that_are_0_in_single_rounds_are_compared_by_their_medians() {
        let mut record = record(Limit::RatioMax(1.0), 1);
        record.plan.pairing = Pairing::Medians;
        for (round, theirs) in [0.0, 2.0, 2.0].into_iter().enumerate() {
            add(&mut record, round as u32, 1.0, theirs);
        }
        assert_eq!(record.value(&record.plan.bars[0]), Some(0.5));
    }
}
