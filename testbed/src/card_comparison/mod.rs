//! `weft bench card`: MX messages over a card that programs drive themselves, over the kernel's card, and TCP, in turns;
//! copies by a card that is wired to itself, and receives whose data it copies.

mod copies;
mod guests;
mod plan;
mod receives;
mod report;

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use self::{guests::Guests, report::Conditions};
use crate::{
    accel::AccelChoice,
    harness::{Cell, Record, Sample, Scenario, Stop, Turn, conclude, others::Times, run},
    lab::Lab,
    report::{file::OutFile, progress::Progress},
    supervisor::Supervisor,
    supervisor_client::client::Client,
};

/// Lab file of the comparison's own lab.
const LAB: &str = include_str!("lab.toml");

/// The options of the comparison.
pub(crate) struct Options {
    /// Rounds in which the rivals take turns.
    pub rounds: u32,
    /// File for a chart.
    pub chart: Option<PathBuf>,
    /// How the guests run.
    pub accel: AccelChoice,
    /// How long a booting node may show no sign of life.
    pub boot_timeout: Duration,
}

/// Measures in a lab that is started and ended here, prints the result, and returns whether the bars are met.
pub(crate) fn compare(options: &Options, json: bool) -> Result<bool> {
    let lab = Lab::parse(LAB, "lab.toml", "bench-card", Path::new("/"))?;
    options.chart.as_deref().map_or(Ok(()), OutFile::check)?;
    let progress = Progress::new(0);
    let means = crate::prepare::means(&lab, options.accel, &progress)?;
    let conditions = Conditions {
        accel: means.accel,
        qemu: means.qemu.version().to_string(),
    };
    // Until here Ctrl-C ends the process immediately; from here on everything that was made is removed.
    let supervisor = Supervisor::start(lab, means, None)?;
    let rounds = options.rounds;
    let measured = supervisor
        .wait_up(options.boot_timeout, |_| progress.say("booting two guests"))
        .and_then(|_| {
            progress.finish();
            // A signal ends the lab, and with it whatever waits for a guest.
            supervisor.run_beside(move |client| measure(client, rounds))
        });
    let stopped = supervisor.stop();
    let record = measured?;
    stopped?;
    if let Some(path) = &options.chart {
        let svg = report::chart(&record, &conditions).svg()?;
        let mut file = OutFile::open(path)?;
        file.writer()?.write_all(svg.as_bytes())?;
        file.keep();
    }
    conclude(&record, report::report(&record, &conditions), json)
}

/// Runs all rounds.
fn measure(client: Client, rounds: u32) -> Result<Record> {
    let mut rivals = Rivals {
        guests: Guests::find(&client)?,
        client,
    };
    run(plan::plan(rounds), &mut rivals, &Stop::default())
}

/// The rivals that take turns.
struct Rivals {
    client: Client,
    guests: Guests,
}

impl Scenario for Rivals {
    fn measure(&mut self, _round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let first = turn.first().context("an empty turn")?;
        let (begin, before) = (Instant::now(), Times::of_lab(&self.client)?);
        let samples = self.guests.measure(first.rival, turn)?;
        let (elapsed, after) = (begin.elapsed(), Times::of_lab(&self.client)?);
        let disturbed = after.others_since(before) as f64 / elapsed.as_nanos().max(1) as f64;
        let samples = samples.into_iter();
        Ok(samples
            .map(|(cell, sample)| (cell, Sample { disturbed, ..sample }))
            .collect())
    }
}
