//! The data plane allocates nothing per frame, whatever its cards do: coalesce by any strategy, watch, record, spread
//! a multicast. Batches, queues and pools grow to their size with the first frames; control and settings are not of this.

use firmware::StrategyKind;
use vnic::dataplane::rig::{ALL_FEATURES, Rig, frame, multicast_frame, mxoe_frame};

/// Guests of a rig: one sends to the others.
const GUESTS: usize = 9;

/// Frames in a round.
const FRAMES: u16 = 64;

/// What the sender's ring gets before a round.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// A burst of frames to one guest.
    Run,
    /// A burst of marked MXoE frames.
    Marked,
    /// To each guest in turn: each frame is looked up.
    Mixed,
    /// To a group of all.
    Multicast,
}

fn queue(rig: &mut Rig, load: Load) {
    for guest in 0..GUESTS {
        rig.received(guest);
        rig.completed(guest);
    }
    for index in 0..FRAMES {
        let each = 1 + (usize::from(index) % (GUESTS - 1)) as u8;
        let bytes = match load {
            Load::Run => frame(1, 0, 300, 0),
            Load::Marked => mxoe_frame(1, 0, 64, true),
            Load::Mixed => frame(each, 0, 300, 0),
            // As many as all guests have buffers for, and credits.
            Load::Multicast if index < 4 => multicast_frame(0, 7, 300, 0),
            Load::Multicast => break,
        };
        rig.send(0, index, &bytes);
    }
}

/// Allocations in rounds of `load` on `rig`, after some that are not counted, and frames that arrived.
fn allocations(rig: &mut Rig, load: Load) -> (u64, u64) {
    const WARM_UP: u64 = 20;
    const COUNTED: u64 = 100;
    let received = |rig: &Rig| (1..GUESTS).map(|guest| rig.stats(guest).rx.frames).sum::<u64>();
    let (mut count, mut before) = (0, 0);
    for round in 0..WARM_UP + COUNTED {
        if round == WARM_UP {
            before = received(rig);
        }
        queue(rig, load);
        rig.now = rig.now.plus_nanos(30_000);
        let info = allocation_counter::measure(|| rig.settle());
        if round >= WARM_UP {
            count += info.count_total;
        }
    }
    (count, received(rig) - before)
}

fn rig() -> Rig {
    let mut rig = Rig::new(&[ALL_FEATURES; GUESTS]);
    for guest in 0..GUESTS {
        rig.join(guest, 7);
        rig.send(guest, 0, &frame(0, guest as u8, 60, 0));
    }
    rig.settle();
    rig
}

fn check(rig: &mut Rig, what: &str) {
    for load in [Load::Run, Load::Marked, Load::Mixed, Load::Multicast] {
        let (count, frames) = allocations(rig, load);
        assert!(frames >= 3200, "{what}, {load:?}: {frames} frames show little");
        assert_eq!(count, 0, "{what}, {load:?}: allocations for {frames} frames");
    }
}

#[test]
fn m_bv5_no_allocation_per_frame_or_copy_with_any_strategy() {
    for &strategy in StrategyKind::ALL {
        let mut rig = rig();
        (0..GUESTS).for_each(|guest| rig.set_coalescing(guest, strategy, 75_000));
        check(&mut rig, strategy.name());
    }
}

#[test]
fn m_bv8_no_allocation_per_frame_with_watchdogs() {
    let mut rig = rig();
    (0..GUESTS).for_each(|guest| rig.set_watchdog(guest, 100_000));
    check(&mut rig, "watchdogs");
}

#[test]
fn no_allocation_per_frame_with_recorders() {
    let mut rig = rig();
    (0..GUESTS).for_each(|guest| rig.record(guest));
    check(&mut rig, "recorders");
}
