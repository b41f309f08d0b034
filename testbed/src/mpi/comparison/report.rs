//! The result of the comparison as tables, and what must be known to read them.

use serde_json::json;

use super::plan::{ESP, Figure, MX, TCP};
use crate::{
    accel::Accel,
    harness::{
        Bar, Cell, Limit, Record, Report, fields, others,
        table::{RivalColumn, Style, Table, across, numbers, words},
    },
    mpi::{Mpi, imb::length_text},
};

/// What was measured where.
pub(super) struct Conditions {
    pub mpi: Mpi,
    pub ranks: usize,
    pub nodes: usize,
    pub accel: Accel,
    pub qemu: String,
    /// The build of the programs: a profile, or the folder of installed ones.
    pub build: String,
    pub variables: Vec<(String, String)>,
}

/// Names an implementation and what it uses in place of the provider.
const fn described(mpi: Mpi) -> [&'static str; 2] {
    match mpi {
        Mpi::Open => ["Open MPI", "its own TCP"],
        Mpi::Mpich => ["MPICH", "libfabric's provider tcp"],
    }
}

/// Returns the ratio of a rival's times to TCP's in one figure.
fn ratio(record: &Record, rival: usize, measurement: usize) -> Option<f64> {
    let cell = |rival| Cell { measurement, rival };
    record.value(&Bar::must(cell(rival), cell(TCP), Limit::Shown))
}

/// Returns how much faster a rival is than TCP in one figure, in percent, as the paper counts.
fn gain(record: &Record, rival: usize, measurement: usize) -> Option<f64> {
    Some((1.0 / ratio(record, rival, measurement)? - 1.0) * 100.0)
}

/// Makes the table of the paper: what each operation gains over TCP with a rival.
fn gains(record: &Record, rival: usize, figures: &[Figure]) -> Table {
    let mut operations: Vec<_> = figures.iter().map(|figure| figure.operation).collect();
    operations.dedup();
    let mut lengths: Vec<_> = figures.iter().map(|figure| figure.bytes).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let mut columns = vec![words(format!("{} is faster than TCP", record.plan.rivals[rival]))];
    columns.extend(lengths.iter().map(|length| numbers(length_text(*length))));
    let mut table = Table::new(Style::Framed, &columns);
    for operation in operations {
        let mut row = vec![operation.name().to_owned()];
        row.extend(lengths.iter().map(|&bytes| {
            let is_it = |figure: &Figure| *figure == Figure { operation, bytes };
            let gain = figures.iter().position(is_it).and_then(|at| gain(record, rival, at));
            gain.map_or_else(String::new, |gain| format!("{gain:+.0} %"))
        }));
        table.row(row);
    }
    table
}

/// Returns a line about empty messages: the median of each transport, and the ratios of the pairs.
fn latency(record: &Record, figures: &[Figure]) -> Option<String> {
    let measurement = figures.iter().position(|figure| *figure == Figure::LATENCY)?;
    let median = |rival| record.median_text(Cell { measurement, rival });
    let against_tcp = |rival| ratio(record, rival, measurement);
    Some(format!(
        "PingPong 0 B: mx {}, {:.2} × TCP's {}; ESP {}, {:.2} ×.\n",
        median(MX),
        against_tcp(MX)?,
        median(TCP),
        median(ESP),
        against_tcp(ESP)?
    ))
}

/// Makes the report.
pub(super) fn report(record: &Record, conditions: &Conditions, figures: &[Figure]) -> Report {
    let columns = [RivalColumn {
        heading: str::to_owned,
        cell: Record::median_text,
    }];
    let labels = [words("operation"), words("length")];
    let mut text = across(record, Style::Framed, &labels, &columns, MX).to_string();
    for rival in [MX, ESP] {
        text += &gains(record, rival, figures).to_string();
    }
    text += &latency(record, figures).unwrap_or_default();
    let [mpi, tcp] = described(conditions.mpi);
    let Conditions {
        ranks,
        nodes,
        accel,
        qemu,
        build,
        ..
    } = conditions;
    text += &format!(
        "{mpi} over the provider mx, and over {tcp} with esp-run and without, on the same cards: {ranks} ranks in {nodes} guests\n\
         ({accel}, QEMU {qemu}, programs: {build}), medians of {} rounds in which they took turns. All patterns were verified, and the provider's counters\n\
         say that it carried the messages.{}\n",
        record.plan.rounds,
        if ranks == nodes {
            " With esp-run no rank had a connection over TCP to another."
        } else {
            " With esp-run, ranks of one node had TCP between them."
        }
    );
    for (name, value) in &conditions.variables {
        text += &format!("All ranks had {name}={value}.\n");
    }
    let cores_of_others = others::cores_of_others(record);
    text += &others::not_alone(cores_of_others);
    let variables = conditions
        .variables
        .iter()
        .cloned()
        .collect::<std::collections::BTreeMap<_, _>>();
    Report {
        text,
        conditions: fields(json!({
            "mpi": mpi,
            "tcp": tcp,
            "ranks": ranks,
            "nodes": nodes,
            "accel": accel,
            "qemu": qemu,
            "programs": build,
            "variables": variables,
            "cores_of_others": cores_of_others,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::Sample,
        mpi::comparison::plan::{Operation, figures, plan},
    };

    /// Makes the record of five rounds, in which TCP takes twice as long and a half and ESP half as long again, and one round was slow.
    fn record(figures: &[Figure]) -> Record {
        let mut record = Record::new(plan(5, figures));
        for round in 0..5 {
            for measurement in 0..figures.len() {
                let ours = (measurement + 1) as f64 * if round == 3 { 9e5 } else { 1e5 };
                for (rival, value) in [(MX, ours), (ESP, ours * 1.5), (TCP, ours * 2.5)] {
                    record.add(round, Cell { measurement, rival }, Sample::new(value));
                }
            }
        }
        record
    }

    #[test]
    fn the_tables_show_both_medians_and_what_is_gained() {
        let operations = [Operation::PingPong, Operation::Allreduce, Operation::Barrier];
        let figures = figures(&operations, &[0, 16, 65536]);
        let conditions = Conditions {
            mpi: Mpi::Open,
            ranks: 4,
            nodes: 4,
            accel: Accel::Tcg,
            qemu: "7.2.22".to_owned(),
            build: "release".to_owned(),
            variables: vec![("OMX_PROGRESS".to_owned(), "0".to_owned())],
        };
        let report = report(&record(&figures), &conditions, &figures);
        assert_eq!(report.text, include_str!("report.txt"));
        assert_eq!(report.conditions["variables"]["OMX_PROGRESS"], "0");
        assert_eq!(report.conditions["accel"], "tcg");
    }

    #[test]
    fn without_pairs_there_is_no_figure_and_no_verdict() {
        let figures = figures(&[Operation::PingPong], &[0]);
        let record = Record::new(plan(1, &figures));
        assert_eq!(latency(&record, &figures), None);
        assert!(!record.all_met());
    }
}
