//! Hosts on one Ethernet in virtual time: each host's frames take their time on its cable, cross a switch, and suffer what the faults say.
//! Same seed, same run.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use esp::{
    Config, Engine, Event,
    wire::{Frame, Kind},
};
use ether::{EtherType, MacAddr, Time};

/// Bits per microsecond.
pub const RATE_BITS_PER_US: u64 = 10_000;
/// From one host to another, without the time that its bits take.
pub const LATENCY_NS: u64 = 10_000;
/// Preamble, gap and check sequence of every frame.
const FRAMING_BYTES: u64 = 24;

pub const fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host as u8 + 1])
}

/// What happens to frames, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lose: u64,
    pub duplicate: u64,
    pub reorder: u64,
    /// A frame that is reordered arrives up to this much later.
    pub reorder_ns: u64,
    /// Packets that are marked as some of many arrive so much later.
    pub bulk_ns: u64,
}

/// How many frames of each kind suffered what.
pub type Suffered = BTreeMap<(Kind, &'static str), u64>;

pub struct Host {
    pub engine: Engine,
    pub events: Vec<Event>,
    /// A host that is switched off neither sends nor receives.
    pub off: bool,
    /// Longest frame that its cable carries, Ethernet's header included.
    pub frame_len_max: usize,
    cable_free: Time,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at: Time,
    order: u64,
    to: usize,
    frame: Vec<u8>,
}

pub struct World {
    pub now: Time,
    pub hosts: Vec<Host>,
    pub faults: Faults,
    pub suffered: Suffered,
    /// Frames sent so far, and the one to be dropped.
    pub frames: u64,
    pub drop_frame: Option<u64>,
    /// So many of a thousand frames of open connections have a bit flipped behind Ethernet's header.
    pub flip: u64,
    /// Everything that was sent, if wanted: sender, and bytes.
    pub trace: Option<Vec<(usize, Vec<u8>)>>,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    order: u64,
    random: u64,
    wake: Time,
}

pub fn config(host: usize) -> Config {
    Config::new(mac(host), 1500)
}

impl World {
    /// Hosts with engines of these configurations.
    pub fn new(configs: impl IntoIterator<Item = Config>, seed: u64) -> Self {
        let host = |(number, config): (usize, Config)| Host {
            engine: Engine::new(config, seed * 1_000 + number as u64).unwrap(),
            events: Vec::new(),
            off: false,
            frame_len_max: usize::MAX,
            cable_free: Time::ZERO,
        };
        Self {
            now: Time::from_nanos(1_000_000),
            hosts: configs.into_iter().enumerate().map(host).collect(),
            faults: Faults::default(),
            suffered: Suffered::default(),
            frames: 0,
            drop_frame: None,
            flip: 0,
            trace: None,
            arrivals: BinaryHeap::new(),
            order: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            wake: Time::MAX,
        }
    }

    /// Two hosts with the usual configuration.
    pub fn pair(seed: u64) -> Self {
        Self::new((0..2).map(config), seed)
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

    fn suffers(&mut self, kind: Kind, what: &'static str) {
        *self.suffered.entry((kind, what)).or_default() += 1;
    }

    /// Takes from the engines what they have to send, as far as the cables are free, and their events.
    pub fn collect(&mut self) {
        for host in 0..self.hosts.len() {
            let mut buffer = [0; 9_100];
            while self.hosts[host].off || self.hosts[host].cable_free <= self.now {
                let Some(len) = self.hosts[host].engine.poll_transmit(self.now, &mut buffer) else {
                    break;
                };
                self.transmit(host, &buffer[..len]);
            }
            while let Some(event) = self.hosts[host].engine.poll_event() {
                self.hosts[host].events.push(event);
            }
        }
    }

    fn transmit(&mut self, from: usize, frame: &[u8]) {
        let number = self.frames;
        self.frames += 1;
        if let Some(trace) = &mut self.trace {
            trace.push((from, frame.to_vec()));
        }
        let wire_ns = (frame.len() as u64 + FRAMING_BYTES) * 8 * 1_000 / RATE_BITS_PER_US;
        let sent = self.now.plus_nanos(wire_ns);
        if self.hosts[from].off {
            return;
        }
        self.hosts[from].cable_free = sent;
        let parsed = Frame::parse(frame, EtherType::ESP).expect("an engine sends frames of ESP");
        let kind = parsed.kind;
        if self.drop_frame == Some(number) || self.chance(self.faults.lose) {
            self.suffers(kind, "lost");
            return;
        }
        let bulk_ns = if parsed.header.bulk { self.faults.bulk_ns } else { 0 };
        let mut copies = vec![sent.plus_nanos(LATENCY_NS + bulk_ns)];
        if self.chance(self.faults.duplicate) {
            self.suffers(kind, "duplicated");
            copies.push(copies[0].plus_nanos(wire_ns));
        }
        if self.chance(self.faults.reorder) {
            self.suffers(kind, "reordered");
            let later = self.random(self.faults.reorder_ns);
            copies[0] = copies[0].plus_nanos(later);
        }
        let to = self
            .hosts
            .iter()
            .position(|host| host.engine.config().mac == parsed.destination);
        let Some(to) = to.filter(|to| frame.len() <= self.hosts[from].frame_len_max.min(self.hosts[*to].frame_len_max))
        else {
            return;
        };
        let is_checked = !matches!(kind, Kind::Syn | Kind::SynAck | Kind::Reset);
        let mut frame = frame.to_vec();
        if is_checked && self.chance(self.flip) {
            let bit = self.random(8 * (frame.len() as u64 - 14));
            frame[14 + bit as usize / 8] ^= 1 << (bit % 8);
        }
        for at in copies {
            self.deliver_at(at, to, frame.clone());
        }
    }

    /// Lets a frame arrive at a host.
    pub fn deliver_at(&mut self, at: Time, to: usize, frame: Vec<u8>) {
        self.order += 1;
        self.arrivals.push(Reverse(Arrival {
            at,
            order: self.order,
            to,
            frame,
        }));
    }

    /// Goes on to the next thing that happens before `until`; false if nothing does.
    pub fn step(&mut self, until: Time) -> bool {
        self.collect();
        let mut next = self.arrivals.peek().map_or(Time::MAX, |arrival| arrival.0.at);
        next = next.min(std::mem::replace(&mut self.wake, Time::MAX));
        for host in &mut self.hosts {
            if let Some(due) = host.engine.poll_timeout() {
                next = next.min(due.max(self.now));
            }
            if host.engine.has_output() && !host.off {
                next = next.min(host.cable_free.max(self.now));
            }
        }
        if next > until || next == Time::MAX {
            self.now = until.max(self.now);
            return false;
        }
        self.now = next;
        while self.arrivals.peek().is_some_and(|arrival| arrival.0.at <= self.now) {
            if let Some(Reverse(arrival)) = self.arrivals.pop()
                && !self.hosts[arrival.to].off
            {
                self.hosts[arrival.to].engine.handle(&arrival.frame, self.now);
            }
        }
        for host in &mut self.hosts {
            if host.engine.poll_timeout().is_some_and(|due| due <= self.now) {
                host.engine.handle_timeout(self.now);
            }
        }
        self.collect();
        true
    }

    /// Frames that have not arrived never do.
    pub fn lose_all_on_their_way(&mut self) {
        self.arrivals.clear();
    }

    /// Makes sure that something happens within so long.
    pub fn tick(&mut self, ns: u64) {
        self.wake = self.now.plus_nanos(ns);
    }

    /// Runs for so long.
    pub fn run_ns(&mut self, ns: u64) {
        let until = self.now.plus_nanos(ns);
        while self.step(until) {}
    }

    /// Runs until `done`, for at most `limit_ns`; whether it was done.
    pub fn run_until(&mut self, limit_ns: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let until = self.now.plus_nanos(limit_ns);
        loop {
            if done(self) {
                return true;
            }
            if !self.step(until) {
                return done(self);
            }
        }
    }
}
