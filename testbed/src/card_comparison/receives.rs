//! Receives of large messages whose data a card that is wired to itself copies (M-OM-A, M-CI4), against those whose data the guest's
//! processor copies. The frames are long ones: what a copy by the card costs beside its bytes is paid for each frame.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{
    guest_channel::GuestChannel,
    guest_tools::{output, start_server},
    harness::{
        Bar, Cell, Limit, Measurement, Plan, Record, Sample, Turn, Unit, Weight,
        table::{RivalColumn, Style, among, words},
    },
};

/// Numbers in the plan of the rivals that copy received data: a card that is wired to itself, and the guest's processor.
pub(super) const CARD: usize = 5;
pub(super) const PROCESSOR: usize = 6;

/// The cards with long frames, by which guests receive and send; and the one that copies.
const RECEIVING: &str = "virtio:0000:00:13.0";
const SENDING: &str = "virtio:0000:00:12.0";
const COPYING: &str = "OMX_COPY_CARD=virtio:0000:00:12.0";
/// Frames of 64 KiB, few of which are in flight at once: a ring has room for 15.
const PRESET: &str = "OMX_PRESET=native:65535:4";
/// Only what the program's own calls take is measured.
const ALONE: &str = "OMX_PROGRESS=0";

/// Messages of each length, and those before that are not counted.
const MESSAGES: [&str; 2] = ["100", "10"];
/// Lengths of the messages, with their names.
const LENGTHS: [(u64, &str); 2] = [(64 << 10, "64 KiB"), (1 << 20, "1 MiB")];
/// What a receive takes of the processor with the card, as a part of what it takes without (R-CI1, hot and aimed at), and the part of a copy that
/// is hidden behind computation, in percent: what computation loses less by a receive whose data the card copies.
const OVERHEAD: [f64; 2] = [0.69, 0.58];
const HIDDEN: f64 = 80.0;

/// What `omx_perf --phases` prints about messages of one length.
#[derive(Clone, Copy, Deserialize)]
struct Receives {
    length: u64,
    us_copy: f64,
    us_overhead: f64,
    us_lost: f64,
}

/// Adds the measurements, their bars and their turn to the plan, in which the rivals are there already.
pub(super) fn add_to(plan: &mut Plan) {
    let time = Unit {
        name: "ns",
        show: |value| format!("{:.1} µs", value / 1e3),
    };
    let part = Unit {
        name: "%",
        show: |value| format!("{value:.0} %"),
    };
    let mut turn = Turn::new();
    for (_, name) in LENGTHS {
        let measurement = plan.measurements.len();
        plan.measurements
            .push(Measurement::new(format!("receive of {name}, processor time"), time));
        plan.measurements
            .push(Measurement::new(format!("receive of {name}, copy hidden"), part));
        let [ours, against] = [CARD, PROCESSOR].map(|rival| Cell { measurement, rival });
        let hidden = Cell {
            measurement: measurement + 1,
            rival: CARD,
        };
        turn.extend([ours, against, hidden]);
        let [must, aim] = OVERHEAD.map(|max| Bar::must(ours, against, Limit::RatioMax(max)));
        plan.bars.push(must);
        plan.bars.push(Bar {
            weight: Weight::Aim,
            ..aim
        });
        plan.bars.push(Bar {
            against: None,
            ..Bar::must(hidden, hidden, Limit::Min(HIDDEN))
        });
    }
    plan.groups.push(vec![turn]);
}

/// Measures the cells of the turn of receives, in their order: `sender` has the card with the hardware address `mac`. `omx_perf` checks all bytes.
pub(super) fn measure(
    receiver: &GuestChannel,
    sender: &GuestChannel,
    mac: &str,
    turn: &Turn,
) -> Result<Vec<(Cell, Sample)>> {
    let serve = ["env", PRESET, "omx_perf", "--interface", SENDING, "-s", "-w", "--json"];
    let server = start_server(sender, &serve, "endpoint")?;
    let [bytes, longest] = LENGTHS.map(|(bytes, _)| bytes);
    let [first, end, factor] = [bytes, longest + 1, longest / bytes].map(|number| number.to_string());
    let [count, before] = MESSAGES;
    let receive = |engine: &[&str]| -> Result<Vec<Receives>> {
        let perf = ["omx_perf", "--interface", RECEIVING, "-d", mac, "--phases", "--json"];
        let lengths = ["-S", &first, "-E", &end, "-M", &factor, "-N", count, "-W", before];
        let text = output(receiver, &[&["env", PRESET, ALONE], engine, &perf, &lengths].concat())?;
        let said = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        said.with_context(|| format!("omx_perf printed {text:?}"))
    };
    let by_card = receive(&["OMX_COPY_ENGINE=card", COPYING])?;
    let by_processor = receive(&["OMX_COPY_ENGINE=none"])?;
    drop(server);
    let values = values(&by_card, &by_processor).context("omx_perf left out a length")?;
    Ok(turn.iter().copied().zip(values.map(Sample::new)).collect())
}

/// The figures, in the order of the turn's cells.
fn values(by_card: &[Receives], by_processor: &[Receives]) -> Option<[f64; 6]> {
    let of = |(bytes, _)| {
        let find = |said: &[Receives]| said.iter().find(|receives| receives.length == bytes).copied();
        let (card, processor) = (find(by_card)?, find(by_processor)?);
        let spared_us = processor.us_lost - card.us_lost;
        Some([
            card.us_overhead * 1e3,
            processor.us_overhead * 1e3,
            100.0 * spared_us / processor.us_copy,
        ])
    };
    let [short, long] = LENGTHS.map(of);
    let ([a, b, c], [d, e, f]) = (short?, long?);
    Some([a, b, c, d, e, f])
}

/// The table of receives.
pub(super) fn table(record: &Record) -> String {
    let columns = [RivalColumn {
        heading: str::to_owned,
        cell: Record::median_text,
    }];
    among(
        record,
        Style::Framed,
        &[words("who copies what is received")],
        &columns,
        &[CARD, PROCESSOR],
    )
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_ci4_receives_with_a_card_that_copies_are_held_against_those_without_one() {
        let mut plan = Plan::new(7, 7);
        plan.rivals = ["bypass", "kernel", "TCP", "icopy", "memcpy", "card", "processor"]
            .map(str::to_owned)
            .to_vec();
        add_to(&mut plan);
        let bars: Vec<_> = plan
            .judged()
            .map(|bar| {
                let against = bar.against.map(|cell| cell.rival);
                (
                    plan.measurements[bar.ours.measurement].name(),
                    against,
                    bar.limit,
                    bar.weight,
                )
            })
            .collect();
        let of = |name: &str| {
            let time = format!("receive of {name}, processor time");
            [
                (time.clone(), Some(PROCESSOR), Limit::RatioMax(0.69), Weight::Must),
                (time, Some(PROCESSOR), Limit::RatioMax(0.58), Weight::Aim),
                (
                    format!("receive of {name}, copy hidden"),
                    None,
                    Limit::Min(80.0),
                    Weight::Must,
                ),
            ]
        };
        assert_eq!(bars, [of("64 KiB"), of("1 MiB")].concat());
    }

    #[test]
    fn m_ci4_what_computation_loses_less_of_a_copys_time_by_the_card_is_hidden() {
        let receives = |length, us_overhead, us_lost| Receives {
            length,
            us_copy: 20.0,
            us_overhead,
            us_lost,
        };
        // What a receive takes without computation says nothing about what is hidden behind it.
        let by_card = [receives(64 << 10, 12.0, 4.0), receives(1 << 20, 50.0, 30.0)];
        let by_processor = [receives(64 << 10, 30.0, 22.0), receives(1 << 20, 60.0, 40.0)];
        let expected = [12e3, 30e3, 90.0, 50e3, 60e3, 50.0];
        assert_eq!(values(&by_card, &by_processor), Some(expected));
        assert_eq!(values(&by_card[..1], &by_processor), None);
    }
}
