//! The rounds of a comparison: the order of turns, the progress, and the end on request.

use anyhow::{Context, Result};

use super::plan::{Cell, Plan, Turn};
use super::progress::Progress;
use super::record::{Record, Sample};
use super::stop::Stop;

/// A scenario is what can measure a turn.
pub trait Scenario {
    /// Measures the cells of a turn: one sample of each, or, where the scenario alternates between several rivals,
    /// several samples of each. A figure that could not be read is left out.
    fn measure(&mut self, round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>>;
}

/// Orders the turns of a group in a round, so that each round begins with another one.
fn rotated(group: &[Turn], round: u32) -> impl Iterator<Item = &Turn> {
    let first = round as usize % group.len().max(1);
    group[first..].iter().chain(&group[..first])
}

/// Runs all rounds of a plan.
pub fn run(plan: Plan, scenario: &mut impl Scenario, stop: &Stop) -> Result<Record> {
    let turns: usize = plan.groups.iter().map(Vec::len).sum();
    let progress = Progress::new(u64::from(plan.rounds) * turns as u64)?;
    let mut record = Record::new(plan);
    for round in 0..record.plan.rounds {
        for group in record.plan.groups.clone() {
            for turn in rotated(&group, round) {
                stop.check()?;
                let what = record.plan.name_of(turn);
                progress.say(&format!("round {} of {}: {what}", round + 1, record.plan.rounds));
                let samples = scenario
                    .measure(round, turn)
                    .with_context(|| format!("round {}, {what}", round + 1))?;
                for (cell, sample) in samples {
                    record.add(round, cell, sample);
                }
                progress.step();
            }
        }
    }
    stop.check()?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_turn() {
        let turn = |rival| vec![Cell { measurement: 0, rival }];
        let group = [0, 1, 2].map(turn);
        for (round, order) in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]].into_iter().enumerate() {
            let rivals: Vec<_> = rotated(&group, round as u32).map(|turn| turn[0].rival).collect();
            assert_eq!(rivals, order);
        }
        assert_eq!(rotated(&[], 1).count(), 0);
    }
}
