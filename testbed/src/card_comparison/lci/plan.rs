//! What is measured of LCI, and the bars.

use crate::harness::{Bar, Cell, Limit, Measurement, Plan, Record, Sample, Unit, Weight};

/// Guests of the lab: those of a broadcast. Applications run on the first four.
pub(super) const NODES: usize = 8;
pub(super) const APPLICATION_NODES: usize = 4;

/// Rounds that it takes to judge the bars, and the share of them in which the order of applications is to be that of the paper.
const ROUNDS_MIN: u32 = 5;
const IN_ORDER_MIN: f64 = 0.8;

/// Numbers of the rivals: multicast in the card (LCI-ni), and on the hosts (LCI-host), packet by packet or message by message.
pub(super) const NI: usize = 0;
pub(super) const HOST: usize = 1;
pub(super) const MESSAGES: usize = 2;

/// Numbers of the measurements.
pub(super) const ANSWERED: usize = 0;
pub(super) const FORWARDED: usize = 1;
pub(super) const FORWARDING: usize = 2;
pub(super) const LOST: usize = 3;
pub(super) const MEANWHILE: usize = 4;
pub(super) const WAITED: usize = 5;
pub(super) const ASP: usize = 6;
pub(super) const ASP_ORDER: usize = 7;
pub(super) const QR: usize = 8;
pub(super) const QR_ORDER: usize = 9;
/// The first of the interrupts of each of [`KERNELS`] by each of [`WATCHDOGS_US`].
pub(super) const INTERRUPTS: usize = 10;
pub(super) const STALLED: usize = INTERRUPTS + KERNELS.len() * WATCHDOGS_US.len();

/// Packets of a broadcast and their bytes.
pub(super) const PACKETS: u64 = 1000;
pub(super) const PACKET_BYTES: u64 = 1000;
/// Packets that are broadcast while a member computes, and for how long it does: more than cards and guests have room for.
pub(super) const ABSENT_PACKETS: u64 = 2000;
pub(super) const ABSENT_MS: u64 = 2000;
/// Vertices of the graph and columns of the matrix.
pub(super) const VERTICES: u64 = 256;
pub(super) const COLUMNS: u64 = 64;
/// Kernels over a shared memory: one that spins on it without polling, and one that waits by polling.
pub(super) const KERNELS: [&str; 2] = ["radix 8", "fft 16"];
/// Delays of the card's watchdog; none is an interrupt for every packet that comes after the last one was taken.
pub(super) const WATCHDOGS_US: [u64; 3] = [0, 100, 1000];
/// A kernel in which nothing has happened for so long does not end.
pub(super) const STALLED_S: u64 = 2;

pub(super) const fn cell(measurement: usize, rival: usize) -> Cell {
    Cell { measurement, rival }
}

/// The cells of a turn, the first of which says what it is.
const TURNS: [&[Cell]; 5] = [
    &[
        cell(ANSWERED, NI),
        cell(ANSWERED, HOST),
        cell(FORWARDED, NI),
        cell(FORWARDED, HOST),
        cell(FORWARDING, NI),
        cell(FORWARDING, HOST),
    ],
    &[cell(LOST, NI), cell(MEANWHILE, NI), cell(WAITED, NI)],
    &[cell(ASP, NI), cell(ASP, HOST), cell(ASP, MESSAGES), cell(ASP_ORDER, NI)],
    &[cell(QR, NI), cell(QR, HOST), cell(QR, MESSAGES), cell(QR_ORDER, NI)],
    &[
        cell(INTERRUPTS, NI),
        cell(INTERRUPTS + 1, NI),
        cell(INTERRUPTS + 2, NI),
        cell(INTERRUPTS + 3, NI),
        cell(INTERRUPTS + 4, NI),
        cell(INTERRUPTS + 5, NI),
        cell(STALLED, NI),
    ],
];

/// What is measured, in the order of the numbers.
fn measurements() -> Vec<Measurement> {
    let time = Unit {
        name: "ns",
        show: |value| {
            if value < 1e6 {
                format!("{:.1} µs", value / 1e3)
            } else {
                format!("{:.1} ms", value / 1e6)
            }
        },
    };
    let count = Unit {
        name: "packets",
        show: |value| format!("{value:.0}"),
    };
    let interrupts = Unit {
        name: "interrupts",
        ..count
    };
    let nodes = Unit { name: "nodes", ..count };
    let share = Unit {
        name: "share",
        show: |value| format!("{:.0} %", value * 100.0),
    };
    vec![
        Measurement::new("broadcast among 8 guests, until the 7 others answered", time),
        Measurement::new("… copies that guests forward", count),
        Measurement::new("… forwarding guest's time per packet", time),
        Measurement::new("a member computes for 2 s: packets lost", count),
        Measurement::new("… packets that others get meanwhile", count),
        Measurement::new("… the sender waits", time),
        Measurement::new("ASP, 4 guests", time),
        Measurement::new("… rounds in the paper's order", share),
        Measurement::new("QR, 4 guests", time),
        Measurement::new("… rounds in the paper's order", share),
        Measurement::new("radix sort, spins on memory: interrupts, no watchdog", interrupts),
        Measurement::new("… watchdog of 100 µs", interrupts),
        Measurement::new("… watchdog of 1 ms", interrupts),
        Measurement::new("Fourier transform, polls: interrupts, no watchdog", interrupts),
        Measurement::new("… watchdog of 100 µs", interrupts),
        Measurement::new("… watchdog of 1 ms", interrupts),
        Measurement::new("radix sort without interrupts: nodes that end", nodes),
    ]
}

/// Makes the plan.
pub(super) fn plan(rounds: u32) -> Plan {
    let mut plan = Plan::new(rounds, ROUNDS_MIN);
    plan.rivals = ["LCI-ni", "LCI-host", "messages"].map(str::to_owned).to_vec();
    plan.measurements = measurements();
    let alone = |measurement, limit| Bar {
        ours: cell(measurement, NI),
        against: None,
        limit,
        weight: Weight::Must,
    };
    let shown = |measurement, rival| Bar::must(cell(measurement, NI), cell(measurement, rival), Limit::Shown);
    plan.bars = vec![
        Bar::must(cell(ANSWERED, NI), cell(ANSWERED, HOST), Limit::RatioMax(1.0)),
        alone(FORWARDED, Limit::Max(0.0)),
        shown(FORWARDING, HOST),
        alone(LOST, Limit::Max(0.0)),
        alone(MEANWHILE, Limit::Min(1.0)),
        // The rest of the time the sender has room.
        alone(WAITED, Limit::Min(ABSENT_MS as f64 * 1e6 / 2.0)),
        shown(ASP, HOST),
        shown(ASP, MESSAGES),
        alone(ASP_ORDER, Limit::Min(IN_ORDER_MIN)),
        shown(QR, HOST),
        shown(QR, MESSAGES),
        alone(QR_ORDER, Limit::Min(IN_ORDER_MIN)),
    ];
    for first in (INTERRUPTS..STALLED).step_by(WATCHDOGS_US.len()) {
        let fewer = |at| Bar::must(cell(at, NI), cell(first, NI), Limit::RatioMax(0.99));
        plan.bars.extend((first + 1..first + WATCHDOGS_US.len()).map(fewer));
    }
    plan.bars.push(alone(STALLED, Limit::Max(0.0)));
    plan.groups = TURNS.iter().map(|turn| vec![turn.to_vec()]).collect();
    plan
}

/// Adds in what share of the rounds the applications took no longer over LCI-ni than over LCI-host packet by packet, and over that no longer than
/// message by message: the same figure for every round, and whether it was so in that round.
pub(super) fn add_orders(record: &mut Record) {
    for (times, order) in [(ASP, ASP_ORDER), (QR, QR_ORDER)] {
        let of = |rival| record.rounds_of(cell(times, rival)).iter();
        let triples = of(NI).zip(of(HOST)).zip(of(MESSAGES));
        let in_order: Vec<_> = triples
            .map(|(((round, ni), (_, host)), (_, messages))| {
                (*round, ni.value <= host.value && host.value <= messages.value)
            })
            .collect();
        let count = in_order.iter().filter(|(_, is)| *is).count();
        for (round, is_in_order) in &in_order {
            let mut sample = Sample::new(count as f64 / in_order.len() as f64);
            sample.more.insert("in_order".to_owned(), (*is_in_order).into());
            record.add(*round, cell(order, NI), sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_bv4_the_order_of_applications_has_to_hold_in_four_of_five_rounds() {
        for (wrong, met) in [(1, true), (2, false)] {
            let mut record = Record::new(plan(5));
            for round in 0..5 {
                let host = if round < wrong { 1.0 } else { 3.0 };
                for (rival, value) in [(NI, 2.0), (HOST, host), (MESSAGES, 4.0)] {
                    record.add(round, cell(ASP, rival), Sample::new(value));
                }
            }
            add_orders(&mut record);
            let bar = record.plan.bar_of(cell(ASP_ORDER, NI)).unwrap();
            let value = record.value(bar).unwrap();
            assert_eq!(bar.limit.is_met_by(value), met, "{value}");
            assert_eq!(record.rounds_of(cell(ASP_ORDER, NI)).len(), 5);
        }
    }

    #[test]
    fn m_bv5_no_copy_of_a_guest_is_allowed_and_a_lost_packet_neither() {
        let plan = plan(5);
        for measurement in [FORWARDED, LOST] {
            let bar = plan.bar_of(cell(measurement, NI)).unwrap();
            assert!(bar.limit.is_met_by(0.0) && !bar.limit.is_met_by(1.0));
        }
        assert!(plan.judged().count() == plan.bars.len(), "all are measured");
    }
}
