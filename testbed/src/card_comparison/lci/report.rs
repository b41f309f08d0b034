//! The result as tables, and as groups of the chart.

use serde_json::json;

use super::plan::{APPLICATION_NODES, COLUMNS, NI, NODES, PACKET_BYTES, PACKETS, VERTICES};
use crate::{
    card_comparison::report::Conditions,
    harness::{
        Record, Report, fields, others,
        table::{RivalColumn, Style, across, bars, words},
    },
    report::chart::{Bar, BarChart, Group, Paint},
};

/// Makes the report.
pub(in crate::card_comparison) fn report(record: &Record, conditions: &Conditions) -> Report {
    let columns = [RivalColumn {
        heading: str::to_owned,
        cell: Record::median_text,
    }];
    let mut text = across(record, Style::Framed, &[words("LCI")], &columns, NI).to_string();
    text += &bars(record, "multicast in the card").to_string();
    let Conditions { accel, qemu, build } = conditions;
    text += &format!(
        "{NODES} guests ({accel}, QEMU {qemu}, programs: {build}) with one processor each, medians of {} rounds. LCI-ni: cards multicast; LCI-host: guests do,\n\
         packet by packet; messages: guests do, whole messages. The broadcast has {PACKETS} packets of {PACKET_BYTES} bytes. Applications: shortest paths\n\
         of {VERTICES} vertices and QR of {COLUMNS} columns on {APPLICATION_NODES} guests, compared with a sequential run; the paper's order is LCI-ni ≤ LCI-host ≤\n\
         messages. With more guests than processors, times are mostly those of guests that wait for a processor; counts are exact.\n",
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

/// How many times as fast as its rivals LCI-ni is.
pub(in crate::card_comparison) fn groups(record: &Record) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for bar in record.plan.judged() {
        let (Some(against), Some(value)) = (bar.against, record.value(bar)) else {
            continue;
        };
        // What no guest does takes no time.
        if value <= 0.0 || !value.is_finite() {
            continue;
        }
        let times = 1.0 / value;
        let drawn = Bar {
            label: record.plan.rivals[against.rival].clone(),
            parts: vec![(if times < 1.0 { Paint::Worse } else { Paint::Better }, times)],
            spread: None,
        };
        let label = record.measurement(bar.ours).name();
        if label.starts_with('…') {
            continue;
        }
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.bars.push(drawn),
            None => groups.push(Group {
                label,
                bars: vec![drawn],
            }),
        }
    }
    groups
}

/// The chart of this part alone.
pub(in crate::card_comparison) fn chart(record: &Record) -> BarChart {
    BarChart {
        title: "LCI with multicast in the card".to_owned(),
        subtitle: format!(
            "against multicast by guests, packet by packet and message by message; medians of {} rounds",
            record.plan.rounds
        ),
        axis: "times as fast (more is better)".to_owned(),
        legend: vec![
            (Paint::Better, "faster than the rival".to_owned()),
            (Paint::Worse, "slower".to_owned()),
        ],
        groups: groups(record),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        accel::Accel,
        card_comparison::lci::plan::{ANSWERED, ASP, FORWARDED, HOST, MESSAGES, add_orders, cell, plan},
        harness::Sample,
    };

    #[test]
    fn tables_and_the_chart_hold_the_card_against_the_guests() {
        let mut record = Record::new(plan(5));
        for round in 0..5 {
            for (measurement, rival, value) in [
                (ANSWERED, NI, 2e6),
                (ANSWERED, HOST, 5e6),
                (FORWARDED, NI, 0.0),
                (FORWARDED, HOST, 10_015.0),
                (ASP, NI, 30e6),
                (ASP, HOST, 45e6),
                (ASP, MESSAGES, 15e6),
            ] {
                record.add(round, cell(measurement, rival), Sample::new(value));
            }
        }
        add_orders(&mut record);
        let conditions = Conditions {
            accel: Accel::Tcg,
            qemu: String::new(),
            build: String::new(),
        };
        let text = report(&record, &conditions).text;
        for part in ["2.0 ms", "10015", "≤ 1.00 ×", "0.40 ×", "0 %", "≥ 80 %", "NO"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let bars: Vec<_> = groups(&record)
            .iter()
            .flat_map(|group| {
                group
                    .bars
                    .iter()
                    .map(|bar| (bar.label.clone(), bar.parts[0]))
                    .collect::<Vec<_>>()
            })
            .collect();
        let drawn = |name: &str, paint, times| (name.to_owned(), (paint, times));
        assert_eq!(
            bars,
            [
                drawn("LCI-host", Paint::Better, 2.5),
                drawn("LCI-host", Paint::Better, 1.5),
                drawn("messages", Paint::Worse, 0.5),
            ]
        );
    }
}
