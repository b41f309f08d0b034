//! A program that drives its card behind an IOMMU and breaks what can be broken, with a frontend that answers anything: descriptors that
//! lead anywhere, translations that lie, overlap, go and never come. Pages that the card was not told of cannot be touched: that
//! would end the tests' process. Guests beside it must not notice.

use weft_vnic_testkit::Seed;

use crate::dataplane::rig::iommu::{BOTH, Iommu, PAGE, PAGES};
use crate::dataplane::rig::{ALL_FEATURES, RING, Rig, frame};
use crate::memory::Permission;

/// Two guests, one that talks with the hostile one, and that one.
const LEFT: usize = 0;
const RIGHT: usize = 1;
const TALKER: usize = 2;
const HOSTILE: usize = 3;

/// Pages of the file behind a guest's memory.
const FILE_PAGES: usize = 2 * PAGES;
/// Pages that one mapping has at most.
const MAPPING_PAGES: u64 = 16;

/// What was done in all.
#[derive(Debug, Default)]
struct Done {
    cases: u32,
    failures: u32,
    exchanged: u32,
    taken_from_it: u64,
}

fn permission(random: &mut Seed) -> Permission {
    Permission {
        read: random.range(0, 3) > 0,
        write: random.range(0, 3) > 0,
    }
}

/// Rings and buffers most often, anything now and then.
fn page(random: &mut Seed) -> usize {
    match random.range(0, 3) {
        0 => random.range(0, 15) as usize,
        1 => 256 + random.range(0, 255) as usize,
        _ => random.range(0, PAGES as u64 - MAPPING_PAGES - 1) as usize,
    }
}

/// An address that a sound driver could use, one beyond its memory, or one whose range wraps.
fn address(random: &mut Seed) -> u64 {
    let at = (page(random) * PAGE) as u64 + random.range(0, PAGE as u64);
    match random.range(0, 9) {
        0 => u64::MAX - random.range(0, 5_000),
        1 => random.range(0, 1 << 48),
        _ => at,
    }
}

fn lie(rig: &mut Rig, iommu: &mut Iommu, first: usize, random: &mut Seed) {
    let pages = first..(first + 1 + random.range(0, MAPPING_PAGES - 1) as usize).min(PAGES);
    let place = random.range(0, (FILE_PAGES - pages.len()) as u64) as usize;
    let permission = if random.range(0, 1) == 0 {
        BOTH
    } else {
        permission(random)
    };
    iommu.lie(rig, pages, place, permission);
}

/// Frames between the two arrive at once, once, and as they were sent; what the hostile guest floods comes besides.
fn others_go_on(rig: &mut Rig, number: u32) {
    for (from, to) in [(LEFT, RIGHT), (RIGHT, LEFT)] {
        let sent = frame(to as u8, from as u8, 60 + (number as usize * 37) % 1400, number as u8);
        rig.send(from, (number % u32::from(RING)) as u16, &sent);
        rig.settle();
        let got = rig.received(to).into_iter().filter(|(_, frame)| *frame == sent);
        assert_eq!(got.count(), 1, "number {number}");
        assert_eq!(rig.completed(from), 1);
    }
}

/// The hostile guest, or the one that talks to it, does something.
fn act(rig: &mut Rig, iommu: &mut Iommu, random: &mut Seed, step: u32, waiting: &mut u32, done: &mut Done) {
    let index = (random.range(0, u64::from(RING) - 1)) as u16;
    match random.range(0, 9) {
        0..=1 => {
            let len = random.pick(&[0, 11, 12, 26, 60, 72, 1526, 2048, 65_600, u32::MAX]);
            let (receives, addr) = (random.range(0, 1) == 0, address(random));
            rig.offer_wild(HOSTILE, receives, index, addr, len);
        }
        2 => {
            let page = page(random);
            lie(rig, iommu, page, random);
        }
        3..=4 => {
            // The card's question is answered, by a lie or by the truth.
            if let Some(miss) = iommu.misses.next_to_ask(std::time::Instant::now()) {
                let page = miss.iova as usize / PAGE;
                match random.range(0, 3) {
                    0 => iommu.deny(rig, miss),
                    1 if page < PAGES => lie(rig, iommu, page, random),
                    2 if page < PAGES => iommu.give(rig, page, BOTH),
                    // Never answered.
                    _ => {}
                }
            }
        }
        5 => {
            let first = page(random);
            iommu.take(rig, first..first + random.range(1, MAPPING_PAGES) as usize);
        }
        6 => {
            done.taken_from_it += rig.completed(TALKER) as u64;
            *waiting += 1;
            if *waiting < u32::from(RING) / 2 {
                rig.send(
                    TALKER,
                    (*waiting % u32::from(RING)) as u16,
                    &frame(HOSTILE as u8, TALKER as u8, 200, 0),
                );
            } else {
                // What it does not take is dropped after some time, and given back.
                rig.now = rig.now.plus_nanos(1_000_000_000);
                rig.settle();
                *waiting = 0;
            }
        }
        7 => rig.post(HOSTILE, index),
        8 => rig.now = rig.now.plus_nanos(random.range(0, 10_000_000)),
        _ => {
            others_go_on(rig, step);
            done.exchanged += 2;
        }
    }
}

fn attack(seed: u64, steps: u32, done: &mut Done) {
    let mut random = Seed::new(seed);
    let features = random.pick(&[0, ALL_FEATURES]);
    let mut rig = Rig::new(&[features; 3]);
    // The hostile guest never sees a frame of these two, whose addresses it could take otherwise, as any guest of a switch can.
    others_go_on(&mut rig, 0);
    others_go_on(&mut rig, 1);
    rig.received(TALKER);
    let mut iommu = rig.add_guest_behind_iommu(0, features);
    for (from, to) in [(HOSTILE, TALKER), (TALKER, HOSTILE)] {
        rig.send(from, 0, &frame(to as u8, from as u8, 60, 0));
        rig.settle();
        while iommu.answer(&mut rig, usize::MAX) > 0 {
            rig.settle();
        }
    }
    rig.received(TALKER);
    rig.completed(TALKER);
    let mut waiting = 0u32;
    for step in 0..steps {
        done.cases += 1;
        act(&mut rig, &mut iommu, &mut random, step, &mut waiting, done);
        rig.pass();
        rig.received(TALKER);
        if rig.failed(HOSTILE).is_some() {
            done.failures += 1;
            iommu.reset(&mut rig);
            rig.restart_driver(HOSTILE);
        }
        for other in [TALKER, LEFT, RIGHT] {
            assert_eq!(rig.failed(other), None, "seed {seed}, step {step}");
        }
    }
    // Its program is killed: from now on none of its memory can be touched.
    iommu.disconnect(&mut rig);
    rig.now = rig.now.plus_nanos(1_000_000_000);
    rig.settle();
    others_go_on(&mut rig, 2);
}

/// More than 10⁵ cases.
#[test]
fn iommu_a_hostile_driver_and_lying_translations_touch_no_page_that_was_not_named_and_no_other_guest_notices() {
    let mut done = Done::default();
    for seed in 0..60 {
        attack(seed, 2_000, &mut done);
    }
    println!("{done:?}");
    assert!(
        done.cases >= 100_000 && done.failures > 500 && done.exchanged > 10_000,
        "{done:?}"
    );
}
