//! Rings that have run and are given to another `vnicd` with a wrong base: DPDK's virtio-user as a server sends SET_VRING_BASE 0 for
//! each. The used index says where to go on: no frame comes twice, none is left lying, and no receive buffer is lost.

use std::time::{Duration, Instant};

use ether::MacAddr;
use weft_vnic_testkit::{Frontend, FrontendConfig, Numbered, Tracker};

use crate::daemon::{Daemon, introduce};

const SENDER: MacAddr = MacAddr([2, 0, 0, 0, 6, 0x0a]);
const RECEIVER: MacAddr = MacAddr([2, 0, 0, 0, 6, 0x0b]);
/// Entries of every ring.
const SIZE: u16 = 16;
/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(10);
const WARNING: &str = "it goes on from the used index";

/// Two guests, and what the one has sent to the other.
struct Pair {
    daemon: Daemon,
    sender: Frontend,
    receiver: Frontend,
    sent: u64,
    tracker: Tracker,
}

const PORTS: [&str; 2] = ["sender", "receiver"];

impl Pair {
    /// Guests whose rings stand `before_wrap` entries before their indices begin anew, or have never run.
    fn new(before_wrap: u16) -> Pair {
        let daemon = Daemon::start(&PORTS);
        let [mut sender, mut receiver] = PORTS.map(|port| {
            let mut config = FrontendConfig::connect(daemon.socket(port));
            config.ring_size = SIZE;
            let mut guest = Frontend::build(config).unwrap();
            guest.pairs[0].rx.reset(before_wrap.wrapping_neg());
            guest.pairs[0].tx.reset(before_wrap.wrapping_neg());
            guest.connect().unwrap();
            guest
        });
        introduce(&mut sender, SENDER, &mut receiver, RECEIVER);
        let mut pair = Pair {
            daemon,
            sender,
            receiver,
            sent: 0,
            tracker: Tracker::new(6),
        };
        pair.await_that("what introduced them is through", |pair| {
            pair.receiver.pairs[0].rx.poll(64, |_, _| {});
            pair.sender.pairs[0].rx.poll(64, |_, _| {});
            pair.sender.pairs[0].tx.free() == SIZE && pair.receiver.pairs[0].tx.free() == SIZE
        });
        pair.receiver.pairs[0].rx.poll(64, |_, _| {});
        pair.sender.pairs[0].rx.poll(64, |_, _| {});
        pair
    }

    fn await_that(&mut self, what: &str, mut is_so: impl FnMut(&mut Pair) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(
                Instant::now() < deadline,
                "not in time: {what}; vnicd says:\n{}",
                self.daemon.log()
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn send(&mut self, count: u16) {
        for _ in 0..count {
            let mut frame = [0; 300];
            let numbered = Numbered {
                stream: 6,
                sequence: self.sent,
            };
            numbered.write(&mut frame, RECEIVER, SENDER);
            assert!(self.sender.pairs[0].tx.send(&frame), "the ring is full");
            self.sent += 1;
        }
    }

    fn poll(&mut self) {
        self.receiver.pairs[0].rx.poll(64, |_, frame| self.tracker.note(frame));
    }

    /// `vnicd` is killed and another one started, to which both come with `base`. Meanwhile the sender queues so many frames.
    fn replace(&mut self, base: u16, queued: u16) {
        self.daemon.service.kill().unwrap();
        self.send(queued);
        self.daemon.service = Daemon::spawn(&self.daemon.folder, &PORTS, &[]);
        for guest in [&mut self.receiver, &mut self.sender] {
            guest.give_base(Some(base));
        }
        // The receiver's ring is there before the first frame is taken for it.
        self.receiver.reconnect().unwrap();
        self.await_that("the receiver's rings run", |pair| {
            let info = pair.daemon.control().request("info", serde_json::json!({})).unwrap();
            info["ports"][1]["rings_started"] == 2
        });
    }

    /// All that was sent has come once and in order, and then as many frames as the receiver has buffers.
    fn check(&mut self, state: &str) {
        self.poll();
        self.sender.reconnect().unwrap();
        self.await_that("what was queued arrives", |pair| {
            pair.poll();
            pair.tracker.unique == pair.sent && pair.sender.pairs[0].tx.free() == SIZE
        });
        self.poll();
        self.send(SIZE);
        self.await_that("every buffer is filled", |pair| {
            pair.receiver.pairs[0].rx.pending() == SIZE
        });
        self.poll();
        assert!(
            self.tracker.is_perfect(self.sent),
            "{state}: {:?}",
            (self.tracker.unique, self.tracker.repeated)
        );
        let mut control = self.daemon.control();
        for port in PORTS {
            let stats = control.port_stats(port).unwrap();
            let broken = stats["rule_violations"].as_object().unwrap().values();
            assert!(broken.clone().all(|count| count == 0), "{state}: {stats}");
        }
    }
}

#[test]
fn a_ring_goes_on_at_its_used_index_whatever_base_is_given() {
    // The indices begin anew before, at and behind what is queued, or nowhere near.
    for before_wrap in [0, 1, 3, SIZE / 2, SIZE, 2 * SIZE] {
        let mut pair = Pair::new(before_wrap);
        for (unpolled, queued) in [(0, 0), (1, SIZE), (SIZE, 1), (SIZE / 2, SIZE / 2), (SIZE, SIZE)] {
            pair.send(unpolled);
            pair.await_that("frames wait to be polled", |pair| {
                pair.receiver.pairs[0].rx.pending() == unpolled && pair.sender.pairs[0].tx.free() == SIZE
            });
            let used = pair.sender.ring(1).used_idx();
            let bases = [0, used.wrapping_sub(1), used.wrapping_add(queued), used ^ 0x8000];
            let base = bases[usize::from(before_wrap + unpolled) % bases.len()];
            pair.replace(base, queued);
            pair.check(&format!(
                "{before_wrap} before the wrap, {unpolled} unpolled, {queued} queued, base {base}"
            ));
        }
        drop((pair.sender, pair.receiver));
        pair.daemon.finish();
    }
}

#[test]
fn a_wrong_base_is_told_once_for_each_port_and_a_right_one_not_at_all() {
    let mut pair = Pair::new(0);
    pair.replace(0, SIZE);
    pair.check("base 0");
    for port in PORTS {
        let lines = pair.daemon.log();
        let warnings = lines
            .lines()
            .filter(|line| line.contains(WARNING) && line.contains(&format!("port={port}")));
        assert_eq!(warnings.count(), 1, "{port}: {lines}");
    }
    let Pair {
        daemon,
        mut sender,
        receiver,
        ..
    } = pair;
    sender.give_base(None);
    sender.reconnect().unwrap();
    assert_eq!(daemon.log().matches(WARNING).count(), PORTS.len());
    drop((sender, receiver));
    daemon.finish();
}
