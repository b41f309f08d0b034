//! The result as text and as JSON: medians over the rounds, each way's ratio to tap devices on a bridge, and the bars.

use std::time::Duration;

use serde_json::{Value, json};

use super::measure::{DATAGRAM_LEN, Record, Rival, Sample};
use crate::{
    demo::median,
    report::{
        chart::short,
        table::{self, Columns},
    },
};

/// Cores used by other programs above which figures are doubtful.
const OTHERS_MAX: f64 = 0.1;

/// Share by which a guest's clock may be wrong before its figures are doubtful.
const CLOCK_ERROR_MAX: f64 = 0.01;

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: usize = 5;

/// A figure of a sample.
struct Measure {
    name: &'static str,
    unit: &'static str,
    /// None where the part was not measured.
    of: fn(&Sample) -> Option<f64>,
    /// What vnicd / bridge must be.
    bar: Option<Bar>,
}

#[derive(Clone, Copy, PartialEq)]
enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    fn met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bar) => ratio >= bar,
            Self::AtMost(bar) => ratio <= bar,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(bar) => format!("≥ {bar:.2}"),
            Self::AtMost(bar) => format!("≤ {bar:.2}"),
        }
    }
}

const MEASURES: [Measure; 8] = [
    Measure {
        name: "ping",
        unit: "µs",
        of: |sample| Some(median(sample.ping.as_ref()?.times_ms.clone())? * 1e3),
        bar: Some(Bar::AtMost(1.05)),
    },
    Measure {
        name: "ping, CPU each",
        unit: "µs",
        of: |sample| {
            let ping = sample.ping.as_ref()?;
            Some(ping.cost.cpu.total_ns() as f64 / 1e3 / ping.times_ms.len() as f64)
        },
        bar: None,
    },
    Measure {
        name: "TCP",
        unit: "Mbit/s",
        of: |sample| Some(sample.tcp.as_ref()?.bytes as f64 * 8e-6 / sample.tcp.as_ref()?.seconds),
        bar: Some(Bar::AtLeast(1.0)),
    },
    Measure {
        name: "TCP, sent again",
        unit: "segments/s",
        of: |sample| Some(sample.tcp.as_ref()?.retransmits? as f64 / sample.tcp.as_ref()?.seconds),
        bar: None,
    },
    Measure {
        name: "TCP, CPU per GiB",
        unit: "s",
        of: |sample| {
            let tcp = sample.tcp.as_ref()?;
            Some(tcp.cost.cpu.total_ns() as f64 / 1e9 / (tcp.bytes as f64 / f64::from(1 << 30)))
        },
        bar: None,
    },
    Measure {
        name: "UDP, arrived",
        unit: "frames/s",
        of: |sample| Some(sample.udp.as_ref()?.received? as f64 / sample.udp.as_ref()?.seconds),
        bar: None,
    },
    Measure {
        name: "UDP, lost",
        unit: "%",
        of: |sample| {
            let (received, lost) = (sample.udp.as_ref()?.received?, sample.udp.as_ref()?.lost?);
            Some(lost as f64 * 100.0 / (received + lost) as f64)
        },
        bar: None,
    },
    Measure {
        name: "UDP, CPU per frame",
        unit: "µs",
        of: |sample| {
            let udp = sample.udp.as_ref()?;
            Some(udp.cost.cpu.total_ns() as f64 / 1e3 / udp.received? as f64)
        },
        bar: None,
    },
];

impl Record {
    fn values(&self, measure: &Measure, rival: usize) -> Vec<f64> {
        self.samples[rival].iter().filter_map(measure.of).collect()
    }

    fn median(&self, measure: &Measure, rival: usize) -> Option<f64> {
        median(self.values(measure, rival))
    }

    /// The `rival`-th to the bridge; none for the bridge itself, and where nothing is to be divided by.
    fn ratio(&self, measure: &Measure, rival: usize) -> Option<f64> {
        let bridge = self.rivals.iter().position(|rival| *rival == Rival::Bridge)?;
        let ratio = self.median(measure, rival)? / self.median(measure, bridge)?;
        (rival != bridge && ratio.is_finite()).then_some(ratio)
    }

    fn rounds(&self) -> usize {
        self.samples.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Whether a bar is met by the `rival`-th; none where there is no bar, or fewer rounds than it takes to judge it.
    fn met(&self, measure: &Measure, rival: usize) -> Option<bool> {
        let (ratio, bar) = self.ratio(measure, rival).zip(measure.bar)?;
        (self.rounds() >= ROUNDS_MIN).then(|| bar.met(ratio))
    }

    /// Whether `vnicd` as shipped meets every bar of what was measured.
    pub(super) fn all_met(&self) -> bool {
        let shipped = self.rivals.iter().position(|rival| *rival == Rival::shipped());
        let barred = MEASURES.iter().filter(|measure| measure.bar.is_some());
        let measured = |measure: &&Measure| self.median(measure, 0).is_some();
        shipped.is_some_and(|shipped| {
            barred
                .filter(measured)
                .all(|measure| self.met(measure, shipped) == Some(true))
        })
    }

    /// Median over all measurements of the cores that other programs used meanwhile.
    fn cores_of_others(&self) -> f64 {
        let costs = self.samples.iter().flatten().flat_map(|sample| {
            let streams = [&sample.tcp, &sample.udp]
                .into_iter()
                .flatten()
                .map(|stream| &stream.cost);
            streams.chain(sample.ping.as_ref().map(|ping| &ping.cost))
        });
        median(
            costs
                .map(|cost| cost.cpu.cores_of_others(Duration::from_nanos(cost.elapsed_ns)))
                .collect(),
        )
        .unwrap_or(0.0)
    }
}

/// One line of the table.
struct Row<'a> {
    measure: &'a Measure,
    rival: String,
    values: Vec<f64>,
    ratio: Option<f64>,
    met: Option<bool>,
}

/// The table, followed by what must be known to read it.
pub(super) fn text(record: &Record) -> String {
    let wanted = |measure: &&Measure| record.median(measure, 0).is_some();
    let rows = MEASURES.iter().filter(wanted).flat_map(|measure| {
        (0..record.rivals.len()).map(move |rival| Row {
            measure,
            rival: record.rivals[rival].name(),
            values: record.values(measure, rival),
            ratio: record.ratio(measure, rival),
            met: record.met(measure, rival),
        })
    });
    let rows: Vec<_> = rows.collect();
    let columns = Columns::<Row>::default()
        .words("WHAT", |row| row.measure.name.to_owned())
        .words("OVER", |row| row.rival.clone())
        .numbers("MEDIAN", |row| short(median(row.values.clone()).unwrap_or(f64::NAN)))
        .words("UNIT", |row| row.measure.unit.to_owned())
        .words("LEAST … MOST", |row| {
            let least = row.values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = row.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            format!("{} … {}", short(least), short(most))
        })
        .numbers("RATIO", |row| {
            row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
        })
        .words("BAR", |row| match (row.ratio, row.measure.bar) {
            (Some(_), Some(bar)) => bar.text(),
            _ => String::new(),
        })
        .words("MET", |row| match (row.ratio, row.measure.bar, row.met) {
            (Some(_), Some(_), Some(met)) => if met { "yes" } else { "NO" }.to_owned(),
            (Some(_), Some(_), None) => format!("needs {ROUNDS_MIN} rounds"),
            _ => String::new(),
        });
    let mut text = table::text(&rows, &columns);
    text += &format!(
        "\nTwo guests under TCG on QEMU {}, medians of {} alternating rounds. RATIO: to tap + bridge. UDP: datagrams of \
         {DATAGRAM_LEN} bytes,\nas many as the sender can. CPU: all of QEMU, vnicd and ksoftirqd, the guests' own work included.\n",
        record.qemu,
        record.rounds(),
    );
    for (guest, error) in ["n1", "n2"].iter().zip(&record.clock_errors) {
        if error.abs() > CLOCK_ERROR_MAX {
            text += &format!(
                "WRONG CLOCK: that of {guest} runs {:+.0} % against the host's; times are wrong, ratios are not.\n",
                error * 100.0
            );
        }
    }
    let others = record.cores_of_others();
    if others > OTHERS_MAX {
        text += &format!("NOT ALONE: other programs used {others:.1} cores meanwhile; repeat on a quiet machine.\n");
    }
    text
}

/// The same as one JSON object, with every sample.
pub(super) fn json(record: &Record) -> Value {
    let wanted = |measure: &&Measure| record.median(measure, 0).is_some();
    let measures = MEASURES.iter().filter(wanted).map(|measure| {
        let rivals = (0..record.rivals.len()).map(|rival| {
            let ratio = record.ratio(measure, rival);
            json!({
                "over": record.rivals[rival].name(),
                "median": record.median(measure, rival),
                "ratio": ratio,
                "met": record.met(measure, rival),
                "values": record.values(measure, rival),
            })
        });
        let bar = match measure.bar {
            Some(Bar::AtLeast(ratio)) => json!({ "ratio_min": ratio }),
            Some(Bar::AtMost(ratio)) => json!({ "ratio_max": ratio }),
            None => Value::Null,
        };
        json!({ "name": measure.name, "unit": measure.unit, "bar": bar, "rivals": rivals.collect::<Vec<_>>() })
    });
    let samples = record.rivals.iter().zip(&record.samples);
    let samples = samples.map(|(rival, samples)| json!({ "over": rival.name(), "rounds": samples }));
    json!({
        "accel": "tcg",
        "qemu": record.qemu,
        "rounds": record.rounds(),
        "cores_of_others": record.cores_of_others(),
        "clock_errors": record.clock_errors,
        "measures": measures.collect::<Vec<_>>(),
        "samples": samples.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_hold_at_their_edge() {
        assert!(Bar::AtLeast(1.0).met(1.0) && !Bar::AtLeast(1.0).met(0.999));
        assert!(Bar::AtMost(1.05).met(1.05) && !Bar::AtMost(1.05).met(1.051));
        assert!(!Bar::AtMost(1.05).met(f64::NAN) && !Bar::AtLeast(1.0).met(f64::NAN));
    }
}
