//! A node of the virtual network: an engine, its buffers, and a program that sends what it is told and checks what it gets.

use std::collections::{BTreeMap, VecDeque};

use ether::{MacAddr, Time};
use lci::{BufferId, Config, Engine, Event, GroupId, HEAD_LEN_MAX, PACKET_LEN_MAX};

pub fn mac_of(node: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, node as u8])
}

pub fn config_of(node: usize, nodes: usize) -> Config {
    Config::new(node, (0..nodes).map(mac_of).collect(), 0x1000 + node as u32)
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Node(usize),
    Group(GroupId),
}

/// Packets that a program got, by source and group.
pub type Got = BTreeMap<(usize, Option<GroupId>), u32>;

pub struct Node {
    pub engine: Engine,
    buffers: Vec<[u8; PACKET_LEN_MAX]>,
    /// Packets that are to be sent.
    pub backlog: VecDeque<(Target, usize)>,
    numbers: BTreeMap<Target, u32>,
    /// How many packets came, each checked to be the next one of its source and group.
    pub got: Got,
    pub events: Vec<(Time, Event)>,
    /// The program takes no packets.
    pub deaf: bool,
    /// The program keeps the packets that it takes.
    pub keeps: bool,
    pub kept: Vec<BufferId>,
    /// When the last packet came.
    pub last_at: Time,
}

/// The bytes of a packet: any of them tells where it belongs.
fn fill(source: usize, target: Target, number: u32, bytes: &mut [u8]) {
    let target = match target {
        Target::Node(node) => node as u32,
        Target::Group(group) => group.0 | 1 << 31,
    };
    let mut state = u64::from(number) << 32 | u64::from(target);
    state = (state ^ (source as u64) << 24).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

impl Node {
    pub fn new(config: Config, now: Time) -> Self {
        let engine = Engine::new(config, now).unwrap();
        Self {
            buffers: vec![[0; PACKET_LEN_MAX]; engine.buffers()],
            engine,
            backlog: VecDeque::new(),
            numbers: BTreeMap::new(),
            got: BTreeMap::new(),
            events: Vec::new(),
            deaf: false,
            keeps: false,
            kept: Vec::new(),
            last_at: Time::ZERO,
        }
    }

    pub fn frame(&mut self, now: Time, frame: &[u8]) {
        if let Some((buffer, start, end)) = self.engine.handle(now, frame).store {
            self.buffers[buffer.index()][..end - start].copy_from_slice(&frame[start..end]);
        }
    }

    /// What the program does whenever it runs: it takes packets, and sends what it has to send as long as there are buffers.
    pub fn run(&mut self, now: Time) {
        while let Some(event) = self.engine.poll_event() {
            self.events.push((now, event));
        }
        self.take(now);
        if !self.engine.is_ready() {
            return;
        }
        while let Some((target, length)) = self.backlog.front().copied() {
            let Some(buffer) = self.engine.allocate() else { break };
            self.backlog.pop_front();
            let me = self.engine.me();
            let number = self.numbers.entry(target).or_default();
            fill(me, target, *number, &mut self.buffers[buffer.index()][..length]);
            let launched = match target {
                Target::Node(to) => self.engine.launch_unicast(now, to, buffer, length),
                Target::Group(group) => self.engine.launch_multicast(now, group, buffer, length),
            };
            match launched {
                Ok(()) => *number += 1,
                Err(lci::LaunchError::NodeGone) => assert!(self.engine.release(buffer)),
                Err(error) => panic!("node {me} to {target:?}: {error}"),
            }
        }
        // What the node sent to itself is there at once, and no frame comes that would make the program run again.
        self.take(now);
    }

    fn take(&mut self, now: Time) {
        while !self.deaf
            && let Some(delivery) = self.engine.poll_delivery()
        {
            let me = self.engine.me();
            let target = delivery.group.map_or(Target::Node(me), Target::Group);
            let number = self.got.entry((delivery.source, delivery.group)).or_default();
            let mut expected = [0; PACKET_LEN_MAX];
            fill(delivery.source, target, *number, &mut expected[..delivery.length]);
            assert!(
                self.buffers[delivery.buffer.index()][..delivery.length] == expected[..delivery.length],
                "node {me}: not packet {number} of {} to {target:?}",
                delivery.source
            );
            *number += 1;
            self.last_at = now;
            if self.keeps {
                self.kept.push(delivery.buffer);
            } else {
                assert!(self.engine.release(delivery.buffer));
            }
        }
    }

    pub fn transmit(&mut self, now: Time) -> Option<Vec<u8>> {
        let mut head = [0; HEAD_LEN_MAX];
        let transmit = self.engine.poll_transmit(now, &mut head)?;
        let mut frame = head[..transmit.head_len].to_vec();
        if let Some((buffer, len)) = transmit.payload {
            frame.extend_from_slice(&self.buffers[buffer.index()][..len]);
        }
        frame.resize(frame.len() + transmit.pad_len, 0);
        assert!(frame.len() >= 60);
        Some(frame)
    }

    /// Packets that came from `source` for a group.
    pub fn got_of(&self, source: usize, group: GroupId) -> u32 {
        self.got.get(&(source, Some(group))).copied().unwrap_or_default()
    }

    /// Packets that came from `source` for this node.
    pub fn got_from(&self, source: usize) -> u32 {
        self.got.get(&(source, None)).copied().unwrap_or_default()
    }

    /// Who was removed, and when.
    pub fn removed(&self) -> Vec<(Time, usize, lci::RemovalReason)> {
        let removed = |(at, event): &(Time, Event)| match event {
            Event::Removed { node, reason } => Some((*at, *node, *reason)),
            _ => None,
        };
        self.events.iter().filter_map(removed).collect()
    }

    pub fn count(&self, counter: lci::Counter) -> u64 {
        self.engine.counters().of(counter)
    }
}
