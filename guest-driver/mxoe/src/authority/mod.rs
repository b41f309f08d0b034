//! The answers for a whole interface: names, discovery, RAW frames, and refusals for endpoints that are not open
//! (sections 8, 9, 18). The authority is sans-I/O like the engine; the caller knows which endpoints are open and which
//! hosts are peers.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};

use ether::{MacAddr, Time};

use crate::{
    engine::{Counter, Counters, FaultInjection, Lost, Peers, count_undecodable},
    wire::{
        Ack, Connect, ConnectKind, Dialect, HOST_MAGIC_FIRST, HOST_NAME_LEN_MAX, Head, HostQuery, HostReply, NackCode,
        NackLib, NackMcp, PEER_INDEX_UNKNOWN, Packet, Pull, RAW_FRAME_LEN_MAX, endpoint_of_pull_magic, sequenced,
    },
};

mod discovery;
mod peer_name;
mod refuse;

use self::{discovery::Discovery, peer_name::PeerName};

/// The configuration of an [`Authority`].
#[derive(Clone, Debug)]
pub struct AuthorityConfig {
    /// The interface's address.
    pub mac: MacAddr,
    /// Layouts and EtherType of the interface. Marks are read if they are on here.
    pub dialect: Dialect,
    /// Endpoint numbers of this interface: a higher one is *bad*, another one *closed*.
    pub endpoints: u16,
    /// Own name without a terminating zero: `<node>:<board>`. What is beyond 79 bytes is cut.
    pub name: Box<[u8]>,
}

/// At most this many frames wait to be sent; beyond, answers are left out and asked for again.
const ANSWERS_MAX: usize = 1024;
/// At most this many RAW frames wait for the mapping daemon (9.1).
const RAW_QUEUE_MAX: usize = 32;
/// Queries of a peer's name are repeated after this long (9.3).
const QUERY_REPEAT_NS: u64 = 5_000_000_000;

/// A frame that waits to be sent.
#[derive(Clone, Debug)]
enum Answer {
    Query {
        peer: u16,
    },
    Reply {
        peer: u16,
        magic: u32,
    },
    NackLib {
        mac: MacAddr,
        peer: Option<u16>,
        nack: NackLib,
    },
    NackMcp {
        mac: MacAddr,
        peer: Option<u16>,
        nack: NackMcp,
    },
    Announce,
    Raw(Box<[u8]>),
}

/// Something that happened, taken with [`Authority::poll_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityEvent {
    /// A peer's name is known; [`Authority::name`] gives it.
    Named {
        /// Its index.
        peer: u16,
    },
    /// A board announced itself for the first time, or anew.
    Board {
        /// Its index.
        peer: u16,
    },
}

/// The authority of one interface.
#[derive(Debug)]
pub struct Authority {
    config: AuthorityConfig,
    counters: Counters,
    names: Vec<PeerName>,
    magic: u32,
    answers: VecDeque<Answer>,
    raw: VecDeque<Box<[u8]>>,
    raw_open: bool,
    discovery: Discovery,
    query_at: Time,
    events: VecDeque<AuthorityEvent>,
    faults: FaultInjection,
}

impl Authority {
    /// Makes an authority that knows no names and announces nothing.
    pub fn new(mut config: AuthorityConfig) -> Self {
        config.name = cut(&config.name);
        Self {
            config,
            counters: Counters::default(),
            names: Vec::new(),
            magic: HOST_MAGIC_FIRST,
            answers: VecDeque::new(),
            raw: VecDeque::new(),
            raw_open: false,
            discovery: Discovery::OFF,
            query_at: Time::MAX,
            events: VecDeque::new(),
            faults: FaultInjection::default(),
        }
    }

    /// Returns the counts of what happened to frames.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<AuthorityEvent> {
        self.events.pop_front()
    }

    /// Returns a peer's name, without a zero.
    pub fn name(&self, peer: u16) -> Option<&[u8]> {
        self.names.get(usize::from(peer))?.name()
    }

    /// Finds the peer with this name.
    pub fn find(&self, name: &[u8]) -> Option<u16> {
        let found = self.names.iter().position(|known| known.name() == Some(name))?;
        u16::try_from(found).ok()
    }

    /// Gives a peer a name, as a table of names does. What is beyond 79 bytes is cut.
    pub fn set_name(&mut self, peer: u16, name: &[u8]) {
        let place = self.place(peer);
        self.names[place].configure(cut(name));
    }

    /// Gives this board another name: queries are answered with it from now on. What is beyond 79 bytes is cut.
    pub fn set_own_name(&mut self, name: &[u8]) {
        self.config.name = cut(name);
    }

    /// Notes that a peer was added to the table: asks for its name unless it has one.
    pub fn peer_added(&mut self, now: Time, peer: u16) {
        let place = self.place(peer);
        if self.names[place].is_wanted() {
            self.answer(Answer::Query { peer });
            self.query_at = self.query_at.min(now.plus_nanos(QUERY_REPEAT_NS));
        }
    }

    /// Notes that a peer has started anew, perhaps with another name: asks for it, unless the name was configured. The name that is
    /// known stays until then.
    fn peer_restarted(&mut self, now: Time, peer: u16) {
        let place = self.place(peer);
        self.names[place].doubt();
        self.peer_added(now, peer);
    }

    /// Forgets every name and asks anew. Answers to older queries are refused from now on.
    pub fn clear_names(&mut self, now: Time) {
        self.magic = self.magic.wrapping_add(1);
        self.names.fill(PeerName::default());
        for peer in 0..self.names.len() as u16 {
            self.peer_added(now, peer);
        }
    }

    /// Opens or closes the raw endpoint: RAW frames that are no announcements are kept only while it is open, and
    /// dropped otherwise.
    pub fn set_raw_open(&mut self, open: bool) {
        self.raw_open = open;
        self.raw.clear();
    }

    /// Takes the next RAW frame, whole.
    pub fn take_raw(&mut self) -> Option<Box<[u8]>> {
        self.raw.pop_front()
    }

    /// Sends a whole frame as it is. False: it is too long, or too many wait.
    pub fn send_raw(&mut self, frame: &[u8]) -> bool {
        frame.len() <= RAW_FRAME_LEN_MAX && self.answer(Answer::Raw(frame.into()))
    }

    /// Announces this board to others, beginning now (9.2). `serial` is random, drawn at the daemon's start.
    pub fn start_discovery(&mut self, now: Time, serial: u32) {
        self.discovery.start(now, serial);
    }

    /// Loses one of `every` outgoing packets of the named kind on average, on purpose, at distances that `seed`
    /// decides; 0 loses none any more.
    pub fn set_packet_loss(&mut self, what: Lost, every: u32, seed: u32) {
        self.faults.set(what, every, seed);
    }

    /// Returns when [`Authority::handle_timeout`] is to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        let next = self.query_at.min(self.discovery.due());
        (next != Time::MAX).then_some(next)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.discovery.is_due(now) {
            self.answer(Answer::Announce);
            self.discovery.announced(now);
        }
        if self.query_at <= now {
            self.query_at = Time::MAX;
            for peer in 0..self.names.len() {
                if self.names[peer].is_wanted() {
                    self.peer_added(now, peer as u16);
                }
            }
        }
    }

    /// Takes a frame that is for no open endpoint. `is_open` tells about the others: frames for those are left alone.
    pub fn handle<P: Peers>(&mut self, now: Time, frame: &[u8], peers: &mut P, is_open: impl Fn(u8) -> bool) {
        let (head, packet) = match self.config.dialect.decode(frame) {
            Ok(decoded) => decoded,
            Err(error) => {
                count_undecodable(&mut self.counters, error);
                return;
            }
        };
        if let Packet::Raw(raw) = &packet {
            self.handle_raw(now, frame, &head, raw.payload, peers);
            return;
        }
        if head.dst != self.config.mac {
            self.counters.count(Counter::DropNotMxoe);
            return;
        }
        match packet {
            Packet::HostQuery(query) => self.handle_query(now, &head, &query, peers),
            Packet::HostReply(reply) => self.handle_reply(&head, &reply, peers),
            packet => self.refuse(now, &head, &packet, peers, is_open),
        }
    }

    fn handle_query<P: Peers>(&mut self, now: Time, head: &Head, query: &HostQuery, peers: &mut P) {
        let Some(peer) = self.add_peer(now, head.src, peers) else {
            self.counters.count(Counter::DropBadPeerAddr);
            return;
        };
        self.counters.count(Counter::RecvHostQuery);
        peers.set_reverse(peer, query.peer_index);
        self.answer(Answer::Reply {
            peer,
            magic: query.magic,
        });
    }

    fn handle_reply<P: Peers>(&mut self, head: &Head, reply: &HostReply<'_>, peers: &mut P) {
        if reply.magic != self.magic {
            self.counters.count(Counter::DropHostReplyBadMagic);
            return;
        }
        let Some(peer) = peers.index(head.src) else {
            self.counters.count(Counter::DropBadPeerAddr);
            return;
        };
        self.counters.count(Counter::RecvHostReply);
        peers.set_reverse(peer, reply.peer_index);
        let place = self.place(peer);
        // A name that is known is not overwritten, unless it was asked for again.
        if self.names[place].learn(reply.name) {
            self.events.push_back(AuthorityEvent::Named { peer });
        }
    }

    fn add_peer<P: Peers>(&mut self, now: Time, mac: MacAddr, peers: &mut P) -> Option<u16> {
        if let Some(peer) = peers.index(mac) {
            return Some(peer);
        }
        let peer = peers.index_or_add(mac)?;
        self.counters.count(Counter::PeersAdded);
        self.peer_added(now, peer);
        Some(peer)
    }

    fn place(&mut self, peer: u16) -> usize {
        let place = usize::from(peer);
        if self.names.len() <= place {
            self.names.resize(place + 1, PeerName::default());
        }
        place
    }

    fn answer(&mut self, answer: Answer) -> bool {
        if self.answers.len() >= ANSWERS_MAX {
            self.counters.count(Counter::DropControlFull);
            return false;
        }
        self.answers.push_back(answer);
        true
    }

    /// Writes the next frame to be sent to `out`, which should have room for [`RAW_FRAME_LEN_MAX`] bytes, and returns
    /// its length.
    pub fn poll_transmit<P: Peers>(&mut self, peers: &P, out: &mut [u8]) -> Option<usize> {
        while let Some(answer) = self.answers.pop_front() {
            let Some(len) = self.emit(&answer, peers, out) else {
                continue;
            };
            if self.faults.is_empty() || !self.faults.hit(&out[..len]) {
                return Some(len);
            }
            self.counters.count(Counter::LostOnPurpose);
        }
        None
    }

    fn emit<P: Peers>(&mut self, answer: &Answer, peers: &P, out: &mut [u8]) -> Option<usize> {
        let head = |mac: MacAddr, peer: Option<u16>| Head {
            dst: mac,
            src: self.config.mac,
            peer_index: peer.map_or(PEER_INDEX_UNKNOWN, |peer| peers.reverse(peer)),
            marked: false,
        };
        let announcement;
        let (head, packet, counter) = match answer {
            Answer::Query { peer } => {
                if !self.names.get(usize::from(*peer))?.is_wanted() {
                    return None;
                }
                let query = HostQuery {
                    peer_index: *peer,
                    magic: self.magic,
                };
                let head = head(peers.mac(*peer)?, Some(*peer));
                (head, Packet::HostQuery(query), Counter::SendHostQuery)
            }
            Answer::Reply { peer, magic } => {
                let reply = HostReply {
                    peer_index: *peer,
                    magic: *magic,
                    name: &self.config.name,
                };
                let head = head(peers.mac(*peer)?, Some(*peer));
                (head, Packet::HostReply(reply), Counter::SendHostReply)
            }
            Answer::NackLib { mac, peer, nack } => {
                let head = head(*mac, *peer);
                let nack = NackLib {
                    peer_index: head.peer_index,
                    ..*nack
                };
                (head, Packet::NackLib(nack), Counter::SendNackLib)
            }
            Answer::NackMcp { mac, peer, nack } => (head(*mac, *peer), Packet::NackMcp(*nack), Counter::SendNackMcp),
            Answer::Announce => {
                announcement = self.discovery.announcement(self.config.mac).to_payload();
                let raw = crate::wire::Raw { payload: &announcement };
                let head = Head {
                    dst: MacAddr::BROADCAST,
                    src: self.config.mac,
                    peer_index: 0,
                    marked: false,
                };
                (head, Packet::Raw(raw), Counter::SendRaw)
            }
            Answer::Raw(frame) => {
                out.get_mut(..frame.len())?.copy_from_slice(frame);
                self.counters.count(Counter::SendRaw);
                return Some(frame.len());
            }
        };
        let len = self.config.dialect.emit(&head, &packet, out).ok()?;
        self.counters.count(counter);
        Some(len)
    }
}

/// Returns as much of a name as fits a reply with its terminating zero.
fn cut(name: &[u8]) -> Box<[u8]> {
    name[..name.len().min(HOST_NAME_LEN_MAX - 1)].into()
}
