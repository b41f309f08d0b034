//! The result as text and as JSON, each line with its ratio and the bar it must reach.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::Options;
use crate::backends::Kind;
use crate::dataplane::{COUNTED_MIN, Line, Measure, Sample};

/// Share of a sample without a core that is ordinary on a quiet machine.
const DISTURBED_MAX: f64 = 0.02;

/// What a line must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bar {
    /// The ratio at least.
    RatioMin(f64),
    /// The ratio at most.
    RatioMax(f64),
    /// vnicd's own figure at most.
    ValueMax(f64),
}

fn bar(options: &Options, measure: Measure) -> Option<Bar> {
    if rival(options) == Some((Kind::Recorded, Kind::Vnicd)) {
        return match measure {
            Measure::OneWay { .. } => Some(Bar::RatioMin(0.95)),
            Measure::PingPong => Some(Bar::RatioMax(1.05)),
            _ => None,
        };
    }
    match measure {
        Measure::OneWay {
            size: 64,
            interrupts: false,
        } => Some(Bar::RatioMin(1.0)),
        Measure::OneWay {
            size: 1500,
            interrupts: false,
        } => Some(Bar::RatioMin(1.6)),
        Measure::OneWay {
            size: 9000,
            interrupts: false,
        } => Some(Bar::RatioMin(1.3)),
        Measure::PingPong => Some(Bar::RatioMax(1.2)),
        Measure::Idle => Some(Bar::ValueMax(0.01)),
        _ => None,
    }
}

fn name(measure: Measure) -> String {
    match measure {
        Measure::OneWay {
            size,
            interrupts: false,
        } => format!("{size} B, one way"),
        Measure::OneWay { size, interrupts: true } => format!("{size} B, interrupts wanted"),
        Measure::Circulating { size } => format!("{size} B, virtio-user, both ways"),
        Measure::PingPong => "ping-pong 64 B, median".to_owned(),
        Measure::PingPongTail => "ping-pong 64 B, p99".to_owned(),
        Measure::Idle => "CPU of 8 idle ports".to_owned(),
    }
}

fn figure(measure: Measure, value: Option<f64>) -> String {
    let Some(value) = value else {
        return "generator-limited".to_owned();
    };
    match measure {
        Measure::OneWay { .. } | Measure::Circulating { .. } => format!("{:.3} M/s", value / 1e6),
        Measure::PingPong | Measure::PingPongTail => format!("{:.2} µs", value / 1e3),
        Measure::Idle => format!("{:.2} %", value * 100.0),
    }
}

fn column(options: &Options, kind: Kind) -> Option<usize> {
    options.backends.iter().position(|backend| *backend == kind)
}

fn median_of(options: &Options, line: &Line, kind: Kind) -> Option<f64> {
    line.median(column(options, kind)?)
}

/// Whose figure is divided by whose: vnicd's by testpmd's, or vnicd's with recorders by its own without.
fn rival(options: &Options) -> Option<(Kind, Kind)> {
    let pairs = [(Kind::Vnicd, Kind::Testpmd), (Kind::Recorded, Kind::Vnicd)];
    let is_there = |kind| column(options, kind).is_some();
    pairs
        .into_iter()
        .find(|(ours, theirs)| is_there(*ours) && is_there(*theirs))
}

fn ratio(options: &Options, line: &Line) -> Option<f64> {
    let (ours, theirs) = rival(options)?;
    line.median_ratio(column(options, ours)?, column(options, theirs)?)
}

/// Whether a bar is reached.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Met,
    Missed,
    /// Fewer than [`COUNTED_MIN`] rounds count.
    Unjudged,
}

/// `None` without a bar, or without a forwarder that it speaks of.
fn verdict(options: &Options, line: &Line) -> Option<Verdict> {
    let bar = bar(options, line.measure)?;
    let vnicd = column(options, Kind::Vnicd)?;
    let counted = match bar {
        Bar::RatioMin(_) | Bar::RatioMax(_) => {
            let (ours, theirs) = rival(options)?;
            line.counted(&[column(options, ours)?, column(options, theirs)?])
        }
        Bar::ValueMax(_) => line.counted(&[vnicd]),
    };
    if counted < COUNTED_MIN {
        return Some(Verdict::Unjudged);
    }
    let met = match bar {
        Bar::RatioMin(min) => ratio(options, line)? >= min,
        Bar::RatioMax(max) => ratio(options, line)? <= max,
        Bar::ValueMax(max) => median_of(options, line, Kind::Vnicd)? <= max,
    };
    Some(if met { Verdict::Met } else { Verdict::Missed })
}

/// Whether every bar of these lines is reached.
pub fn all_met(options: &Options, lines: &[Line]) -> bool {
    let mut verdicts = lines.iter().filter_map(|line| verdict(options, line));
    verdicts.all(|verdict| verdict == Verdict::Met)
}

fn mean(samples: &[Sample], of: impl Fn(&weft_vnic_testkit::load::OneWaySample) -> f64) -> Option<f64> {
    let values: Vec<_> = samples
        .iter()
        .filter_map(|sample| Some(of(sample.stream.as_ref()?)))
        .collect();
    if values.is_empty() {
        None
    } else {
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }
}

fn percent(value: Option<f64>) -> String {
    value.map_or(String::new(), |share| format!("{:.0} %", share * 100.0))
}

/// The table, followed by what its columns mean.
pub fn text(options: &Options, lines: &[Line]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    let mut header = vec!["what".to_owned()];
    for kind in &options.backends {
        let name = kind.name();
        header.extend([
            name.to_owned(),
            format!("{name}: full"),
            "starved".to_owned(),
            "lost ‰".to_owned(),
        ]);
        header.push("counted".to_owned());
    }
    header.extend(["ratio", "bar", "met"].map(str::to_owned));
    let columns = header.len();
    table.set_header(header);
    for line in lines {
        let mut row = vec![name(line.measure)];
        for backend in 0..options.backends.len() {
            let samples = &line.samples[backend];
            row.push(figure(line.measure, line.median(backend)));
            row.push(percent(mean(samples, |s| s.sender_full)));
            row.push(percent(mean(samples, |s| s.receiver_starved)));
            let lost = mean(samples, |s| s.lost as f64 / (s.received.max(1)) as f64 * 1000.0);
            row.push(lost.map_or(String::new(), |lost| format!("{lost:.2}")));
            row.push(format!(
                "{}/{}",
                samples.iter().filter(|s| s.counts()).count(),
                samples.len()
            ));
        }
        row.push(ratio(options, line).map_or(String::new(), |ratio| format!("{ratio:.2}")));
        row.push(match bar(options, line.measure) {
            Some(Bar::RatioMin(min)) => format!("≥ {min:.2}"),
            Some(Bar::RatioMax(max)) => format!("≤ {max:.2}"),
            Some(Bar::ValueMax(max)) => format!("≤ {:.0} % of a core", max * 100.0),
            None => String::new(),
        });
        row.push(
            match verdict(options, line) {
                Some(Verdict::Met) => "yes",
                Some(Verdict::Missed) => "NO",
                Some(Verdict::Unjudged) => "too few",
                None => "",
            }
            .to_owned(),
        );
        table.add_row(row);
    }
    for column in 1..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let worst = lines
        .iter()
        .flat_map(|line| line.samples.iter().flatten())
        .map(|s| s.disturbed)
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
        "{table}\nMedians of {} alternating rounds; ring {}, forwarder on core {}, both frontends on core {}.\n\
         full: tries in which the sender's ring had no room for a burst of 32 (a sample counts from 70 %);\n\
         starved: rounds in which the receiver had fewer than 32 free buffers; lost: frames sent that did not arrive.\n\
         ratio: the median of the rounds' ratios, so that a machine that changes its pace hits both;\n\
         too few: fewer than {COUNTED_MIN} rounds count for both.{disturbed}",
        options.rounds, options.ring, options.forwarder_core, options.frontend_core
    )
}

/// The same as one JSON object.
pub fn json(options: &Options, lines: &[Line]) -> Value {
    let line_json = |line: &Line| {
        let mut object = json!({
            "name": name(line.measure),
            "unit": match line.measure {
                Measure::OneWay { .. } | Measure::Circulating { .. } => "frames/s",
                Measure::PingPong | Measure::PingPongTail => "ns",
                Measure::Idle => "cores",
            },
            "ratio": ratio(options, line),
            "bar": match bar(options, line.measure) {
                Some(Bar::RatioMin(min)) => json!({"ratio_min": min}),
                Some(Bar::RatioMax(max)) => json!({"ratio_max": max}),
                Some(Bar::ValueMax(max)) => json!({"vnicd_max": max}),
                None => Value::Null,
            },
            "met": verdict(options, line).and_then(|verdict| match verdict {
                Verdict::Met => Some(true),
                Verdict::Missed => Some(false),
                Verdict::Unjudged => None,
            }),
        });
        for (backend, kind) in options.backends.iter().enumerate() {
            let samples: Vec<_> = line.samples[backend].iter().map(sample_json).collect();
            object[kind.name()] = json!({ "median": line.median(backend), "samples": samples });
        }
        object
    };
    json!({
        "ring": options.ring,
        "rounds": options.rounds,
        "sample_ms": options.sample_ms,
        "lines": lines.iter().map(line_json).collect::<Vec<_>>(),
    })
}

fn sample_json(sample: &Sample) -> Value {
    let mut object = json!({ "value": sample.value, "counts": sample.counts(), "disturbed": sample.disturbed });
    if let Some(stream) = &sample.stream {
        object["sender_full"] = stream.sender_full.into();
        object["receiver_starved"] = stream.receiver_starved.into();
        object["received"] = stream.received.into();
        object["lost"] = stream.lost.into();
        object["calls"] = stream.calls.into();
    }
    object
}
