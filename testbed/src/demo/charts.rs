//! The demo's results as charts. Only differences from no coalescing that exceed the spread of the rounds are coloured.

use firmware::Reason;

use super::{
    SETTINGS,
    measure::Setting,
    result::{Demo, Interrupts, Outcome, Spread},
};
use crate::{
    accel::Accel,
    lab::Strategy,
    report::chart::{Bar, BarChart, Group, Paint},
};

/// The direction in which a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    Less,
    More,
}

/// Returns each chart with the name of its file.
pub(super) fn charts(demo: &Demo) -> Vec<(&'static str, BarChart)> {
    use Better::{Less, More};
    let small = |row: &Outcome| row.small.rtt_us;
    let medium = |row: &Outcome| row.medium.rtt_us;
    let mut charts = vec![
        (
            "small-time",
            measured(demo, "Small messages: there and back", ("µs", Less), small),
        ),
        (
            "medium-time",
            measured(demo, "32-KiB messages: there and answered", ("µs", Less), medium),
        ),
        (
            "stream-rate",
            measured(
                demo,
                "Stream of 128-byte messages",
                ("messages per second", More),
                |row| row.stream.rate,
            ),
        ),
        (
            "small-interrupts",
            by_reason(demo, "Small messages: interrupts by reason", "per message", |row| {
                (&row.small.counted, row.small.messages)
            }),
        ),
        (
            "medium-interrupts",
            by_reason(demo, "32-KiB messages: interrupts by reason", "per message", |row| {
                (&row.medium.counted, row.medium.messages)
            }),
        ),
        (
            "stream-interrupts",
            by_reason(demo, "Stream: interrupts by reason", "per packet", |row| {
                (&row.stream.counted, row.stream.counted.packets)
            }),
        ),
    ];
    // Optional measurements are shown only when every setting has one.
    let all = |value: fn(&Outcome) -> Option<Spread>| demo.outcomes.iter().all(|row| value(row).is_some());
    if all(|row| row.ping_ms) {
        charts.push(("ping", measured(demo, "Ping", ("ms", Less), |row| row.ping_ms)));
    }
    if all(|row| row.tcp_mbit_per_s) {
        charts.push((
            "tcp",
            measured(demo, "TCP throughput", ("Mbit/s", More), |row| row.tcp_mbit_per_s),
        ));
    }
    if all(|row| row.esp_mbit_per_s) {
        charts.push((
            "esp",
            measured(demo, "Throughput of that program over ESP", ("Mbit/s", More), |row| {
                row.esp_mbit_per_s
            }),
        ));
    }
    charts
}

/// Returns what has to be known about every figure.
fn subtitle(demo: &Demo, what: &str) -> String {
    let world = match demo.accel {
        Accel::Kvm => "guests on the host's processor (KVM)",
        Accel::Tcg => "guests' processors are emulated (TCG), so compare the bars with each other only",
    };
    format!("{what}; {world}")
}

/// Makes a chart of medians with their quartiles.
fn measured(
    demo: &Demo,
    title: &str,
    (unit, better): (&str, Better),
    value: impl Fn(&Outcome) -> Option<Spread>,
) -> BarChart {
    let reference = demo.find(SETTINGS[0]).and_then(&value);
    let bar = |outcome: &Outcome| {
        let spread = value(outcome);
        Bar {
            label: outcome.setting.strategy.name().to_owned(),
            parts: vec![(
                paint(outcome.setting, spread, reference, better),
                spread.map_or(0.0, |spread| spread.median),
            )],
            spread: spread.map(|spread| spread.quartiles),
        }
    };
    let wording = match better {
        Better::Less => "less is better",
        Better::More => "more is better",
    };
    let rounds = format!("medians of {} rounds, thin lines: their quartiles", demo.rounds);
    BarChart {
        title: title.to_owned(),
        subtitle: subtitle(demo, &rounds),
        axis: format!("{unit} ({wording})"),
        legend: [
            (Paint::Reference, "no coalescing"),
            (Paint::Better, "better than that"),
            (Paint::Worse, "worse than that"),
            (Paint::Plain, "no difference beyond the spread of the rounds"),
        ]
        .map(|(paint, name)| (paint, name.to_owned()))
        .into(),
        groups: groups(demo, bar),
    }
}

/// Returns the colour of a bar, from a comparison with no coalescing.
fn paint(setting: Setting, spread: Option<Spread>, reference: Option<Spread>, better: Better) -> Paint {
    if setting.strategy == Strategy::Disabled {
        return Paint::Reference;
    }
    match (spread, reference) {
        (Some(spread), Some(reference)) if spread.differs_from(&reference) => {
            if (spread.median < reference.median) == (better == Better::Less) {
                Paint::Better
            } else {
                Paint::Worse
            }
        }
        _ => Paint::Plain,
    }
}

/// Makes a chart of bars stacked from the reasons of interrupts, per unit of the second number.
fn by_reason(demo: &Demo, title: &str, per: &str, part: impl Fn(&Outcome) -> (&Interrupts, u64)) -> BarChart {
    let reasons = reasons(demo);
    let bar = |outcome: &Outcome| {
        let (counted, per) = part(outcome);
        let share = |(number, reason): (usize, &String)| {
            let count = counted.reasons.get(reason).copied().unwrap_or(0);
            (Paint::Kind(number), count as f64 / per.max(1) as f64)
        };
        Bar {
            label: outcome.setting.strategy.name().to_owned(),
            parts: reasons.iter().enumerate().map(share).collect(),
            spread: None,
        }
    };
    BarChart {
        title: title.to_owned(),
        subtitle: subtitle(demo, "counted by the receiving card over all rounds"),
        axis: format!("interrupts {per} (fewer are less work)"),
        legend: reasons
            .iter()
            .enumerate()
            .map(|(number, reason)| (Paint::Kind(number), reason.clone()))
            .collect(),
        groups: groups(demo, bar),
    }
}

/// Lists every reason that occurs, in the firmware's order, so that each has one colour in all charts.
fn reasons(demo: &Demo) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for outcome in &demo.outcomes {
        for counted in [&outcome.small.counted, &outcome.medium.counted, &outcome.stream.counted] {
            for (reason, count) in &counted.reasons {
                if *count > 0 && !reasons.contains(reason) {
                    reasons.push(reason.clone());
                }
            }
        }
    }
    let place = |name: &String| Reason::ALL.iter().position(|reason| reason.name() == name);
    reasons.sort_by_key(|name| (place(name).unwrap_or(usize::MAX), name.clone()));
    reasons
}

/// Groups the bars: no coalescing, and the settings of each delay.
fn groups(demo: &Demo, bar: impl Fn(&Outcome) -> Bar) -> Vec<Group> {
    let mut groups: Vec<(u32, Group)> = Vec::new();
    for outcome in &demo.outcomes {
        let delay_us = outcome.setting.delay_us;
        if groups.last().is_none_or(|(last, _)| *last != delay_us) {
            let label = match delay_us {
                0 => String::new(),
                us if us % 1000 == 0 => format!("delay {} ms", us / 1000),
                us => format!("delay {us} µs"),
            };
            groups.push((
                delay_us,
                Group {
                    label,
                    bars: Vec::new(),
                },
            ));
        }
        if let Some((_, group)) = groups.last_mut() {
            group.bars.push(bar(outcome));
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::result::tests::example;

    fn chart(flat: bool, name: &str) -> BarChart {
        let charts = charts(&example(flat));
        charts.into_iter().find(|(known, _)| *known == name).expect("a chart").1
    }

    fn paints(chart: &BarChart) -> Vec<Paint> {
        chart
            .groups
            .iter()
            .flat_map(|group| &group.bars)
            .map(|bar| bar.parts[0].0)
            .collect()
    }

    #[test]
    fn only_what_is_beyond_the_spread_is_coloured() {
        let small = chart(false, "small-time");
        use Paint::{Plain, Reference, Worse};
        assert_eq!(paints(&small), [Reference, Worse, Plain, Plain, Worse, Plain, Plain]);
        let tcp = chart(false, "tcp");
        assert_eq!(paints(&tcp)[1..], [Plain; 6], "TCP is noise in this example");
        assert!(!tcp.svg().expect("drawable").contains("better than that"));
    }

    #[test]
    fn delays_are_groups_and_the_axis_says_which_way_is_better() {
        let small = chart(false, "small-time");
        let labels: Vec<_> = small
            .groups
            .iter()
            .map(|group| (group.label.as_str(), group.bars.len()))
            .collect();
        assert_eq!(labels, [("", 1), ("delay 75 µs", 3), ("delay 1 ms", 3)]);
        assert_eq!(small.axis, "µs (less is better)");
        assert_eq!(chart(false, "tcp").axis, "Mbit/s (more is better)");
        for (name, chart) in charts(&example(false)) {
            assert!(chart.subtitle.contains("emulated (TCG)"), "{name}");
        }
    }

    #[test]
    fn legends_have_the_reasons_that_occur_and_one_colour_for_each() {
        let svg = chart(false, "small-interrupts").svg().expect("drawable");
        assert!(svg.contains("\nevery-packet\n") && svg.contains("\nmark\n"), "{svg}");
        assert!(!svg.contains("watchdog") && !svg.contains("restart"), "{svg}");
        let mut demo = example(false);
        demo.outcomes[1].stream.counted.reasons.insert("count".to_owned(), 3);
        let charts = charts(&demo);
        let of = |name: &str| {
            charts
                .iter()
                .find(|(known, _)| *known == name)
                .expect("a chart")
                .1
                .clone()
        };
        assert!(of("stream-interrupts").svg().expect("drawable").contains("\ncount\n"));
        assert!(!of("small-interrupts").svg().expect("drawable").contains("\ncount\n"));
        assert_eq!(of("stream-interrupts").legend, of("small-interrupts").legend);
    }
}
