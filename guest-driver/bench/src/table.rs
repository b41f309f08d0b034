//! The result as text and as JSON: each figure with its spread, then each bar.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::{
    plan::{Bar, Limit, Record},
    work::{Task, Work, median},
};

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: u32 = 5;

/// What is measured, without the way.
pub fn name(work: Work) -> String {
    let mtu = work.mtu;
    match work.task {
        Task::PingPong { length, blocking } => {
            let how = if blocking { "blocking" } else { "spinning" };
            format!("half round trip, {length} B, {how}")
        }
        Task::Rate => "messages of 128 B per second".to_owned(),
        Task::Bandwidth if work.way.is_inside() => "4 MiB one way, inside".to_owned(),
        Task::Bandwidth => format!("4 MiB one way, MTU {mtu}"),
        Task::Incast { senders: 1 } => "1 MiB messages from one sender".to_owned(),
        Task::Incast { senders } => format!("1 MiB messages from {senders} senders"),
        Task::WakeUp { tuned } => format!("post to return of a sleeper{}", tuning(tuned)),
        Task::Idle { tuned } => format!("CPU of 10 s asleep in a wait{}", tuning(tuned)),
    }
}

const fn tuning(tuned: bool) -> &'static str {
    if tuned { ", tuned" } else { "" }
}

fn figure(work: Work, value: f64) -> String {
    match work.task {
        Task::PingPong { .. } | Task::WakeUp { .. } => format!("{:.2} µs", value / 1e3),
        Task::Rate => format!("{:.3} M/s", value / 1e6),
        Task::Bandwidth | Task::Incast { .. } => format!("{:.2} Gbit/s", value * 8e-9),
        Task::Idle { .. } => format!("{:.2} ms", value / 1e6),
    }
}

const fn unit(work: Work) -> &'static str {
    match work.task {
        Task::PingPong { .. } | Task::WakeUp { .. } | Task::Idle { .. } => "ns",
        Task::Rate => "messages/s",
        Task::Bandwidth | Task::Incast { .. } => "bytes/s",
    }
}

fn samples(record: &Record, work: Work) -> &[f64] {
    record.samples.get(&work).map_or(&[], |samples| &samples[..])
}

/// The figure that a bar speaks of: the median of our figure put against the rival's of the same turn or round.
fn value(record: &Record, bar: Bar) -> Option<f64> {
    let ours = samples(record, bar.ours);
    let against = |rival: Work, with: fn(f64, f64) -> f64| {
        median(
            ours.iter()
                .zip(samples(record, rival))
                .map(|(ours, theirs)| with(*ours, *theirs)),
        )
    };
    match bar.limit {
        Limit::RatioMin(rival, _) | Limit::RatioMax(rival, _) => against(rival, |ours, theirs| ours / theirs),
        Limit::MoreMax(rival, _) => against(rival, |ours, theirs| ours - theirs),
        Limit::Max(_) => median(ours.iter().copied()),
    }
}

/// The sample that this share of all is below.
fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = sorted.len().saturating_sub(1) as f64 * share;
    sorted.get(at.round() as usize).copied().unwrap_or(f64::NAN)
}

fn met(record: &Record, bar: Bar) -> Option<bool> {
    if record.rounds < ROUNDS_MIN {
        return None;
    }
    let value = value(record, bar)?;
    Some(match bar.limit {
        Limit::RatioMin(_, min) => value >= min,
        Limit::RatioMax(_, max) | Limit::MoreMax(_, max) | Limit::Max(max) => value <= max,
    })
}

/// Whether every bar is reached.
pub fn all_met(record: &Record) -> bool {
    record.bars.iter().all(|bar| met(record, *bar) == Some(true))
}

fn against(bar: Bar) -> Option<Work> {
    match bar.limit {
        Limit::RatioMin(rival, _) | Limit::RatioMax(rival, _) | Limit::MoreMax(rival, _) => Some(rival),
        Limit::Max(_) => None,
    }
}

/// Both tables, and what must be known to read them.
pub fn text(record: &Record) -> String {
    let mut figures = Table::new();
    figures.load_preset(presets::UTF8_FULL_CONDENSED);
    figures.set_header(["what", "over", "median", "10 % … 90 %"]);
    for work in &record.works {
        let samples = samples(record, *work);
        let [low, middle, high] = [0.1, 0.5, 0.9].map(|share| quantile(samples, share));
        figures.add_row([
            name(*work),
            work.way.name().to_owned(),
            figure(*work, middle),
            format!("{} … {}", figure(*work, low), figure(*work, high)),
        ]);
    }
    let mut bars = Table::new();
    bars.load_preset(presets::UTF8_FULL_CONDENSED);
    bars.set_header(["Open-MX", "against", "figure", "bar", "met"]);
    for bar in &record.bars {
        let value = value(record, *bar).unwrap_or(f64::NAN);
        let rival = against(*bar).map_or(String::new(), |rival| {
            if rival.way == bar.ours.way {
                name(rival)
            } else {
                rival.way.name().to_owned()
            }
        });
        let (shown, limit) = match bar.limit {
            Limit::RatioMin(_, min) => (format!("{value:.2} ×"), format!("≥ {min:.2} ×")),
            Limit::RatioMax(_, max) => (format!("{value:.2} ×"), format!("≤ {max:.2} ×")),
            Limit::MoreMax(_, max) => (
                format!("+ {}", figure(bar.ours, value)),
                format!("≤ + {}", figure(bar.ours, max)),
            ),
            Limit::Max(max) => (figure(bar.ours, value), format!("≤ {}", figure(bar.ours, max))),
        };
        let verdict = match met(record, *bar) {
            Some(true) => "yes".to_owned(),
            Some(false) => "NO".to_owned(),
            None => format!("needs {ROUNDS_MIN} rounds"),
        };
        bars.add_row([name(bar.ours), rival, shown, limit, verdict]);
    }
    for table in [&mut figures, &mut bars] {
        for column in 2..4 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let features: Vec<_> = record
        .features
        .lines()
        .filter(|line| line.ends_with(": on"))
        .map(str::trim)
        .collect();
    format!(
        "{figures}\n{bars}\nMedians of {} rounds over a veth pair, each side on a core of its own. Round trips and messages of 4 MiB: rivals take\n\
         turns within milliseconds, and what is put against each other is of the same turn; else of the same round. The frames of\n\
         every measurement were counted on the interface. Tuned: idle processors do not halt (`omxd --cpu-latency-us-max 0`).\nethtool -k: {}\n",
        record.rounds,
        features.join(", ").replace(": on", "")
    )
}

/// The same as one JSON object, with every sample.
pub fn json(record: &Record) -> Value {
    let works = record.works.iter().map(|work| {
        json!({
            "name": name(*work),
            "over": work.way,
            "mtu": work.mtu,
            "unit": unit(*work),
            "median": median(samples(record, *work).iter().copied()),
            "samples": samples(record, *work),
        })
    });
    let bars = record.bars.iter().map(|bar| {
        json!({
            "name": name(bar.ours),
            "against": against(*bar).map(|rival| format!("{}, {}", name(rival), rival.way.name())),
            "value": value(record, *bar),
            "bar": match bar.limit {
                Limit::RatioMin(_, min) => json!({ "ratio_min": min }),
                Limit::RatioMax(_, max) => json!({ "ratio_max": max }),
                Limit::MoreMax(_, max) => json!({ "more_max": max }),
                Limit::Max(max) => json!({ "max": max }),
            },
            "met": met(record, *bar),
        })
    });
    json!({
        "rounds": record.rounds,
        "ethtool": record.features,
        "measurements": works.collect::<Vec<_>>(),
        "bars": bars.collect::<Vec<_>>(),
    })
}
