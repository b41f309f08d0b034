//! `vnicd` against DPDK's testpmd as vhost-user forwarders between two test frontends, on the same cores. In every
//! round each forwarder is started, measured and stopped, so that a drift of the machine affects all of them.

mod backends;
mod virtio_user;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;
use weft_vnic_testkit::{load, pin_thread};

use self::backends::{HugePages, Kind};
use super::forwarder::{Cores, FRAMES, Forwarder, Guests, ROUND_TRIP, Watch, not_alone, wait};
use testbed::harness::table::{RivalColumn, Style, across, words};
use testbed::harness::{
    Bar, Cell, Limit, Measurement, Plan, Record, Report, Sample, Scenario, Stop, Turn, Unit, conclude, fields, run,
    stats, until_stopped,
};

/// Share of attempts that find a full transmit ring below which a sample measured the generator instead of the
/// forwarder.
const SENDER_FULL_MIN: f64 = 0.70;
/// Rounds that must count before a bar is judged.
const ROUNDS_MIN: u32 = 5;
/// Number of idle ports whose cost is measured.
const IDLE_PORTS: usize = 8;
/// Time that the idle ports are left alone before they are watched, and time that they are watched.
const IDLE_SETTLE: Duration = Duration::from_secs(1);
const IDLE_WATCH: Duration = Duration::from_secs(3);
/// Number of round trips in one ping-pong sample.
const ROUND_TRIPS: u64 = 50_000;
/// Length of the ping-pong frame in bytes.
const PING_LEN: usize = 64;

/// Compares vnicd with dpdk-testpmd as vhost-user forwarders.
///
/// Exit status: 0 when every bar is met, 3 when one is missed or too few rounds count to judge it, 1 on failure.
#[derive(Debug, Args)]
pub struct Options {
    /// Alternating rounds; figures are medians over them
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of one sample in milliseconds
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    sample_ms: u64,
    /// Frame sizes in bytes (Ethernet header included, FCS not)
    #[arg(long, value_delimiter = ',', default_value = "64,512,1500,9000")]
    sizes: Vec<usize>,
    /// Forwarders to measure
    #[arg(long, value_delimiter = ',', default_value = "vnicd,testpmd")]
    backends: Vec<Kind>,
    /// What to measure
    #[arg(long, value_delimiter = ',', default_value = "one-way,interrupts,ping-pong,idle")]
    parts: Vec<Part>,
    #[command(flatten)]
    programs: Programs,
    #[command(flatten)]
    cores: Cores,
    #[command(flatten)]
    rings: Rings,
    /// Implementation of the guests
    #[arg(long, value_enum, default_value_t = GuestKind::Weft)]
    frontend: GuestKind,
    /// Make the guests write and read whole frames instead of only the first cache line of each
    #[arg(long)]
    touch_all: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// The programs to start.
#[derive(Debug, Args)]
struct Programs {
    /// The vnicd binary; by default the one beside this program
    #[arg(long)]
    vnicd: Option<PathBuf>,
    /// The testpmd binary
    #[arg(long, default_value = "dpdk-testpmd")]
    testpmd: PathBuf,
    /// Further arguments for vnicd, split at blanks: by default the strategy of the papers' card, all else as shipped
    #[arg(long, default_value = "--strategy timeout --delay-us 75", allow_hyphen_values = true)]
    vnicd_args: String,
}

/// The layout of the guests' rings.
#[derive(Debug, Args)]
struct Rings {
    /// Entries per ring
    #[arg(long, default_value_t = 256)]
    ring: u16,
    /// Bytes per receive buffer; 0: the frame fits one buffer
    #[arg(long, default_value_t = 0)]
    rx_buffer: usize,
    /// Buffers each guest uses in turn per ring. 256 or less: each ring slot keeps its buffer, all stays in the caches
    #[arg(long, default_value_t = 512)]
    buffers: usize,
    /// Leave EVENT_IDX out of the negotiation
    #[arg(long)]
    no_event_idx: bool,
}

impl Rings {
    const fn guests(&self, size: usize, interrupts: bool) -> Guests {
        Guests {
            size,
            interrupts,
            ring: self.ring,
            rx_buffer: self.rx_buffer,
            buffers: self.buffers,
            event_idx: !self.no_event_idx,
        }
    }
}

/// The implementations of the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum GuestKind {
    /// The test frontends of this project.
    Weft,
    /// DPDK's virtio-user ports. They only measure frames per second, both directions together, without bars.
    VirtioUser,
}

/// A part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Frames per second in one direction while the frontends poll.
    OneWay,
    /// Frames per second in one direction while the receiver wants interrupts.
    Interrupts,
    /// Round-trip time while both frontends poll.
    PingPong,
    /// CPU time with connected idle ports.
    Idle,
}

/// One measurement of the dataplane.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Measure {
    /// Frames of this size per second; with `interrupts` the receiver wants receive calls.
    OneWay { size: usize, interrupts: bool },
    /// Frames of this size per second between virtio-user ports, both directions together.
    Circulating { size: usize },
    /// Median round trip in nanoseconds.
    PingPong,
    /// 99th percentile of the round trip in nanoseconds.
    PingPongTail,
    /// Share of a core that idle ports use.
    Idle,
}

impl Measure {
    fn all(options: &Options) -> Vec<Self> {
        let sizes = options.sizes.iter().copied();
        if options.frontend == GuestKind::VirtioUser {
            return sizes.map(|size| Self::Circulating { size }).collect();
        }
        let one_way = |interrupts| {
            sizes
                .clone()
                .map(move |size| Self::OneWay { size, interrupts })
                .collect()
        };
        let of_part = |part: &Part| match part {
            Part::OneWay => one_way(false),
            Part::Interrupts => one_way(true),
            Part::PingPong => vec![Self::PingPong, Self::PingPongTail],
            Part::Idle => vec![Self::Idle],
        };
        options.parts.iter().flat_map(of_part).collect()
    }

    fn measurement(self) -> Measurement {
        let (name, unit) = match self {
            Self::OneWay {
                size,
                interrupts: false,
            } => (format!("{size} B, one way"), FRAMES),
            Self::OneWay { size, interrupts: true } => (format!("{size} B, interrupts wanted"), FRAMES),
            Self::Circulating { size } => (format!("{size} B, virtio-user, both ways"), FRAMES),
            Self::PingPong => ("ping-pong 64 B, median".to_owned(), ROUND_TRIP),
            Self::PingPongTail => ("ping-pong 64 B, p99".to_owned(), ROUND_TRIP),
            Self::Idle => ("CPU of 8 idle ports".to_owned(), CORES),
        };
        Measurement::new(name, unit)
    }

    /// Returns the limit that `ours` must reach against `theirs`.
    fn limit(self, ours: Kind) -> Limit {
        match (self, ours) {
            (Self::OneWay { .. }, Kind::Recorded) => Limit::RatioMin(0.95),
            (Self::PingPong, Kind::Recorded) => Limit::RatioMax(1.05),
            (_, Kind::Recorded) | (Self::OneWay { interrupts: true, .. }, _) => Limit::Shown,
            (Self::OneWay { size: 64, .. }, _) => Limit::RatioMin(1.0),
            (Self::OneWay { size: 1500, .. }, _) => Limit::RatioMin(1.6),
            (Self::OneWay { size: 9000, .. }, _) => Limit::RatioMin(1.3),
            (Self::PingPong, _) => Limit::RatioMax(1.2),
            _ => Limit::Shown,
        }
    }
}

/// The unit of shares of a core.
const CORES: Unit = Unit {
    name: "cores",
    show: |value| format!("{:.2} %", value * 100.0),
};

/// CPU time that idle ports of vnicd may use, as a share of a core.
const IDLE_MAX: f64 = 0.01;

/// The ratios to compute: vnicd by testpmd, and vnicd with flight recorders by vnicd without.
const RIVALS: [(Kind, Kind); 2] = [(Kind::Vnicd, Kind::Testpmd), (Kind::Recorded, Kind::Vnicd)];

fn plan(options: &Options, measures: &[Measure]) -> (Plan, usize) {
    let column = |kind| options.backends.iter().position(|backend| *backend == kind);
    let pair = RIVALS
        .into_iter()
        .find_map(|(ours, theirs)| Some((ours, column(ours)?, column(theirs)?)));
    let mut plan = Plan::new(options.rounds, ROUNDS_MIN);
    plan.rivals = options.backends.iter().map(|kind| kind.name().to_owned()).collect();
    plan.measurements = measures.iter().map(|measure| measure.measurement()).collect();
    let cell = |measurement, rival| Cell { measurement, rival };
    for (number, measure) in measures.iter().enumerate() {
        if let Some((kind, ours, theirs)) = pair {
            let (ours, theirs) = (cell(number, ours), cell(number, theirs));
            plan.bars.push(Bar::must(ours, theirs, measure.limit(kind)));
        }
        if let (Measure::Idle, Some(vnicd)) = (measure, column(Kind::Vnicd))
            && pair.is_none_or(|(ours, ..)| ours == Kind::Vnicd)
        {
            plan.bars.push(Bar::alone(cell(number, vnicd), IDLE_MAX));
        }
    }
    let turn = |rival| (0..measures.len()).map(|number| cell(number, rival)).collect();
    plan.groups = vec![(0..options.backends.len()).map(turn).collect()];
    let ours = pair.map(|(_, ours, _)| ours).or_else(|| column(Kind::Vnicd));
    (plan, ours.unwrap_or(0))
}

/// Measures, prints the result, and returns whether every bar is met.
pub fn compare(options: &Options) -> Result<bool> {
    until_stopped(|stop| {
        pin_thread(options.cores.frontend_core).context("cannot take the frontends' core")?;
        let folder = tempfile::Builder::new().prefix("weft-bench-").tempdir()?;
        let as_forwarder = u64::from(options.backends.contains(&Kind::Testpmd));
        let as_guests = u64::from(options.frontend == GuestKind::VirtioUser);
        let measures = Measure::all(options);
        let (plan, ours) = plan(options, &measures);
        let mut dataplane = Dataplane {
            options,
            measures,
            pages: HugePages::reserve(as_forwarder + as_guests),
            folder: folder.path(),
            stop,
        };
        let record = run(plan, &mut dataplane, stop)?;
        conclude(&record, report(options, &record, ours), options.json)
    })
}

/// The forwarders and the settings they are measured with.
struct Dataplane<'a> {
    options: &'a Options,
    measures: Vec<Measure>,
    pages: HugePages,
    folder: &'a Path,
    stop: &'a Stop,
}

impl Scenario for Dataplane<'_> {
    /// Measures everything on one freshly started forwarder; idle ports and virtio-user guests get forwarders of their
    /// own.
    fn measure(&mut self, _round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let Some(kind) = turn.first().map(|cell| self.options.backends[cell.rival]) else {
            return Ok(Vec::new());
        };
        let shared = match self.options.frontend {
            GuestKind::Weft => Some(self.start(kind, 2)?),
            GuestKind::VirtioUser => None,
        };
        let mut samples = Vec::new();
        let mut round_trips = None;
        for cell in turn
            .iter()
            .filter(|cell| self.measures[cell.measurement] != Measure::Idle)
        {
            self.stop.check()?;
            let sample = match (self.measures[cell.measurement], &shared) {
                (Measure::OneWay { size, interrupts }, Some(forwarder)) => self.one_way(forwarder, size, interrupts)?,
                (Measure::PingPong, Some(forwarder)) => {
                    let [median, tail] = self.ping_pong(forwarder)?;
                    round_trips = Some(tail);
                    median
                }
                (Measure::PingPongTail, _) => round_trips.take().context("the round trips come first")?,
                (Measure::Circulating { size }, _) => self.circulate(kind, size)?,
                (Measure::OneWay { .. } | Measure::PingPong, None) | (Measure::Idle, _) => continue,
            };
            samples.push((*cell, sample));
        }
        drop(shared);
        if let Some(cell) = turn
            .iter()
            .find(|cell| self.measures[cell.measurement] == Measure::Idle)
        {
            samples.push((*cell, self.idle(kind)?));
        }
        Ok(samples)
    }
}

impl Dataplane<'_> {
    fn start(&self, kind: Kind, ports: usize) -> Result<Forwarder> {
        kind.start(self.options, &self.pages, self.folder, ports, self.stop)
    }

    fn one_way(&self, forwarder: &Forwarder, size: usize, interrupts: bool) -> Result<Sample> {
        let touch = if self.options.touch_all {
            load::Touch::Whole
        } else {
            load::Touch::FirstLine
        };
        let duration = Duration::from_millis(self.options.sample_ms);
        let sample = self
            .options
            .rings
            .guests(size, interrupts)
            .one_way(forwarder, touch, duration)?;
        Ok(Sample {
            counts: sample.further("sender_full").is_none_or(|full| full >= SENDER_FULL_MIN),
            ..sample
        })
    }

    /// Returns median and 99th percentile of the round trip.
    fn ping_pong(&self, forwarder: &Forwarder) -> Result<[Sample; 2]> {
        let guests = self.options.rings.guests(PING_LEN, false);
        let (times_ns, disturbed) = guests.ping_pong(forwarder, ROUND_TRIPS)?;
        let lost = ROUND_TRIPS - times_ns.len() as u64;
        ensure!(lost == 0, "{lost} of {ROUND_TRIPS} ping-pong frames were lost");
        let [median, tail] =
            [0.5, 0.99].map(|share| stats::quantile(times_ns.iter().copied(), share).unwrap_or(f64::NAN));
        let sample = |value| Sample {
            disturbed,
            ..Sample::new(value)
        };
        Ok([sample(median), sample(tail)])
    }

    fn circulate(&self, kind: Kind, size: usize) -> Result<Sample> {
        let forwarder = self.start(kind, 2)?;
        forwarder.wait_for_sockets(self.stop)?;
        Ok(Sample::new(virtio_user::frames_per_s(self, &forwarder.sockets, size)?))
    }

    /// Measures the share of a core that [`IDLE_PORTS`] connected ports cost when nothing happens.
    fn idle(&self, kind: Kind) -> Result<Sample> {
        let forwarder = self.start(kind, IDLE_PORTS)?;
        let guests = self.options.rings.guests(PING_LEN, true);
        let connected = (0..IDLE_PORTS).map(|port| guests.connect(&forwarder, port));
        let connected: Vec<_> = connected.collect::<Result<_>>()?;
        wait(IDLE_SETTLE, self.stop)?;
        let (before, watch) = (forwarder.service.usage()?.cpu_ns, Watch::begin(&forwarder)?);
        wait(IDLE_WATCH, self.stop)?;
        let spent_ns = (forwarder.service.usage()?.cpu_ns - before) as f64;
        let value = spent_ns / watch.elapsed().as_nanos() as f64;
        let disturbed = watch.disturbed()?;
        drop(connected);
        Ok(Sample {
            disturbed,
            ..Sample::new(value)
        })
    }
}

/// Returns the mean of a further figure of a cell's samples, whether they count or not.
fn mean(record: &Record, cell: Cell, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    stats::mean(record.samples(cell).filter_map(of))
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0))
}

const COLUMNS: [RivalColumn; 5] = [
    RivalColumn {
        heading: str::to_owned,
        cell: |record, cell| match record.median(cell) {
            Some(_) => record.median_text(cell),
            None => "generator-limited".to_owned(),
        },
    },
    RivalColumn {
        heading: |name| format!("{name}: full"),
        cell: |record, cell| percent(mean(record, cell, |sample| sample.further("sender_full"))),
    },
    RivalColumn {
        heading: |_| "starved".to_owned(),
        cell: |record, cell| percent(mean(record, cell, |sample| sample.further("receiver_starved"))),
    },
    RivalColumn {
        heading: |_| "lost ‰".to_owned(),
        cell: |record, cell| {
            let share = |sample: &Sample| Some(sample.further("lost")? / sample.further("received")?.max(1.0));
            mean(record, cell, share).map_or_else(String::new, |share| format!("{:.2}", share * 1000.0))
        },
    },
    RivalColumn {
        heading: |_| "counted".to_owned(),
        cell: |record, cell| {
            let samples = || record.samples(cell);
            format!(
                "{}/{}",
                samples().filter(|sample| sample.counts).count(),
                samples().count()
            )
        },
    },
];

fn report(options: &Options, record: &Record, ours: usize) -> Report {
    let table = across(record, Style::Framed, &[words("what")], &COLUMNS, ours);
    let text = format!(
        "{table}Medians of {} alternating rounds; ring {}, forwarder on core {}, both frontends on core {}.\n\
         full: tries in which the sender's ring had no room for a burst of 32 (a sample counts from 70 %);\n\
         starved: rounds in which the receiver had fewer than 32 free buffers; lost: frames sent that did not arrive.\n\
         ratio: the median of the rounds' ratios, so that a machine that changes its speed hits both;\n\
         a bar is judged when {ROUNDS_MIN} rounds count for both.\n{}",
        options.rounds,
        options.rings.ring,
        options.cores.forwarder_core,
        options.cores.frontend_core,
        not_alone(record),
    );
    let conditions = json!({ "ring": options.rings.ring, "sample_ms": options.sample_ms });
    Report {
        text,
        conditions: fields(conditions),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn each_pair_of_forwarders_has_its_bars_and_idle_ports_theirs_without_a_rival() {
        let bars = |backends: &str| {
            let options = Line::parse_from(["bench", "--backends", backends, "--sizes", "64,512"]).options;
            let (plan, ours) = plan(&options, &Measure::all(&options));
            let limits: Vec<_> = plan
                .judged()
                .map(|bar| bar.limit)
                .filter(|limit| *limit != Limit::Shown)
                .collect();
            (limits, plan.rivals[ours].clone())
        };
        let idle = Limit::Max(IDLE_MAX);
        assert_eq!(
            bars("testpmd,vnicd"),
            (
                vec![Limit::RatioMin(1.0), Limit::RatioMax(1.2), idle],
                "vnicd".to_owned()
            )
        );
        assert_eq!(bars("vnicd"), (vec![idle], "vnicd".to_owned()));
        let one_way = [Limit::RatioMin(0.95); 4];
        assert_eq!(
            bars("vnicd,recorded"),
            ([&one_way[..], &[Limit::RatioMax(1.05)]].concat(), "recorded".to_owned())
        );
        assert_eq!(bars("testpmd").0, []);
    }
}
