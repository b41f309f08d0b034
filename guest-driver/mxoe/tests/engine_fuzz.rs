//! Fuzz target: frames against a live engine, most of them nearly right: their numbers, handles and sessions are those of
//! the moment, then some bytes are changed. No panic, no byte outside a message, memory within its bounds. As a plain test
//! it runs a fixed number of generated inputs; `MXOE_FUZZ_FRAMES` sets how many frames one long-lived engine takes.

use std::collections::HashMap;

use ether::{MacAddr, Time};
use mxoe::{
    engine::{
        Arrival, Body, Config, Engine, Event, HEAD_BUFFER_LEN, Host, LargeId, PeerMap, Peers, SendOptions, Token,
        Verdict,
    },
    wire::{
        Ack, Connect, ConnectKind, Dialect, Eager, Extension, Head, Medium, NackCode, NackLib, NackMcp, Notify, Packet,
        Preset, Pull, PullReply, Rndv, pull_magic,
    },
};

/// Inputs of a plain run for the target, and frames for the long-lived engine.
const INPUTS: usize = 1_500;
const FRAMES_DEFAULT: usize = 1_000_000;
/// Bytes one step takes from the input.
const STEP: usize = 16;
const STEPS_MAX: usize = 128;
/// What the engine may hold, whatever it is sent: its limits are smaller than the defaults here.
const MEMORY_MAX: usize = 24 << 20;
const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SESSION: u32 = 0x0051_e551;

fn peer(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, number])
}

/// Takes all output, as the next byte of the input tells.
#[derive(Default)]
struct Sink {
    mood: u8,
    next_token: Token,
    /// Bytes that may still come, by name.
    open: HashMap<Token, u32>,
    larges: Vec<(LargeId, u32)>,
}

impl Sink {
    fn open(&mut self, length: u32) -> Token {
        self.next_token += 1;
        self.open.insert(self.next_token, length);
        self.next_token
    }
}

impl Host for Sink {
    fn arrive(&mut self, arrival: Arrival<'_>) -> Verdict {
        match (arrival.body, self.mood % 8) {
            (_, 0) => Verdict::Refuse,
            (_, 1) => Verdict::Consumed,
            (Body::Whole(data), _) => {
                assert_eq!(data.len(), arrival.length as usize);
                Verdict::Take(0)
            }
            (Body::Fragments, _) => Verdict::Take(self.open(arrival.length)),
            (Body::Announced { large, .. }, 2 | 3) => {
                self.larges.push((large, arrival.length));
                Verdict::Take(0)
            }
            (Body::Announced { .. }, _) => {
                let length = arrival.length.min(3 << 20);
                let receive = self.open(length);
                Verdict::Pull { receive, length }
            }
        }
    }

    fn deliver(&mut self, receive: Token, offset: u32, data: &[u8]) {
        let length = self.open[&receive];
        assert!(
            u64::from(offset) + data.len() as u64 <= u64::from(length),
            "a byte outside the message"
        );
    }
}

struct Live {
    engine: Engine<PeerMap>,
    sink: Sink,
    dialect: Dialect,
    now: Time,
    sends: u64,
    in_flight: usize,
    /// What the engine asked for last, and announced last.
    pulls: Vec<Pull>,
    rndvs: Vec<Rndv<'static>>,
    taken: u64,
    frames: usize,
}

impl Live {
    fn new(preset: Preset) -> Self {
        let mut peers = PeerMap::new(8, 1);
        for number in 0..3 {
            peers.add(peer(number));
        }
        let mut config = Config::new(OWN, 1, SESSION, preset);
        config.timing.give_up_ns = 2_000_000_000;
        config.limits.partners = 64;
        config.limits.sends = 2_048;
        config.limits.announced = 1_024;
        config.limits.partials = 256;
        let dialect = config.dialect.with_marks(true);
        Self {
            engine: Engine::new(config, peers),
            sink: Sink::default(),
            dialect,
            now: Time::from_nanos(1),
            sends: 0,
            in_flight: 0,
            pulls: Vec::new(),
            rndvs: Vec::new(),
            taken: 0,
            frames: 0,
        }
    }

    /// One step: something the program does, or a frame of a peer, `input` saying which.
    fn step(&mut self, input: &[u8; STEP]) {
        let [what, who, mood, change_at, change_to, more @ ..] = *input;
        let number = u32::from_le_bytes([more[0], more[1], more[2], more[3]]);
        self.sink.mood = mood;
        self.now = self.now.plus_nanos(u64::from(more[4]).pow(2) * 20);
        if what >= 200 {
            self.program(what, number);
        } else {
            let mut frame = self.frame(what, who % 4, number, &more);
            // Two in three frames are changed.
            if change_at % 3 != 0 {
                let at = 12 + usize::from(change_at) % 52;
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= change_to;
                }
                if change_at % 5 == 0 {
                    frame.truncate(usize::from(change_to) * 2);
                }
            }
            self.engine.handle(self.now, &frame, &mut self.sink);
            self.frames += 1;
        }
        self.drain();
    }

    fn program(&mut self, what: u8, number: u32) {
        let partners: Vec<_> = self.engine.partners().collect();
        let now = self.now;
        let Some(to) = partners.get(number as usize % partners.len().max(1)).copied() else {
            return;
        };
        let token = self.sends;
        self.sends += 1;
        match what {
            200..=209 => {
                _ = self
                    .engine
                    .send_inline(now, to, 5, token, &[1; 40][..number as usize % 41])
            }
            210..=224 => {
                let options = SendOptions {
                    synchronous: what.is_multiple_of(2),
                    copyable: what.is_multiple_of(3),
                };
                if self.engine.send(now, to, 5, token, number % 300_000, options).is_ok() {
                    self.in_flight += 1;
                }
            }
            225..=234 => {
                _ = self
                    .engine
                    .connect(now, peer(number as u8 % 4), number as u8 % 8, 0, token)
            }
            235..=237 => self.engine.disconnect(to),
            238..=246 => {
                if let Some((large, length)) = self.sink.larges.pop() {
                    let receive = self.sink.open(length);
                    if what.is_multiple_of(4) {
                        _ = self.engine.decline(large);
                    } else if self.engine.pull(now, large, receive, length).is_ok() {
                        return;
                    }
                    self.sink.open.remove(&receive);
                }
            }
            247 => self.engine.flush_acks(),
            _ => self.engine.resume(now, &mut self.sink),
        }
    }

    fn drain(&mut self) {
        if self.engine.poll_timeout().is_some_and(|due| due <= self.now) {
            self.engine.handle_timeout(self.now);
        }
        let mut buffer = [0; HEAD_BUFFER_LEN];
        // A socket takes a few frames at a time.
        for _ in 0..40 {
            let Some(transmit) = self.engine.poll_transmit(self.now, &mut buffer) else {
                break;
            };
            assert!((60..=self.dialect.sizes().frame_len_max() as usize).contains(&transmit.frame_len()));
            let mut frame = buffer[..transmit.head_len].to_vec();
            frame.resize(transmit.frame_len(), 0);
            match self.dialect.decode(&frame).expect("what an engine sends can be read").1 {
                Packet::Pull(pull) => self.pulls.push(pull),
                Packet::Rndv(rndv) => self.rndvs.push(Rndv { head: &[], ..rndv }),
                _ => {}
            }
        }
        for _ in 32..self.pulls.len() {
            self.pulls.remove(0);
        }
        for _ in 32..self.rndvs.len() {
            self.rndvs.remove(0);
        }
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Received { receive, .. } => {
                    assert!(self.sink.open.remove(&receive).is_some(), "a receive ends once");
                    self.taken += 1;
                }
                Event::PartnerLost { .. } => self.sink.larges.clear(),
                _ => {}
            }
        }
    }

    /// A frame of a peer that would be right now.
    fn frame(&self, what: u8, who: u8, number: u32, more: &[u8]) -> Vec<u8> {
        let src_endpoint = more[5] % 3;
        let mac = peer(who);
        let info = self
            .engine
            .partners()
            .filter_map(|partner| self.engine.partner(partner))
            .find(|info| info.mac == mac && info.endpoint == src_endpoint);
        let (recv_next, send_next, session) = info.map_or((1, 1, 0x100 + u32::from(who)), |info| {
            (info.recv_next.0, info.send_next.0, info.session)
        });
        let near = u16::from(more[6]);
        let seqnum = if more[7] < 200 {
            recv_next
        } else {
            recv_next.wrapping_add(near).wrapping_sub(8)
        };
        let piggyack = if more[8] < 128 {
            send_next
        } else {
            send_next.wrapping_sub(near % 8)
        };
        let sizes = self.dialect.sizes();
        let data = [0x5a; 9_000];
        let piece = &data[..number as usize % 33];
        let dst_endpoint = 1;
        let eager = Eager {
            dst_endpoint,
            src_endpoint,
            seqnum,
            piggyack,
            match_info: number.into(),
            session: SESSION,
            data: piece,
        };
        let packet = match what {
            0..=19 => Packet::Tiny(eager),
            20..=29 => Packet::Small(eager),
            30..=69 => {
                let fragment = sizes.fragment_payload();
                let length = fragment * (1 + u32::from(more[9]) % 4) - 7;
                let frag_seqnum = more[10] % sizes.fragments_of(length) as u8;
                let offset = u32::from(frag_seqnum) * fragment;
                Packet::Medium(Medium {
                    dst_endpoint,
                    src_endpoint,
                    length,
                    seqnum,
                    piggyack,
                    match_info: 5,
                    session: SESSION,
                    frag_seqnum,
                    frag_pipeline: Medium::pipeline_of(sizes),
                    data: &data[..(length - offset).min(fragment) as usize],
                })
            }
            70..=89 => Packet::Rndv(Rndv {
                dst_endpoint,
                src_endpoint,
                seqnum,
                piggyack,
                match_info: number.into(),
                session: SESSION,
                msg_length: number >> (more[9] % 32),
                rdma_id: more[10],
                rdma_seqnum: 23,
                rdma_offset: u16::from(more[9]) << 4,
                head: &[],
            }),
            90..=104 => {
                let rndv = self.rndvs.get(number as usize % self.rndvs.len().max(1));
                let (region, use_counter) = rndv.map_or((0, 23), |rndv| (rndv.rdma_id, rndv.rdma_seqnum));
                Packet::Pull(Pull {
                    dst_endpoint,
                    src_endpoint,
                    session: SESSION,
                    total_length: number,
                    rdma_id: region.into(),
                    rdma_seqnum: use_counter,
                    rdma_offset: 0,
                    handle: number,
                    magic: pull_magic(src_endpoint),
                    first_frame_offset: u32::from(more[9]),
                    block_length: number % sizes.block_len().min(65_535),
                    frame_index: u32::from(more[10]) >> 3,
                })
            }
            105..=139 => {
                let Some(pull) = self.pulls.get(number as usize % self.pulls.len().max(1)) else {
                    return Vec::new();
                };
                let frames = pull.frames(sizes).expect("an engine asks for what can be answered");
                let frame = pull.frame_index + u32::from(more[9]) % frames;
                let skipped = pull.rdma_offset % sizes.reply_payload();
                let offset = (frame * sizes.reply_payload()).saturating_sub(skipped);
                let full = if frame == 0 {
                    sizes.reply_payload() - skipped
                } else {
                    sizes.reply_payload()
                };
                let len = full.min(pull.total_length.saturating_sub(offset));
                Packet::PullReply(PullReply {
                    frame_seqnum: frame as u8,
                    msg_offset: offset,
                    handle: pull.handle,
                    magic: pull.magic,
                    data: &data[..len as usize],
                })
            }
            140..=149 => {
                let rndv = self.rndvs.get(number as usize % self.rndvs.len().max(1));
                let (rdma_id, rdma_seqnum) = rndv.map_or((0, 23), |rndv| (rndv.rdma_id, rndv.rdma_seqnum));
                Packet::Notify(Notify {
                    dst_endpoint,
                    src_endpoint,
                    session: SESSION,
                    total_length: number,
                    rdma_id,
                    rdma_seqnum,
                    seqnum,
                    piggyack,
                })
            }
            150..=164 => Packet::Ack(Ack {
                dst_endpoint,
                src_endpoint,
                session: SESSION,
                ack: piggyack,
                session_id: SESSION,
                acknum: number >> (more[9] % 32),
                send_seq: piggyack,
                resent: 0,
            }),
            165..=184 => Packet::Connect(Connect {
                dst_endpoint,
                src_endpoint,
                seqnum: 0,
                peer_index: u16::from(who),
                src_session: match (what % 2, more[9]) {
                    (0, 0..=199) => session,
                    (0, _) => number,
                    _ => SESSION,
                },
                recv_seqnum_start: if more[10] < 240 { send_next } else { number as u16 },
                connect_seqnum: more[9] % 4,
                kind: if what.is_multiple_of(2) {
                    ConnectKind::Request { key: 0 }
                } else {
                    ConnectKind::Reply {
                        session: number,
                        status: 0,
                    }
                },
                extension: more[6].is_multiple_of(2).then_some(Extension {
                    flags: more[6] & 3,
                    block_frames_log2: sizes.block_frames().ilog2() as u8,
                    preset: 2 + u8::from(sizes.frame_len_max() == 9_000),
                }),
            }),
            185..=192 => Packet::NackLib(NackLib {
                src_endpoint,
                dst_endpoint,
                code: NackCode::BadSession,
                peer_index: 0,
                seqnum: piggyack.wrapping_sub(1),
            }),
            _ => {
                let pull = self.pulls.get(number as usize % self.pulls.len().max(1));
                Packet::NackMcp(NackMcp {
                    src_endpoint,
                    code: NackCode::BadRdmaWindow,
                    handle: pull.map_or(number, |pull| pull.handle),
                    magic: pull_magic(1),
                })
            }
        };
        let head = Head {
            dst: OWN,
            src: mac,
            peer_index: self.engine.peers().index(mac).unwrap_or(number as u16),
            marked: false,
        };
        let mut frame = vec![0; 9_100];
        let len = self.dialect.emit(&head, &packet, &mut frame).unwrap_or(0);
        frame.truncate(len);
        frame
    }
}

#[test]
fn arbitrary_frames_never_break_an_engine() {
    bolero::check!()
        .with_iterations(INPUTS)
        .with_generator(bolero::produce::<Vec<[u8; STEP]>>().with().len(1..=STEPS_MAX))
        .for_each(|steps| {
            let mut live = Live::new(Preset::Native1500);
            for step in steps {
                live.step(step);
            }
        });
}

#[test]
fn a_long_lived_engine_neither_breaks_nor_grows() {
    let frames = std::env::var("MXOE_FUZZ_FRAMES").map_or(FRAMES_DEFAULT, |count| count.parse().expect("a number"));
    for (seed, preset) in Preset::ALL.into_iter().enumerate() {
        let mut live = Live::new(preset);
        let mut state = seed as u64 + 0x1234_5678_9abc_def1;
        let mut peak = 0;
        while live.frames * Preset::ALL.len() < frames {
            let mut input = [0; STEP];
            for half in input.as_chunks_mut::<8>().0 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *half = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            }
            live.step(&input);
            if live.frames.is_multiple_of(1_000) {
                peak = peak.max(live.engine.memory());
                assert!(peak < MEMORY_MAX, "{preset}: {peak} bytes after {} frames", live.frames);
            }
        }
        let reached = live.engine.counters().nonzero().count();
        println!(
            "{preset}: {peak} bytes at most, {} messages over, {reached} counters reached",
            live.taken
        );
        assert!(reached > 50, "the frames get far");
    }
}
