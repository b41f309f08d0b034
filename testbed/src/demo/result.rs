//! The results of the demo: samples of single rounds, and per setting the medians and quartiles of times and rates and
//! the sums of counters over all rounds. This module only computes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{SETTINGS, measure::Setting};
use crate::accel::Accel;

/// The measurements of one setting in one round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub setting: Setting,
    pub small: Messages,
    pub medium: Messages,
    pub stream: Stream,
    /// Median of the pings, in milliseconds.
    pub ping_ms: Option<f64>,
    pub tcp_mbit_per_s: Option<f64>,
    /// What the same program reaches over ESP.
    pub esp_mbit_per_s: Option<f64>,
}

/// What the receiving card decided during a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Interrupts {
    pub interrupts: u64,
    pub reasons: BTreeMap<String, u64>,
    /// Packets announced by the interrupts of each reason.
    #[serde(skip)]
    pub packets_by_reason: BTreeMap<String, u64>,
    #[serde(skip)]
    pub signalled: u64,
    #[serde(skip)]
    pub packets: u64,
}

impl Interrupts {
    fn add(&mut self, other: &Self) {
        self.interrupts += other.interrupts;
        self.signalled += other.signalled;
        self.packets += other.packets;
        for (sums, counts) in [
            (&mut self.reasons, &other.reasons),
            (&mut self.packets_by_reason, &other.packets_by_reason),
        ] {
            for (reason, count) in counts {
                *sums.entry(reason.clone()).or_default() += count;
            }
        }
    }

    /// Returns the average number of packets announced by one interrupt.
    pub(crate) fn packets_per_interrupt(&self) -> f64 {
        ratio(self.packets, self.interrupts)
    }
}

/// The spread of a figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub median: f64,
    /// The lower and the upper quartile of the rounds.
    pub quartiles: (f64, f64),
    /// Number of rounds.
    pub rounds: usize,
}

/// Number of rounds from which quartiles predict the next one. With fewer, two settings may seem to differ by chance.
const ROUNDS_MIN: usize = 3;

impl Spread {
    /// Computes the spread of these values, one of each round; `None` without values.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let quantile = |quarters: f64| {
            let place = quarters / 4.0 * (values.len() - 1) as f64;
            let (below, above) = (place.floor() as usize, place.ceil() as usize);
            values[below] + (values[above] - values[below]) * place.fract()
        };
        (!values.is_empty()).then(|| Self {
            median: quantile(2.0),
            quartiles: (quantile(1.0), quantile(3.0)),
            rounds: values.len(),
        })
    }

    /// Returns whether the middle halves of the rounds do not overlap, so that two settings differ by more than the
    /// spread of their rounds.
    pub(crate) fn differs_from(&self, other: &Self) -> bool {
        let disjoint = self.quartiles.1 < other.quartiles.0 || other.quartiles.1 < self.quartiles.0;
        disjoint && self.rounds.min(other.rounds) >= ROUNDS_MIN
    }

    fn json(spread: Option<Self>) -> serde_json::Value {
        spread.map_or(serde_json::Value::Null, |spread| {
            serde_json::json!([spread.quartiles.0, spread.quartiles.1])
        })
    }
}

/// The results of a ping-pong of messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Messages {
    /// Median round trip of one round, or over the rounds.
    pub rtt_us_median: f64,
    /// Spread of the rounds' medians.
    #[serde(skip)]
    pub rtt_us: Option<Spread>,
    pub messages: u64,
    #[serde(flatten)]
    pub counted: Interrupts,
}

impl Messages {
    pub(crate) fn interrupts_per_message(&self) -> f64 {
        ratio(self.counted.interrupts, self.messages)
    }
}

/// The results of a stream of messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Stream {
    /// Rate of one round, or the median over the rounds.
    pub messages_per_s: f64,
    /// Spread of the rate over the rounds.
    #[serde(skip)]
    pub rate: Option<Spread>,
    pub messages: u64,
    #[serde(flatten)]
    pub counted: Interrupts,
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// The results of one setting over all rounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub setting: Setting,
    pub small: Messages,
    pub medium: Messages,
    pub stream: Stream,
    pub ping_ms: Option<Spread>,
    pub tcp_mbit_per_s: Option<Spread>,
    pub esp_mbit_per_s: Option<Spread>,
}

/// The results of the whole demo.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demo {
    pub accel: Accel,
    pub qemu: String,
    /// The build of the programs: a profile, or the folder of installed ones.
    pub build: String,
    pub rounds: usize,
    /// Rounds that were asked for and not measured, because they would have taken too long.
    pub rounds_left_out: usize,
    pub seconds: f64,
    pub outcomes: Vec<Outcome>,
}

/// Returns the middle value, or the mean of the two middle values of an even number.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

impl Demo {
    pub(crate) fn of(accel: Accel, qemu: String, build: String, samples: &[Sample], seconds: f64) -> Self {
        let mut outcomes = Vec::new();
        let mut rounds = 0;
        for setting in SETTINGS {
            let of_setting: Vec<_> = samples.iter().filter(|sample| sample.setting == setting).collect();
            if !of_setting.is_empty() {
                rounds = rounds.max(of_setting.iter().filter(|sample| sample.medium.messages > 0).count());
                outcomes.push(Outcome::of(setting, &of_setting));
            }
        }
        Self {
            accel,
            qemu,
            build,
            rounds,
            rounds_left_out: 0,
            seconds,
            outcomes,
        }
    }

    pub(crate) fn find(&self, setting: Setting) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.setting == setting)
    }

    /// Returns the JSON that `weft demo --json` prints and writes: all that was measured.
    pub(crate) fn json(&self) -> serde_json::Value {
        let strategy = |outcome: &Outcome| {
            let mut strategy = serde_json::json!({
                "name": outcome.setting.strategy.name(),
                "delay_us": outcome.setting.delay_us,
                "small": outcome.small,
                "medium": outcome.medium,
                "stream": outcome.stream,
            });
            strategy["small"]["rtt_us_quartiles"] = Spread::json(outcome.small.rtt_us);
            strategy["medium"]["rtt_us_quartiles"] = Spread::json(outcome.medium.rtt_us);
            strategy["stream"]["messages_per_s_quartiles"] = Spread::json(outcome.stream.rate);
            strategy
        };
        let strategies: Vec<_> = self.outcomes.iter().map(strategy).collect();
        let mut json = serde_json::json!({
            "accel": self.accel,
            "qemu": self.qemu,
            "programs": self.build,
            "rounds": self.rounds,
            "rounds_left_out": self.rounds_left_out,
            "seconds": self.seconds,
            "strategies": strategies,
        });
        for (index, outcome) in self.outcomes.iter().enumerate() {
            let strategy = &mut json["strategies"][index];
            strategy["ping_ms_median"] = outcome.ping_ms.map(|spread| spread.median).into();
            strategy["ping_ms_quartiles"] = Spread::json(outcome.ping_ms);
            for (name, rate) in [("tcp", outcome.tcp_mbit_per_s), ("esp", outcome.esp_mbit_per_s)] {
                strategy[format!("{name}_mbit_per_s")] = rate.map(|spread| spread.median).into();
                strategy[format!("{name}_mbit_per_s_quartiles")] = Spread::json(rate);
            }
            let parts = [
                ("small", &outcome.small.counted),
                ("medium", &outcome.medium.counted),
                ("stream", &outcome.stream.counted),
            ];
            for (part, counted) in parts {
                strategy[part]["packets"] = counted.packets.into();
                strategy[part]["signalled"] = counted.signalled.into();
            }
        }
        json
    }
}

impl Outcome {
    fn of(setting: Setting, samples: &[&Sample]) -> Self {
        let messages = |part: fn(&Sample) -> &Messages| {
            let mut all = Messages::default();
            for sample in samples {
                all.messages += part(sample).messages;
                all.counted.add(&part(sample).counted);
            }
            let answered = samples
                .iter()
                .map(|sample| part(sample))
                .filter(|part| part.messages > 0);
            all.rtt_us = Spread::of(answered.map(|part| part.rtt_us_median).collect());
            all.rtt_us_median = all.rtt_us.map_or(0.0, |spread| spread.median);
            all
        };
        let mut stream = Stream::default();
        for sample in samples {
            stream.messages += sample.stream.messages;
            stream.counted.add(&sample.stream.counted);
        }
        let sent = samples.iter().filter(|sample| sample.stream.messages > 0);
        stream.rate = Spread::of(sent.map(|sample| sample.stream.messages_per_s).collect());
        stream.messages_per_s = stream.rate.map_or(0.0, |spread| spread.median);
        Self {
            setting,
            small: messages(|sample| &sample.small),
            medium: messages(|sample| &sample.medium),
            stream,
            ping_ms: Spread::of(samples.iter().filter_map(|sample| sample.ping_ms).collect()),
            tcp_mbit_per_s: Spread::of(samples.iter().filter_map(|sample| sample.tcp_mbit_per_s).collect()),
            esp_mbit_per_s: Spread::of(samples.iter().filter_map(|sample| sample.esp_mbit_per_s).collect()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a demo that shows what the papers say, or with `flat` one in which nothing makes a difference.
    pub(crate) fn example(flat: bool) -> Demo {
        let samples: Vec<_> = (0..5)
            .flat_map(|round| SETTINGS.map(|setting| sample(setting, round, flat)))
            .collect();
        Demo::of(Accel::Tcg, "7.2.22".to_owned(), "quick".to_owned(), &samples, 151.0)
    }

    fn sample(setting: Setting, round: u32, flat: bool) -> Sample {
        use crate::lab::Strategy;
        let noise = f64::from(round) * 10.0;
        // TCP is as noisy as on a busy machine: no setting is distinguishable from another.
        let busy = f64::from((round * 7 + setting.delay_us) % 5) * 80.0;
        let late = if setting.strategy == Strategy::Timeout && !flat {
            f64::from(setting.delay_us) * 2.0
        } else {
            0.0
        };
        let per_medium = match (setting.strategy, flat) {
            (Strategy::Disabled, _) | (_, true) => 23,
            (Strategy::Timeout, _) => 3,
            _ => 1,
        };
        let reason = if setting.strategy == Strategy::Disabled {
            "every-packet"
        } else {
            "mark"
        };
        let counted = |interrupts: u64, packets: u64| Interrupts {
            interrupts,
            reasons: BTreeMap::from([(reason.to_owned(), interrupts)]),
            packets_by_reason: BTreeMap::from([(reason.to_owned(), packets)]),
            signalled: interrupts,
            packets,
        };
        Sample {
            setting,
            small: Messages {
                rtt_us_median: 600.0 + late + noise,
                rtt_us: None,
                messages: 525,
                counted: counted(525, 525),
            },
            medium: Messages {
                rtt_us_median: 2_000.0 + late + noise,
                rtt_us: None,
                messages: 100,
                counted: counted(100 * per_medium, 2_300),
            },
            stream: Stream {
                messages_per_s: 20_000.0,
                rate: None,
                messages: 10_000,
                counted: counted(5_000, 10_000),
            },
            ping_ms: Some(1.2),
            tcp_mbit_per_s: Some(300.0 + busy),
            esp_mbit_per_s: Some(200.0 + noise),
        }
    }

    #[test]
    fn times_are_medians_and_counters_are_sums_over_the_rounds() {
        let demo = example(false);
        assert_eq!((demo.rounds, demo.outcomes.len()), (5, 7));
        let timeout = &demo.outcomes[4];
        assert_eq!(timeout.small.rtt_us_median, 2_620.0);
        assert_eq!(
            timeout.small.rtt_us.map(|spread| spread.quartiles),
            Some((2_610.0, 2_630.0))
        );
        assert_eq!(timeout.small.messages, 2_625);
        assert_eq!(demo.outcomes[0].medium.interrupts_per_message(), 23.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn what_is_within_the_spread_of_the_rounds_is_no_difference() {
        let spread = |values: &[f64]| Spread::of(values.to_vec()).expect("values");
        assert_eq!(spread(&[4.0, 1.0, 3.0, 2.0]).quartiles, (1.75, 3.25));
        assert_eq!(spread(&[5.0]).quartiles, (5.0, 5.0));
        assert_eq!(Spread::of(Vec::new()), None);
        // The medians 597, 388 and 262 are all noise.
        let noisy = [
            [597.0, 250.0, 610.0, 380.0, 600.0],
            [388.0, 600.0, 240.0, 250.0, 590.0],
            [262.0, 240.0, 610.0, 255.0, 600.0],
        ];
        let noisy = noisy.map(|values| spread(&values));
        assert_eq!(noisy.map(|spread| spread.median), [597.0, 388.0, 262.0]);
        assert!(!noisy[0].differs_from(&noisy[1]) && !noisy[2].differs_from(&noisy[0]));
        let (slow, quick) = (spread(&[2600.0, 2610.0, 2650.0]), spread(&[600.0, 640.0, 620.0]));
        assert!(slow.differs_from(&quick) && quick.differs_from(&slow));
        // Two rounds do not tell how much a third would differ.
        assert!(!spread(&[2600.0, 2610.0]).differs_from(&spread(&[600.0, 640.0])));
    }

    #[test]
    fn small_messages_on_their_own_are_no_round_and_spoil_no_other_median() {
        let setting = SETTINGS[0];
        let whole = sample(setting, 0, false);
        let topped_up = Sample {
            medium: Messages::default(),
            stream: Stream::default(),
            ping_ms: None,
            tcp_mbit_per_s: None,
            esp_mbit_per_s: None,
            ..whole.clone()
        };
        let demo = Demo::of(
            Accel::Tcg,
            "7.2.22".to_owned(),
            "quick".to_owned(),
            &[whole.clone(), topped_up],
            1.0,
        );
        let outcome = &demo.outcomes[0];
        assert_eq!((demo.rounds, outcome.small.messages), (1, 1_050));
        assert_eq!(outcome.stream.messages_per_s, whole.stream.messages_per_s);
        assert_eq!(outcome.medium.rtt_us_median, whole.medium.rtt_us_median);
    }

    #[test]
    fn the_json_has_exactly_the_promised_shape() {
        let json = example(false).json();
        let keys = |value: &serde_json::Value| -> String {
            let keys: Option<Vec<_>> = value.as_object().map(|object| object.keys().cloned().collect());
            keys.unwrap_or_default().join(" ")
        };
        assert_eq!(
            keys(&json),
            "accel programs qemu rounds rounds_left_out seconds strategies"
        );
        let first = &json["strategies"][0];
        assert_eq!(
            keys(first),
            "delay_us esp_mbit_per_s esp_mbit_per_s_quartiles medium name ping_ms_median ping_ms_quartiles small stream \
             tcp_mbit_per_s tcp_mbit_per_s_quartiles"
        );
        assert_eq!(
            keys(&first["small"]),
            "interrupts messages packets reasons rtt_us_median rtt_us_quartiles signalled"
        );
        assert_eq!(keys(&first["medium"]), keys(&first["small"]));
        assert_eq!(first["small"]["rtt_us_quartiles"], serde_json::json!([610.0, 630.0]));
        assert_eq!(
            keys(&first["stream"]),
            "interrupts messages messages_per_s messages_per_s_quartiles packets reasons signalled"
        );
        assert_eq!(first["ping_ms_quartiles"], serde_json::json!([1.2, 1.2]));
        assert_eq!(first["tcp_mbit_per_s_quartiles"], serde_json::json!([380.0, 540.0]));
        assert_eq!(first["esp_mbit_per_s"], serde_json::json!(220.0));
        assert_eq!(first["name"], "disabled");
        assert_eq!(json["accel"], "tcg");
        for strategy in json["strategies"].as_array().expect("a list") {
            for part in ["small", "medium", "stream"] {
                let reasons = strategy[part]["reasons"].as_object().expect("an object");
                let sum: u64 = reasons.values().filter_map(serde_json::Value::as_u64).sum();
                assert_eq!(Some(sum), strategy[part]["interrupts"].as_u64());
            }
        }
    }
}
