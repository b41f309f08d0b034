//! Copies by a card that is wired to itself (M-CI1 … M-CI3) against copies by the guest's processor.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{
    guest_channel::GuestChannel,
    guest_tools::output,
    harness::{
        Bar, Cell, Limit, Measurement, Plan, Record, Sample, Turn, Unit, Weight,
        table::{RivalColumn, Style, among, words},
    },
};

/// Numbers in the plan of the rivals that copy: a card that is wired to itself, and the guest's processor.
pub(super) const ICOPY: usize = 3;
pub(super) const MEMCPY: usize = 4;

/// The card that is wired to itself: that of `eth2` has this place on the PCI bus in every guest.
const CARD: &str = "0000:00:12.0";
/// Copies of each length and kind in a round.
const COPIES: &str = "48";

/// Lengths of the copies, with their names.
const LENGTHS: [(u64, &str); 2] = [(64 << 10, "64 KiB"), (1 << 20, "1 MiB")];
/// The one of which the time until a copy is notified has a bar.
const NOTIFIED: usize = 1;

/// What `icopy_perf` prints about copies of one length.
#[derive(Deserialize)]
struct Copies {
    bytes: u64,
    memcpy_cpu_ns: f64,
    memcpy_ns: f64,
    icopy_cpu_ns: f64,
    notified_ns: f64,
}

/// Adds the measurements, their bars and their turn to the plan, in which the rivals are there already.
pub(super) fn add_to(plan: &mut Plan) {
    let unit = Unit {
        name: "ns",
        show: |value| format!("{:.1} µs", value / 1e3),
    };
    let processor = LENGTHS.map(|(_, name)| format!("copy of {name}, processor time"));
    let notified = format!("copy of {}, until notified", LENGTHS[NOTIFIED].1);
    let mut turn = Turn::new();
    let limits = [[0.2, 0.05]; 2].into_iter().chain([[1.0, 0.2]]);
    for (name, [must, aim]) in processor.into_iter().chain([notified]).zip(limits) {
        let measurement = plan.measurements.len();
        plan.measurements.push(Measurement::new(name, unit));
        let [ours, against] = [ICOPY, MEMCPY].map(|rival| Cell { measurement, rival });
        turn.extend([ours, against]);
        plan.bars.push(Bar::must(ours, against, Limit::RatioMax(must)));
        plan.bars.push(Bar {
            weight: Weight::Aim,
            ..Bar::must(ours, against, Limit::RatioMax(aim))
        });
    }
    plan.groups.push(vec![turn]);
}

/// Measures the cells of the turn of copies, in their order. `icopy_perf` alternates between the rivals, and checks all bytes.
pub(super) fn measure(guest: &GuestChannel, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
    let lengths = LENGTHS.map(|(bytes, _)| bytes.to_string());
    let argv = ["icopy_perf", "--json", "-N", COPIES, CARD, &lengths[0], &lengths[1]];
    let text = output(guest, &argv)?;
    let said: Vec<Copies> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .with_context(|| format!("icopy_perf printed {text:?}"))?;
    let values = values(&said).with_context(|| format!("icopy_perf printed {text:?}"))?;
    Ok(turn.iter().copied().zip(values.map(Sample::new)).collect())
}

/// The figures, in the order of the turn's cells.
fn values(said: &[Copies]) -> Option<[f64; 6]> {
    let [short, long] = LENGTHS.map(|(bytes, _)| said.iter().find(|copies| copies.bytes == bytes));
    let (short, long) = (short?, long?);
    Some([
        short.icopy_cpu_ns,
        short.memcpy_cpu_ns,
        long.icopy_cpu_ns,
        long.memcpy_cpu_ns,
        long.notified_ns,
        long.memcpy_ns,
    ])
}

/// The table of copies.
pub(super) fn table(record: &Record) -> String {
    let columns = [RivalColumn {
        heading: str::to_owned,
        cell: Record::median_text,
    }];
    among(
        record,
        Style::Framed,
        &[words("copies in a guest")],
        &columns,
        &[ICOPY, MEMCPY],
    )
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_ci1_copies_by_the_card_are_held_against_memcpy_for_processor_time_and_notification() {
        let mut plan = Plan::new(7, 7);
        plan.rivals = ["bypass", "kernel", "TCP", "icopy", "memcpy"]
            .map(str::to_owned)
            .to_vec();
        add_to(&mut plan);
        let of_copies = plan.judged().filter(|bar| bar.ours.rival == ICOPY);
        let bars: Vec<_> = of_copies
            .map(|bar| {
                assert_eq!(bar.against.map(|cell| cell.rival), Some(MEMCPY));
                (plan.measurements[bar.ours.measurement].name(), bar.limit, bar.weight)
            })
            .collect();
        let bar = |name: &str, limit, weight| (name.to_owned(), Limit::RatioMax(limit), weight);
        assert_eq!(
            bars,
            [
                bar("copy of 64 KiB, processor time", 0.2, Weight::Must),
                bar("copy of 64 KiB, processor time", 0.05, Weight::Aim),
                bar("copy of 1 MiB, processor time", 0.2, Weight::Must),
                bar("copy of 1 MiB, processor time", 0.05, Weight::Aim),
                bar("copy of 1 MiB, until notified", 1.0, Weight::Must),
                bar("copy of 1 MiB, until notified", 0.2, Weight::Aim),
            ]
        );
    }

    #[test]
    fn figures_of_both_lengths_go_to_their_cells_and_a_missing_length_is_no_figure() {
        let copies = |bytes, first| Copies {
            bytes,
            icopy_cpu_ns: first,
            memcpy_cpu_ns: first + 1.0,
            notified_ns: first + 2.0,
            memcpy_ns: first + 3.0,
        };
        let said = [copies(1 << 20, 10.0), copies(64 << 10, 20.0)];
        assert_eq!(values(&said), Some([20.0, 21.0, 10.0, 11.0, 12.0, 13.0]));
        assert_eq!(values(&said[..1]), None);
    }
}
