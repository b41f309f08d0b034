//! The result of the comparison as tables, as a chart, and what must be known to read them.

use serde_json::json;

use super::{
    copies,
    plan::{BYPASS, KERNEL, TCP},
    receives,
};
use crate::{
    accel::Accel,
    harness::{
        Limit, Record, Report, Weight, fields, others,
        table::{RivalColumn, Style, among, bars, words},
    },
    report::chart::{Bar, BarChart, Group, Paint},
};

/// What was measured where.
pub(super) struct Conditions {
    pub accel: Accel,
    pub qemu: String,
    /// The build of the programs: a profile, or the folder of installed ones.
    pub build: String,
}

/// Makes the report.
pub(super) fn report(record: &Record, conditions: &Conditions) -> Report {
    let columns = [RivalColumn {
        heading: str::to_owned,
        cell: Record::median_text,
    }];
    let mut text = among(
        record,
        Style::Framed,
        &[words("MX messages")],
        &columns,
        &[BYPASS, KERNEL, TCP],
    )
    .to_string();
    text += &copies::table(record);
    text += &receives::table(record);
    text += &bars(record, "programs that drive the card").to_string();
    let Conditions { accel, qemu, build } = conditions;
    text += &format!(
        "Two guests ({accel}, QEMU {qemu}, programs: {build}), medians of {} rounds. bypass: endpoints drive the card themselves and poll it; kernel: MX over the\n\
         kernel's card, polling or sleeping, whichever was quicker; TCP: iperf3 over the kernel's card, with offloads. icopy: copies by a card\n\
         that is wired to itself; memcpy: by the guest's processor. Receives: in frames of 64 KiB, the data copied by such a card or by the\n\
         processor; hidden: what of a memcpy's processor time the card spares.\n",
        record.plan.rounds
    );
    let cores_of_others = others::cores_of_others(record);
    text += &others::not_alone(cores_of_others);
    Report {
        text,
        conditions: fields(
            json!({ "accel": accel, "qemu": qemu, "programs": build, "cores_of_others": cores_of_others }),
        ),
    }
}

/// Draws how many times as fast as its rivals a program is that drives the card itself.
pub(super) fn chart(record: &Record, conditions: &Conditions) -> BarChart {
    let mut groups: Vec<Group> = Vec::new();
    // Of several bars against one rival, the first one stands for all.
    let is_shown = |bar: &&crate::harness::Bar| bar.weight == Weight::Must;
    for bar in record.plan.judged().filter(is_shown) {
        let (Some(against), Some(value)) = (bar.against, record.value(bar)) else {
            continue;
        };
        let times = if matches!(bar.limit, Limit::RatioMax(_)) {
            1.0 / value
        } else {
            value
        };
        let drawn = Bar {
            label: record.plan.rivals[against.rival].clone(),
            parts: vec![(if times < 1.0 { Paint::Worse } else { Paint::Better }, times)],
            spread: None,
        };
        let label = record.measurement(bar.ours).name();
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.bars.push(drawn),
            None => groups.push(Group {
                label,
                bars: vec![drawn],
            }),
        }
    }
    let world = match conditions.accel {
        Accel::Kvm => "guests on the host's processor (KVM)",
        Accel::Tcg => "guests' processors are emulated (TCG)",
    };
    BarChart {
        title: "Cards that programs drive themselves".to_owned(),
        subtitle: format!(
            "MX and copies, against the kernel's card, TCP over it, and memcpy; medians of {} rounds; {world}",
            record.plan.rounds
        ),
        axis: "times as fast (more is better)".to_owned(),
        legend: vec![
            (Paint::Better, "faster than the rival".to_owned()),
            (Paint::Worse, "slower".to_owned()),
        ],
        groups,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        card_comparison::{
            copies::{ICOPY, MEMCPY},
            plan::{THROUGHPUT, TIME, plan},
        },
        harness::{Cell, Sample},
    };

    const CONDITIONS: Conditions = Conditions {
        accel: Accel::Tcg,
        qemu: String::new(),
        build: String::new(),
    };

    fn record() -> Record {
        let mut record = Record::new(plan(7));
        for round in 0..7 {
            let slow = if round == 3 { 5.0 } else { 1.0 };
            for (measurement, rival, value) in [
                (TIME, BYPASS, 20e3 * slow),
                (TIME, KERNEL, 500e3 * slow),
                (THROUGHPUT, BYPASS, 300e6 / slow),
                (THROUGHPUT, KERNEL, 50e6 / slow),
                (THROUGHPUT, TCP, 600e6 / slow),
                (THROUGHPUT + 1, ICOPY, 5e3 * slow),
                (THROUGHPUT + 1, MEMCPY, 20e3 * slow),
            ] {
                record.add(round, Cell { measurement, rival }, Sample::new(value));
            }
        }
        record
    }

    #[test]
    fn tables_show_medians_and_each_bar_with_its_verdict() {
        let report = report(&record(), &CONDITIONS);
        for part in [
            "20.0 µs",
            "500.0 µs",
            "300 MB/s",
            "600 MB/s",
            "≤ 0.05",
            "≥ 1.00",
            "copy of 64 KiB, processor time",
            "5.0 µs",
            "≤ 0.20",
            "aim",
            "NO",
        ] {
            assert!(report.text.contains(part), "{part}: {}", report.text);
        }
        assert!(!record().all_met(), "TCP is faster");
        assert_eq!(report.conditions["accel"], "tcg");
    }

    #[test]
    fn the_chart_shows_how_many_times_as_fast_and_what_is_slower() {
        let chart = chart(&record(), &CONDITIONS);
        let bars: Vec<_> = chart
            .groups
            .iter()
            .flat_map(|group| group.bars.iter().map(|bar| (&*group.label, &*bar.label, bar.parts[0])))
            .collect();
        assert_eq!(
            bars,
            [
                ("16 B, half of a round trip", "kernel", (Paint::Better, 25.0)),
                ("1 MiB, throughput", "TCP", (Paint::Worse, 0.5)),
                ("1 MiB, throughput", "kernel", (Paint::Better, 6.0)),
                ("copy of 64 KiB, processor time", "memcpy", (Paint::Better, 4.0)),
            ]
        );
        assert!(chart.svg().is_ok());
    }
}
