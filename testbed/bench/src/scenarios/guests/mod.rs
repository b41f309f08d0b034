//! Two guests connected through `vnicd` and through tap devices on a Linux bridge. This module checks what is wanted,
//! moves into a private network namespace, and measures there. It decides nothing about frames.

mod bridge;
mod cpu;
mod measure;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use testbed::report::chart::short;

use self::measure::{Part, Rival, Round};
use super::guest_pair::{GuestPair, NAMES, Second, guest_image};
use super::iperf3::DATAGRAM_LEN;
use testbed::harness::table::{Style, down};
use testbed::harness::{
    Bar, Cell, Limit, Measurement, Pairing, Plan, Record, Report, Sample, Scenario, Stop, Turn, Unit, Weight, conclude,
    fields, others, run, stats, until_stopped,
};

/// Share by which a guest's clock may be wrong before its figures are doubtful.
const CLOCK_ERROR_MAX: f64 = 0.01;

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: u32 = 5;

/// Compares two emulated guests over vnicd with the same guests over tap devices on a Linux bridge.
///
/// Both guests boot once, with a card on each path. In every round each path is measured, so that a drift of the
/// machine affects all of them; figures are medians over the rounds. The tap devices are QEMU's own, without vhost-net.
/// The comparison needs two otherwise idle cores.
///
/// Exit status: 0 when vnicd with its defaults meets every bar, 3 when one is missed or there are fewer than 5 rounds,
/// 1 on failure.
#[derive(Args, Debug)]
pub struct Options {
    /// Alternating rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Duration of the TCP and UDP streams of each round in seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Number of pings in each round
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pings: u32,
    /// What to measure
    #[arg(long, value_delimiter = ',', default_value = "ping,tcp,udp")]
    parts: Vec<Part>,
    /// Measure vnicd with these further arguments too, split at blanks (can be given several times)
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    vnicd_args: Vec<String>,
    /// Print JSON with every sample instead of the table
    #[arg(long)]
    json: bool,
    /// Kernel and initramfs, which this program passes to itself once it is in its namespace.
    #[arg(long, hide = true, num_args = 2)]
    in_namespace: Option<Vec<PathBuf>>,
}

/// A figure that is computed for each round.
struct Measure {
    part: Part,
    name: &'static str,
    unit: Unit,
    /// Computes the figure; `None` where it was not measured.
    of: fn(&Round) -> Option<f64>,
    /// The limit for the ratio of vnicd to the bridge.
    limit: Limit,
}

const fn unit(name: &'static str) -> Unit {
    Unit { name, show: short }
}

const MEASURES: [Measure; 8] = [
    Measure {
        part: Part::Ping,
        name: "ping",
        unit: unit("µs"),
        of: |round| Some(stats::median(round.ping.as_ref()?.times_ms.clone())? * 1e3),
        limit: Limit::RatioMax(1.05),
    },
    Measure {
        part: Part::Ping,
        name: "ping, CPU each",
        unit: unit("µs"),
        of: |round| {
            let ping = round.ping.as_ref()?;
            Some(ping.cost.cpu.total_ns() as f64 / 1e3 / ping.times_ms.len() as f64)
        },
        limit: Limit::Shown,
    },
    Measure {
        part: Part::Tcp,
        name: "TCP",
        unit: unit("Mbit/s"),
        of: |round| {
            let tcp = &round.tcp.as_ref()?.arrived;
            Some(tcp.bytes as f64 * 8e-6 / tcp.seconds)
        },
        limit: Limit::RatioMin(1.0),
    },
    Measure {
        part: Part::Tcp,
        name: "TCP, sent again",
        unit: unit("segments/s"),
        of: |round| {
            let tcp = &round.tcp.as_ref()?.arrived;
            Some(tcp.retransmits? as f64 / tcp.seconds)
        },
        limit: Limit::Shown,
    },
    Measure {
        part: Part::Tcp,
        name: "TCP, CPU per GiB",
        unit: unit("s"),
        of: |round| {
            let tcp = round.tcp.as_ref()?;
            Some(tcp.cost.cpu.total_ns() as f64 / 1e9 / (tcp.arrived.bytes as f64 / f64::from(1 << 30)))
        },
        limit: Limit::Shown,
    },
    Measure {
        part: Part::Udp,
        name: "UDP, arrived",
        unit: unit("frames/s"),
        of: |round| {
            let udp = &round.udp.as_ref()?.arrived;
            Some(udp.received? as f64 / udp.seconds)
        },
        limit: Limit::Shown,
    },
    Measure {
        part: Part::Udp,
        name: "UDP, lost",
        unit: unit("%"),
        of: |round| {
            let udp = &round.udp.as_ref()?.arrived;
            let (received, lost) = (udp.received?, udp.lost?);
            Some(lost as f64 * 100.0 / (received + lost) as f64)
        },
        limit: Limit::Shown,
    },
    Measure {
        part: Part::Udp,
        name: "UDP, CPU per frame",
        unit: unit("µs"),
        of: |round| {
            let udp = round.udp.as_ref()?;
            Some(udp.cost.cpu.total_ns() as f64 / 1e3 / udp.arrived.received? as f64)
        },
        limit: Limit::Shown,
    },
];

fn plan(options: &Options, measures: &[&Measure], rivals: &[Rival]) -> Plan {
    let mut plan = Plan::new(options.rounds, ROUNDS_MIN);
    plan.rivals = rivals.iter().map(Rival::name).collect();
    plan.measurements = measures
        .iter()
        .map(|measure| Measurement::new(measure.name, measure.unit))
        .collect();
    // Lost datagrams and retransmitted segments are often 0 in a round.
    plan.pairing = Pairing::Medians;
    let cell = |measurement, rival| Cell { measurement, rival };
    let bridge = rivals.iter().position(|rival| *rival == Rival::Bridge);
    for (measurement, measure) in measures.iter().enumerate() {
        for (rival, name) in rivals.iter().enumerate() {
            let bar = bridge.filter(|bridge| *bridge != rival).map(|bridge| Bar {
                weight: if *name == Rival::shipped() {
                    Weight::Must
                } else {
                    Weight::Aim
                },
                ..Bar::must(cell(measurement, rival), cell(measurement, bridge), measure.limit)
            });
            plan.bars.extend(bar);
        }
    }
    let turn = |rival| {
        (0..measures.len())
            .map(|measurement| cell(measurement, rival))
            .collect()
    };
    plan.groups = vec![(0..rivals.len()).map(turn).collect()];
    plan
}

/// Measures, prints the result, and returns whether every bar is met.
pub fn compare(options: &Options) -> Result<bool> {
    match &options.in_namespace {
        // Nothing exists yet that a signal could leave behind.
        None => Err(prepare()),
        Some(boot) => until_stopped(|stop| compare_inside(options, boot, stop)),
    }
}

/// Makes what needs the outer network (the guest image, which may be downloaded), then starts this program again in a
/// namespace. Returns only when that fails.
fn prepare() -> anyhow::Error {
    match bridge::check().and_then(|()| guest_image()) {
        Ok(image) => bridge::enter_namespace(&[
            "--in-namespace".as_ref(),
            image.kernel.as_ref(),
            image.initramfs.as_ref(),
        ]),
        Err(error) => error,
    }
}

fn compare_inside(options: &Options, boot: &[PathBuf], stop: &Stop) -> Result<bool> {
    let [kernel, initramfs] = boot else {
        bail!("--in-namespace wants a kernel and an initramfs");
    };
    bridge::build()?;
    let rivals = Rival::all(&options.vnicd_args);
    let wanted = MEASURES.iter().filter(|measure| options.parts.contains(&measure.part));
    let measures: Vec<_> = wanted.collect();
    let plan = plan(options, &measures, &rivals);
    let mut paths = Paths {
        options,
        measures,
        rivals,
        guests: GuestPair::boot(kernel, initramfs, Second::Tap, stop)?,
        stop,
    };
    let clocks = measure::clocks(&paths.guests)?;
    let record = run(plan, &mut paths, stop)?;
    let conditions = Conditions {
        qemu: paths.guests.qemu_version(),
        clock_errors: measure::clock_errors(&paths.guests, &clocks)?,
        cores_of_others: cores_of_others(&record),
    };
    drop(paths);
    conclude(&record, report(&record, &conditions), options.json)
}

/// The paths between the guests.
struct Paths<'a> {
    options: &'a Options,
    measures: Vec<&'static Measure>,
    rivals: Vec<Rival>,
    guests: GuestPair,
    stop: &'a Stop,
}

impl Scenario for Paths<'_> {
    fn measure(&mut self, _round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let Some(rival) = turn.first().map(|cell| &self.rivals[cell.rival]) else {
            return Ok(Vec::new());
        };
        let round = measure::round(&mut self.guests, rival, self.options, self.stop)?;
        let sample = |cell: &Cell| {
            let measure = self.measures[cell.measurement];
            let cost = round.cost(measure.part)?;
            Some((
                *cell,
                Sample {
                    disturbed: cost.cpu.cores_of_others(Duration::from_nanos(cost.elapsed_ns)),
                    more: self.raw(cell, &round),
                    ..Sample::new((measure.of)(&round)?)
                },
            ))
        };
        Ok(turn.iter().filter_map(sample).collect())
    }
}

impl Paths<'_> {
    /// Returns everything that was measured of a part, in addition to the first of its figures.
    fn raw(&self, cell: &Cell, round: &Round) -> Map<String, Value> {
        let part = self.measures[cell.measurement].part;
        let first = self.measures.iter().position(|measure| measure.part == part);
        if first != Some(cell.measurement) {
            return Map::new();
        }
        fields(match part {
            Part::Ping => json!(round.ping),
            Part::Tcp => json!(round.tcp),
            Part::Udp => json!(round.udp),
        })
    }
}

/// What must be known to judge the figures.
struct Conditions {
    qemu: String,
    clock_errors: Vec<f64>,
    cores_of_others: f64,
}

/// Returns the median over all measurements of the number of cores that other programs used.
fn cores_of_others(record: &Record) -> f64 {
    // Only samples with all further figures are taken: one for each part of a round.
    let parts = record.all().filter(|sample| !sample.more.is_empty());
    stats::median(parts.map(|sample| sample.disturbed)).unwrap_or(0.0)
}

fn report(record: &Record, conditions: &Conditions) -> Report {
    let Conditions {
        qemu,
        clock_errors,
        cores_of_others,
    } = conditions;
    let mut text = format!(
        "{}\nTwo guests under TCG on QEMU {qemu}, medians of {} alternating rounds. RATIO: to tap + bridge. UDP: datagrams of \
         {DATAGRAM_LEN} bytes,\nas many as the sender can. CPU: all of QEMU, vnicd and ksoftirqd, the guests' own work included.\n",
        down(record, Style::Plain),
        record.plan.rounds,
    );
    for (guest, error) in NAMES.iter().zip(clock_errors) {
        if error.abs() > CLOCK_ERROR_MAX {
            text += &format!(
                "WRONG CLOCK: that of {guest} runs {:+.0} % against the host's; times are wrong, ratios are not.\n",
                error * 100.0
            );
        }
    }
    text += &others::not_alone(*cores_of_others);
    let conditions = json!({
        "accel": "tcg",
        "qemu": qemu,
        "clock_errors": clock_errors,
        "cores_of_others": cores_of_others,
    });
    Report {
        text,
        conditions: fields(conditions),
    }
}
