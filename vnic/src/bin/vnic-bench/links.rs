//! What each setting of a cable costs: one `vnicd`, two test frontends, and in turns a cable without settings and one with
//! the setting. Used by `scripts/bench links`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use vnic::testing::{load, pin_thread};
use vnicd_protocol::{LinkChange, LinkSettings};

use crate::backends::{Backend, HugePages, Kind};
use crate::dataplane::{Guests, Sample, Watch, median};
use crate::{Cli, Options, check_interrupted};

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: usize = 7;
/// What a cable with a setting that does nothing must carry of what an ideal one does.
const RATIO_MIN: f64 = 0.95;
/// Round trips of one sample of latency.
const ROUND_TRIPS: u64 = 2_000;
/// Share of a sample without a core that is ordinary on a quiet machine.
const DISTURBED_MAX: f64 = 0.02;

/// Measures what each setting of a cable costs in throughput and latency, against an ideal cable.
///
/// The setting is made on both ways of both cables between two test frontends. Figures are medians over the rounds, ratios
/// those of neighbouring samples.
///
/// Exit status: 0 when no setting that does nothing costs more than 5 % of throughput, 3 when one does or there are fewer than
/// 7 rounds, 1 on failure.
#[derive(Debug, Args)]
pub struct LinkOptions {
    /// Alternating rounds.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of one sample of throughput in milliseconds.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    sample_ms: u64,
    /// Frame sizes in bytes (Ethernet header included, FCS not).
    #[arg(long, value_delimiter = ',', default_value = "64,1500")]
    sizes: Vec<usize>,
    /// Only settings whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Core of vnicd.
    #[arg(long, default_value_t = 0)]
    forwarder_core: usize,
    /// Core of the thread that plays both guests.
    #[arg(long, default_value_t = 1)]
    frontend_core: usize,
    /// Print JSON instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// A setting to measure.
struct Setting {
    name: &'static str,
    /// Fields of the operation `link`.
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
        "bursts of losses, 1 ppm",
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

/// A figure of one setting beside that of the ideal cable just before or behind it.
#[derive(Clone, Copy)]
struct Pair {
    ideal: Sample,
    with: Sample,
}

/// What is measured of a setting.
#[derive(Clone, Copy, PartialEq)]
enum Figure {
    /// Frames of this size per second, one way.
    Throughput(usize),
    /// Median round trip of short frames, in nanoseconds.
    RoundTrip,
}

/// All samples of one figure of one setting.
struct Line {
    setting: &'static Setting,
    figure: Figure,
    pairs: Vec<Pair>,
}

impl Line {
    fn ratio(&self) -> Option<f64> {
        median(self.pairs.iter().map(|pair| pair.with.value / pair.ideal.value))
    }

    fn has_bar(&self) -> bool {
        self.setting.does_nothing && matches!(self.figure, Figure::Throughput(_))
    }

    /// Whether the bar is met; `None` without one, or with fewer rounds than it takes to judge it.
    fn met(&self) -> Option<bool> {
        let ratio = self
            .ratio()
            .filter(|_| self.has_bar() && self.pairs.len() >= ROUNDS_MIN)?;
        Some(ratio >= RATIO_MIN)
    }

    fn values(&self, of: impl Fn(&Pair) -> f64) -> Vec<f64> {
        self.pairs.iter().map(of).collect()
    }
}

/// The result, and whether every bar is met.
pub struct Outcome {
    lines: Vec<Line>,
    rounds: u32,
}

impl Outcome {
    /// Whether every bar is met.
    pub fn all_met(&self) -> bool {
        let mut barred = self.lines.iter().filter(|line| line.has_bar());
        barred.all(|line| line.met() == Some(true))
    }

    /// The table, followed by what its columns mean.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header(["setting", "what", "ideal", "with it", "ratio", "bar", "met"]);
        for line in &self.lines {
            let shown = |of: fn(&Pair) -> f64| match (line.figure, median(line.values(of).into_iter())) {
                (_, None) => String::new(),
                (Figure::Throughput(_), Some(value)) => format!("{:.3} M/s", value / 1e6),
                (Figure::RoundTrip, Some(value)) => format!("{:.2} µs", value / 1e3),
            };
            table.add_row([
                line.setting.name.to_owned(),
                match line.figure {
                    Figure::Throughput(size) => format!("{size} B, one way"),
                    Figure::RoundTrip => "round trip".to_owned(),
                },
                shown(|pair| pair.ideal.value),
                shown(|pair| pair.with.value),
                line.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                if line.has_bar() {
                    format!("≥ {RATIO_MIN:.2}")
                } else {
                    String::new()
                },
                match (line.has_bar(), line.met()) {
                    (false, _) => "",
                    (true, Some(true)) => "yes",
                    (true, Some(false)) => "NO",
                    (true, None) => "too few",
                }
                .to_owned(),
            ]);
        }
        for column in 2..=4 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let samples = self.lines.iter().flat_map(|line| &line.pairs);
        let worst = samples
            .map(|pair| pair.ideal.disturbed.max(pair.with.disturbed))
            .fold(0.0, f64::max);
        let disturbed = if worst > DISTURBED_MAX {
            format!(
                "\nNOT ALONE: other programs held the cores for up to {:.0} % of a sample; repeat on a quiet machine.",
                worst * 100.0
            )
        } else {
            String::new()
        };
        format!(
            "{table}\nMedians of {} rounds, in each of which every setting has a turn beside the ideal cable; both ways of both cables are set.\n\
             ratio: the median of the rounds' ratios; too few: fewer than {ROUNDS_MIN} rounds.{disturbed}",
            self.rounds
        )
    }

    /// The same as one JSON object.
    pub fn json(&self) -> Value {
        let lines = self.lines.iter().map(|line| {
            let (name, unit) = match line.figure {
                Figure::Throughput(size) => (format!("{size} B, one way"), "frames/s"),
                Figure::RoundTrip => ("round trip".to_owned(), "ns"),
            };
            json!({
                "setting": line.setting.name,
                "name": name,
                "unit": unit,
                "ideal": line.values(|pair| pair.ideal.value),
                "with": line.values(|pair| pair.with.value),
                "disturbed": line.values(|pair| pair.ideal.disturbed.max(pair.with.disturbed)),
                "ratio": line.ratio(),
                "bar": if line.has_bar() { json!({ "ratio_min": RATIO_MIN }) } else { Value::Null },
                "met": line.met(),
            })
        });
        json!({ "rounds": self.rounds, "lines": lines.collect::<Vec<_>>() })
    }
}

/// Runs all rounds.
pub fn run(links: &LinkOptions) -> anyhow::Result<Outcome> {
    pin_thread(links.frontend_core).context("cannot take the frontends' core")?;
    let folder = tempfile::Builder::new().prefix("vnic-bench-").tempdir()?;
    let options = options(links, folder.path());
    let wanted = |setting: &&Setting| links.only.as_ref().is_none_or(|text| setting.name.contains(text));
    let figures: Vec<_> = links
        .sizes
        .iter()
        .map(|size| Figure::Throughput(*size))
        .chain([Figure::RoundTrip])
        .collect();
    let lines = SETTINGS.iter().filter(wanted).flat_map(|setting| {
        figures.iter().map(move |figure| Line {
            setting,
            figure: *figure,
            pairs: Vec::new(),
        })
    });
    let mut lines: Vec<Line> = lines.collect();
    let pages = HugePages::reserve(0);
    let progress = ProgressBar::new(u64::from(links.rounds) * lines.len() as u64);
    progress.set_style(ProgressStyle::with_template(
        "[{elapsed}] {wide_bar} {pos}/{len} {msg}",
    )?);
    for round in 0..links.rounds {
        for figure in &figures {
            let backend = Backend::start(Kind::Vnicd, &options, &pages, folder.path(), 2)?;
            backend.wait_for_sockets()?;
            let mut bench = Bench {
                options: &options,
                backend: &backend,
                control: Control::connect(folder.path())?,
                figure: *figure,
            };
            for line in lines.iter_mut().filter(|line| line.figure == *figure) {
                check_interrupted()?;
                progress.set_message(format!("round {}, {}", round + 1, line.setting.name));
                let pair = bench.pair(line.setting, round % 2 == 0);
                line.pairs
                    .push(pair.with_context(|| format!("{}: {}", line.setting.name, backend.last_words()))?);
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    Ok(Outcome {
        lines,
        rounds: links.rounds,
    })
}

/// The options of the other comparison as far as they are about starting and loading a `vnicd`.
fn options(links: &LinkOptions, folder: &Path) -> Options {
    Options {
        rounds: links.rounds,
        sample_ms: links.sample_ms,
        forwarder_core: links.forwarder_core,
        frontend_core: links.frontend_core,
        vnicd_args: format!("--control {}", control_socket(folder)),
        ..Cli::parse_from(["vnic-bench"]).dataplane
    }
}

fn control_socket(folder: &Path) -> String {
    folder.join("control.sock").display().to_string()
}

struct Bench<'a> {
    options: &'a Options,
    backend: &'a Backend,
    control: Control,
    figure: Figure,
}

impl Bench<'_> {
    /// The ideal cable and one with the setting, or the other way round.
    fn pair(&mut self, setting: &Setting, ideal_first: bool) -> anyhow::Result<Pair> {
        if ideal_first {
            let ideal = self.sample("{}")?;
            let with = self.sample(setting.change)?;
            return Ok(Pair { ideal, with });
        }
        let with = self.sample(setting.change)?;
        let ideal = self.sample("{}")?;
        Ok(Pair { ideal, with })
    }

    fn sample(&mut self, change: &str) -> anyhow::Result<Sample> {
        for port in 0..2 {
            self.control
                .set_link(&format!("{}-{port}", Kind::Vnicd.name()), change)?;
        }
        let size = match self.figure {
            Figure::Throughput(size) => size,
            Figure::RoundTrip => 64,
        };
        let guests = Guests {
            size,
            interrupts: false,
        };
        let (mut sender, mut receiver) = guests.connect_two(self.options, self.backend)?;
        load::prepare(&mut sender, &mut receiver, size);
        let watch = Watch::begin(self.backend)?;
        if self.figure == Figure::RoundTrip {
            let mut times_ns = Vec::new();
            // A lost one has no time; a cable of this list loses one in a million.
            load::ping_pong(&mut sender, &mut receiver, size, ROUND_TRIPS, |ns| {
                times_ns.push(ns as f64)
            });
            return Ok(Sample {
                value: median(times_ns.into_iter()).context("no frame came back")?,
                disturbed: watch.disturbed()?,
                stream: None,
            });
        }
        let duration = Duration::from_millis(self.options.sample_ms);
        let stream = load::one_way(&mut sender, &mut receiver, size, load::Touch::FirstLine, duration);
        Ok(Sample {
            value: stream.frames_per_s,
            disturbed: watch.disturbed()?,
            stream: Some(stream),
        })
    }
}

/// The control socket of the `vnicd` under test.
struct Control {
    stream: BufReader<UnixStream>,
}

impl Control {
    fn connect(folder: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(control_socket(folder)).context("vnicd has no control socket")?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Makes the cable of `port` an ideal one but for `change`.
    fn set_link(&mut self, port: &str, change: &str) -> anyhow::Result<()> {
        let mut settings = LinkSettings::default();
        serde_json::from_str::<LinkChange>(change)?.apply_to(&mut settings);
        let mut request = serde_json::to_value(LinkChange::from(&settings))?;
        request["op"] = "link".into();
        request["port"] = port.into();
        writeln!(self.stream.get_mut(), "{request}")?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        anyhow::ensure!(!answer.contains("\"error\""), "vnicd refuses the setting: {answer}");
        Ok(())
    }
}
