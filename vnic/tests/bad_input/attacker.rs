//! A guest that breaks rules on purpose: carries out attacks on a live port and waits until the port
//! has counted exactly the rule meant, while a feeder gives its receive ring something to do.

use std::time::{Duration, Instant};

use ether::MacAddr;
use weft_vnic_testkit::{
    ControlClient, F_EVENT_IDX, F_INDIRECT_DESC, F_MRG_RXBUF, Frontend, FrontendConfig, Seed, write_descriptor,
};

use crate::attacks::{Attack, Ground, RX, TX};
use crate::daemon::{Daemon, feed};

/// Station of every attacker; no switch learns it, so frames to it reach all ports.
pub const ATTACKER: MacAddr = MacAddr([0x02, 0, 0, 0, 0x66, 0x66]);
pub const FEEDER: MacAddr = MacAddr([0x02, 0, 0, 0, 0x66, 0x01]);
/// Longest wait for a port to count a violation.
const COUNT_WAIT: Duration = Duration::from_secs(10);

/// Sum and entries of a port's `rule_violations`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violations(serde_json::Map<String, serde_json::Value>);

impl Violations {
    pub fn read(control: &mut ControlClient, port: &str) -> Violations {
        Violations::of_stats(&control.port_stats(port).unwrap())
    }

    pub fn of_stats(stats: &serde_json::Value) -> Violations {
        Violations(stats["rule_violations"].as_object().expect("rule_violations").clone())
    }

    pub fn of(&self, rule: &str) -> u64 {
        self.0.get(rule).and_then(serde_json::Value::as_u64).unwrap_or(0)
    }

    /// Counts one more.
    pub fn add(&mut self, rule: &str) {
        let count = self.of(rule) + 1;
        self.0.insert(rule.to_owned(), count.into());
    }

    /// The names of all rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn total(&self) -> u64 {
        self.0.values().filter_map(serde_json::Value::as_u64).sum()
    }
}

pub fn attacker_config(daemon: &Daemon, port: &str) -> FrontendConfig {
    let mut config = FrontendConfig::connect(daemon.socket(port));
    config.ring_size = 64;
    config.features = F_MRG_RXBUF | F_EVENT_IDX | F_INDIRECT_DESC;
    config
}

pub struct Attacker {
    pub guest: Frontend,
    pub ground: Ground,
    pub port: &'static str,
    pub control: ControlClient,
    pub seen: Violations,
}

impl Attacker {
    pub fn connect(daemon: &Daemon, port: &'static str, config: FrontendConfig) -> Attacker {
        let mut guest = daemon.guest(config);
        // Set-up messages follow each other without waiting; GET_VRING_BASE has an answer anyway.
        guest.set_acknowledged(false).unwrap();
        let mut control = daemon.control();
        let seen = Violations::read(&mut control, port);
        Attacker {
            ground: Ground::new(&guest),
            guest,
            port,
            control,
            seen,
        }
    }

    /// Rings stopped and emptied; what was counted up to now belongs to the attack before.
    pub fn stop(&mut self, base: u16) {
        self.guest.stop_rings(base).unwrap();
        self.seen = Violations::read(&mut self.control, self.port);
    }

    /// Rings stopped and emptied, the attacked one started at `base`, the attack's contents in place before the first kick.
    pub fn carry_out(&mut self, attack: &Attack, base: u16) {
        self.stop(base);
        self.begin(attack, base);
    }

    /// The attacked ring started at `base`, the attack's contents in place before the first kick. Rings are stopped.
    pub fn begin(&mut self, attack: &Attack, base: u16) {
        self.guest.start_only(attack.vring).unwrap();
        for (addr, descriptor) in &attack.elsewhere {
            write_descriptor(self.guest.memory(), *addr, *descriptor);
        }
        let ring = self.guest.ring(attack.vring);
        match attack.avail_jump {
            None => ring.raw_post(base, &attack.chain, &attack.heads),
            Some(jump) => {
                ring.raw_post(base, &attack.chain, &[]);
                ring.raw_avail_entry(base, attack.heads.first().copied().unwrap_or(0));
                ring.raw_avail_idx(base.wrapping_add(jump));
                ring.kick();
            }
        }
    }

    /// Waits until the port has counted one more violation, of `rule` and no other.
    pub fn await_violation(&mut self, rule: &str, feeder: Option<&mut Frontend>, what: &dyn std::fmt::Debug) {
        let deadline = Instant::now() + COUNT_WAIT;
        let mut feeder = feeder;
        loop {
            if let Some(feeder) = &mut feeder {
                feed(feeder, ATTACKER, FEEDER);
            }
            let now = Violations::read(&mut self.control, self.port);
            if now != self.seen {
                // A ring that cannot even start is refused again at the next kick, so there may be more than one.
                let counted = now.of(rule) - self.seen.of(rule);
                assert!(
                    counted > 0,
                    "another rule than {rule} was counted: {now:?} for {what:?}"
                );
                assert_eq!(
                    now.total() - self.seen.total(),
                    counted,
                    "not only {rule}: {now:?} for {what:?}"
                );
                self.seen = now;
                return;
            }
            if Instant::now() > deadline {
                let stats = self.control.port_stats(self.port);
                panic!("{rule} was not counted within 10 s for {what:?}; the port: {stats:?}");
            }
        }
    }

    /// Both rings start anew and receive buffers are posted: a sound guest again.
    pub fn behave(&mut self) {
        self.guest.stop_rings(0).unwrap();
        self.guest.start_only(RX).unwrap();
        self.guest.start_only(TX).unwrap();
        self.guest.pairs[0].rx.post_withheld();
        self.guest.ring(RX).kick();
        self.guest.ring(TX).kick();
    }

    /// One generated attack against `rule`.
    pub fn break_rule(&mut self, rule: &str, seed: &mut Seed, feeder: &mut Frontend) {
        let attack = self.ground.attack(rule, seed);
        let base = seed.pick(&[0, 1, 63, 64, 32_767, 65_472, 65_535, 4321]);
        self.carry_out(&attack, base);
        let feeder = (attack.vring == RX).then_some(feeder);
        self.await_violation(rule, feeder, &(base, &attack));
    }
}
