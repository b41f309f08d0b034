//! Tests of the settings of cables.

use super::*;

#[test]
fn a_cable_has_what_emulators_have() {
    let lab = parse(
        r#"
        [defaults.link]
        queue = "64K"
        loss = "1%"
        [[node]]
        name = "n1"
        [[node.nic]]
        link = { rate = "10Mbit", burst = "32K", delay = "10ms", jitter = "1ms", jitter_distribution = "pareto" }
        link_to_guest = { queue = "100 packets", ecn_threshold = "5ms", loss_every = 100, jitter_reorders = true }
        link_from_guest = { loss = { enter = "1%", leave = "25%", outside = "0.1%" } }
        "#,
    )
    .expect("valid");
    let link = &lab.nodes[0].nics[0].link;
    let both = LinkSettings {
        rate_bps: 10_000_000,
        burst_bytes: 32 << 10,
        delay_ns: 10_000_000,
        jitter_ns: 1_000_000,
        jitter_distribution: JitterDistribution::Pareto,
        ..LinkSettings::default()
    };
    let to_guest = LinkSettings {
        jitter_reorders: true,
        queue_max: QueueLevel::frames(100),
        ecn_above: QueueLevel::nanos(5_000_000),
        loss_ppm: 10_000,
        loss_every: 100,
        seed: link.to_guest.seed,
        ..both
    };
    let from_guest = LinkSettings {
        queue_max: QueueLevel::bytes(64 << 10),
        loss_ppm: 1_000,
        loss_enter_ppm: 10_000,
        loss_leave_ppm: 250_000,
        loss_in_burst_ppm: 1_000_000,
        seed: link.from_guest.seed,
        ..both
    };
    assert_eq!((&link.to_guest, &link.from_guest), (&to_guest, &from_guest));
}
