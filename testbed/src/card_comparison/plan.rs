//! What is measured over each path to a card, and the bars of the comparison.

use super::{copies, receives};
use crate::harness::{Bar, Cell, Limit, Measurement, Plan, Unit, Weight};

/// Rounds that it takes to judge the bars.
const ROUNDS_MIN: u32 = 7;

/// Number of the rivals in the plan: MX over a card that endpoints drive themselves, MX over the kernel's card, and TCP over it.
pub(super) const BYPASS: usize = 0;
pub(super) const KERNEL: usize = 1;
pub(super) const TCP: usize = 2;

/// Length of a short message, whose time is measured.
pub(super) const SHORT_BYTES: u64 = 16;
/// Length of a long message, whose throughput is measured.
pub(super) const LONG_BYTES: u64 = 1 << 20;

/// Number of the measurements in the plan.
pub(super) const TIME: usize = 0;
pub(super) const THROUGHPUT: usize = 1;

/// Makes the plan: the rivals take turns, and bars are those of cards for programs against the kernel's.
pub(super) fn plan(rounds: u32) -> Plan {
    let mut plan = Plan::new(rounds, ROUNDS_MIN);
    plan.rivals = ["bypass", "kernel", "TCP", "icopy", "memcpy", "card", "processor"]
        .map(str::to_owned)
        .to_vec();
    let time = Unit {
        name: "ns",
        show: |value| format!("{:.1} µs", value / 1e3),
    };
    let throughput = Unit {
        name: "B/s",
        show: |value| format!("{:.0} MB/s", value / 1e6),
    };
    plan.measurements = vec![
        Measurement::new("16 B, half of a round trip", time),
        Measurement::new("1 MiB, throughput", throughput),
    ];
    let cell = |measurement, rival| Cell { measurement, rival };
    let aim = |bar| Bar {
        weight: Weight::Aim,
        ..bar
    };
    let time = |limit| Bar::must(cell(TIME, BYPASS), cell(TIME, KERNEL), limit);
    let throughput = |rival, limit| Bar::must(cell(THROUGHPUT, BYPASS), cell(THROUGHPUT, rival), limit);
    plan.bars = vec![
        time(Limit::RatioMax(1.0 / 20.0)),
        aim(time(Limit::RatioMax(1.0 / 100.0))),
        throughput(TCP, Limit::RatioMin(1.0)),
        aim(throughput(TCP, Limit::RatioMin(3.0))),
        throughput(KERNEL, Limit::Shown),
    ];
    plan.groups = vec![vec![
        vec![cell(TIME, BYPASS), cell(THROUGHPUT, BYPASS)],
        vec![cell(TIME, KERNEL), cell(THROUGHPUT, KERNEL)],
        vec![cell(THROUGHPUT, TCP)],
    ]];
    copies::add_to(&mut plan);
    receives::add_to(&mut plan);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_for_programs_are_held_against_the_kernels_path_and_tcp() {
        let plan = plan(7);
        let bars: Vec<_> = plan
            .judged()
            .filter(|bar| bar.ours.rival == BYPASS)
            .map(|bar| (bar.ours, bar.against, bar.limit, bar.weight))
            .collect();
        let cell = |measurement, rival| Cell { measurement, rival };
        let time = |limit, weight| (cell(TIME, BYPASS), Some(cell(TIME, KERNEL)), limit, weight);
        let throughput =
            |rival, limit, weight| (cell(THROUGHPUT, BYPASS), Some(cell(THROUGHPUT, rival)), limit, weight);
        assert_eq!(
            bars,
            [
                time(Limit::RatioMax(0.05), Weight::Must),
                time(Limit::RatioMax(0.01), Weight::Aim),
                throughput(TCP, Limit::RatioMin(1.0), Weight::Must),
                throughput(TCP, Limit::RatioMin(3.0), Weight::Aim),
                throughput(KERNEL, Limit::Shown, Weight::Must),
            ]
        );
        assert!(!plan.has(cell(TIME, TCP)), "TCP has no messages");
    }
}
