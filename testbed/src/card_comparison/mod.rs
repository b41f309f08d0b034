//! `weft bench card`: MX messages over a card that programs drive themselves, over the kernel's card, and TCP, in turns;
//! copies by a card that is wired to itself, and receives whose data it copies.

mod copies;
mod guests;
mod lci;
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
    harness::{self, Cell, Record, Sample, Scenario, Stop, Turn, conclude, others::Times, run},
    lab::Lab,
    programs,
    report::{chart::BarChart, file::OutFile, progress::Progress},
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
    /// What is compared; everything if there is nothing.
    pub only: Option<Part>,
    /// How the guests run.
    pub accel: AccelChoice,
    /// How long a booting node may show no sign of life.
    pub boot_timeout: Duration,
}

/// A part of the comparison, which has a lab of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// MX messages and copies, against the kernel.
    Mx,
    /// Programs over LCI, with multicast in the card and without.
    Lci,
}

/// Measures in labs that are started and ended here, prints the result, and returns whether the bars are met.
pub(crate) fn compare(options: &Options, json: bool) -> Result<bool> {
    options.chart.as_deref().map_or(Ok(()), OutFile::check)?;
    let rounds = options.rounds;
    let wants = |part| options.only.is_none_or(|only| only == part);
    let mut record = None;
    if wants(Part::Mx) {
        record = Some(in_lab(LAB, "bench-card", options, move |client| {
            measure(client, rounds)
        })?);
    }
    let mut lci = None;
    if wants(Part::Lci) {
        programs::provide([lci::PROGRAM])?;
        let measure = move |client| lci::measure(client, rounds);
        lci = Some(in_lab(&lci::lab_file(), "bench-lci", options, measure)?);
    }
    match (record, lci) {
        (Some((record, conditions)), None) => {
            draw(options, || report::chart(&record, &conditions))?;
            conclude(&record, report::report(&record, &conditions), json)
        }
        (None, Some((record, conditions))) => {
            draw(options, || lci::chart(&record))?;
            conclude(&record, lci::report(&record, &conditions), json)
        }
        (Some((record, conditions)), Some((of_lci, conditions_of_lci))) => {
            draw(options, || {
                let mut chart = report::chart(&record, &conditions);
                chart.groups.extend(lci::groups(&of_lci));
                chart
            })?;
            let mut report = report::report(&record, &conditions);
            let more = lci::report(&of_lci, &conditions_of_lci);
            report.text += &more.text;
            report
                .conditions
                .insert("lci".to_owned(), harness::json(&of_lci, more.conditions));
            Ok(conclude(&record, report, json)? && of_lci.all_met())
        }
        (None, None) => Ok(true),
    }
}

/// Starts a lab, measures in it and ends it.
fn in_lab<T: Send + 'static>(
    file: &str,
    name: &str,
    options: &Options,
    measure: impl FnOnce(Client) -> Result<T> + Send + 'static,
) -> Result<(T, Conditions)> {
    let lab = Lab::parse(file, "lab.toml", name, Path::new("/"))?;
    let progress = Progress::new(0);
    let means = crate::prepare::means(&lab, options.accel, &progress)?;
    let conditions = Conditions {
        accel: means.accel,
        qemu: means.qemu.version().to_string(),
        build: crate::programs::build()?,
    };
    // Until here Ctrl-C ends the process immediately; from here on everything that was made is removed.
    let supervisor = Supervisor::start(lab, means, None)?;
    let measured = supervisor
        .wait_up(options.boot_timeout, |_| progress.say("booting guests"))
        .and_then(|_| {
            progress.finish();
            // A signal ends the lab, and with it whatever waits for a guest.
            supervisor.run_beside(measure)
        });
    let stopped = supervisor.stop();
    let measured = measured?;
    stopped?;
    Ok((measured, conditions))
}

/// Draws the chart, if one is wanted.
fn draw(options: &Options, chart: impl FnOnce() -> BarChart) -> Result<()> {
    let Some(path) = &options.chart else { return Ok(()) };
    let svg = chart().svg()?;
    let mut file = OutFile::open(path)?;
    file.writer()?.write_all(svg.as_bytes())?;
    file.keep();
    Ok(())
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
