//! Fuzz target: frames against live engines, most of them nearly right: their ports and numbers are those of the moment, then some bytes
//! are changed. No panic, bytes in order, memory within its bounds. As a plain test it runs a fixed number of generated inputs and the
//! corpus; `ESP_FUZZ_FRAMES` sets how many frames one long-lived engine takes.

use esp::{
    Address, Config, ConnectionId, Counter, Engine, Handover, ListenOptions, Options,
    wire::{
        Blocks, Body, Frame, Header, Moved, Path, Piece, Ping, Pong, Question, Ranges, ResetCode, Syn, SynAck, emit,
    },
};
use ether::{EtherType, MacAddr, Time};

const INPUTS: usize = 1_500;
const FRAMES_DEFAULT: usize = 1_000_000;
/// Bytes that one step takes from the input.
const STEP: usize = 16;
const STEPS_MAX: usize = 128;
const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const BYTES_MAX: usize = 1 << 20;

fn peer(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, number % 4])
}

struct Live {
    engine: Engine,
    now: Time,
    ids: Vec<ConnectionId>,
    /// The last frames that the engine has sent: what a peer knows.
    seen: Vec<(MacAddr, Header, u64)>,
    frames: usize,
}

impl Live {
    fn new(check: bool) -> Self {
        let mut config = Config::new(OWN, 1_500);
        config.blocks.check = check;
        config.limits.bytes = BYTES_MAX;
        config.limits.connections = 64;
        config.limits.half_open = 8;
        config.limits.time_wait = 8;
        config.limits.moved = 8;
        config.handshake_ports = check.then_some((100, 120));
        let mut engine = Engine::new(config, 3).unwrap();
        for port in [80, 81] {
            let hold = port == 81;
            engine.listen(port, ListenOptions { backlog: 4, hold }).unwrap();
        }
        Self {
            engine,
            now: Time::from_nanos(1),
            ids: Vec::new(),
            seen: Vec::new(),
            frames: 0,
        }
    }

    /// One step: something the program does, or a frame of a peer, as `input` says.
    fn step(&mut self, input: &[u8; STEP]) {
        let [what, who, change_at, change_to, more @ ..] = *input;
        let number = u32::from_le_bytes([more[0], more[1], more[2], more[3]]);
        self.now = self.now.plus_nanos(u64::from(more[4]).pow(2) * 200);
        if what >= 200 {
            self.program(what, number);
        } else {
            let mut frame = self.frame(what, who, number, &more);
            if change_at % 3 == 0 {
                let at = 12 + usize::from(change_at) % 60;
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= change_to;
                }
                if change_at % 5 == 0 {
                    frame.truncate(usize::from(change_to) * 2);
                }
            }
            match self.ids.first().copied().filter(|_| change_to.is_multiple_of(4)) {
                Some(id) => _ = self.engine.handle_into(&frame, self.now, id, &mut [0; 50]),
                None => _ = self.engine.handle(&frame, self.now),
            }
            self.frames += 1;
        }
        self.drain();
    }

    /// A frame that a peer could send, next to what the engine has sent.
    fn frame(&self, what: u8, who: u8, number: u32, more: &[u8; 12]) -> Vec<u8> {
        let known = self.seen.get(usize::from(who) % self.seen.len().max(1)).copied();
        let (source, theirs, instance) = known.unwrap_or((peer(who), Header::new(80, 1_000 + u16::from(who)), 7));
        let small = u32::from(more[5] % 8);
        let header = Header {
            source_port: theirs.destination_port,
            destination_port: theirs.source_port,
            number: theirs.ack.unwrap_or(number).wrapping_add(small),
            ack: (!more[6].is_multiple_of(8)).then_some(theirs.number.wrapping_add(u32::from(more[7] % 4))),
            window: Some(number % 2_000),
            push: more[8].is_multiple_of(2),
            bulk: more[8].is_multiple_of(5),
        };
        let payload = vec![more[9]; 1 + number as usize % 1_500];
        let body = body(what, number, more, &payload, &theirs, &header, instance);
        let stranger = Header::new(1_000 + u16::from(more[5]), 80 + u16::from(more[6] % 2));
        let header = match what % 16 {
            7 => Header {
                window: header.window,
                number,
                ..stranger
            },
            8 => Header {
                ack: Some(theirs.number.wrapping_add(1)),
                ..header
            },
            12 => Header {
                source_port: 9_000 + small as u16,
                ..header
            },
            14 => Header { window: None, ..header },
            15 => Header {
                source_port: number as u16,
                ..header
            },
            _ => header,
        };
        let path = Path {
            destination: OWN,
            source,
            ether_type: EtherType::ESP,
        };
        let mut frame = vec![0; 1_700];
        let check = self.engine.config().blocks.check && !more[10].is_multiple_of(8);
        let len = emit(&mut frame, &path, &header, &body, check).unwrap_or(60);
        frame.truncate(len);
        frame
    }

    fn program(&mut self, what: u8, number: u32) {
        let now = self.now;
        let engine = &mut self.engine;
        if what < 215 {
            let to = Address {
                mac: peer(number as u8),
                port: 1 + (number >> 8) as u16 % 100,
            };
            if let Ok(id) = engine.connect(2_000 + what as u16, to, Options::default(), now) {
                self.ids.push(id);
            }
            return;
        }
        self.ids.extend(engine.accept(80).into_iter().chain(engine.accept(81)));
        let at = number as usize % self.ids.len().max(1);
        let Some(id) = self.ids.get(at).copied() else {
            return;
        };
        let mut room = [0; 3_000];
        match what {
            215..=224 => _ = engine.send(id, &room[..number as usize % 3_000], what.is_multiple_of(2), now),
            225..=232 => _ = engine.receive(id, &mut room[..number as usize % 3_000], now),
            233 => _ = engine.shutdown_write(id, now),
            234 => {
                _ = engine.close(id, now);
                self.ids.swap_remove(at);
            }
            235 => {
                _ = engine.abort(id);
                self.ids.swap_remove(at);
            }
            236 | 237 => {
                if let Ok(handover) = engine.detach(id, (what == 236).then_some(3_000), now) {
                    let handover = Handover::from_bytes(&handover.to_bytes()).expect("an engine's own handover");
                    self.ids.swap_remove(at);
                    self.ids
                        .extend(engine.attach(handover, 3_000 + number as u16 % 50, Options::default(), now));
                }
            }
            238 => _ = engine.freeze(id, now),
            239..=241 => _ = engine.thaw(id, now),
            242 => _ = engine.set_mtu(600 + number as u16 % 900, now),
            _ => {
                self.now = now.plus_nanos(u64::from(number % 2_000) * 1_000_000);
            }
        }
    }

    fn drain(&mut self) {
        if self.engine.poll_timeout().is_some_and(|due| due <= self.now) {
            self.engine.handle_timeout(self.now);
        }
        let mut frame = [0; 1_514];
        // A port takes a few frames at a time.
        for _ in 0..6 {
            let Some(len) = self.engine.poll_transmit(self.now, &mut frame) else {
                break;
            };
            let parsed = Frame::parse(&frame[..len], EtherType::ESP).expect("an engine sends frames of ESP");
            let instance = match parsed.body(false) {
                Ok(Body::Syn(syn)) => syn.instance,
                Ok(Body::SynAck(syn_ack)) => syn_ack.instance,
                _ => 7,
            };
            self.seen.push((parsed.destination, parsed.header, instance));
        }
        if self.seen.len() > 32 {
            self.seen.drain(..16);
        }
        while self.engine.poll_event().is_some() {}
        assert!(self.engine.buffer_bytes() <= BYTES_MAX);
        assert!(self.engine.connections() <= 64);
    }
}

/// A body for a frame that answers `theirs`.
fn body<'a>(
    what: u8,
    number: u32,
    more: &[u8; 12],
    payload: &'a [u8],
    theirs: &Header,
    header: &Header,
    instance: u64,
) -> Body<'a> {
    let blocks = Blocks {
        selective: more[9].is_multiple_of(2),
        mark: false,
        check: more[9].is_multiple_of(4),
    };
    let piece = Piece {
        offset: u16::from(more[9]) * 5,
        total: 1_475,
        payload: &payload[..payload.len().min(190)],
    };
    let mut ranges = Ranges::NONE;
    for range in 0..u32::from(more[5] % 8) {
        let first = theirs.number.wrapping_sub(range * 3);
        ranges.push(first, first.wrapping_add(1 + range));
    }
    let moved = Moved {
        old_port: header.source_port,
        instance,
    };
    let syn = Syn {
        instance: u64::from(more[5]),
        payload_max: 1 + number as u16 % 2_000,
        blocks,
        names: None,
    };
    let syn_ack = SynAck {
        instance: 9,
        peer_instance: instance,
        listened_port: header.source_port,
        payload_max: 1_000,
        blocks,
    };
    match what % 16 {
        5 | 6 => Body::Ack(ranges),
        7 => Body::Syn(syn),
        8 => Body::SynAck(syn_ack),
        9 => Body::Fin,
        10 => Body::Reset(ResetCode::Unknown),
        11 => Body::Probe,
        12 => Body::Moved(moved),
        13 => Body::Piece(piece),
        14 => edp(number, what),
        _ => Body::Data(payload),
    }
}

fn edp(number: u32, what: u8) -> Body<'static> {
    let cookie = number.into();
    match what % 3 {
        0 => Body::Datagram(b"datagram"),
        1 => Body::Ping(Ping {
            cookie,
            question: Question::Owner([10, 0, 0, what].into()),
        }),
        _ => Body::Pong(Pong {
            cookie,
            mtu: 1_500,
            addresses: [[10, 0, 0, what].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 1].into()]
                .into_iter()
                .collect(),
        }),
    }
}

#[test]
fn frames_that_are_nearly_right_do_no_harm() {
    bolero::check!()
        .with_iterations(INPUTS)
        .with_generator((
            bolero::produce::<bool>(),
            bolero::produce::<Vec<[u8; STEP]>>().with().len(1..=STEPS_MAX),
        ))
        .for_each(|(check, steps)| {
            let mut live = Live::new(*check);
            steps.iter().for_each(|step| live.step(step));
        });
}

#[test]
fn m_hr2_a_million_frames_leave_a_live_engine_sound() {
    let frames = std::env::var("ESP_FUZZ_FRAMES").map_or(FRAMES_DEFAULT, |frames| frames.parse().unwrap());
    for check in [false, true] {
        let mut live = Live::new(check);
        let mut state = 1u64;
        while live.frames < frames / 2 {
            let step = std::array::from_fn(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 40) as u8
            });
            live.step(&step);
        }
        // Each part of the engine was reached, and most reasons to drop a frame.
        for counter in [
            Counter::BytesReceived,
            Counter::OutOfOrder,
            Counter::Duplicates,
            Counter::Established,
            Counter::PeersMoved,
            Counter::HandedOver,
            Counter::Retransmitted,
            Counter::Edp,
            Counter::DropMalformed,
            Counter::DropCheck,
            Counter::DropUnknown,
            Counter::DropBadAck,
            Counter::DropBeyondWindow,
            Counter::DropFrozen,
            Counter::DropMoved,
            Counter::DropPastEnd,
        ] {
            assert!(live.engine.counters().of(counter) > 0, "{}", counter.name());
        }
    }
}

#[test]
fn any_bytes_are_a_frame_or_an_error_and_never_a_panic() {
    bolero::check!()
        .with_iterations(20_000)
        .with_generator(bolero::produce::<Vec<u8>>().with().len(0..200usize))
        .for_each(|bytes| read(bytes));
}

#[test]
fn the_corpus_of_frames_is_read_and_written_again_as_it_was() {
    let mut kinds = Vec::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        read(&bytes);
        let frame = Frame::parse(&bytes, EtherType::ESP).unwrap();
        let path = Path {
            destination: frame.destination,
            source: frame.source,
            ether_type: EtherType::ESP,
        };
        let mut again = vec![0; 1_514];
        let len = emit(&mut again, &path, &frame.header, &frame.body(false).unwrap(), false).unwrap();
        assert_eq!(again[..len], bytes, "{}", file.display());
        kinds.push(frame.kind);
    }
    kinds.dedup();
    assert_eq!(kinds, esp::wire::Kind::ALL, "one of each kind");
}

/// Reads bytes as everything that comes from outside.
fn read(bytes: &[u8]) {
    let mut frame = bytes.to_vec();
    for start in 0..2 {
        if start == 1 && frame.len() > 14 {
            frame[12..14].copy_from_slice(&EtherType::ESP.0.to_be_bytes());
        }
        if let Ok(parsed) = Frame::parse(&frame, EtherType::ESP) {
            _ = (parsed.body(false), parsed.body(true));
        }
    }
    _ = Handover::from_bytes(bytes);
}
