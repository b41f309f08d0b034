//! The switch that is tested, and its time.

use std::collections::BTreeSet;

use ether::{MacAddr, Time};
use fabric::{DropReason, Egress, Forward, PortId, Switch, SwitchConfig};

use crate::messages::{data, ip};

pub const SECOND: u64 = 1_000_000_000;
pub const SWITCH: MacAddr = MacAddr([2, 0x57, 0x45, 0x46, 0x60, 0]);

pub fn port(number: u16) -> PortId {
    PortId(number)
}

/// A switch that snoops.
pub struct Bench {
    pub switch: Switch,
    pub now: u64,
}

impl Bench {
    /// With so many ports for cards, at a time when everything is known.
    pub fn new(ports: usize) -> Self {
        let mut switch = Switch::new(SwitchConfig::default());
        switch.set_snooping(Some(SWITCH));
        for _ in 0..ports {
            switch.add_port();
        }
        let mut bench = Self { switch, now: 0 };
        for group in ["239.0.0.9", "ff0e::9"] {
            assert_eq!(
                bench.send(0, &data(1, ip(group))).len(),
                ports - 1,
                "nothing is known yet"
            );
        }
        bench.wait(10 * SECOND);
        bench
    }

    /// Lets time go by, with all that the switch sends meanwhile: when, where, and what.
    pub fn wait(&mut self, ns: u64) -> Vec<(u64, Egress, Vec<u8>)> {
        let end = self.now + ns;
        let mut sent = self.polled();
        while let Some(at) = self.switch.next_event().map(Time::as_nanos).filter(|at| *at <= end) {
            self.now = self.now.max(at);
            sent.extend(self.polled());
        }
        self.now = end;
        sent
    }

    fn polled(&mut self) -> Vec<(u64, Egress, Vec<u8>)> {
        let now = Time::from_nanos(self.now);
        self.switch.handle(now);
        let mut sent = Vec::new();
        while let Some((egress, frame)) = self.switch.poll_transmit(now) {
            sent.push((self.now, egress, frame.bytes().to_vec()));
            assert!(sent.len() < 1000, "it never ends");
        }
        sent
    }

    pub fn forward(&mut self, from: u16, frame: &[u8]) -> Forward {
        let now = Time::from_nanos(self.now);
        let first = &frame[..frame.len().min(64)];
        match self.switch.forward(now, port(from), first, frame.len()) {
            Forward::Inspect => self.switch.inspect(now, port(from), frame, frame.len()),
            other => other,
        }
    }

    /// Where a frame goes.
    pub fn send(&mut self, from: u16, frame: &[u8]) -> BTreeSet<Egress> {
        match self.forward(from, frame) {
            Forward::Several => self.switch.targets().iter().map(|target| target.egress).collect(),
            Forward::Drop(DropReason::NoMember) | Forward::Taken => BTreeSet::new(),
            other => panic!("{other:?}"),
        }
    }
}

pub fn local<const N: usize>(ports: [u16; N]) -> BTreeSet<Egress> {
    ports.map(|number| Egress::Local(port(number))).into()
}
