//! Programs over LCI: multicast by the card against multicast by guests, packet by packet and message by message.

mod guests;
mod plan;
mod report;

use std::time::Instant;

use anyhow::{Context, Result};

pub(super) use self::guests::PROGRAM;
pub(super) use self::report::{chart, groups, report};
use self::{guests::Guests, plan::NODES};
use crate::{
    harness::{Cell, Record, Sample, Scenario, Stop, Turn, others::Times, run},
    supervisor_client::client::Client,
};

/// The lab file of the guests.
pub(super) fn lab_file() -> String {
    let nodes = (1..=NODES).map(|node| format!("[[node]]\nname = \"n{node}\"\nnic = [{{}}, {{ bypass = \"uio\" }}]\n"));
    include_str!("lab.toml").to_owned() + &nodes.collect::<String>()
}

/// Runs all rounds.
pub(super) fn measure(client: Client, rounds: u32) -> Result<Record> {
    let mut rivals = Rivals {
        guests: Guests::prepare(&client)?,
        client,
    };
    let mut record = run(plan::plan(rounds), &mut rivals, &Stop::default())?;
    plan::add_orders(&mut record);
    Ok(record)
}

/// The rivals, which take turns within a turn of the plan.
struct Rivals {
    client: Client,
    guests: Guests,
}

impl Scenario for Rivals {
    fn measure(&mut self, round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let first = turn.first().context("an empty turn")?;
        let (begin, before) = (Instant::now(), Times::of_lab(&self.client)?);
        let samples = self.guests.measure(round, first.measurement)?;
        let (elapsed, after) = (begin.elapsed(), Times::of_lab(&self.client)?);
        let disturbed = after.others_since(before) as f64 / elapsed.as_nanos().max(1) as f64;
        let sample = |(cell, value)| {
            let sample = Sample {
                disturbed,
                ..Sample::new(value)
            };
            (cell, sample)
        };
        Ok(samples.into_iter().map(sample).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::lab::Lab;

    #[test]
    fn the_lab_file_is_one() {
        let lab = Lab::parse(&super::lab_file(), "lab.toml", "bench-lci", Path::new("/")).unwrap();
        assert_eq!(lab.nodes.len(), super::NODES);
    }
}
