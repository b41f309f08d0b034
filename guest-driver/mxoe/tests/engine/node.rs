//! A node of the virtual network: an engine, the memory its tokens name, and a program that posts receives.

use std::collections::{HashMap, VecDeque};

use ether::{MacAddr, Time};
use mxoe::{
    authority::{Authority, AuthorityConfig},
    engine::{
        Arrival, Body, Config, Engine, Event, HEAD_BUFFER_LEN, HandedPartner, Handover, Host, LargeId, PartnerId,
        PeerMap, Peers, Posted, SendError, SendOptions, Seq, Status, Token, Verdict,
    },
    finisher::Finishers,
    matching::{MatchTable, Selector},
    wire::Preset,
};

/// Bytes of the message with this match information: any byte of it tells where it belongs.
pub fn fill(match_info: u64, len: usize) -> Vec<u8> {
    let mut state = match_info.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn mac_of(node: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, (node >> 8) as u8, node as u8])
}

pub fn config_of(node: usize, preset: Preset) -> Config {
    let mut config = Config::new(mac_of(node), 1, 0x1000 + node as u32, preset);
    config.seed = node as u64;
    config
}

/// A message that was received whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub partner: PartnerId,
    pub match_info: u64,
    pub at: Time,
    pub status: Status,
    pub transferred: u32,
}

struct Buffer {
    match_info: u64,
    partner: PartnerId,
    data: Vec<u8>,
    delivered: usize,
    expected: usize,
}

enum Unexpected {
    Data,
    Large(LargeId, u32),
}

/// What the program keeps.
pub struct Program {
    now: Time,
    pub table: MatchTable<(), UnexpectedEntry>,
    buffers: HashMap<Token, Buffer>,
    next_token: Token,
    /// Match information in the order of matching.
    pub matched: Vec<(PartnerId, u64)>,
    pub got: Vec<Got>,
    pub refusals: u32,
    /// Verdict for everything, when a test wants it so.
    pub verdict: Option<Verdict>,
    /// The link flips bits where no check sees it: bytes may be others than were sent.
    pub damage_allowed: bool,
}

pub struct UnexpectedEntry {
    partner: PartnerId,
    match_info: u64,
    what: Unexpected,
}

impl Program {
    fn buffer(&mut self, partner: PartnerId, match_info: u64, expected: usize) -> Token {
        let token = self.next_token;
        self.next_token += 1;
        let buffer = Buffer {
            match_info,
            partner,
            data: vec![0; expected],
            delivered: 0,
            expected,
        };
        self.buffers.insert(token, buffer);
        token
    }

    /// Receives that have their message, but not yet all of it.
    pub fn running(&self) -> impl Iterator<Item = Token> {
        self.buffers.keys().copied()
    }

    fn finish(&mut self, token: Token, status: Status, transferred: u32) {
        let buffer = self.buffers.remove(&token).expect("a receive ends once");
        if status == Status::Success {
            assert_eq!(buffer.delivered, transferred as usize, "each byte is delivered once");
            assert_eq!(transferred as usize, buffer.expected);
            assert!(
                self.damage_allowed || buffer.data == fill(buffer.match_info, buffer.expected),
                "message {:#x} is damaged",
                buffer.match_info
            );
        }
        self.got.push(Got {
            partner: buffer.partner,
            match_info: buffer.match_info,
            at: self.now,
            status,
            transferred,
        });
    }
}

impl Host for Program {
    fn arrive(&mut self, arrival: Arrival<'_>) -> Verdict {
        if let Some(verdict) = self.verdict {
            return verdict;
        }
        let Arrival {
            partner,
            match_info,
            length,
            body,
            ..
        } = arrival;
        let expected = self.table.posted.peek(match_info).is_some();
        let data_bytes = if matches!(body, Body::Announced { .. }) {
            0
        } else {
            length
        };
        if !expected {
            let entry = UnexpectedEntry {
                partner,
                match_info,
                what: match body {
                    Body::Announced { large, .. } => Unexpected::Large(large, length),
                    _ => Unexpected::Data,
                },
            };
            if self.table.unexpected.add(match_info, data_bytes.into(), entry).is_err() {
                self.refusals += 1;
                return Verdict::Refuse;
            }
        } else {
            self.table.posted.take(match_info);
        }
        self.matched.push((partner, match_info));
        match body {
            Body::Announced { .. } if !expected => Verdict::Take(0),
            Body::Announced { .. } => Verdict::Pull {
                receive: self.buffer(partner, match_info, length as usize),
                length,
            },
            Body::Fragments => Verdict::Take(self.buffer(partner, match_info, length as usize)),
            Body::Whole(data) => {
                let token = self.buffer(partner, match_info, length as usize);
                self.deliver(token, 0, data);
                self.finish(token, Status::Success, length);
                Verdict::Take(token)
            }
        }
    }

    fn deliver(&mut self, receive: Token, offset: u32, data: &[u8]) {
        let buffer = self.buffers.get_mut(&receive).expect("bytes only for running receives");
        buffer.data[offset as usize..][..data.len()].copy_from_slice(data);
        buffer.delivered += data.len();
    }
}

/// A table of peers, and what the engine notes for the authority.
pub struct Noted {
    peers: PeerMap,
    partners: Vec<Option<HandedPartner>>,
    notifies: Vec<(PartnerId, Seq, [u8; 2], u32)>,
}

impl Peers for Noted {
    fn mac(&self, index: u16) -> Option<MacAddr> {
        self.peers.mac(index)
    }

    fn index(&self, mac: MacAddr) -> Option<u16> {
        self.peers.index(mac)
    }

    fn index_or_add(&mut self, mac: MacAddr) -> Option<u16> {
        self.peers.index_or_add(mac)
    }

    fn reverse(&self, index: u16) -> u16 {
        self.peers.reverse(index)
    }

    fn set_reverse(&mut self, index: u16, reverse: u16) {
        self.peers.set_reverse(index, reverse);
    }

    fn note_partner(&mut self, partner: PartnerId, about: Option<&HandedPartner>) {
        let at = partner.index();
        self.partners.resize(self.partners.len().max(at + 1), None);
        self.partners[at] = about.copied();
    }

    fn note_received(&mut self, partner: PartnerId, expected: Seq) {
        if let Some(Some(known)) = self.partners.get_mut(partner.index()) {
            known.expected = expected;
        }
    }

    fn note_acknowledged(&mut self, partner: PartnerId, first: Seq) {
        if let Some(Some(known)) = self.partners.get_mut(partner.index()) {
            known.unacked_first = first;
        }
    }

    fn note_notify(&mut self, partner: PartnerId, seq: Seq, region: [u8; 2], transferred: u32) {
        self.notifies.push((partner, seq, region, transferred));
    }
}

pub struct Node {
    pub engine: Engine<Noted>,
    pub program: Program,
    /// What send tokens name.
    pub memory: HashMap<Token, Vec<u8>>,
    pub sent: Vec<(Token, Status, u32)>,
    pub connected: Vec<(PartnerId, Status)>,
    pub lost: Vec<PartnerId>,
    pub mismatches: u32,
    /// Sends that wait: to whom, match information, length, options.
    pub backlog: VecDeque<(PartnerId, u64, u32, SendOptions)>,
    /// Sends in flight at most, of those in the backlog.
    pub depth: usize,
    in_flight: usize,
    /// Frames that were written at once, when they were posted.
    ready: VecDeque<Vec<u8>>,
    /// As a driver does that sends first: what happened is looked at when there is nothing to be sent. `World` makes every second
    /// node so.
    pub lazy: bool,
    /// The authority of the node's interface, once the endpoint is closed.
    pub closed: Option<Closed>,
}

/// What answers for a closed endpoint.
pub struct Closed {
    pub finishers: Finishers,
    pub authority: Authority,
    peers: PeerMap,
}

impl Node {
    pub fn new(config: Config) -> Self {
        let peers = PeerMap::new(2_048, config.seed);
        Self::with_peers(config, peers)
    }

    pub fn with_peers(config: Config, peers: PeerMap) -> Self {
        Self {
            program: Program {
                now: Time::ZERO,
                table: MatchTable::new(64 << 20, config.seed),
                buffers: HashMap::new(),
                next_token: 1 << 32,
                matched: Vec::new(),
                got: Vec::new(),
                refusals: 0,
                verdict: None,
                damage_allowed: false,
            },
            engine: Engine::new(
                config,
                Noted {
                    peers,
                    partners: Vec::new(),
                    notifies: Vec::new(),
                },
            ),
            memory: HashMap::new(),
            sent: Vec::new(),
            connected: Vec::new(),
            lost: Vec::new(),
            mismatches: 0,
            backlog: VecDeque::new(),
            depth: usize::MAX,
            in_flight: 0,
            ready: VecDeque::new(),
            lazy: false,
            closed: None,
        }
    }

    /// Closes the endpoint: `handover` is finished for, if there is one.
    pub fn close(&mut self, now: Time, handover: Option<Handover>) {
        let config = self.engine.config().clone();
        let mut peers = PeerMap::new(2_048, config.seed);
        for index in 0.. {
            let Some(mac) = self.engine.peers().mac(index) else {
                break;
            };
            peers.add(mac);
            peers.set_reverse(index, self.engine.peers().reverse(index));
        }
        let mut finishers = Finishers::new(config.mac, config.dialect.with_marks(true));
        if let Some(handover) = handover {
            let bytes = handover.to_bytes();
            let read = Handover::from_bytes(&bytes).expect("it was written so");
            assert_eq!(read, handover);
            finishers.take_over(now, read);
        }
        self.closed = Some(Closed {
            finishers,
            authority: Authority::new(AuthorityConfig {
                mac: config.mac,
                dialect: config.dialect.with_marks(true),
                endpoints: 32,
                name: Box::from(&b"node:0"[..]),
            }),
            peers,
        });
    }

    /// What the endpoint would hand over now.
    pub fn hand_over(&mut self) -> Handover {
        let memory = &self.memory;
        self.engine.hand_over(usize::MAX, |token| memory.get(&token).cloned())
    }

    /// What the authority knows of the endpoint when its program is killed now.
    pub fn noted(&self) -> Handover {
        let config = self.engine.config();
        let mut handover = Handover::new(config.endpoint, config.session);
        let noted = self.engine.peers();
        for (at, known) in noted.partners.iter().enumerate() {
            let Some(known) = known else { continue };
            let first = known.unacked_first;
            handover.add_partner(HandedPartner {
                next: first.plus(8_191),
                acks_sent: 1 << 30,
                ..*known
            });
            for (partner, seq, [rdma_id, rdma_seqnum], transferred) in &noted.notifies {
                if partner.index() == at && seq.since(first) < 8_191 {
                    handover.add_notify(*seq, *rdma_id, *rdma_seqnum, *transferred);
                }
            }
        }
        handover
    }

    /// When `timeout` is to be called.
    pub fn due(&self) -> Option<Time> {
        match &self.closed {
            Some(closed) => closed.finishers.poll_timeout(),
            None => self.engine.poll_timeout(),
        }
    }

    /// Takes up to `count` unexpected messages, then posts receives for anything.
    pub fn post_any(&mut self, now: Time, count: usize) {
        self.program.now = now;
        for _ in 0..count {
            match self.program.table.unexpected.take(Selector::ANY) {
                Some(entry) => self.take_unexpected(now, entry),
                None => _ = self.program.table.posted.post(Selector::ANY, ()),
            }
        }
        self.engine.resume(now, &mut self.program);
        self.events(now);
    }

    /// Takes up to `count` unexpected messages.
    pub fn drain_unexpected(&mut self, now: Time, count: usize) {
        self.program.now = now;
        for _ in 0..count {
            let Some(entry) = self.program.table.unexpected.take(Selector::ANY) else {
                break;
            };
            self.take_unexpected(now, entry);
        }
        self.engine.resume(now, &mut self.program);
        self.events(now);
    }

    fn take_unexpected(&mut self, now: Time, entry: UnexpectedEntry) {
        if let Unexpected::Large(large, length) = entry.what {
            let token = self.program.buffer(entry.partner, entry.match_info, length as usize);
            self.engine
                .pull(now, large, token, length)
                .expect("the announcement is there");
        }
    }

    /// Unexpected large messages that wait.
    pub fn pull_none(&mut self) -> Vec<LargeId> {
        let mut larges = Vec::new();
        while let Some(entry) = self.program.table.unexpected.take(Selector::ANY) {
            if let Unexpected::Large(large, _) = entry.what {
                larges.push(large);
            }
        }
        larges
    }

    pub fn send(&mut self, now: Time, to: PartnerId, match_info: u64, length: u32, options: SendOptions) -> Posted {
        let data = fill(match_info, length as usize);
        let posted = if length <= 128 && !options.synchronous {
            self.send_short(now, to, match_info, &data)
        } else {
            self.memory.insert(match_info, data);
            self.engine.send(now, to, match_info, match_info, length, options)
        };
        let posted = posted.expect("there is room for the send");
        if !(length <= 128 && matches!(posted, Posted::Early(_))) {
            self.in_flight += 1;
        }
        posted
    }

    /// Every second short message leaves at once where it may; of those the port does not take some.
    fn send_short(&mut self, now: Time, to: PartnerId, match_info: u64, data: &[u8]) -> Result<Posted, SendError> {
        let mut buffer = [0xaa; HEAD_BUFFER_LEN];
        if match_info.is_multiple_of(2)
            && self.ready.is_empty()
            && let Some(len) = self.engine.begin_immediate_send(to, match_info, data, &mut buffer)
        {
            let went_out = !match_info.is_multiple_of(7);
            if went_out {
                self.ready.push_back(buffer[..len].to_vec());
            }
            let posted = self
                .engine
                .finish_immediate_send(now, to, match_info, match_info, data, went_out);
            assert!(matches!(posted, Ok(Posted::Early(_))), "it was promised: {posted:?}");
            return posted;
        }
        self.engine.send_inline(now, to, match_info, match_info, data)
    }

    pub fn frame(&mut self, now: Time, frame: &[u8]) {
        if let Some(closed) = &mut self.closed {
            if !closed.finishers.handle(now, frame) {
                closed.authority.handle(now, frame, &mut closed.peers, |_| false);
            }
            return;
        }
        self.program.now = now;
        self.engine.handle(now, frame, &mut self.program);
        if !self.lazy {
            self.events(now);
        }
    }

    pub fn timeout(&mut self, now: Time) {
        if let Some(closed) = &mut self.closed {
            closed.finishers.handle_timeout(now);
            return;
        }
        self.program.now = now;
        self.engine.handle_timeout(now);
        if !self.lazy {
            self.events(now);
        }
    }

    pub fn events(&mut self, now: Time) {
        if self.closed.is_some() {
            return;
        }
        self.program.now = now;
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Connected { partner, status, .. } => self.connected.push((partner, status)),
                Event::Sent {
                    token,
                    status,
                    transferred,
                } => {
                    self.memory.remove(&token);
                    // One that completed early was not counted, and tells only if it failed.
                    self.in_flight = self.in_flight.saturating_sub(1);
                    self.sent.push((token, status, transferred));
                }
                Event::Received {
                    receive,
                    status,
                    transferred,
                } => self.program.finish(receive, status, transferred),
                Event::PartnerLost { partner, .. } => self.lost.push(partner),
                Event::Mismatch { .. } => self.mismatches += 1,
            }
        }
        while self.in_flight < self.depth {
            let Some((to, match_info, length, options)) = self.backlog.pop_front() else {
                break;
            };
            self.send(now, to, match_info, length, options);
        }
    }

    /// The next frame, put together as a driver's `sendmsg` would.
    pub fn transmit(&mut self, now: Time) -> Option<Vec<u8>> {
        if let Some(frame) = self.ready.pop_front() {
            return Some(frame);
        }
        if let Some(closed) = &mut self.closed {
            let mut frame = vec![0xee; 10_000];
            let len = closed.authority.poll_transmit(&closed.peers, &mut frame);
            let len = len.or_else(|| closed.finishers.poll_transmit(now, &mut frame))?;
            frame.truncate(len);
            return Some(frame);
        }
        let mut buffer = [0xaa; HEAD_BUFFER_LEN];
        let transmit = self.engine.poll_transmit(now, &mut buffer)?;
        let mut frame = buffer[..transmit.head_len].to_vec();
        if let Some(payload) = transmit.payload {
            let memory = &self.memory[&payload.token];
            frame.extend_from_slice(&memory[payload.offset as usize..][..payload.len as usize]);
        }
        frame.resize(frame.len() + transmit.pad_len, 0);
        assert!(frame.len() >= 60 && frame.len() == transmit.frame_len());
        Some(frame)
    }

    pub fn count(&self, counter: mxoe::engine::Counter) -> u32 {
        self.engine.counters().get(counter)
    }
}
