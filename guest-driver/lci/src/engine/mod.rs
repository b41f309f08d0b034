//! The protocol of one node: frames and the time go in; frames, packets and events come out.
//!
//! `handle` is what frames do, `accept` what they carry, `launch` what the program sends, `output` what goes out, `time` what is due,
//! `membership` who is there, and `creation` groups. Each part's own state is in the modules beside this folder.

mod accept;
mod creation;
mod handle;
mod launch;
mod membership;
mod output;
mod time;

use alloc::{boxed::Box, collections::VecDeque};

use ether::Time;

use self::membership::Leaving;
pub use self::{
    handle::Handled,
    launch::LaunchError,
    output::{HEAD_LEN_MAX, Transmit},
};
use crate::{
    BufferId, Config, ConfigError, Counters, Event, GroupId, Nodes, Policy, SEND_BUFFERS,
    buffers::Buffers,
    card::CardLink,
    deadlines::Deadlines,
    group::Groups,
    link::{Link, Standing},
};

/// A packet for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The node that launched it.
    pub source: usize,
    /// Where its bytes are. The program has it until [`Engine::release`].
    pub buffer: BufferId,
    /// Bytes of it.
    pub length: usize,
    /// The group that it was for; none if it was for this node alone.
    pub group: Option<GroupId>,
}

/// The protocol of one node.
///
/// An engine has no thread, no port and no clock. Its owner calls
///
/// - [`handle`](Self::handle) with each frame that came, and [`handle_timeout`](Self::handle_timeout) when the time has come that
///   [`poll_timeout`](Self::poll_timeout) names;
/// - [`allocate`](Self::allocate) and the launches for what the program sends, [`create_group`](Self::create_group), and
///   [`leave`](Self::leave);
/// - and, after any of these, [`poll_transmit`](Self::poll_transmit) until it has nothing more or the port is full,
///   [`poll_delivery`](Self::poll_delivery) and [`poll_event`](Self::poll_event).
///
/// Times never go backwards. Nothing is allocated per packet.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    now: Time,
    links: Box<[Link]>,
    buffers: Buffers,
    groups: Groups,
    deadlines: Deadlines,
    /// Links with something to send, in the order of their turns.
    ready: VecDeque<u8>,
    deliveries: VecDeque<Delivered>,
    /// Streams whose parents are to be told how far they are.
    reports: VecDeque<(u16, u8)>,
    events: VecDeque<Event>,
    /// Links whose next frame waits until there is room.
    blocked: Nodes,
    /// The card's reliable group, where the policy relies on it.
    card: Option<CardLink>,
    counters: Counters,
    is_ready: bool,
    leaving: Leaving,
}

/// A packet that waits for the program.
#[derive(Clone, Copy, Debug)]
struct Delivered {
    source: u8,
    buffer: BufferId,
    length: u16,
    /// Position and name of its group.
    group: Option<(u16, GroupId)>,
}

/// Deadlines of a link, by node.
const LINK_KEYS: usize = 3;

/// What is due for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Ack = 0,
    Retransmit = 1,
    /// To ask whether the peer is there.
    Probe = 2,
}

const fn key(node: usize, due: Due) -> usize {
    LINK_KEYS * node + due as usize
}

impl Engine {
    /// The engine of one node. It starts at `now` to look for the others.
    ///
    /// # Errors
    /// [`ConfigError`] for a configuration that cannot be.
    pub fn new(config: Config, now: Time) -> Result<Self, ConfigError> {
        config.check()?;
        let count = config.nodes.len();
        let mut engine = Self {
            now,
            links: config.nodes.iter().map(|mac| Link::new(*mac)).collect(),
            buffers: Buffers::new(count, config.limits),
            groups: Groups::new(count, config.me),
            deadlines: Deadlines::new(LINK_KEYS * count + 1 + config.limits.timers, |at| {
                at >= LINK_KEYS * count || at % LINK_KEYS != Due::Probe as usize
            }),
            ready: VecDeque::with_capacity(count),
            deliveries: VecDeque::with_capacity(config.limits.unicasts_waiting + SEND_BUFFERS * count),
            reports: VecDeque::with_capacity(count),
            events: VecDeque::new(),
            blocked: Nodes::default(),
            card: config
                .card_group()
                .map(|group| CardLink::new(group, config.me, &config.nodes)),
            counters: Counters::default(),
            is_ready: false,
            leaving: Leaving::default(),
            config,
        };
        for node in engine.others() {
            engine.links[node].hello.now = true;
            engine.wake(node);
            engine.deadlines.set(key(node, Due::Probe), engine.now);
        }
        engine.check_ready();
        Ok(engine)
    }

    /// This node.
    pub fn me(&self) -> usize {
        self.config.me
    }

    /// Nodes of the program, those included that were removed.
    pub fn size(&self) -> usize {
        self.links.len()
    }

    /// Whether every node was heard of; the end of this state is [`Event::Removed`].
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The nodes that are there: this one, and those that were heard of and not removed.
    pub fn present(&self) -> Nodes {
        let present = self
            .others()
            .filter(|node| self.links[*node].standing == Standing::Open);
        Nodes::of(present.chain([self.config.me])).unwrap_or_default()
    }

    /// Buffers that the owner keeps bytes for; every [`BufferId::index`] is below. Those of the program's own packets come first.
    pub fn buffers(&self) -> usize {
        self.buffers.total()
    }

    /// The counts of what happened.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The configuration that the engine was made with.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Takes the next packet, in the order in which packets became deliverable. Nothing comes while the program keeps as many as it
    /// may ([`crate::Limits::kept`]).
    #[inline]
    pub fn poll_delivery(&mut self) -> Option<Delivery> {
        if !self.buffers.may_deliver() {
            return None;
        }
        let next = self.deliveries.pop_front()?;
        self.buffers.deliver(next.buffer);
        match next.group {
            None => self.counters.count(crate::Counter::UnicastsDelivered),
            Some((position, _)) => {
                self.counters.count(crate::Counter::MulticastsDelivered);
                let stream = &mut self.groups.at(position.into()).streams[usize::from(next.source)];
                stream.taken = stream.taken.wrapping_add(1);
                self.note_progress(position.into(), next.source.into());
            }
        }
        if !self.blocked.is_empty() {
            self.unblock();
        }
        Some(Delivery {
            source: next.source.into(),
            buffer: next.buffer,
            length: next.length.into(),
            group: next.group.map(|(_, id)| id),
        })
    }

    /// Whether [`handle`](Self::handle) has room for a frame. Where nothing is sent again ([`crate::Policy::retransmits`]), the owner leaves
    /// frames in its port while there is none, and the network holds their senders back.
    pub fn can_receive(&self) -> bool {
        if self.config.policy.retransmits() {
            return true;
        }
        // A packet for all has no place to wait but among the deliveries.
        let has_room = self.config.policy != Policy::Ni || self.deliveries.len() < DELIVERIES_MAX_IN_CARD;
        has_room && !self.blocked.iter().any(|node| self.links[node].inward.is_full())
    }

    /// Packets that wait for the program.
    pub fn deliveries_waiting(&self) -> usize {
        self.deliveries.len()
    }

    /// Takes back a packet that the program got or allocated; false if it has no such.
    #[inline]
    pub fn release(&mut self, buffer: BufferId) -> bool {
        self.buffers.give_back(buffer)
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether everything that was sent has arrived, and nothing waits to be passed on or acknowledged.
    pub fn is_idle(&self) -> bool {
        let links = self.others().map(|node| &self.links[node]);
        links
            .filter(|link| link.is_open())
            .all(|link| link.outward.is_idle() && (!link.inward.owes_ack() || !self.config.policy.retransmits()))
            && self.reports.is_empty()
            && self.groups.iter().all(|group| group.own.is_empty())
            && self.card.as_ref().is_none_or(|card| card.for_all.is_empty())
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.config.me;
        (0..self.config.nodes.len()).filter(move |node| *node != me)
    }

    /// Gives a link its turn if it has something to send.
    #[inline]
    fn wake(&mut self, node: usize) {
        let has_room = self.card.as_ref().is_none_or(CardLink::has_room);
        let link = &mut self.links[node];
        if !link.queued && link.is_ready(has_room) {
            link.queued = true;
            self.ready.push_back(node as u8);
        }
    }

    fn check_ready(&mut self) {
        if !self.is_ready && self.others().all(|node| self.links[node].standing != Standing::Unknown) {
            self.is_ready = true;
            self.events.push_back(Event::Ready);
        }
    }
}

/// Packets that wait for the program, after which a card that multicasts is to keep what follows: fewer than there are buffers for
/// those of one sender.
const DELIVERIES_MAX_IN_CARD: usize = 2 * SEND_BUFFERS;
