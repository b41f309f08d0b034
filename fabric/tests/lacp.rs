//! LACP: two switches, with two cables between them, as each other's partner.

mod common;

use common::{header, station};
use ether::{MacAddr, Time};
use fabric::{DropReason, Egress, Forward, PortId, Switch, SwitchConfig};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const ADDRESSES: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 1, 0]), MacAddr([2, 0, 0, 0, 1, 1])];

/// Two switches. Ports 0 and 1 are joined to those of the other one, a station is at port 2.
struct Pair {
    switches: [Switch; 2],
    /// Whether each of the two speaks.
    speaks: [bool; 2],
    now: u64,
    /// LACPDUs that each has sent.
    sent: [u64; 2],
}

impl Pair {
    fn new() -> Self {
        let switches = ADDRESSES.map(|address| {
            let mut switch = Switch::new(SwitchConfig::default());
            for port in 0..3 {
                switch.add_port();
                if port < 2 {
                    switch.set_lacp(PortId(port), 7, address);
                }
            }
            switch
        });
        Self {
            switches,
            speaks: [true; 2],
            now: 0,
            sent: [0; 2],
        }
    }

    /// Lets so much time go by.
    fn wait(&mut self, ns: u64) {
        let end = self.now + ns;
        loop {
            self.exchange();
            let next = self
                .switches
                .iter()
                .filter_map(Switch::next_event)
                .map(Time::as_nanos)
                .min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
        }
        self.now = end;
    }

    fn exchange(&mut self) {
        let now = Time::from_nanos(self.now);
        let mut quiet = 0;
        while quiet < 2 {
            quiet = 0;
            for from in 0..2 {
                self.switches[from].handle(now);
                let Some((Egress::Local(port), frame)) = self.switches[from].poll_transmit(now) else {
                    quiet += 1;
                    continue;
                };
                assert_eq!(frame.bytes().len(), 124);
                self.sent[from] += 1;
                if self.speaks[from] && self.is_joined(port) {
                    let heard = self.switches[1 - from].forward(now, port, &frame.bytes()[..64], 124);
                    assert_eq!(heard, Forward::Taken);
                }
            }
        }
    }

    fn is_joined(&self, port: PortId) -> bool {
        self.switches.iter().all(|switch| switch.is_port_up(port))
    }

    fn pull(&mut self, port: u16, up: bool) {
        for switch in &mut self.switches {
            switch.set_port_up(PortId(port), up);
        }
    }

    fn bundles(&self) -> [&[PortId]; 2] {
        [0, 1].map(|at| self.switches[at].aggregate_of(PortId(0)))
    }

    /// By how many of the two cables a broadcast of the station at switch `from` leaves.
    fn paths(&mut self, from: usize) -> usize {
        let frame = header(MacAddr::BROADCAST, station(from as u8));
        let now = Time::from_nanos(self.now);
        let switch = &mut self.switches[from];
        match switch.forward(now, PortId(2), &frame, 60) {
            Forward::Several => switch.targets().len(),
            forward => switch.flood_targets(PortId(2), forward).count(),
        }
    }
}

const BOTH: &[PortId] = &[PortId(0), PortId(1)];

#[test]
fn ports_to_one_partner_are_bundled_and_a_pulled_cable_leaves_the_bundle_at_once() {
    let mut pair = Pair::new();
    assert_eq!(pair.paths(0), 2, "each is a port by itself");
    pair.wait(SECOND / 10);
    assert_eq!(pair.bundles(), [BOTH; 2]);
    assert_eq!([pair.paths(0), pair.paths(1)], [1, 1]);
    for cable in [0, 1] {
        pair.pull(cable, false);
        assert_eq!([pair.paths(0), pair.paths(1)], [1, 1], "cable {cable} is pulled");
        pair.wait(10 * SECOND);
        assert_eq!([pair.paths(0), pair.paths(1)], [1, 1]);
        pair.pull(cable, true);
        pair.wait(2 * SECOND);
        assert_eq!(pair.switches[0].aggregate_of(PortId(0)).len(), 2);
        assert_eq!(pair.switches[1].aggregate_of(PortId(1)).len(), 2);
        assert_eq!([pair.paths(0), pair.paths(1)], [1, 1]);
    }
    let before = pair.sent;
    pair.wait(100 * SECOND);
    for (before, after) in before.into_iter().zip(pair.sent) {
        assert!((195..=205).contains(&(after - before)), "one a second and port");
    }
}

#[test]
fn a_partner_that_falls_silent_is_waited_for_and_then_the_ports_are_like_any_other() {
    let mut pair = Pair::new();
    pair.wait(5 * SECOND);
    pair.speaks[1] = false;
    pair.wait(2 * SECOND);
    assert_eq!(pair.paths(0), 1, "it is believed for three seconds");
    pair.wait(2 * SECOND);
    assert_eq!(pair.paths(0), 0, "both ports are closed");
    let frame = header(MacAddr::BROADCAST, station(9));
    let now = Time::from_nanos(pair.now);
    let refused = pair.switches[0].forward(now, PortId(1), &frame, 60);
    assert_eq!(refused, Forward::Drop(DropReason::Discarding));
    pair.wait(4 * SECOND);
    assert_eq!(pair.paths(0), 2);
    assert!(pair.bundles()[0].is_empty());
    pair.speaks[1] = true;
    pair.wait(2 * SECOND);
    assert_eq!(pair.bundles(), [BOTH; 2]);
}

#[test]
fn ports_of_two_partners_or_of_two_keys_are_not_bundled() {
    let mut pair = Pair::new();
    pair.switches[1].set_lacp(PortId(1), 8, ADDRESSES[1]);
    pair.wait(5 * SECOND);
    assert!(pair.bundles().iter().all(|bundle| bundle.is_empty()));
    assert_eq!([pair.paths(0), pair.paths(1)], [2, 2], "each carries frames by itself");
}

#[test]
fn lacpdus_end_at_a_switch_that_forwards_reserved_addresses_and_at_no_port_that_speaks_none() {
    let mut pair = Pair::new();
    pair.switches
        .iter_mut()
        .for_each(|switch| switch.set_forwards_reserved(true));
    pair.wait(SECOND);
    assert_eq!(pair.bundles(), [BOTH; 2]);
    let mut lacpdu = [0; 64];
    lacpdu[..20].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0, 9, 0x88, 9, 1, 1, 1, 20, 0, 0]);
    let now = Time::from_nanos(pair.now);
    assert_eq!(pair.switches[0].forward(now, PortId(2), &lacpdu, 124), Forward::Several);
}

proptest! {
    #[test]
    fn whatever_a_partner_says_a_port_sends_no_more_than_three_a_second(
        noise in prop::collection::vec((0..2u16, prop::collection::vec(any::<u8>(), 0..48), 0..SECOND / 4), 1..60),
    ) {
        let mut pair = Pair::new();
        pair.speaks = [false; 2];
        let began = pair.sent[0];
        for (port, bytes, ns) in noise {
            let head = [1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0, 9, 0x88, 9, 1, 1, 1, 20];
            let frame = [&head[..], &bytes].concat();
            let now = Time::from_nanos(pair.now);
            prop_assert_eq!(pair.switches[0].forward(now, PortId(port), &frame, frame.len()), Forward::Taken);
            pair.wait(ns);
        }
        let most = 2 * 3 * (pair.now / SECOND + 2);
        prop_assert!(pair.sent[0] - began <= most, "{} of {most}", pair.sent[0] - began);
    }
}
