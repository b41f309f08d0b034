//! A star of links in virtual time: each node's frames take their time on its cable, cross a switch, wait in the queue of
//! the destination's port, and suffer what the faults say. Same seed, same run.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use ether::Time;
use fabric::{Admission, Link};
use mxoe::{engine::PartnerId, wire::PacketType};

use super::node::{Node, mac_of};

/// Bits per nanosecond times 1.
const RATE_BITS_PER_US: u64 = 10_000;
/// From card to switch, and from switch to card.
const HALF_LATENCY_NS: u64 = 5_000;
/// Preamble, gap and check sequence of every frame.
const FRAMING_BYTES: u64 = 24;

/// What happens to frames, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lose: u64,
    pub duplicate: u64,
    pub reorder: u64,
    /// A frame that is reordered arrives up to this much later.
    pub reorder_ns: u64,
}

/// What happened, by packet type.
#[derive(Clone, Debug, Default)]
pub struct Suffered {
    pub lost: BTreeMap<PacketType, u64>,
    pub duplicated: BTreeMap<PacketType, u64>,
    pub reordered: BTreeMap<PacketType, u64>,
}

impl Suffered {
    pub fn add(&mut self, more: &Self) {
        for (into, more) in [
            (&mut self.lost, &more.lost),
            (&mut self.duplicated, &more.duplicated),
            (&mut self.reordered, &more.reordered),
        ] {
            for (kind, count) in more {
                *into.entry(*kind).or_default() += count;
            }
        }
    }

    /// Each of these types was lost, duplicated and reordered at least once: else a test proves less than it says.
    #[track_caller]
    pub fn assert_each_of(&self, kinds: &[PacketType]) {
        for kind in kinds {
            for (what, counts) in [
                ("lost", &self.lost),
                ("duplicated", &self.duplicated),
                ("reordered", &self.reordered),
            ] {
                assert!(counts.get(kind).is_some_and(|count| *count > 0), "no {kind} was {what}");
            }
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    AtSwitch { to: usize, frame: Vec<u8> },
    Arrive { to: usize, frame: Vec<u8> },
    CableFree { node: usize },
    Timer { node: usize },
}

/// The cable, the timer and the switch's port of each node.
struct Stations {
    cable_busy: Vec<bool>,
    timer_at: Vec<Time>,
    port_free: Vec<Time>,
    /// Frames that have arrived at a node whose process does not run.
    asleep: Vec<Option<Vec<Vec<u8>>>>,
}

pub struct World {
    pub now: Time,
    pub nodes: Vec<Node>,
    events: BinaryHeap<Reverse<(Time, u64, What)>>,
    order: u64,
    stations: Stations,
    /// Bytes a port of the switch can hold.
    pub port_bytes_max: u64,
    pub overflows: u64,
    pub faults: Faults,
    /// A link of the fabric that every frame passes as well, for the bits it flips.
    pub link: Option<Link>,
    pub suffered: Suffered,
    /// Frames sent so far, and the one to be dropped.
    pub frames: u64,
    pub drop_frame: Option<u64>,
    /// Everything that was sent, if wanted.
    pub trace: Option<Vec<Vec<u8>>>,
    /// A node that is switched off neither sends nor receives.
    pub off: Vec<bool>,
    random: u64,
}

impl World {
    pub fn new(mut nodes: Vec<Node>, seed: u64) -> Self {
        let count = nodes.len();
        for node in nodes.iter_mut().skip(1).step_by(2) {
            node.lazy = true;
        }
        Self {
            now: Time::ZERO,
            nodes,
            events: BinaryHeap::new(),
            order: 0,
            stations: Stations {
                cable_busy: vec![false; count],
                timer_at: vec![Time::MAX; count],
                port_free: vec![Time::ZERO; count],
                asleep: vec![None; count],
            },
            port_bytes_max: u64::MAX,
            overflows: 0,
            faults: Faults::default(),
            link: None,
            suffered: Suffered::default(),
            frames: 0,
            drop_frame: None,
            trace: None,
            off: vec![false; count],
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    fn chance(&mut self, per_thousand: u64) -> bool {
        per_thousand > 0 && self.random(1_000) < per_thousand
    }

    fn push(&mut self, at: Time, what: What) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, what)));
    }

    /// Connects `from` to `to` and waits for it.
    pub fn connect(&mut self, from: usize, to: usize) -> PartnerId {
        let now = self.now;
        let partner = self.nodes[from].engine.connect(now, mac_of(to), 1, 0, 0).unwrap();
        let before = self.nodes[from].connected.len();
        self.kick(from);
        self.run(20_000_000_000, |world| world.nodes[from].connected.len() > before);
        assert_eq!(
            self.nodes[from].connected.last().unwrap().1,
            mxoe::engine::Status::Success
        );
        partner
    }

    /// The program of a node did something: its engine may want to send.
    pub fn kick(&mut self, node: usize) {
        let now = self.now;
        if !self.nodes[node].lazy {
            self.nodes[node].events(now);
        }
        if !self.stations.cable_busy[node] {
            self.send_next(node);
        }
        let due = self.nodes[node].due().unwrap_or(Time::MAX);
        if due < self.stations.timer_at[node] {
            self.stations.timer_at[node] = due;
            self.push(due.max(now), What::Timer { node });
        }
    }

    fn send_next(&mut self, node: usize) {
        if self.off[node] || self.stations.asleep[node].is_some() {
            return;
        }
        let now = self.now;
        let mut frame = self.nodes[node].transmit(now);
        if frame.is_none() && self.nodes[node].lazy {
            self.nodes[node].events(now);
            frame = self.nodes[node].transmit(now);
        }
        let Some(mut frame) = frame else {
            self.stations.cable_busy[node] = false;
            return;
        };
        self.stations.cable_busy[node] = true;
        let free = now.plus_nanos(wire_ns(&frame));
        self.push(free, What::CableFree { node });
        self.frames += 1;
        if let Some(trace) = &mut self.trace {
            trace.push(frame.clone());
        }
        let kind = PacketType::from_code(frame[16] & 0x7f).expect("engines send known types");
        if self.drop_frame == Some(self.frames) || self.chance(self.faults.lose) {
            *self.suffered.lost.entry(kind).or_default() += 1;
            return;
        }
        if let Some(link) = &mut self.link
            && let Admission::Deliver {
                corrupt_bit: Some(bit), ..
            } = link.admit(now, frame.len())
        {
            frame[bit as usize / 8] ^= 1 << (bit % 8);
        }
        let Some(to) = (0..self.nodes.len()).find(|to| mac_of(*to).0 == frame[..6]) else {
            return;
        };
        let mut at = free.plus_nanos(HALF_LATENCY_NS);
        if self.chance(self.faults.duplicate) {
            *self.suffered.duplicated.entry(kind).or_default() += 1;
            let later = at.plus_nanos(self.random(40_000));
            let frame = frame.clone();
            self.push(later, What::AtSwitch { to, frame });
        }
        if self.chance(self.faults.reorder) {
            *self.suffered.reordered.entry(kind).or_default() += 1;
            let late = self.random(self.faults.reorder_ns);
            at = at.plus_nanos(late);
        }
        self.push(at, What::AtSwitch { to, frame });
    }

    /// Runs until `done` says so or `limit_ns` have passed; returns whether it was done.
    pub fn run(&mut self, limit_ns: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now.plus_nanos(limit_ns);
        loop {
            if done(self) {
                return true;
            }
            if self.events.peek().is_none_or(|Reverse((at, ..))| *at > end) {
                self.now = end;
                return done(self);
            }
            let Some(Reverse((at, _, what))) = self.events.pop() else {
                return false;
            };
            self.now = at;
            match what {
                What::AtSwitch { to, frame } => {
                    let waiting = self.stations.port_free[to].nanos_since(at) * RATE_BITS_PER_US / 8_000;
                    if waiting + frame.len() as u64 > self.port_bytes_max {
                        self.overflows += 1;
                        continue;
                    }
                    let free = self.stations.port_free[to].max(at).plus_nanos(wire_ns(&frame));
                    self.stations.port_free[to] = free;
                    self.push(free.plus_nanos(HALF_LATENCY_NS), What::Arrive { to, frame });
                }
                What::Arrive { to, frame } => {
                    if let Some(frames) = &mut self.stations.asleep[to] {
                        frames.push(frame);
                    } else if !self.off[to] {
                        self.nodes[to].frame(at, &frame);
                        self.kick(to);
                    }
                }
                What::CableFree { node } => {
                    self.stations.cable_busy[node] = false;
                    self.kick(node);
                }
                What::Timer { node } => {
                    self.stations.timer_at[node] = Time::MAX;
                    if !self.off[node] && self.stations.asleep[node].is_none() {
                        self.nodes[node].timeout(at);
                        self.kick(node);
                    }
                }
            }
        }
    }

    /// The process of a node does not run any more.
    pub fn sleep(&mut self, node: usize) {
        self.stations.asleep[node].get_or_insert_default();
    }

    /// The process of a node runs again: as a driver does, it takes some frames at a time, and then does what is due.
    pub fn wake(&mut self, node: usize) {
        let now = self.now;
        let frames = self.stations.asleep[node].take().unwrap_or_default();
        for some in frames.chunks(32) {
            some.iter().for_each(|frame| self.nodes[node].frame(now, frame));
            self.nodes[node].timeout(now);
            self.kick(node);
        }
        self.nodes[node].timeout(now);
        self.kick(node);
    }

    /// What every engine counted: for the message of a failed assertion.
    pub fn report(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for (at, node) in self.nodes.iter().enumerate() {
            write!(text, "\nnode {at}:").unwrap();
            for (counter, count) in node.engine.counters().nonzero() {
                write!(text, " {} {count}", counter.name()).unwrap();
            }
            for partner in node.engine.partners() {
                write!(text, "\n  {:?}", node.engine.partner(partner)).unwrap();
            }
        }
        text
    }

    /// Runs until no node has anything to do.
    pub fn settle(&mut self, limit_ns: u64) -> bool {
        let done = self.run(limit_ns, |world| {
            let off = world.off.clone();
            world
                .nodes
                .iter()
                .zip(off)
                .all(|(node, off)| off || node.engine.is_idle())
        });
        let now = self.now;
        for node in self.nodes.iter_mut().filter(|node| node.lazy) {
            node.events(now);
        }
        done
    }
}

fn wire_ns(frame: &[u8]) -> u64 {
    (frame.len() as u64 + FRAMING_BYTES) * 8_000 / RATE_BITS_PER_US
}
