//! The "Bad input", rings of generated contents: sound, odd and nonsensical descriptors in a mixture, against a live
//! `vnicd`. A case is one chain of a transmit ring. What must become of it (sent, dropped by a reason, or the end of the port by a
//! rule) is worked out beforehand by a model of its own (`model.rs`); afterwards the used ring must hold exactly the chains before
//! the end, in order, and the port's counters must have grown by exactly what the model says. Receive rings are judged as a whole,
//! one case each: a rule that one of their chains breaks is counted, once, or, if none does, nothing is.

use std::time::{Duration, Instant};

use crate::attacker::{Attacker, Violations, attacker_config};
use crate::attacks::{Attack, RX};
use crate::daemon::assert_same_use;
use crate::model::{Model, Outcome};
use crate::ring_rules::{MEMORY_SLACK, Scene, receives_again};
use weft_vnic_testkit::{Seed, write_descriptor};

/// Cases that are generated; with those of the other tests they are more than 10⁵.
pub const CASES_MIN: u32 = 70_000;
/// Longest wait for a port to do what it must.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a sound receive ring is fed.
const FEEDING: Duration = Duration::from_millis(2);

/// The counters that a transmit ring moves.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    sent: u64,
    runt: u64,
    too_long: u64,
    bad_offload: u64,
    violations: Violations,
}

impl Counted {
    fn read(attacker: &mut Attacker) -> Counted {
        let stats = attacker.control.port_stats(attacker.port).unwrap();
        let dropped = |reason: &str| stats["tx"]["dropped"][reason].as_u64().expect("a counter");
        Counted {
            sent: stats["tx"]["frames"].as_u64().expect("a counter"),
            runt: dropped("runt"),
            too_long: dropped("too_long"),
            bad_offload: dropped("bad_offload"),
            violations: Violations::of_stats(&stats),
        }
    }

    /// What is to be counted after `outcomes`.
    fn with(mut self, outcomes: &[Outcome]) -> Counted {
        for outcome in outcomes {
            match outcome {
                Outcome::Sent => self.sent += 1,
                Outcome::Runt => self.runt += 1,
                Outcome::TooLong => self.too_long += 1,
                Outcome::BadOffload => self.bad_offload += 1,
                Outcome::Breaks(rule) => self.violations.add(rule),
            }
        }
        self
    }
}

/// How many cases had which outcome.
#[derive(Debug, Default)]
struct Tally {
    sent: u32,
    dropped: u32,
    broken: u32,
    receive_rings: u32,
}

impl Tally {
    fn cases(&self) -> u32 {
        self.sent + self.dropped + self.broken + self.receive_rings
    }
}

#[test]
fn every_chain_of_generated_rings_gets_what_it_deserves() {
    let mut scene = Scene::start();
    judge(&mut scene, 6, CASES_MIN / 20);
    let before = scene.daemon.settled_use();
    let tally = judge(&mut scene, 7, CASES_MIN);
    println!("{tally:?}");
    assert_same_use(&before, &scene.daemon.settled_use(), MEMORY_SLACK);
    scene.finish(tally.cases());
}

/// Generated rings from a guest that comes for it and leaves again, until `cases` were judged.
fn judge(scene: &mut Scene, seed: u64, cases: u32) -> Tally {
    let config = attacker_config(&scene.daemon, "attacker");
    let mut attacker = Attacker::connect(&scene.daemon, "attacker", config);
    let mut seed = Seed::new(seed);
    let mut tally = Tally::default();
    while tally.cases() < cases {
        let attack = attacker.ground.garbage(&mut seed);
        let base = seed.any() as u16;
        if attack.vring == RX {
            judge_receive(&mut attacker, scene, &attack, base);
            tally.receive_rings += 1;
        } else {
            for outcome in judge_transmit(&mut attacker, &attack, base) {
                match outcome {
                    Outcome::Sent => tally.sent += 1,
                    Outcome::Breaks(_) => tally.broken += 1,
                    _ => tally.dropped += 1,
                }
            }
        }
    }
    attacker.behave();
    receives_again(&mut attacker.guest, &mut scene.feeder);
    tally
}

/// The model of the attacked ring, whose descriptors are written as the attack has them.
fn model<'a>(attacker: &'a mut Attacker, attack: &Attack) -> Model<'a> {
    for (addr, descriptor) in &attack.elsewhere {
        write_descriptor(attacker.guest.memory(), *addr, *descriptor);
    }
    let ring_size = attacker.ground.ring_size;
    let ring = attacker.guest.ring(attack.vring);
    for (index, descriptor) in attack.chain.iter().enumerate() {
        ring.write_descriptor(index as u16, *descriptor);
    }
    let table = ring.addresses().0;
    Model {
        memory: attacker.guest.memory(),
        table,
        ring_size,
    }
}

fn judge_transmit(attacker: &mut Attacker, attack: &Attack, base: u16) -> Vec<Outcome> {
    attacker.stop(base);
    let outcomes = model(attacker, attack).transmit(attack);
    let expected = Counted::read(attacker).with(&outcomes);
    attacker.begin(attack, base);
    let used = outcomes.iter().filter(|outcome| !matches!(outcome, Outcome::Breaks(_)));
    let used = used.count();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counted = Counted::read(attacker);
        let ring = attacker.guest.ring(attack.vring);
        if counted == expected && usize::from(ring.used_idx().wrapping_sub(base)) == used {
            let heads: Vec<u16> = (0..used as u16).map(|at| ring.used_element(at).0).collect();
            assert_eq!(heads, attack.heads[..used], "completed in order: {attack:?}");
            return outcomes;
        }
        assert!(
            Instant::now() < deadline,
            "{counted:?} and {} used instead of {expected:?} and {used}: {outcomes:?} of {attack:?} at {base}",
            ring.used_idx().wrapping_sub(base)
        );
    }
}

fn judge_receive(attacker: &mut Attacker, scene: &mut Scene, attack: &Attack, base: u16) {
    attacker.stop(base);
    let rules = model(attacker, attack).receive(attack);
    attacker.begin(attack, base);
    let start = Instant::now();
    loop {
        crate::daemon::feed(&mut scene.feeder, crate::attacker::ATTACKER, crate::attacker::FEEDER);
        let counted = Violations::read(&mut attacker.control, attacker.port);
        if counted != attacker.seen {
            let one_more = |rule: &&str| {
                let mut expected = attacker.seen.clone();
                expected.add(rule);
                expected == counted
            };
            assert!(rules.iter().any(one_more), "{counted:?} for {rules:?} of {attack:?}");
            return;
        }
        if rules.is_empty() && start.elapsed() > FEEDING {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "none of {rules:?} was counted for {attack:?}"
        );
    }
}
