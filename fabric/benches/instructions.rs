//! Instructions per frame of the switch and of links, counted by valgrind: steady on any machine, however busy.
//!
//! `cargo bench -p weft-fabric` needs valgrind and `gungraun-runner`. Each benchmark handles [`FRAMES`] frames, so the figure
//! divided by that is one frame's, the loop around it included. Recorded figures are in `INSTRUCTIONS.md`.

// The macros of gungraun write functions without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use ether::{MacAddr, Time};
use fabric::{JitterDistribution, Link, LinkConfig, PortId, QueueLevel, Switch, SwitchConfig};
use gungraun::prelude::*;

const FRAMES: u64 = 1024;
const GAP_NS: u64 = 100;

type Header = [u8; 64];

fn station(n: u8) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0, 0, n])
}

fn header(dst: MacAddr, src: MacAddr) -> Header {
    let mut bytes = [0; 64];
    bytes[..6].copy_from_slice(&dst.0);
    bytes[6..12].copy_from_slice(&src.0);
    bytes[12] = 8;
    bytes
}

/// What `forward` and `flood` start from: a switch, the port the frames come from, and the frames.
type Start = (Switch, PortId, Vec<Header>);

/// A switch that knows one station on each of `ports` ports, the ingress of the frames, and the frames: from the first
/// station to each of `pairs` others.
fn known(ports: u8, pairs: u8) -> Start {
    let mut switch = Switch::new(SwitchConfig {
        hash_seed: 1,
        ..SwitchConfig::default()
    });
    let ids: Vec<PortId> = (0..ports).map(|_| switch.add_port()).collect();
    for (n, id) in ids.iter().enumerate() {
        switch.forward(Time::ZERO, *id, &header(MacAddr::BROADCAST, station(n as u8)), 60);
    }
    let frames = (1..=pairs).map(|n| header(station(n), station(0))).collect();
    (switch, ids[0], frames)
}

/// A switch of `ports` ports, and broadcast frames.
fn broadcast(ports: u8) -> Start {
    let (switch, ingress, _) = known(ports, 0);
    (switch, ingress, vec![header(MacAddr::BROADCAST, station(0))])
}

/// Frames of a guest that invents a source address for each.
fn invented(count: u32) -> Start {
    let (switch, ingress, _) = known(4, 0);
    let source = |n: u32| {
        let [a, b, c, d] = n.to_be_bytes();
        MacAddr([2, 1, a, b, c, d])
    };
    (
        switch,
        ingress,
        (0..count).map(|n| header(station(1), source(n))).collect(),
    )
}

#[library_benchmark]
#[bench::same_pair(known(4, 1))]
#[bench::eight_pairs_alternating(known(65, 8))]
#[bench::sixty_four_pairs_alternating(known(65, 64))]
#[bench::invented_sources(invented(1024))]
fn forward((mut switch, ingress, frames): Start) -> Start {
    for (n, frame) in (0..FRAMES).zip(frames.iter().cycle()) {
        let now = Time::from_nanos(n * GAP_NS);
        black_box(switch.forward(now, black_box(ingress), black_box(frame), 64));
    }
    (switch, ingress, frames)
}

// With the walk over the ports that the frame goes to.
#[library_benchmark]
#[bench::known(known(4, 1))]
#[bench::broadcast_to_one(broadcast(2))]
#[bench::broadcast_to_63(broadcast(64))]
fn flood((mut switch, ingress, frames): Start) -> Start {
    for (n, frame) in (0..FRAMES).zip(frames.iter().cycle()) {
        let now = Time::from_nanos(n * GAP_NS);
        let decision = switch.forward(now, black_box(ingress), black_box(frame), 64);
        for egress in switch.flood_targets(ingress, decision) {
            black_box(egress);
        }
    }
    (switch, ingress, frames)
}

fn link(config: LinkConfig) -> Link {
    Link::new(config)
}

const MODELLED: LinkConfig = LinkConfig {
    rate_bps: 10_000_000_000,
    delay_ns: 1000,
    seed: 1,
    ..LinkConfig::IDEAL
};

const FAULTY: LinkConfig = LinkConfig {
    loss_ppm: 1000,
    reorder_ppm: 1000,
    reorder_delay_ns: 5000,
    duplicate_ppm: 1000,
    corrupt_ppm: 1000,
    ..MODELLED
};

/// What else people ask of link emulators.
const EMULATED: LinkConfig = LinkConfig {
    burst_bytes: 32 << 10,
    jitter_ns: 500,
    jitter_distribution: JitterDistribution::Pareto,
    queue_max: QueueLevel::frames(1000),
    ecn_above: QueueLevel::nanos(100_000),
    loss_ppm: 100,
    loss_enter_ppm: 100,
    loss_leave_ppm: 250_000,
    loss_in_burst_ppm: 1_000_000,
    loss_every: 1000,
    ..MODELLED
};

#[library_benchmark]
#[bench::rate_and_delay(link(MODELLED))]
#[bench::every_fault(link(FAULTY))]
#[bench::jitter_bursts_and_levels(link(EMULATED))]
fn admit(mut link: Link) -> Link {
    for n in 0..FRAMES {
        black_box(link.admit(Time::from_nanos(n * GAP_NS), black_box(64)));
    }
    link
}

library_benchmark_group!(name = per_frame, benchmarks = [forward, flood, admit]);
main!(library_benchmark_groups = per_frame);
