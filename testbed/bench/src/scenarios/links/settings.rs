//! The cost of each setting of a cable: one `vnicd` and two test frontends, with a cable without settings and one with
//! the setting in turns.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Map;
use testbed::vnicd_client::VnicdClient;
use testbed::vnicd_client::report::{Direction, LinkChange, LinkSettings};
use weft_vnic_testkit::{load, pin_thread};

use crate::scenarios::forwarder::{Cores, FRAMES, Forwarder, Guests, ROUND_TRIP, not_alone, vnicd};
use testbed::harness::table::{RivalColumn, Style, across, words};
use testbed::harness::{
    Bar, Cell, Limit, Measurement, Plan, Record, Report, Sample, Scenario, Stop, Turn, conclude, run, stats,
    until_stopped,
};

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: u32 = 7;
/// Share of an ideal cable's throughput that a cable must reach whose setting has no effect.
const RATIO_MIN: f64 = 0.95;
/// Number of round trips in one sample of latency.
const ROUND_TRIPS: u64 = 2_000;
/// Name of vnicd's sockets and log.
const NAME: &str = "vnicd";

/// Measures what each setting of a cable costs in throughput and latency, against an ideal cable.
///
/// The setting is applied to both directions of both cables between two test frontends. Figures are medians over the
/// rounds, ratios are those of neighbouring samples.
///
/// Exit status: 0 when no setting without effect costs more than 5 % of throughput, 3 when one does or there are fewer
/// than 7 rounds, 1 on failure.
#[derive(Debug, Args)]
pub struct Options {
    /// Alternating rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of one sample of throughput in milliseconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    sample_ms: u64,
    /// Frame sizes in bytes (Ethernet header included, FCS not)
    #[arg(long, value_delimiter = ',', default_value = "64,1500")]
    sizes: Vec<usize>,
    /// Measure only settings whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    #[command(flatten)]
    cores: Cores,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// A setting to measure.
struct Setting {
    name: &'static str,
    /// JSON fields of the operation `link`.
    change: &'static str,
    does_nothing: bool,
}

const fn idle(name: &'static str, change: &'static str) -> Setting {
    Setting {
        name,
        change,
        does_nothing: true,
    }
}

const fn acting(name: &'static str, change: &'static str) -> Setting {
    Setting {
        name,
        change,
        does_nothing: false,
    }
}

const SETTINGS: [Setting; 22] = [
    idle("nothing (the ideal cable again)", "{}"),
    idle("loss 0", r#"{"loss_ppm":0,"loss_every":0}"#),
    idle(
        "bursts in which nothing is lost",
        r#"{"loss_enter_ppm":1000,"loss_leave_ppm":1000,"loss_in_burst_ppm":0}"#,
    ),
    idle("delay 0", r#"{"delay_ns":0}"#),
    idle(
        "jitter 0, pareto",
        r#"{"jitter_ns":0,"jitter_distribution":"pareto","jitter_reorders":true}"#,
    ),
    idle("queue of 1000 packets, no rate", r#"{"queue_frames":1000}"#),
    idle("queue of 20 ms, no rate", r#"{"queue_ns":20000000}"#),
    idle("ECN threshold, no rate", r#"{"ecn_frames":100}"#),
    idle("reorder 0 by 1 ms", r#"{"reorder_delay_ns":1000000}"#),
    idle("MTU above every frame", r#"{"mtu":8999}"#),
    idle("another seed", r#"{"seed":7}"#),
    acting("rate 100 Gbit/s", r#"{"rate_bps":100000000000}"#),
    acting(
        "rate 100 Gbit/s, burst 64K",
        r#"{"rate_bps":100000000000,"burst_bytes":65536}"#,
    ),
    acting(
        "rate 100 Gbit/s, queue of 1000 packets, ECN",
        r#"{"rate_bps":100000000000,"queue_frames":1000,"ecn_frames":900}"#,
    ),
    acting("delay 10 µs", r#"{"delay_ns":10000}"#),
    acting(
        "delay 10 µs, jitter 2 µs normal",
        r#"{"delay_ns":10000,"jitter_ns":2000,"jitter_distribution":"normal"}"#,
    ),
    acting("loss 1 ppm", r#"{"loss_ppm":1}"#),
    acting(
        "bursts of loss, 1 ppm",
        r#"{"loss_enter_ppm":1,"loss_leave_ppm":250000,"loss_in_burst_ppm":1000000}"#,
    ),
    acting("loss of every millionth", r#"{"loss_every":1000000}"#),
    acting(
        "reorder 1 ppm by 10 µs",
        r#"{"reorder_ppm":1,"reorder_delay_ns":10000}"#,
    ),
    acting("duplicate 1 ppm", r#"{"duplicate_ppm":1}"#),
    acting("corrupt 1 ppm", r#"{"corrupt_ppm":1}"#),
];

/// What is measured for a setting.
#[derive(Clone, Copy, PartialEq)]
enum Figure {
    /// Frames of this size per second in one direction.
    Throughput(usize),
    /// Median round trip of short frames, in nanoseconds.
    RoundTrip,
}

/// A table row: a figure of a setting.
struct Line {
    setting: &'static Setting,
    figure: Figure,
}

/// The number of the rival without settings.
const IDEAL: usize = 0;
const WITH: usize = 1;

fn figures(options: &Options) -> Vec<Figure> {
    let throughput = options.sizes.iter().map(|size| Figure::Throughput(*size));
    throughput.chain([Figure::RoundTrip]).collect()
}

fn lines(options: &Options) -> Vec<Line> {
    let wanted = |setting: &&Setting| options.only.as_ref().is_none_or(|text| setting.name.contains(text));
    let of_setting = |setting| figures(options).into_iter().map(move |figure| Line { setting, figure });
    SETTINGS.iter().filter(wanted).flat_map(of_setting).collect()
}

fn plan(options: &Options, lines: &[Line]) -> Plan {
    let mut plan = Plan::new(options.rounds, ROUNDS_MIN);
    plan.rivals = ["ideal", "with it"].map(str::to_owned).to_vec();
    for (measurement, line) in lines.iter().enumerate() {
        let (what, unit) = match line.figure {
            Figure::Throughput(size) => (format!("{size} B, one way"), FRAMES),
            Figure::RoundTrip => ("round trip".to_owned(), ROUND_TRIP),
        };
        plan.measurements.push(Measurement {
            labels: vec![line.setting.name.to_owned(), what],
            ..Measurement::new("", unit)
        });
        let [with, ideal] = [WITH, IDEAL].map(|rival| Cell { measurement, rival });
        let has_bar = line.setting.does_nothing && matches!(line.figure, Figure::Throughput(_));
        let limit = if has_bar {
            Limit::RatioMin(RATIO_MIN)
        } else {
            Limit::Shown
        };
        plan.bars.push(Bar::must(with, ideal, limit));
    }
    // All settings of one figure follow each other on one vnicd.
    for figure in figures(options) {
        let of_figure = (0..lines.len()).filter(|measurement| lines[*measurement].figure == figure);
        plan.groups
            .extend(of_figure.map(|measurement| [IDEAL, WITH].map(|rival| vec![Cell { measurement, rival }]).to_vec()));
    }
    plan
}

/// Measures, prints the result, and returns whether every bar is met.
pub fn compare(options: &Options) -> Result<bool> {
    until_stopped(|stop| {
        pin_thread(options.cores.frontend_core).context("cannot take the frontends' core")?;
        let folder = tempfile::Builder::new().prefix("weft-bench-").tempdir()?;
        let lines = lines(options);
        let plan = plan(options, &lines);
        let mut cables = Cables {
            options,
            lines,
            folder: folder.path(),
            stop,
            running: None,
        };
        let record = run(plan, &mut cables, stop)?;
        conclude(&record, report(&record), options.json)
    })
}

/// The `vnicd` under test, with the round and figure it was started for.
struct Running {
    forwarder: Forwarder,
    client: VnicdClient,
    since: (u32, Figure),
}

struct Cables<'a> {
    options: &'a Options,
    lines: Vec<Line>,
    folder: &'a Path,
    stop: &'a Stop,
    running: Option<Running>,
}

impl Scenario for Cables<'_> {
    fn measure(&mut self, round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let mut samples = Vec::new();
        for cell in turn {
            let Line { setting, figure } = self.lines[cell.measurement];
            if self
                .running
                .as_ref()
                .is_none_or(|running| running.since != (round, figure))
            {
                // The old process is gone before its successor makes its sockets.
                self.running = None;
                self.running = Some(self.start((round, figure))?);
            }
            let running = self.running.as_mut().context("no vnicd runs")?;
            let change = if cell.rival == WITH { setting.change } else { "{}" };
            let sample = running.sample(figure, change, Duration::from_millis(self.options.sample_ms));
            samples.push((*cell, sample.with_context(|| running.forwarder.last_words())?));
        }
        Ok(samples)
    }
}

impl Cables<'_> {
    fn start(&self, since: (u32, Figure)) -> Result<Running> {
        let control = self.folder.join("control.sock");
        let arguments = format!("--control {}", control.display());
        let core = self.options.cores.forwarder_core;
        let forwarder = Forwarder::start(NAME, core, self.folder, 2, |sockets| vnicd(None, sockets, &arguments))?;
        forwarder.wait_for_sockets(self.stop)?;
        Ok(Running {
            client: VnicdClient::connect(&control).context("vnicd has no control socket")?,
            forwarder,
            since,
        })
    }
}

impl Running {
    fn sample(&mut self, figure: Figure, change: &str, duration: Duration) -> Result<Sample> {
        // All other settings are those of an ideal cable.
        let mut settings = LinkSettings::default();
        serde_json::from_str::<LinkChange>(change)?.apply_to(&mut settings);
        let change = LinkChange::from(&settings);
        for port in 0..2 {
            self.client.link(&format!("{NAME}-{port}"), Direction::Both, &change)?;
        }
        match figure {
            Figure::Throughput(size) => {
                Guests::polling(size).one_way(&self.forwarder, load::Touch::FirstLine, duration)
            }
            Figure::RoundTrip => {
                // A lost frame has no time; a cable of this list loses one in a million.
                let (times_ns, disturbed) = Guests::polling(64).ping_pong(&self.forwarder, ROUND_TRIPS)?;
                Ok(Sample {
                    disturbed,
                    ..Sample::new(stats::median(times_ns).context("no frame came back")?)
                })
            }
        }
    }
}

fn report(record: &Record) -> Report {
    let medians = RivalColumn {
        heading: str::to_owned,
        cell: Record::median_text,
    };
    let table = across(
        record,
        Style::Framed,
        &[words("setting"), words("what")],
        &[medians],
        WITH,
    );
    let text = format!(
        "{table}Medians of {} rounds, in each of which every setting has a turn beside the ideal cable; both directions of both cables are set.\n\
         ratio: the median of the rounds' ratios.\n{}",
        record.plan.rounds,
        not_alone(record),
    );
    Report {
        text,
        conditions: Map::new(),
    }
}
