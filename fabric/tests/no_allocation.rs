//! Decisions about frames allocate nothing: neither the switch's nor a link's.

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint::black_box,
};

use common::{header, station, typed_header};
use ether::{MacAddr, Time, checksum};
use fabric::{Forward, JitterDistribution, Link, LinkConfig, PortVlans, QueueLevel, Switch, SwitchConfig, VlanId};

thread_local! {
    /// Allocations of this thread; the test runner's threads do not disturb.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on unchanged to the system's allocator, which keeps the contract; counting in a
// constant-initialised thread-local allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about `layout` are those `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_in(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations_in(|| drop(black_box(Box::new(1)))), 1);
}

#[test]
fn forwarding_allocates_nothing() {
    let mut switch = Switch::new(SwitchConfig {
        ageing_ns: 1_000_000,
        ..SwitchConfig::default()
    });
    let ports: Vec<_> = (0..70).map(|_| switch.add_port()).collect();
    let group = MacAddr([1, 0, 0x5e, 0, 0, 1]);
    switch.join(group, ports[3]).unwrap();
    let destinations = [
        station(1),
        station(2),
        station(200),
        group,
        MacAddr::BROADCAST,
        MacAddr::CARD,
    ];
    let count = allocations_in(|| {
        for n in 0..200_000u32 {
            let ingress = ports[n as usize % ports.len()];
            let [_, b, c, d] = (n / 3).to_be_bytes();
            let src = if n % 2 == 0 {
                station(n as u8)
            } else {
                MacAddr([2, 0, 0, b, c, d])
            };
            let dst = destinations[n as usize % destinations.len()];
            let header = if n % 17 == 0 {
                typed_header(dst, src, 0x88b5)
            } else {
                header(dst, src)
            };
            let forward = switch.forward(Time::from_nanos(u64::from(n) * 50), ingress, &header, 60);
            black_box(switch.flood_targets(ingress, forward).count());
        }
    });
    assert_eq!(count, 0);
    let learned: u64 = ports.iter().map(|port| switch.counters(*port).learned).sum();
    assert!(learned > 10_000, "the table was really used: {learned}");
}

/// A packet to 239.0.0.`group`, or (`joins`) the IGMPv2 report that it is wanted.
fn to_group(src: MacAddr, group: u8, joins: bool) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&header(MacAddr([1, 0, 0x5e, 0, 0, group]), src));
    frame[14..18].copy_from_slice(&[0x45, 0, 0, 28]);
    frame[23] = if joins { 2 } else { 17 };
    frame[30..34].copy_from_slice(&[239, 0, 0, group]);
    let sum = checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[34] = 0x16;
    frame[38..42].copy_from_slice(&[239, 0, 0, group]);
    let sum = checksum::checksum(&frame[34..42]);
    frame[36..38].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn a_switch_with_vlans_and_snooping_allocates_nothing() {
    let mut switch = Switch::new(SwitchConfig::default());
    let ports: Vec<_> = (0..70).map(|_| switch.add_port()).collect();
    switch.set_snooping(Some(MacAddr([2, 0, 0, 0, 9, 9])));
    for port in &ports[..20] {
        let vlan = VlanId::new(1 + port.0 % 3);
        switch.set_port_vlans(*port, vlan.map(PortVlans::access));
    }
    let count = allocations_in(|| {
        for n in 0..100_000u32 {
            let now = Time::from_nanos(u64::from(n) * 1_000_000);
            let ingress = ports[n as usize % ports.len()];
            let frame = to_group(station(n as u8), (n / 7) as u8, n % 3 == 0);
            let forward = match switch.forward(now, ingress, &frame, frame.len()) {
                Forward::Inspect => switch.inspect(now, ingress, &frame, frame.len()),
                other => other,
            };
            black_box((forward, switch.targets().len()));
            switch.handle(now);
            while let Some(sent) = switch.poll_transmit(now) {
                black_box(sent);
            }
        }
    });
    assert_eq!(count, 0);
    let counters = switch.snooping_counters();
    assert!(counters.reports > 10_000 && counters.queries_out > 100, "{counters:?}");
}

#[test]
fn links_allocate_nothing() {
    let mut link = Link::new(LinkConfig {
        rate_bps: 1_000_000_000,
        delay_ns: 1000,
        burst_bytes: 5000,
        jitter_ns: 500,
        jitter_distribution: JitterDistribution::Normal,
        queue_max: QueueLevel::frames(50),
        ecn_above: QueueLevel::nanos(1000),
        loss_ppm: 100_000,
        loss_enter_ppm: 100_000,
        loss_leave_ppm: 100_000,
        loss_in_burst_ppm: 500_000,
        loss_every: 10,
        reorder_ppm: 100_000,
        reorder_delay_ns: 5000,
        duplicate_ppm: 100_000,
        corrupt_ppm: 100_000,
        corrupt_past_fcs: true,
        ..LinkConfig::default()
    });
    let count = allocations_in(|| {
        for n in 0..100_000 {
            black_box(link.admit(Time::from_nanos(n * 700), 60 + n as usize % 1000));
        }
    });
    assert_eq!(count, 0);
    assert!(link.counters().dropped_total() > 10_000);
}
