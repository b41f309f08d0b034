//! Instructions per forwarded frame of the data path, by stage, counted by valgrind: steady on any machine, however busy.
//!
//! `cargo bench -p vnic --bench instructions` needs valgrind and `gungraun-runner`. Each benchmark handles a batch of
//! [`FRAMES`] frames. Recorded figures are in `INSTRUCTIONS.md`.

// The macros of gungraun write functions without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use firmware::StrategyKind;
use gungraun::prelude::*;
use vnic::report::LinkSettings;
use vnic::shard::rig::{ALL_FEATURES, Rig, frame, multicast_frame, mxoe_frame};

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

/// Frames of two protocols in turn, so that none follows the way of the one before.
fn mixed() -> Rig {
    let mut rig = rig(ALL_FEATURES, StrategyKind::Timeout);
    for index in 0..FRAMES {
        let mut bytes = frame(1, 0, 64, 0);
        bytes[12] = if index % 2 == 0 { 0x90 } else { 0x91 };
        rig.send(0, index, &bytes);
    }
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

/// Rounds of it: each is one packet to all members, or one frame to each; credits come back once in so many packets.
const ROUNDS: u16 = 4;

/// A sender and [`MEMBERS`] others in one group, all known to the switch, with credits from traffic before.
fn crowd() -> Rig {
    let mut rig = Rig::new(&[ALL_FEATURES; MEMBERS + 1]);
    for guest in 0..=MEMBERS {
        rig.set_coalescing(guest, StrategyKind::Timeout, 75_000);
        rig.join(guest, 7);
        rig.send(guest, 0, &frame(0, guest as u8, 300, 0));
    }
    rig.settle();
    for _ in 0..2 {
        queue_broadcasts(&mut rig);
        rig.settle();
        queue_unicasts(&mut rig);
        rig.settle();
    }
    rig
}

fn queue_broadcasts(rig: &mut Rig) {
    empty(rig);
    for round in 0..ROUNDS {
        rig.send(0, round, &multicast_frame(0, 7, 300, 0));
    }
}

fn queue_unicasts(rig: &mut Rig) {
    empty(rig);
    for round in 0..ROUNDS {
        for guest in 1..=MEMBERS as u16 {
            let index = round * MEMBERS as u16 + guest - 1;
            rig.send(0, index, &frame(guest as u8, 0, 300, 0));
        }
    }
}

fn empty(rig: &mut Rig) {
    for guest in 0..=MEMBERS {
        rig.received(guest);
        rig.completed(guest);
    }
}

fn broadcasts() -> Rig {
    let mut rig = crowd();
    queue_broadcasts(&mut rig);
    rig
}

fn unicasts() -> Rig {
    let mut rig = crowd();
    queue_unicasts(&mut rig);
    rig
}

// The instructions of all cards and the switch together: four packets to 64 members, and four frames to each of them. Both in
// as many rounds of the shard, as these have a cost for each port.
#[library_benchmark]
#[bench::broadcast(broadcasts())]
#[bench::unicasts(unicasts())]
fn to_64_members(mut rig: Rig) -> Rig {
    for _ in 0..ROUNDS {
        black_box(rig.pass());
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
#[bench::into_the_pool(modelled())]
fn modelled_link(mut rig: Rig) -> Rig {
    black_box(rig.pass());
    rig
}

library_benchmark_group!(
    name = data_path,
    benchmarks = [take, empty_round, forward, modelled_link, to_64_members]
);
main!(library_benchmark_groups = data_path);
