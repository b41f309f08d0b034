//! `weft demo`: two guests, one switch, and seven interrupt settings of their cards, measured in alternating rounds. It
//! measures with the tools in the guests and the counters of the cards, and decides nothing about interrupts itself.

mod charts;
mod measure;
mod output;
mod page;
mod reading;
mod result;

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Result;

use self::{
    measure::{Bench, Setting},
    result::Demo,
};
use crate::{
    accel::AccelChoice,
    lab::{Lab, Strategy},
    programs,
    report::{
        file::{OutFile, OutFolder},
        progress::Progress,
        say,
    },
    supervisor::Supervisor,
    supervisor_client::client::Client,
};

/// Default number of rounds in which the strategies alternate.
pub const ROUNDS_DEFAULT: u32 = 5;

/// Number of small messages per setting over all rounds.
const SMALL_MESSAGES: u64 = 1_000;

/// Number of 32-KiB messages per setting over all rounds: so many that the packets by which sender and receiver
/// connect, about ten per round, do not show in the interrupts per message.
const MEDIUM_MESSAGES: u64 = 400;

/// Time in seconds for booting and measuring together. Rounds that would end later are left out.
const BUDGET_S: f64 = 155.0;

/// Lab file of the demo.
const LAB: &str = include_str!("demo.toml");

/// The settings measured: without coalescing, and each strategy with the delay of the papers' card and with one that
/// shows on an emulated processor.
pub(crate) const SETTINGS: [Setting; 7] = [
    Setting::new(Strategy::Disabled, 0),
    Setting::new(Strategy::Timeout, 75),
    Setting::new(Strategy::OpenMx, 75),
    Setting::new(Strategy::Stream, 75),
    Setting::new(Strategy::Timeout, 1000),
    Setting::new(Strategy::OpenMx, 1000),
    Setting::new(Strategy::Stream, 1000),
];

/// The options of the demo.
pub struct DemoOptions {
    /// Folder for the results: text, JSON and charts.
    pub output: PathBuf,
    /// File for the frames of the first round.
    pub capture: Option<PathBuf>,
    /// Rounds in which the strategies alternate.
    pub rounds: u32,
    /// How guests run.
    pub accel: AccelChoice,
    /// How long a booting node may show no sign of life.
    pub boot_timeout: Duration,
}

/// Runs the demo: boots, measures, explains, writes files, ends everything.
///
/// # Errors
/// Fails with one sentence; nothing is left running.
pub fn run(options: &DemoOptions, json: bool) -> Result<()> {
    let started = Instant::now();
    let lab = Lab::parse(LAB, "demo.toml", "demo", Path::new("/"))?;
    // The folder is checked before anything is measured, so that a full disk or a typing mistake does not cost three
    // minutes.
    OutFolder::check(&options.output)?;
    options.capture.as_deref().map_or(Ok(()), OutFile::check)?;
    let progress = Progress::new(0);
    let means = crate::prepare::means(&lab, options.accel, &progress)?;
    let (accel, qemu, build) = (means.accel, means.qemu.version().to_string(), programs::build()?);
    // Building the guest image the first time, with its download, is not part of the demo's time.
    let preparation = started.elapsed();
    // Until here Ctrl-C ends the process immediately; from here on everything that was made is removed.
    let mut file = options.capture.as_deref().map(OutFile::open).transpose()?;
    let capture = file.as_mut().map(OutFile::writer).transpose()?;
    let supervisor = Supervisor::start(lab, means, None)?;
    let rounds = options.rounds;
    let boot_timeout = options.boot_timeout;
    let measured = supervisor
        .wait_up(boot_timeout, |_| progress.say("booting two guests"))
        .and_then(|_| {
            progress.finish();
            supervisor.run_beside(move |client| {
                let begun = started + preparation;
                measure_rounds(&client, rounds, begun, capture)
            })
        });
    let stopped = supervisor.stop();
    let samples = measured?;
    stopped?;
    let mut demo = Demo::of(
        accel,
        qemu,
        build,
        &samples,
        (started.elapsed() - preparation).as_secs_f64(),
    );
    demo.rounds_left_out = (rounds as usize).saturating_sub(demo.rounds);
    let text = output::text(&demo);
    output::write(&options.output, &demo, &text)?;
    if let Some(file) = file {
        file.keep();
    }
    output::print(&demo, &text, json)?;
    say(format_args!(
        "demo.html has reading, charts and numbers; it, text, JSON and single charts are in {}",
        options.output.display()
    ));
    Ok(())
}

/// Runs all rounds: in each, every setting once; each round begins with another one, so that a drift of the machine
/// spreads.
fn measure_rounds(
    client: &Client,
    rounds: u32,
    begun: Instant,
    capture: Option<impl Write + Send + 'static>,
) -> Result<Vec<result::Sample>> {
    let mut bench = Bench::start(client)?;
    if let Some(out) = capture {
        bench.capture_to(out)?;
    }
    let steps = SETTINGS.len() as u64 * u64::from(rounds);
    let progress = Progress::new(steps);
    let mut samples = Vec::new();
    let mut small_left = SMALL_MESSAGES;
    let mut round_s: f64 = 0.0;
    for round in 0..rounds {
        let round_began = Instant::now();
        let rounds_left = rounds_that_fit(rounds - round, round_s, BUDGET_S - begun.elapsed().as_secs_f64());
        if rounds_left == 0 {
            progress.note(&format!(
                "this machine is slow: {round} of {rounds} rounds were measured"
            ));
            break;
        }
        let small = small_left.div_ceil(u64::from(rounds_left));
        for step in 0..SETTINGS.len() {
            let setting = SETTINGS[(step + round as usize) % SETTINGS.len()];
            progress.say(&format!("round {} of {rounds}: {setting}", round + 1));
            samples.push(bench.measure(setting, small, MEDIUM_MESSAGES.div_ceil(u64::from(rounds)))?);
            progress.step();
        }
        bench.end_capture()?;
        small_left = small_left.saturating_sub(small);
        round_s = round_s.max(round_began.elapsed().as_secs_f64());
    }
    if small_left > 0 {
        // Medians of fewer small messages say little here: rounds can be left out, these messages cannot.
        progress.say("the small messages of the rounds left out");
        for setting in SETTINGS {
            samples.push(bench.measure_small(setting, small_left)?);
        }
    }
    Ok(samples)
}

/// Returns how many of `planned` rounds of `round_s` seconds fit into what is left of the budget. Before the first
/// round nothing is known, so one round is always measured.
fn rounds_that_fit(planned: u32, round_s: f64, left_s: f64) -> u32 {
    if round_s == 0.0 {
        return planned;
    }
    // The cast saturates, and negative numbers become 0.
    planned.min((left_s / round_s) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_left_out_on_a_slow_machine_but_never_the_first() {
        assert_eq!(rounds_that_fit(5, 0.0, -3.0), 5);
        assert_eq!(rounds_that_fit(4, 30.0, 130.0), 4);
        assert_eq!(rounds_that_fit(4, 60.0, 130.0), 2);
        assert_eq!(rounds_that_fit(4, 60.0, 10.0), 0);
        assert_eq!(rounds_that_fit(4, 60.0, -10.0), 0);
    }

    #[test]
    fn the_lab_of_the_demo_is_valid() {
        let lab = Lab::parse(LAB, "demo.toml", "demo", Path::new("/")).expect("valid");
        assert_eq!(
            lab.ports().map(|(port, ..)| port).collect::<Vec<_>>(),
            ["n1.eth0", "n2.eth0"]
        );
    }
}
