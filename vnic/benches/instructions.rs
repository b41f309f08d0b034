//! Instructions per forwarded frame of the data path, by stage, counted by valgrind: steady on any machine, however busy.
//!
//! `cargo bench -p weft-vnic --features rig --bench instructions` needs valgrind and `gungraun-runner`. Each benchmark handles a batch of
//! [`FRAMES`] frames. Recorded figures are in `INSTRUCTIONS.md`.

// The macros of gungraun write functions without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use firmware::StrategyKind;
use gungraun::prelude::*;
use gungraun::{Callgrind, EntryPoint};
use vnic::dataplane::rig::{ALL_FEATURES, Rig, frame, multicast_frame, mxoe_frame};
use vnicd_protocol::LinkSettings;

const FRAMES: u16 = 64;

/// Two guests that know each other, with coalescing `strategy` at the receiver and warm memory.
fn rig(features: u64, strategy: StrategyKind) -> Rig {
    let mut rig = Rig::new(&[features, features]);
    rig.set_coalescing(1, strategy, 75_000);
    for index in 0..FRAMES {
        rig.send(1, index, &frame(0, 1, 60, 0));
        rig.send(0, index, &frame(1, 0, 1514, 0));
    }
    rig.settle();
    for guest in 0..2 {
        rig.received(guest);
        rig.completed(guest);
    }
    rig
}

fn plain(len: usize) -> Rig {
    let mut rig = rig(ALL_FEATURES, StrategyKind::Timeout);
    for index in 0..FRAMES {
        rig.send(0, index, &frame(1, 0, len, 0));
    }
    rig
}

fn marked(strategy: StrategyKind) -> Rig {
    let mut rig = rig(ALL_FEATURES, strategy);
    for index in 0..FRAMES {
        rig.send(0, index, &mxoe_frame(1, 0, 64, true));
    }
    rig
}

/// Frames of two protocols in turn, so that none is part of a burst.
fn mixed() -> Rig {
    let mut rig = rig(ALL_FEATURES, StrategyKind::Timeout);
    for index in 0..FRAMES {
        let mut bytes = frame(1, 0, 64, 0);
        bytes[12] = if index % 2 == 0 { 0x90 } else { 0x91 };
        rig.send(0, index, &bytes);
    }
    rig
}

/// The benchmark above with the flight recorders of both cards on.
fn recorded(mut rig: Rig) -> Rig {
    rig.record(0);
    rig.record(1);
    rig
}

fn modelled() -> Rig {
    let mut rig = plain(64);
    let slow = LinkSettings {
        delay_ns: 1,
        ..LinkSettings::default()
    };
    rig.set_link(0, &LinkSettings::default(), &slow);
    rig
}

/// Guests besides the sender in the benchmark of multicast in the card (M-BV5).
const MEMBERS: usize = 64;

/// Rounds of the data plane that are counted, alike in all respects: so many that every card has given its credits back several
/// times.
const ROUNDS: usize = 64;

/// What the sender does before a round.
type Queue = fn(&mut Rig);

/// A sender and [`MEMBERS`] others in one group, all known to the switch, with credits from traffic before.
fn crowd(queue: Queue) -> (Rig, Queue) {
    let mut rig = Rig::new(&[ALL_FEATURES; MEMBERS + 1]);
    for guest in 0..=MEMBERS {
        rig.set_coalescing(guest, StrategyKind::Timeout, 75_000);
        rig.join(guest, 7);
        rig.send(guest, 0, &frame(0, guest as u8, CROWD_LEN, 0));
    }
    rig.settle();
    for queue in [queue, one_broadcast, one_unicast_each, queue] {
        empty(&mut rig);
        queue(&mut rig);
        rig.settle();
    }
    (rig, queue)
}

/// Bytes of a frame in it.
const CROWD_LEN: usize = 300;

fn nothing(_: &mut Rig) {}

fn one_broadcast(rig: &mut Rig) {
    rig.send(0, 0, &multicast_frame(0, 7, CROWD_LEN, 0));
}

fn one_unicast_each(rig: &mut Rig) {
    for guest in 1..=MEMBERS as u16 {
        rig.send(0, guest - 1, &frame(guest as u8, 0, CROWD_LEN, 0));
    }
}

fn empty(rig: &mut Rig) {
    for guest in 0..=MEMBERS {
        rig.received(guest);
        rig.completed(guest);
    }
}

/// The one function whose instructions are counted in [`to_64_members`].
#[inline(never)]
fn counted_round(rig: &mut Rig) {
    black_box(rig.pass());
}

// The instructions of all cards and the switch together, for one packet to all members in each round, or a frame to each of
// them. What the guests do in between is not counted.
#[library_benchmark(
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().entry_point(EntryPoint::Custom("*counted_round*".to_owned())))
)]
#[bench::broadcast(crowd(one_broadcast))]
#[bench::unicasts(crowd(one_unicast_each))]
#[bench::nothing(crowd(nothing))]
fn to_64_members((mut rig, queue): (Rig, Queue)) -> Rig {
    for _ in 0..ROUNDS {
        empty(&mut rig);
        queue(&mut rig);
        counted_round(&mut rig);
    }
    rig
}

#[library_benchmark]
#[bench::in_batches(plain(64))]
fn take(mut rig: Rig) -> Rig {
    black_box(rig.take_only(0));
    rig
}

#[library_benchmark]
#[bench::idle(rig(ALL_FEATURES, StrategyKind::Timeout))]
fn empty_round(mut rig: Rig) -> Rig {
    black_box(rig.pass());
    rig
}

#[library_benchmark]
#[bench::len_64(plain(64))]
#[bench::len_512(plain(512))]
#[bench::len_1514(plain(1514))]
#[bench::len_64_mixed(mixed())]
#[bench::len_64_marked_open_mx(marked(StrategyKind::OpenMx))]
#[bench::len_64_marked_stream(marked(StrategyKind::Stream))]
#[bench::len_64_disabled(marked(StrategyKind::Disabled))]
fn forward(mut rig: Rig) -> Rig {
    black_box(rig.pass());
    rig
}

#[library_benchmark]
#[bench::len_64(recorded(plain(64)))]
#[bench::len_64_mixed(recorded(mixed()))]
#[bench::len_64_marked_open_mx(recorded(marked(StrategyKind::OpenMx)))]
fn forward_recorded(mut rig: Rig) -> Rig {
    black_box(rig.pass());
    rig
}

#[library_benchmark]
#[bench::into_the_pool(modelled())]
fn modelled_link(mut rig: Rig) -> Rig {
    black_box(rig.pass());
    rig
}

library_benchmark_group!(
    name = data_path,
    benchmarks = [
        take,
        empty_round,
        forward,
        forward_recorded,
        modelled_link,
        to_64_members
    ]
);
main!(library_benchmark_groups = data_path);
