//! A network in virtual time: each node's frames take their time on its cable, and suffer what the faults say. Same seed, same run.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
};

use ether::Time;
use lci::{Config, Event, GroupId, Nodes};

use super::{
    card::Card,
    node::{Node, config_of, mac_of},
};

/// From one card to another.
const LATENCY_NS: u64 = 10_000;
/// A gigabit per second.
const NS_PER_BYTE: u64 = 8;

/// What happens to frames, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lose: u64,
    pub duplicate: u64,
    pub reorder: u64,
    /// A frame that is reordered arrives up to this much later.
    pub reorder_ns: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrive { to: usize, frame: Vec<u8> },
    CableFree { node: usize },
    Timer { node: usize },
    CardTimer { node: usize },
}

pub struct World {
    pub now: Time,
    pub nodes: Vec<Node>,
    /// The cards of the nodes, where their policy uses them.
    pub cards: Vec<Card>,
    events: BinaryHeap<Reverse<(Time, u64, What)>>,
    order: u64,
    cable_busy: Vec<bool>,
    timer_at: Vec<Time>,
    pub faults: Faults,
    pub lost: u64,
    /// Nodes that neither send nor receive.
    pub off: Vec<bool>,
    /// Nodes that compute: frames wait for them until they are taken out.
    pub computing: Vec<Option<Vec<Vec<u8>>>>,
    /// Frames that a node has no room for yet.
    inbox: Vec<VecDeque<Vec<u8>>>,
    /// Frames from the first to the second are lost.
    pub cut: BTreeSet<(usize, usize)>,
    /// Everything that was sent, if wanted.
    pub trace: Option<Vec<Vec<u8>>>,
    random: u64,
}

impl World {
    pub fn new(nodes: usize, seed: u64) -> Self {
        Self::with(nodes, seed, |_| {})
    }

    pub fn with(nodes: usize, seed: u64, change: impl Fn(&mut Config)) -> Self {
        Self::cut_off(nodes, seed, &[], change)
    }

    /// A world in which frames from the first to the second of each pair are lost from the beginning.
    pub fn cut_off(nodes: usize, seed: u64, cut: &[(usize, usize)], change: impl Fn(&mut Config)) -> Self {
        let node = |me| {
            let mut config = config_of(me, nodes);
            change(&mut config);
            Node::new(config, Time::ZERO)
        };
        let list: Vec<_> = (0..nodes).map(node).collect();
        let group = list[0].engine.config().card_group();
        let card = |group| (0..nodes).map(|own| Card::new(own, nodes, group)).collect();
        let mut world = Self {
            now: Time::ZERO,
            nodes: list,
            cards: group.map(card).unwrap_or_default(),
            events: BinaryHeap::new(),
            order: 0,
            cable_busy: vec![false; nodes],
            timer_at: vec![Time::MAX; nodes],
            faults: Faults::default(),
            lost: 0,
            off: vec![false; nodes],
            computing: vec![None; nodes],
            inbox: vec![VecDeque::new(); nodes],
            cut: cut.iter().copied().collect(),
            trace: None,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        for node in 0..nodes {
            world.kick(node);
        }
        world
    }

    /// A world whose nodes have all heard of each other.
    pub fn ready(nodes: usize, seed: u64) -> Self {
        let mut world = Self::new(nodes, seed);
        world.await_ready();
        world
    }

    pub fn await_ready(&mut self) {
        let ready = |world: &mut Self| world.nodes.iter().all(|node| node.engine.is_ready());
        assert!(self.run(5_000_000_000, ready), "all nodes hear of each other");
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

    /// The program of a node runs, and its cable takes what is to be sent.
    pub fn kick(&mut self, node: usize) {
        if self.off[node] || self.computing[node].is_some() {
            return;
        }
        let now = self.now;
        while self.nodes[node].engine.can_receive()
            && let Some(frame) = self.inbox[node].pop_front()
        {
            self.nodes[node].frame(now, &frame);
            self.nodes[node].run(now);
        }
        self.take_from_card(node);
        self.nodes[node].run(now);
        if !self.cable_busy[node] {
            self.send_next(node);
        }
        let due = self.nodes[node].engine.poll_timeout();
        if due < self.timer_at[node] {
            self.timer_at[node] = due;
            self.push(due.max(now), What::Timer { node });
        }
    }

    /// A node takes what its card has for it, as long as it has room.
    fn take_from_card(&mut self, node: usize) {
        let now = self.now;
        while !self.cards.is_empty() && self.nodes[node].engine.can_receive() {
            let Some(frame) = self.cards[node].give(now) else { break };
            self.serve_card(node);
            self.nodes[node].frame(now, &frame);
            self.nodes[node].run(now);
        }
    }

    /// Frames of a card go to others; each arrives, because no link between cards loses any.
    fn serve_card(&mut self, node: usize) {
        let now = self.now;
        for frame in std::mem::take(&mut self.cards[node].out) {
            let at = now.plus_nanos(LATENCY_NS);
            for to in 0..self.nodes.len() {
                if mac_of(to).0 == frame[..6] {
                    self.push(
                        at,
                        What::Arrive {
                            to,
                            frame: frame.clone(),
                        },
                    );
                }
            }
        }
        let next = self.cards[node].multicast.next_event();
        if let Some(due) = next.filter(|due| *due < self.cards[node].timer_at) {
            self.cards[node].timer_at = due;
            self.push(due.max(now), What::CardTimer { node });
        }
    }

    fn send_next(&mut self, node: usize) {
        let now = self.now;
        let Some(frame) = self.nodes[node].transmit(now) else {
            return;
        };
        // A launch that waited for a buffer may go on: one is free once its frames were taken by a network that loses nothing.
        self.nodes[node].run(now);
        self.cable_busy[node] = true;
        let free = now.plus_nanos((frame.len() as u64 + 24) * NS_PER_BYTE);
        self.push(free, What::CableFree { node });
        if let Some(trace) = &mut self.trace {
            trace.push(frame.clone());
        }
        if firmware::multicast::is_card_frame(&frame) {
            assert!(
                self.cards[node].send(now, frame),
                "the card has room for what the engine sends"
            );
            self.serve_card(node);
            return;
        }
        let to = (0..self.nodes.len())
            .find(|to| mac_of(*to).0 == frame[..6])
            .expect("a node's address");
        if self.cut.contains(&(node, to)) || self.chance(self.faults.lose) {
            self.lost += 1;
            return;
        }
        let mut at = free.plus_nanos(LATENCY_NS);
        if self.chance(self.faults.duplicate) {
            let later = at.plus_nanos(self.random(300_000));
            self.push(
                later,
                What::Arrive {
                    to,
                    frame: frame.clone(),
                },
            );
        }
        if self.chance(self.faults.reorder) {
            at = at.plus_nanos(self.random(self.faults.reorder_ns));
        }
        self.push(at, What::Arrive { to, frame });
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
                What::Arrive { to, frame } if firmware::multicast::is_card_frame(&frame) => {
                    self.cards[to].receive(at, frame);
                    self.serve_card(to);
                    self.kick(to);
                }
                What::CardTimer { node } => {
                    self.cards[node].timer_at = Time::MAX;
                    self.cards[node].act(at);
                    self.serve_card(node);
                    self.kick(node);
                }
                What::Arrive { to, frame } => {
                    if let Some(waiting) = &mut self.computing[to] {
                        waiting.push(frame);
                    } else if !self.off[to] {
                        self.inbox[to].push_back(frame);
                        self.kick(to);
                    }
                }
                What::CableFree { node } => {
                    self.cable_busy[node] = false;
                    self.kick(node);
                }
                What::Timer { node } => {
                    self.timer_at[node] = Time::MAX;
                    if !self.off[node] && self.computing[node].is_none() {
                        self.nodes[node].engine.handle_timeout(at);
                        self.kick(node);
                    }
                }
            }
        }
    }

    /// The program of a node computes: it neither polls nor takes interrupts.
    pub fn compute(&mut self, node: usize) {
        self.computing[node] = Some(Vec::new());
    }

    /// It has computed: it reads what came meanwhile, and looks at its clock.
    pub fn computed(&mut self, node: usize) {
        let now = self.now;
        for frame in self.computing[node].take().unwrap_or_default() {
            self.nodes[node].frame(now, &frame);
        }
        self.nodes[node].engine.handle_timeout(now);
        self.kick(node);
    }

    /// Runs until no node that is on has anything to do.
    pub fn settle(&mut self, limit_ns: u64) -> bool {
        self.run(limit_ns, |world| {
            let on = world.nodes.iter().zip(&world.off).filter(|(_, off)| !**off);
            on.clone()
                .all(|(node, _)| node.engine.is_idle() && node.backlog.is_empty())
                && world.cards.iter().all(|card| card.multicast.buffers_in_use() == 0)
                && !world.is_between_cards()
        })
    }

    /// Whether a frame is on its path from one card to another.
    fn is_between_cards(&self) -> bool {
        let is_of_cards =
            |what: &What| matches!(what, What::Arrive { frame, .. } if firmware::multicast::is_card_frame(frame));
        self.events.iter().any(|Reverse((.., what))| is_of_cards(what))
    }

    /// All members create a group.
    pub fn group(&mut self, members: &[usize]) -> GroupId {
        let set = Nodes::of(members.iter().copied()).unwrap();
        let count = |node: &Node| {
            let created =
                |(_, event): &&(Time, Event)| matches!(event, Event::GroupCreated { members, .. } if *members == set);
            node.events.iter().filter(created).count()
        };
        let before = count(&self.nodes[members[0]]);
        for member in members {
            self.nodes[*member].engine.create_group(set).unwrap();
            self.kick(*member);
        }
        let created = self.run(5_000_000_000, |world| {
            members.iter().all(|member| count(&world.nodes[*member]) > before)
        });
        assert!(created, "all members create the group");
        let last = |node: &Node| {
            let mut events = node.events.iter().rev();
            events.find_map(|(_, event)| match event {
                Event::GroupCreated { group, members } if *members == set => Some(*group),
                _ => None,
            })
        };
        let ids: BTreeSet<_> = members.iter().map(|member| last(&self.nodes[*member])).collect();
        assert_eq!(ids.len(), 1, "the same name everywhere");
        ids.into_iter().next().flatten().unwrap()
    }

    /// What every engine counted: for the message of a failed assertion.
    pub fn report(&self) -> String {
        use std::fmt::Write;
        let mut text = format!("at {}", self.now);
        for (at, node) in self.nodes.iter().enumerate() {
            write!(
                text,
                "\nnode {at}: idle {} backlog {} got {:?}",
                node.engine.is_idle(),
                node.backlog.len(),
                node.got
            )
            .unwrap();
            for (counter, count) in node.engine.counters().iter().filter(|(_, count)| *count > 0) {
                write!(text, " {} {count}", counter.name()).unwrap();
            }
        }
        text
    }
}
