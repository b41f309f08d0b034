//! The "Bad input", rings: generated violations of every rule against a live `vnicd`, while a neighbouring pair loses
//! nothing and the process does not grow. A case is one ring that breaks one rule: before the next one, exactly that rule
//! must have been counted once, and no other. Rings of any contents are in `judged_rings.rs`, sessions in `session_rules.rs`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::attacker::{ATTACKER, Attacker, FEEDER, Violations, attacker_config};
use crate::attacks::{PLACE_RULES, PLAIN_RULE, RING_RULES, RX, TX, WIDE_RULE};
use crate::behind_iommu::ADDRESS_RULE;
use crate::daemon::{Daemon, Neighbours, assert_same_use, feed};
use crate::{judged_rings, session_attacks, session_rules};
use vhost::VhostBackend;
use weft_vnic_testkit::{DESC_WRITE, Descriptor, F_INDIRECT_DESC, Frontend, FrontendConfig, Seed, shift_user_address};

/// Cases per rule.
const CASES: u32 = 1000;
/// Allocator noise granted between two readings of the process's private memory.
pub const MEMORY_SLACK: u64 = 2 << 20;

/// All generated cases that are judged one by one: those here, those of sessions, and the chains of generated rings.
const CASES_MIN: u32 = CASES * (RING_RULES.len() + 2 + PLACE_RULES.len()) as u32
    + session_rules::CASES * session_attacks::SESSION_RULES.len() as u32
    + judged_rings::CASES_MIN;
const _: () = assert!(CASES_MIN >= 100_000);

const PORTS: &[&str] = &["left", "right", "feeder", "attacker", "plain", "wide"];

pub struct Scene {
    pub daemon: Daemon,
    neighbours: Neighbours,
    pub feeder: Frontend,
    started: Instant,
}

impl Scene {
    pub fn start() -> Scene {
        let daemon = Daemon::start(PORTS);
        let neighbours = Neighbours::start(&daemon);
        let feeder = Frontend::start(FrontendConfig::connect(daemon.socket("feeder"))).unwrap();
        Scene {
            daemon,
            neighbours,
            feeder,
            started: Instant::now(),
        }
    }

    pub fn finish(self, cases: u32) {
        println!("{cases} cases in {:.1?}", self.started.elapsed());
        drop(self.feeder);
        self.neighbours.finish();
        self.daemon.finish();
    }
}

#[test]
fn every_ring_rule_fails_only_the_guest_that_breaks_it() {
    let mut scene = Scene::start();
    // The first round of a few cases each makes the process allocate what it will keep.
    let mut cases = attack_every_rule(&mut scene, 1, 20);
    let before = scene.daemon.settled_use();
    cases += attack_every_rule(&mut scene, 2, CASES);
    assert_same_use(&before, &scene.daemon.settled_use(), MEMORY_SLACK);
    let mut control = scene.daemon.control();
    let counted = ["attacker", "plain", "wide"].map(|port| Violations::read(&mut control, port));
    for rule in ring_rules() {
        let times: u64 = counted.iter().map(|violations| violations.of(rule)).sum();
        assert!(times >= u64::from(CASES), "{rule} was counted {times} times");
    }
    let known: BTreeSet<&str> = ring_rules().chain(PLACE_RULES.iter().copied()).collect();
    let elsewhere = [ADDRESS_RULE];
    let all: BTreeSet<&str> = known.iter().copied().chain(elsewhere).collect();
    assert_eq!(all, counted[0].names().collect(), "every rule has its cases");
    assert!(cases >= CASES * known.len() as u32 - CASES * PLACE_RULES.len() as u32);
    scene.finish(cases);
}

/// The rules that ring contents can break.
fn ring_rules() -> impl Iterator<Item = &'static str> {
    RING_RULES.iter().copied().chain([PLAIN_RULE, WIDE_RULE])
}

/// `count` attacks against each rule by guests that come for it and leave again.
fn attack_every_rule(scene: &mut Scene, seed: u64, count: u32) -> u32 {
    let config = attacker_config(&scene.daemon, "attacker");
    let mut attacker = Attacker::connect(&scene.daemon, "attacker", config);
    let mut config = attacker_config(&scene.daemon, "plain");
    config.features &= !F_INDIRECT_DESC;
    let mut plain = Attacker::connect(&scene.daemon, "plain", config);
    let mut config = attacker_config(&scene.daemon, "wide");
    config.ring_size = 1024;
    let mut wide = Attacker::connect(&scene.daemon, "wide", config);
    for rule in ring_rules() {
        let mut seed = Seed::new(seed);
        let start = Instant::now();
        let guest = match rule {
            PLAIN_RULE => &mut plain,
            WIDE_RULE => &mut wide,
            _ => &mut attacker,
        };
        for _ in 0..count {
            guest.break_rule(rule, &mut seed, &mut scene.feeder);
        }
        println!("{rule}: {count} cases, each counted, {:.1?}", start.elapsed());
    }
    // A failed port works again once its driver starts its rings anew.
    for guest in [&mut attacker, &mut plain, &mut wide] {
        guest.behave();
        receives_again(&mut guest.guest, &mut scene.feeder);
    }
    count * ring_rules().count() as u32
}

/// Frames from the feeder reach `guest`.
pub fn receives_again(guest: &mut Frontend, feeder: &mut Frontend) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        feed(feeder, ATTACKER, FEEDER);
        if guest.pairs[0].rx.poll(64, |_, _| {}) > 0 {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "no frame arrives after the rings were started anew"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn rings_outside_memory_are_refused_and_counted() {
    let scene = Scene::start();
    let mut attacker = Attacker::connect(&scene.daemon, "attacker", attacker_config(&scene.daemon, "attacker"));
    let mut seed = Seed::new(3);
    for case in 0..CASES {
        attacker.stop(0);
        let memory = std::sync::Arc::clone(attacker.guest.memory());
        let vring = if seed.chance(1, 2) { RX } else { TX };
        let size = u64::from(attacker.ground.ring_size);
        let addresses = attacker.guest.ring(vring).addresses();
        let end = memory.user_addr(attacker.ground.end - 1) + 1;
        let mut places = [addresses.0, addresses.1, addresses.2].map(|addr| memory.user_addr(addr));
        // The part begins within memory and ends behind it.
        let part = seed.range(0, 2) as usize;
        let (len, alignment) = [(16 * size, 16), (6 + 2 * size, 2), (6 + 8 * size, 4)][part];
        let inside = seed.range(1, (len - 1) / alignment) * alignment;
        places[part] = (end - inside) & !(alignment - 1);
        attacker.guest.start_ring_at(vring, places).unwrap();
        attacker.guest.enable_ring(vring, true).unwrap();
        attacker.guest.ring(vring).kick();
        attacker.await_violation("ring_outside_memory", None, &(case, vring, part, inside));
    }
    assert!(attacker.seen.of("ring_outside_memory") >= u64::from(CASES));
    drop(attacker);
    scene.finish(CASES);
}

#[test]
fn misaligned_rings_are_refused_and_counted() {
    let scene = Scene::start();
    let mut attacker = Attacker::connect(&scene.daemon, "attacker", attacker_config(&scene.daemon, "attacker"));
    let mut seed = Seed::new(4);
    for case in 0..CASES {
        attacker.stop(0);
        // Guest and user addresses of the region begin in the middle of a word, its mapping does not: every ring address
        // is aligned for the guest, and the used ring is misaligned for the host. (Odd addresses end the session.)
        let odd = seed.range(0, 1023) * 4 + 2;
        let mut region = shift_user_address(&attacker.guest.memory().table()[0], odd);
        region.guest_phys_addr += odd;
        region.memory_size -= 4096;
        attacker.guest.wire().unwrap().set_mem_table(&[region]).unwrap();
        let vring = if seed.chance(1, 2) { RX } else { TX };
        attacker.guest.start_ring(vring).unwrap();
        attacker.guest.enable_ring(vring, true).unwrap();
        attacker.guest.ring(vring).kick();
        attacker.await_violation("ring_misaligned", None, &(case, vring, odd));
    }
    assert!(attacker.seen.of("ring_misaligned") >= u64::from(CASES));
    drop(attacker);
    scene.finish(CASES);
}

#[test]
fn a_truncated_memory_file_fails_only_its_guest() {
    let mut scene = Scene::start();
    let mut seed = Seed::new(5);
    let mut before = None;
    for case in 0..CASES {
        let mut config = attacker_config(&scene.daemon, "attacker");
        config.regions = 2;
        let mut attacker = Attacker::connect(&scene.daemon, "attacker", config);
        let vring = if seed.chance(1, 2) { RX } else { TX };
        attacker.stop(0);
        attacker.guest.start_only(vring).unwrap();
        let memory = std::sync::Arc::clone(attacker.guest.memory());
        let [rings, buffers] = memory.regions() else {
            panic!("two regions")
        };
        // Nothing is written where it was cut: this process would fault on it, too.
        let flags = if vring == RX { DESC_WRITE } else { 0 };
        let addr = buffers.guest_addr + seed.range(0, buffers.len - 4096);
        let chain = [Descriptor {
            addr,
            len: 1500,
            flags,
            next: 0,
        }];
        let ring = attacker.guest.ring(vring);
        for (index, descriptor) in chain.iter().enumerate() {
            ring.write_descriptor(index as u16, *descriptor);
        }
        ring.raw_avail_entry(0, 0);
        // A started ring is looked at before any kick. What lies in the buffers that go is shown to the card after the cut,
        // or it might be used up before; a ring that goes takes all that was written into it along.
        let what = if seed.chance(1, 2) {
            ring.raw_avail_idx(1);
            rings.truncate(0).unwrap();
            (case, vring, addr, rings.guest_addr, 0)
        } else {
            let kept = seed.range(0, (addr - buffers.guest_addr) / 4096) * 4096;
            buffers.truncate(kept).unwrap();
            ring.raw_avail_idx(1);
            (case, vring, addr, buffers.guest_addr, kept)
        };
        // The ring object would touch its memory before a kick by itself.
        attacker.guest.ring(vring).kick();
        let feeder = (vring == RX).then_some(&mut scene.feeder);
        attacker.await_violation("memory_truncated", feeder, &what);
        drop(attacker);
        if case == 50 {
            before = Some(scene.daemon.settled_use());
        }
    }
    let counted = Violations::read(&mut scene.daemon.control(), "attacker");
    assert!(counted.of("memory_truncated") >= u64::from(CASES));
    let after = scene.daemon.settled_use();
    assert_same_use(&before.unwrap(), &after, MEMORY_SLACK);
    scene.finish(CASES);
}
