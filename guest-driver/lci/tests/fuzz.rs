//! Fuzz target: frames against a live engine, most of them nearly right: their sessions, numbers and acknowledgements are those of the
//! moment, then some bytes are changed. No panic, no byte outside a buffer, no buffer twice. As a plain test it runs a fixed number of
//! generated inputs, and every change of one byte in the frames of `corpus`.

use std::{collections::BTreeSet, fs, path::PathBuf};

use ether::{EtherType, MacAddr, Time};
use firmware::multicast::{FLAG_UNICAST, Kind as CardKind, TAG_END, Tag};
use lci::{
    BufferId, Config, Counter, Engine, GroupId, HEAD_LEN_MAX, Nodes, PACKET_LEN_MAX, Policy,
    wire::{About, FLAG_ANSWER, GROUP_HEADER_LEN, Header, Kind},
};

const INPUTS: usize = 2_000;
/// Bytes one step takes from the input.
const STEP: usize = 24;
const STEPS_MAX: usize = 200;
const NODES: usize = 5;
const SESSION: u32 = 0x51e5;
const TYPE: EtherType = EtherType::CARD_TO_CARD;

fn mac(node: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, node as u8])
}

/// Node 0, and what the others are to it.
struct Live {
    engine: Engine,
    now: Time,
    /// By node: the number that it sends next, and the number that it has heard of.
    sequence: [u32; NODES],
    heard: [u32; NODES],
    kept: Vec<BufferId>,
    waiting: BTreeSet<BufferId>,
    /// Frames that the card said have left it.
    left: u32,
}

fn session_of(node: usize) -> u32 {
    0x1000 + node as u32
}

impl Live {
    fn new() -> Self {
        Self::with(Policy::Host)
    }

    fn with(policy: Policy) -> Self {
        let mut config = Config::new(0, (0..NODES).map(mac).collect(), SESSION);
        config.policy = policy;
        config.limits.unicasts_waiting = 3;
        config.limits.kept = 4;
        config.limits.groups = 4;
        config.timing.dead_ns = 3_000_000_000;
        Self {
            engine: Engine::new(config, Time::ZERO).unwrap(),
            now: Time::ZERO,
            sequence: [0; NODES],
            heard: [0; NODES],
            kept: Vec::new(),
            waiting: BTreeSet::new(),
            left: 0,
        }
    }

    fn handle(&mut self, frame: &[u8]) {
        let handled = self.engine.handle(self.now, frame);
        if let Some((buffer, start, end)) = handled.store {
            assert!(start <= end && end <= frame.len() && end - start <= PACKET_LEN_MAX);
            assert!(
                (64..self.engine.buffers()).contains(&buffer.index()),
                "a receive buffer"
            );
            assert!(!self.kept.contains(&buffer), "the program has it");
        }
    }

    /// The header of an honest frame of `from`.
    fn honest(&self, from: usize, kind: Kind) -> Header {
        Header {
            destination: mac(0),
            source: mac(from),
            kind,
            flags: 0,
            from: from as u8,
            to: 0,
            job: 0,
            length: 0,
            session: session_of(from),
            peer_session: SESSION,
            sequence: self.sequence[from],
            ack: self.heard[from],
            selective: 0,
            about: About::default(),
        }
    }

    fn step(&mut self, input: &[u8; STEP]) {
        let [what, who, a, b, ..] = *input;
        let from = 1 + usize::from(who) % (NODES - 1);
        let number = u32::from_be_bytes([input[4], input[5], input[6], input[7]]);
        if input[18] < 40 && !self.engine.config().policy.retransmits() {
            self.note(number, input);
        }
        match what {
            0..=9 => self.time(u64::from(a) << (b % 32)),
            10..=39 => self.send(a, b, usize::from(input[5])),
            40..=59 => self.take(a, b),
            60..=79 => self.transmit(),
            80..=83 => {
                let _ = self.engine.create_group(Nodes(u128::from(number) & 0x1f | 1));
            }
            84 if a < 20 => self.engine.leave(self.now),
            85..=99 => {
                let mut hello = self.honest(from, Kind::Hello);
                hello.peer_session = if a < 128 { 0 } else { SESSION };
                hello.flags = a & FLAG_ANSWER;
                // The check sum of the list of nodes is that of the engine's own frames.
                hello.about.nodes = Nodes::first(NODES);
                hello.about.group = self.digest();
                self.frame(&hello, input);
            }
            _ => {
                let kind = Kind::ALL[usize::from(a) % Kind::ALL.len()];
                let mut header = self.honest(from, kind);
                header.length = if matches!(kind, Kind::Unicast | Kind::Multicast) {
                    u16::from(b) * 4
                } else {
                    0
                };
                if kind != Kind::Gone || b < 20 {
                    header.about = self.about(kind, from, number, input);
                    let len = kind.header_len();
                    if len < GROUP_HEADER_LEN {
                        header.about = About::default();
                    }
                    self.sequence[from] += u32::from(kind.is_numbered());
                    self.frame(&header, input);
                }
            }
        }
    }

    /// All other nodes are heard of.
    fn greet(&mut self) {
        let digest = self.digest();
        for from in 1..NODES {
            let mut hello = self.honest(from, Kind::Hello);
            hello.about.nodes = Nodes::first(NODES);
            hello.about.group = digest;
            let mut frame = [0; GROUP_HEADER_LEN];
            hello.write(TYPE, &mut frame);
            self.handle(&frame);
        }
    }

    fn digest(&self) -> u32 {
        let mut fresh = Engine::new(self.engine.config().clone(), self.now).unwrap();
        let mut head = [0; HEAD_LEN_MAX];
        fresh.poll_transmit(self.now, &mut head).unwrap();
        u32::from_be_bytes([head[52], head[53], head[54], head[55]])
    }

    fn about(&self, kind: Kind, from: usize, number: u32, input: &[u8; STEP]) -> About {
        let groups: Vec<_> = self.engine.groups().collect();
        let (group, members) = groups[usize::from(input[8]) % groups.len()];
        let small = number % 100;
        About {
            group: if kind == Kind::Group {
                (from as u32 + 1) << 16 | small
            } else {
                group.0
            },
            number: if matches!(kind, Kind::Join | Kind::Group) {
                small % 3
            } else {
                small
            },
            origin: if input[9] < 200 { from as u8 } else { input[9] % 7 },
            nodes: if input[10] < 200 {
                members
            } else {
                Nodes(members.0 & u128::from(input[11]) | 1)
            },
        }
    }

    /// Hands a frame over, sometimes with a changed byte or without its end.
    fn frame(&mut self, header: &Header, input: &[u8; STEP]) {
        let mut frame = vec![0x5a; GROUP_HEADER_LEN + usize::from(header.length)];
        header.write(TYPE, &mut frame);
        if !self.engine.config().policy.retransmits() && header.kind.is_numbered() && input[17] > 8 {
            frame = self.by_card(header, &frame, input);
        }
        if input[12] < 60 {
            let at = usize::from(input[13]) % GROUP_HEADER_LEN;
            frame[at] ^= input[14];
        }
        if input[12] > 245 {
            frame.truncate(usize::from(input[15]));
        }
        self.handle(&frame);
        self.take(4, input[16]);
    }

    /// The tag of a frame of node `rank` from this node's card, most often right: ranks are nodes, whose addresses are in their order.
    fn tag(&self, kind: CardKind, rank: usize, input: &[u8; STEP]) -> Tag {
        let group = self.engine.config().card_group().unwrap_or(1);
        Tag {
            to: mac(0),
            kind,
            generation: 1,
            rank: rank as u8,
            sender: mac(rank),
            sequence: u32::from(input[19]),
            hops: 1,
            ..Tag::send(mac(rank), group + u16::from(input[20] > 250), 0)
        }
    }

    /// The frame as the cards bring it.
    fn by_card(&self, header: &Header, frame: &[u8], input: &[u8; STEP]) -> Vec<u8> {
        let mut tag = self.tag(CardKind::Data, header.from.into(), input);
        let is_multicast = header.kind == Kind::Multicast || input[21] > 240;
        tag.flags = if is_multicast { 0 } else { FLAG_UNICAST };
        let behind = &frame[ether::ETHERNET_HEADER_LEN..];
        tag.payload_len = behind.len() as u16;
        let mut head = [0; TAG_END];
        tag.write(&mut head);
        [&head[..], behind].concat()
    }

    /// The card says how many frames have left, or who is gone, in truth or not.
    fn note(&mut self, number: u32, input: &[u8; STEP]) {
        let kind = if input[19] > 4 { CardKind::Sent } else { CardKind::Gone };
        let mut tag = self.tag(kind, usize::from(input[20]) % (NODES + 1), input);
        tag.from = if input[21] > 20 { MacAddr::CARD } else { mac(1) };
        // Most often as many as there may be by now.
        self.left = self.left.wrapping_add(u32::from(input[22] % 3));
        tag.sequence = if input[22] > 30 { self.left } else { number };
        let mut frame = [0; 60];
        tag.write(frame.first_chunk_mut().expect("longer than a tag"));
        self.handle(&frame);
    }

    fn time(&mut self, ns: u64) {
        self.now = self.now.plus_nanos(ns);
        if self.engine.poll_timeout() <= self.now {
            self.engine.handle_timeout(self.now);
        }
    }

    fn send(&mut self, to: u8, count: u8, length: usize) {
        for _ in 0..count % 8 {
            let Some(packet) = self.engine.allocate() else { return };
            assert!(packet.index() < 64);
            let launched = if to < 128 {
                let to = usize::from(to) % (NODES + 1);
                self.engine.launch_unicast(self.now, to, packet, length)
            } else {
                self.engine.launch_multicast(self.now, GroupId::ALL, packet, length)
            };
            if launched.is_err() {
                assert!(self.engine.release(packet));
            }
        }
    }

    fn take(&mut self, count: u8, keep: u8) {
        for _ in 0..count {
            let Some(packet) = self.engine.poll_delivery() else {
                break;
            };
            assert!(packet.source < NODES && packet.length <= PACKET_LEN_MAX);
            assert!(!self.kept.contains(&packet.buffer), "one buffer for two packets");
            self.kept.push(packet.buffer);
        }
        while self.kept.len() > usize::from(keep % 12) {
            assert!(self.engine.release(self.kept.pop().unwrap()));
        }
        while self.engine.poll_event().is_some() {}
    }

    fn transmit(&mut self) {
        let mut head = [0; HEAD_LEN_MAX];
        for _ in 0..100 {
            let Some(frame) = self.engine.poll_transmit(self.now, &mut head) else {
                return;
            };
            if !self.engine.config().policy.retransmits() {
                continue;
            }
            assert!(frame.head_len + frame.payload.map_or(0, |(_, len)| len) + frame.pad_len >= 60);
            if frame.head_len == GROUP_HEADER_LEN || frame.payload.is_some() {
                let to = usize::from(head[20]);
                let sequence = u32::from_be_bytes([head[36], head[37], head[38], head[39]]);
                if Kind::ALL[usize::from(head[17])].is_numbered() && sequence == self.heard[to] {
                    self.heard[to] += 1;
                }
            }
        }
        self.waiting.clear();
    }
}

#[test]
fn m_bv1_arbitrary_frames_never_break_an_engine() {
    bolero::check!()
        .with_iterations(INPUTS)
        .with_generator(bolero::produce::<Vec<[u8; STEP]>>().with().len(1..=STEPS_MAX))
        .for_each(|steps| {
            let mut live = Live::new();
            for step in steps {
                live.step(step);
            }
        });
}

/// Feeds engines of this policy with generated steps, of which most are frames, and returns what they counted.
fn reached_by(policy: Policy, engines: usize) -> BTreeSet<Counter> {
    let mut reached = BTreeSet::new();
    let mut state = 0x1234_5678_9abc_def1_u64;
    for _ in 0..engines {
        let mut live = Live::with(policy);
        live.greet();
        for _ in 0..STEPS_MAX {
            let mut input = [0; STEP];
            for half in input.as_chunks_mut::<8>().0 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *half = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            }
            live.step(&input);
        }
        let counted = live.engine.counters().iter().filter(|(_, count)| *count > 0);
        reached.extend(counted.map(|(counter, _)| counter));
    }
    reached
}

/// 4·10⁵ steps with each implementation over cards: lies about groups, numbers, credits and who is gone, behind tags of cards and past
/// them.
#[test]
fn m_bv2_m_bv5_lies_behind_tags_of_cards_never_break_an_engine_and_are_counted() {
    for policy in [Policy::Mixed, Policy::Ni] {
        let reached = reached_by(policy, 2_000);
        for counter in [
            Counter::CardFrames,
            Counter::Malformed,
            Counter::WrongSender,
            Counter::WrongPath,
            Counter::OtherJob,
            Counter::Stale,
            Counter::BadAck,
            Counter::Missed,
            Counter::BadControl,
            Counter::FalseReports,
        ] {
            assert!(
                reached.contains(&counter),
                "{policy:?}: {} was not reached",
                counter.name()
            );
        }
    }
}

#[test]
fn m_bv1_frames_of_a_seed_reach_what_is_counted() {
    let reached = reached_by(Policy::Host, 4_000);
    // Cards and a network that loses nothing are other policies', and there is a buffer for all that an honest window allows.
    let never = [Counter::Missed, Counter::NoBuffer, Counter::CardFrames];
    let missed: Vec<_> = Counter::ALL
        .iter()
        .filter(|counter| !never.contains(counter) && !reached.contains(counter))
        .collect();
    assert!(missed.is_empty(), "the frames do not get to {missed:?}");
}

/// An honest frame of each kind, from node 2 to node 0, in the order in which they are taken.
fn corpus() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[test]
fn m_bv1_every_change_of_a_byte_of_known_frames_is_survived() {
    let frames = corpus();
    let kinds: BTreeSet<_> = frames.iter().map(|(_, frame)| frame[17]).collect();
    assert_eq!(kinds.len(), Kind::ALL.len(), "the corpus has each kind of frame");
    let mut live = Live::new();
    for (_, frame) in &frames {
        live.handle(frame);
        live.take(4, 0);
    }
    let counters = live.engine.counters();
    assert_eq!(
        counters.of(Counter::FramesReceived),
        frames.len() as u64 - 1,
        "all are taken; the last is a report of itself: {counters:?}"
    );
    for last in 0..frames.len() {
        for at in 0..frames[last].1.len().min(GROUP_HEADER_LEN) {
            for value in [0, 1, 2, 127, 128, 254, 255] {
                let mut live = Live::new();
                for (_, frame) in &frames[..last] {
                    live.handle(frame);
                }
                let mut changed = frames[last].1.clone();
                changed[at] = value;
                live.handle(&changed);
                live.transmit();
                live.take(9, 0);
                live.time(5_000_000_000);
                live.transmit();
            }
        }
    }
}

/// The frames of the corpus.
fn honest_frames() -> Vec<Vec<u8>> {
    let mut live = Live::new();
    let digest = live.digest();
    let about = |group, origin, nodes| About {
        group,
        number: 0,
        origin,
        nodes: Nodes(nodes),
    };
    let all = Nodes::first(NODES).0;
    let kinds = [
        (Kind::Hello, about(digest, 0, all)),
        (Kind::Ack, About::default()),
        (Kind::Unicast, About::default()),
        (Kind::Multicast, about(1, 2, all)),
        (Kind::Stable, about(1, 0, all)),
        (Kind::Join, about(0, 0, 0b101)),
        (Kind::Group, about(0x3_0001, 0, 0b1100)),
        (Kind::Bye, About::default()),
        (Kind::Gone, About::default()),
    ];
    let frame = |(kind, about): (Kind, About)| {
        let carries = matches!(kind, Kind::Unicast | Kind::Multicast);
        let header = Header {
            about,
            length: if carries { 16 } else { 0 },
            ..live.honest(2, kind)
        };
        live.sequence[2] += u32::from(kind.is_numbered());
        let mut frame = vec![0x5a; kind.header_len() + usize::from(header.length)];
        header.write(TYPE, &mut frame);
        frame
    };
    kinds.into_iter().map(frame).collect()
}

/// Writes the corpus anew: `LCI_WRITE_CORPUS=1`.
#[test]
fn the_corpus_is_what_an_honest_node_sends() {
    let expected = honest_frames();
    if std::env::var_os("LCI_WRITE_CORPUS").is_some() {
        for (at, frame) in expected.iter().enumerate() {
            let name = format!("{at}-{:?}.bin", Kind::ALL[usize::from(frame[17])]).to_lowercase();
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
            fs::write(PathBuf::from(folder).join(name), frame).unwrap();
        }
    }
    let found: Vec<_> = corpus().into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(found, expected);
}
